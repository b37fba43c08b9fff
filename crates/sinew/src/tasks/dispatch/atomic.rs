//! Gathers one batch of values, one from each token. The tokens may be on any thread.
//!
//! The batch is complete when the dispatcher has committed it, or was dropped, and every token was
//! used or dropped. The call that completes the batch takes the batch out under the lock, and
//! settles it after the unlock. Exactly one call does so, because later calls do not find the
//! batch.

use super::error::DispatchError;
use super::future::{BatchFuture, Promise};
use super::{fail, run};
use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Gathers one value from each of several fibers or threads, and processes all of them with one
/// call.
///
/// Each contributor has a [token](Self::token). When the dispatcher was [committed](Self::commit)
/// and every token was [used](BatchToken::dispatch), the last of these calls runs the dispatch
/// function with all values, in the order in which the tokens were made. Each future gets the
/// result of its value.
///
/// A token may go to another thread if values and results are `Send`. The function has to be `Send`
/// too, because it runs on the thread that makes the last call. [`new_local`](Self::new_local)
/// takes a function that stays on its thread.
///
/// # Errors
/// Every future of a batch ends with a copy of one [`DispatchError`], at the moment at which the
/// function would have been called, if
/// - tokens were dropped unused, for example by a fiber that panicked before it had a value,
/// - the dispatcher was dropped without a `commit`,
/// - the function panics, or returns more or fewer results than it got values.
///
/// Other misuse does not compile: `dispatch` consumes the token, and `commit` consumes the
/// dispatcher.
/// ```compile_fail,E0382
/// let dispatcher = sinew::tasks::AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
/// let token = dispatcher.token();
/// let first = token.dispatch(1);
/// let second = token.dispatch(2);
/// ```
/// ```compile_fail,E0382
/// let dispatcher = sinew::tasks::AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
/// dispatcher.commit();
/// let late = dispatcher.token();
/// ```
/// ```compile_fail,E0382
/// let dispatcher = sinew::tasks::AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
/// dispatcher.commit();
/// dispatcher.commit();
/// ```
///
/// # Examples
/// ```
/// use sinew::tasks::AtomicBatchDispatcher;
///
/// let dispatcher = AtomicBatchDispatcher::new(|amounts: Vec<u32>| {
///     // One transaction for all amounts.
///     let total: u32 = amounts.iter().sum();
///     amounts.into_iter().map(|amount| f64::from(amount) / f64::from(total)).collect()
/// });
/// let fibers: Vec<_> = dispatcher
///     .reserve(2)
///     .into_iter()
///     .zip([1, 3])
///     .map(|(token, amount)| sinew::spawn(move || token.dispatch(amount).get()))
///     .collect();
/// dispatcher.commit();
/// let shares: Vec<f64> = fibers.into_iter().map(|fiber| fiber.join().unwrap().unwrap()).collect();
/// assert_eq!(shares, [0.25, 0.75]);
/// ```
#[must_use = "without a commit, every future of the batch ends with an error"]
pub struct AtomicBatchDispatcher<V, R, F = dyn FnOnce(Vec<V>) -> Vec<R> + Send>(
    Arc<Shared<V, R, F>>,
)
where
    F: FnOnce(Vec<V>) -> Vec<R> + ?Sized;

/// The batch; `None` once the call that completed it has taken it out.
type Shared<V, R, F> = Mutex<Option<Batch<V, R, F>>>;

struct Batch<V, R, F: ?Sized> {
    dispatch: Box<F>,
    /// The value and the promise of each token, in the order in which the tokens were made; `None`
    /// for a token that was not used.
    entries: Vec<Option<(V, Promise<R>)>>,
    /// How many tokens were neither used nor dropped yet.
    out: usize,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Tokens may be made.
    Open,
    Committed,
    /// The dispatcher was dropped without a commit.
    Abandoned,
}

impl<V, R> AtomicBatchDispatcher<V, R> {
    /// Makes a dispatcher that gives its batch to `dispatch`.
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::AtomicBatchDispatcher;
    ///
    /// let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
    /// let future = dispatcher.token().dispatch(7);
    /// dispatcher.commit();
    /// assert_eq!(future.get(), Ok(7));
    /// ```
    pub fn new(
        dispatch: impl FnOnce(Vec<V>) -> Vec<R> + Send + 'static,
    ) -> AtomicBatchDispatcher<V, R> {
        AtomicBatchDispatcher::of(Box::new(dispatch))
    }
}

impl<V, R> AtomicBatchDispatcher<V, R, dyn FnOnce(Vec<V>) -> Vec<R>> {
    /// Makes a dispatcher with a function that need not be `Send`: all tokens stay on this thread.
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::{AtomicBatchDispatcher, collect_all};
    /// use std::cell::RefCell;
    /// use std::rc::Rc;
    ///
    /// sinew::run(|| {
    ///     let stored = Rc::new(RefCell::new(Vec::new()));
    ///     let store = stored.clone();
    ///     let dispatcher = AtomicBatchDispatcher::new_local(move |batch: Vec<u32>| {
    ///         store.borrow_mut().extend_from_slice(&batch);
    ///         batch
    ///     });
    ///     let tokens = dispatcher.reserve(2);
    ///     dispatcher.commit();
    ///     collect_all(tokens.into_iter().map(|token| move || token.dispatch(7).get().unwrap()));
    ///     assert_eq!(*stored.borrow(), [7, 7]);
    /// });
    /// ```
    /// ```compile_fail,E0277
    /// let dispatcher = sinew::tasks::AtomicBatchDispatcher::new_local(|batch: Vec<u32>| batch);
    /// let token = dispatcher.token();
    /// std::thread::spawn(move || token.dispatch(1));
    /// ```
    pub fn new_local(
        dispatch: impl FnOnce(Vec<V>) -> Vec<R> + 'static,
    ) -> AtomicBatchDispatcher<V, R, dyn FnOnce(Vec<V>) -> Vec<R>> {
        AtomicBatchDispatcher::of(Box::new(dispatch))
    }
}

impl<V, R, F: FnOnce(Vec<V>) -> Vec<R> + ?Sized> AtomicBatchDispatcher<V, R, F> {
    fn of(dispatch: Box<F>) -> AtomicBatchDispatcher<V, R, F> {
        let batch = Batch { dispatch, entries: Vec::new(), out: 0, phase: Phase::Open };
        AtomicBatchDispatcher(Arc::new(Mutex::new(Some(batch))))
    }

    /// Returns a token: the right to add a value to the batch, at the next place.
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::AtomicBatchDispatcher;
    ///
    /// let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
    /// let (first, second) = (dispatcher.token(), dispatcher.token());
    /// assert_eq!((first.sequence_number(), second.sequence_number()), (0, 1));
    /// # drop((first, second));
    /// ```
    pub fn token(&self) -> BatchToken<V, R, F> {
        let mut shared = lock(&self.0);
        let batch = shared.as_mut().expect("the batch is open while its dispatcher exists");
        batch.entries.push(None);
        batch.out += 1;
        BatchToken { batch: Some(self.0.clone()), sequence: batch.entries.len() - 1 }
    }

    /// Returns `count` tokens, for the next places.
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::AtomicBatchDispatcher;
    ///
    /// let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<usize>| batch);
    /// let tokens = dispatcher.reserve(3);
    /// dispatcher.commit();
    /// let futures: Vec<_> = tokens.into_iter().zip([7, 8, 9]).map(|(t, n)| t.dispatch(n)).collect();
    /// let results: Vec<_> = futures.into_iter().map(|future| future.get().unwrap()).collect();
    /// assert_eq!(results, [7, 8, 9]);
    /// ```
    pub fn reserve(&self, count: usize) -> Vec<BatchToken<V, R, F>> {
        (0..count).map(|_| self.token()).collect()
    }

    /// Declares that no more tokens will be made: the batch is dispatched when all tokens have been
    /// used.
    ///
    /// If all tokens have been used already, this call runs the dispatch function, which may wait.
    /// If no token was made, the function gets no values. A panic of the function then goes on in
    /// the caller, because there is no future that could report it.
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::AtomicBatchDispatcher;
    ///
    /// let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
    /// let token = dispatcher.token();
    /// dispatcher.commit();
    /// assert_eq!(token.dispatch(7).get(), Ok(7));
    /// ```
    pub fn commit(self) {
        update(&self.0, |batch| batch.phase = Phase::Committed);
    }
}

impl<V, R, F: FnOnce(Vec<V>) -> Vec<R> + ?Sized> Drop for AtomicBatchDispatcher<V, R, F> {
    fn drop(&mut self) {
        update(&self.0, |batch| {
            if batch.phase == Phase::Open {
                batch.phase = Phase::Abandoned;
            }
        });
    }
}

impl<V, R, F: FnOnce(Vec<V>) -> Vec<R> + ?Sized> fmt::Debug for AtomicBatchDispatcher<V, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = lock(&self.0).as_ref().map(|batch| (batch.entries.len(), batch.out));
        let (tokens, out) = counts.unwrap_or_default();
        f.debug_struct("AtomicBatchDispatcher").field("tokens", &tokens).field("out", &out).finish()
    }
}

/// The right to add one value to a batch; see [`AtomicBatchDispatcher::token`].
///
/// A token that is dropped unused fails the batch, so that the other contributors do not wait for
/// its value.
///
/// # Examples
/// ```
/// use sinew::tasks::{AtomicBatchDispatcher, BatchToken, DispatchError};
///
/// let dispatcher = AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
/// let used: BatchToken<u32, u32> = dispatcher.token();
/// let unused = dispatcher.token();
/// dispatcher.commit();
/// let future = used.dispatch(7);
/// drop(unused); // fails the batch
/// assert_eq!(future.get(), Err(DispatchError::TokensDropped([1].into())));
/// ```
#[must_use = "a token that is dropped unused fails its batch"]
pub struct BatchToken<V, R, F = dyn FnOnce(Vec<V>) -> Vec<R> + Send>
where
    F: FnOnce(Vec<V>) -> Vec<R> + ?Sized,
{
    /// The batch; `None` once the token was used.
    batch: Option<Arc<Shared<V, R, F>>>,
    sequence: usize,
}

impl<V, R, F: FnOnce(Vec<V>) -> Vec<R> + ?Sized> BatchToken<V, R, F> {
    /// Adds the value to the batch, and returns the future of its result. Consumes the token.
    ///
    /// The last call of a committed batch runs the dispatch function, which may wait; the other
    /// calls do not wait. If the caller is cancelled in the function, it is unwound, and the
    /// futures of the batch end with [`DispatchError::Cancelled`].
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::AtomicBatchDispatcher;
    ///
    /// let dispatcher = AtomicBatchDispatcher::new(|mut batch: Vec<u32>| {
    ///     batch.reverse();
    ///     batch
    /// });
    /// let (first, second) = (dispatcher.token(), dispatcher.token());
    /// dispatcher.commit();
    /// let second = second.dispatch(2); // values are in the order of the tokens
    /// let first = first.dispatch(1);
    /// assert_eq!((first.get(), second.get()), (Ok(2), Ok(1)));
    /// ```
    pub fn dispatch(mut self, value: V) -> BatchFuture<R> {
        let (promise, future) = Promise::new();
        if let Some(batch) = self.batch.take() {
            update(&batch, |batch| {
                batch.entries[self.sequence] = Some((value, promise));
                batch.out -= 1;
            });
        }
        future
    }

    /// Returns the place of the token in the batch, from zero.
    ///
    /// # Examples
    /// ```
    /// let dispatcher = sinew::tasks::AtomicBatchDispatcher::new(|batch: Vec<u32>| batch);
    /// assert_eq!(dispatcher.token().sequence_number(), 0);
    /// ```
    pub fn sequence_number(&self) -> usize {
        self.sequence
    }
}

impl<V, R, F: FnOnce(Vec<V>) -> Vec<R> + ?Sized> Drop for BatchToken<V, R, F> {
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            update(&batch, |batch| batch.out -= 1);
        }
    }
}

impl<V, R, F: FnOnce(Vec<V>) -> Vec<R> + ?Sized> fmt::Debug for BatchToken<V, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchToken").field("sequence_number", &self.sequence).finish()
    }
}

impl<V, R, F: FnOnce(Vec<V>) -> Vec<R> + ?Sized> Batch<V, R, F> {
    fn is_complete(&self) -> bool {
        self.phase != Phase::Open && self.out == 0
    }

    /// Calls the dispatch function if no value is missing, and settles every future.
    fn settle(self) {
        let tokens = 0..self.entries.len();
        let dropped: Arc<[usize]> = tokens.filter(|&n| self.entries[n].is_none()).collect();
        let (values, promises): (Vec<V>, Vec<Promise<R>>) =
            self.entries.into_iter().flatten().unzip();
        if self.phase == Phase::Abandoned {
            fail(promises, &DispatchError::NotCommitted);
        } else if dropped.is_empty() {
            run(values, promises, self.dispatch);
        } else {
            fail(promises, &DispatchError::TokensDropped(dropped));
        }
    }
}

fn lock<V, R, F: ?Sized>(shared: &Shared<V, R, F>) -> MutexGuard<'_, Option<Batch<V, R, F>>> {
    // The user's code never runs under the lock, so a poisoned lock protects consistent data.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the batch, if it is still there, and settles it if the change completes it.
fn update<V, R, F>(shared: &Shared<V, R, F>, change: impl FnOnce(&mut Batch<V, R, F>))
where
    F: FnOnce(Vec<V>) -> Vec<R> + ?Sized,
{
    let complete = {
        let mut shared = lock(shared);
        if let Some(batch) = shared.as_mut() {
            change(batch);
        }
        shared.take_if(|batch| batch.is_complete())
    };
    if let Some(batch) = complete {
        batch.settle();
    }
}
