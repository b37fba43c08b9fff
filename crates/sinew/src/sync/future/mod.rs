//! A value that one side sets once and the other side waits for.
//!
//! [`word`] has the protocol. `subscription` has the callbacks that need no allocation. `Baton`,
//! the sequencer and the fair mutex are built on [`word`] too.

mod subscription;
pub(crate) mod word;

pub use subscription::Subscription;

use super::moment;
use super::select::Arm;
use super::select::sealed::{self, Entered, Joint, Left};
use crate::clock;
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::time::Duration;
use std::panic::{RefUnwindSafe, UnwindSafe};
use word::{Attached, Notice, Word, WordArm, second_waiter};

/// A value that one side sets once and the other side waits for. It can live on a stack, in a
/// struct or in an `Arc`, and allocates nothing.
///
/// A future has at most one waiter at a time, or one callback instead of a waiter. A
/// `FiberFuture<i32>` is 16 bytes.
///
/// # Examples
/// ```
/// use sinew::sync::FiberFuture;
///
/// let answer = FiberFuture::new();
/// sinew::scope(|s| {
///     s.spawn(|| answer.set(42).unwrap());
///     assert_eq!(*answer.wait(), 42);
/// });
/// ```
pub struct FiberFuture<T> {
    word: Word,
    value: UnsafeCell<MaybeUninit<T>>,
}

const _: () = assert!(crate::primitive::IS_MODEL || size_of::<FiberFuture<i32>>() == 16);

// SAFETY: `T: Send` lets the value move from the setter's thread to the thread that drops it. In
// between, threads have only shared references to the value, which `T: Sync` allows.
unsafe impl<T: Send + Sync> Sync for FiberFuture<T> {}
// SAFETY: the value moves with the future, so `T: Send` suffices.
unsafe impl<T: Send> Send for FiberFuture<T> {}
impl<T: UnwindSafe> UnwindSafe for FiberFuture<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for FiberFuture<T> {}

impl<T> FiberFuture<T> {
    /// Creates a future that is not set.
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::sync::FiberFuture::<u32>::new().is_set());
    /// ```
    pub const fn new() -> FiberFuture<T> {
        FiberFuture { word: Word::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Sets the value, and wakes the waiter or calls the callback.
    ///
    /// # Errors
    /// Returns the value if the future was set before.
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::new();
    /// assert_eq!(future.set(1), Ok(()));
    /// assert_eq!(future.set(2), Err(2));
    /// assert_eq!(*future.wait(), 1);
    /// ```
    pub fn set(&self, value: T) -> Result<(), T> {
        if !self.word.begin_setting() {
            return Err(value);
        }
        // SAFETY: `begin_setting` gave this caller alone the right to write. No reader looks at the
        // value before the word is set.
        unsafe {
            (*self.value.get()).write(value);
            Word::set(&raw const self.word);
        }
        Ok(())
    }

    /// Returns whether the value is set.
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::new();
    /// future.set(()).unwrap();
    /// assert!(future.is_set());
    /// ```
    #[inline]
    pub fn is_set(&self) -> bool {
        self.word.is_set()
    }

    /// Returns the value if it is set.
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::new();
    /// assert_eq!(future.get(), None);
    /// future.set(7).unwrap();
    /// assert_eq!(future.get(), Some(&7));
    /// ```
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: the value was written before the word was set, and does not change after that.
        self.is_set().then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Waits until the value is set, and returns it.
    ///
    /// # Panics
    /// Panics if another fiber or thread waits for this future, or if it has a callback.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::FiberFuture;
    /// use std::sync::Arc;
    ///
    /// let future = Arc::new(FiberFuture::new());
    /// let theirs = future.clone();
    /// sinew::spawn(move || theirs.set("done").unwrap());
    /// assert_eq!(*future.wait(), "done");
    /// ```
    #[inline]
    #[track_caller]
    pub fn wait(&self) -> &T {
        self.word.wait_for_value(clock::NEVER);
        self.get().expect("a wait without a deadline ends when the value is set")
    }

    /// Waits at most `timeout` for the value. Returns `None` if it was not set in time.
    ///
    /// # Panics
    /// Panics as [`wait`](Self::wait) does.
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::<u32>::new();
    /// assert_eq!(future.wait_timeout(std::time::Duration::from_millis(1)), None);
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<&T> {
        self.word.wait_for_value(moment(timeout));
        self.get()
    }

    /// Registers `callback`: the setter calls it. If the value is already set, this call calls it
    /// at once.
    ///
    /// Allocates memory for the callback. [`subscribe_pinned`](Self::subscribe_pinned) needs no
    /// allocation.
    ///
    /// # Panics
    /// Panics if the future has a waiter or a callback.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Baton, FiberFuture};
    /// use std::sync::Arc;
    ///
    /// let (future, called) = (FiberFuture::new(), Arc::new(Baton::new()));
    /// let theirs = called.clone();
    /// future.subscribe(move || theirs.post());
    /// future.set(7).unwrap();
    /// assert!(called.is_posted());
    /// ```
    #[track_caller]
    pub fn subscribe(&self, callback: impl FnOnce() + Send + 'static) {
        match self.word.subscribe(Notice::Call(Box::new(callback))) {
            Ok(()) | Err((Attached::Waiting, _)) => {}
            Err((Attached::Set, notice)) => notice.give(),
            Err((Attached::Taken(holder), notice)) => {
                drop(notice);
                second_waiter(&self.word, &holder);
            }
        }
    }

    /// Resets the future to its initial state, and returns the value if it was set. Drops a
    /// callback of [`subscribe`](Self::subscribe) that was not called.
    ///
    /// # Examples
    /// ```
    /// let mut future = sinew::sync::FiberFuture::new();
    /// future.set(7).unwrap();
    /// assert_eq!(future.reset(), Some(7));
    /// assert_eq!(future.reset(), None);
    /// future.set(8).unwrap();
    /// ```
    pub fn reset(&mut self) -> Option<T> {
        // SAFETY: the word was set, so the value is there. `reset` has cleared the word, so the
        // value is read out once.
        self.word.reset().then(|| unsafe { self.value.get_mut().assume_init_read() })
    }

    /// Returns an arm that waits for the value, for [`select`](crate::sync::select).
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{FiberFuture, Patience, select};
    ///
    /// let future = FiberFuture::new();
    /// future.set(7).unwrap();
    /// let mut arm = future.arm();
    /// assert_eq!(select(&mut [&mut arm], Patience::Forever), Some(0));
    /// assert_eq!(*arm.take(), 7);
    /// ```
    pub fn arm(&self) -> FutureArm<'_, T> {
        FutureArm { future: self, arm: WordArm::new(&self.word) }
    }
}

/// An object that is set once and has one waiter: a [`FiberFuture`], a
/// [`SequencerTurn`](super::SequencerTurn) or a [`FairMutexTicket`](super::FairMutexTicket).
///
/// # Examples
/// ```
/// use sinew::sync::{Event, FiberFuture, SequencerWait, Waitable, wait_for_multiple};
/// use std::pin::pin;
///
/// let (event, value) = (Event::new(), FiberFuture::<u32>::new());
/// let place = pin!(SequencerWait::new());
/// let turn = event.enter(place);
/// let both: [&dyn Waitable; 2] = [&value, &turn];
/// event.set();
/// assert_eq!(wait_for_multiple(&both), Some(1));
/// ```
pub trait Waitable: sealed_waitable::Waitable {}

pub(super) mod sealed_waitable {
    /// Gives access to the word that a waiter enters.
    pub trait Waitable {
        /// Returns the word.
        fn word(&self) -> &super::Word;
    }
}

impl<T> Waitable for FiberFuture<T> {}

impl<T> sealed_waitable::Waitable for FiberFuture<T> {
    fn word(&self) -> &Word {
        &self.word
    }
}

/// Waits until one of several futures is set, and returns the index of a future that is set.
/// Returns `None` if the slice is empty. The slice may contain the same future twice.
///
/// # Panics
/// Panics if one of the futures has another waiter or a callback.
///
/// # Examples
/// ```
/// use sinew::sync::{FiberFuture, Waitable, wait_for_multiple};
///
/// let futures = [FiberFuture::new(), FiberFuture::new()];
/// sinew::scope(|s| {
///     s.spawn(|| futures[1].set(7).unwrap());
///     assert_eq!(wait_for_multiple(&[&futures[0], &futures[1]]), Some(1));
/// });
/// // The futures may have different types:
/// let words = FiberFuture::<String>::new();
/// let both: [&dyn Waitable; 2] = [&words, &futures[1]];
/// assert_eq!(wait_for_multiple(&both), Some(1));
/// assert_eq!(wait_for_multiple::<dyn Waitable>(&[]), None);
/// ```
#[track_caller]
pub fn wait_for_multiple<W: Waitable + ?Sized>(futures: &[&W]) -> Option<usize> {
    word::wait_for_one(futures.len(), |index| futures[index].word())
}

/// Waits at most `timeout` until `future` is set; returns whether it is.
///
/// # Panics
/// Panics if `future` has another waiter or a callback.
///
/// # Examples
/// ```
/// use sinew::sync::{FiberFuture, wait_timeout};
/// use std::time::Duration;
///
/// let future = FiberFuture::<u32>::new();
/// assert!(!wait_timeout(&future, Duration::from_millis(1)));
/// ```
#[track_caller]
pub fn wait_timeout<W: Waitable + ?Sized>(future: &W, timeout: Duration) -> bool {
    future.word().wait_for_value(moment(timeout));
    future.word().is_set()
}

impl<T> Default for FiberFuture<T> {
    fn default() -> Self {
        FiberFuture::new()
    }
}

impl<T> Drop for FiberFuture<T> {
    fn drop(&mut self) {
        drop(self.reset());
    }
}

impl<T: fmt::Debug> fmt::Debug for FiberFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FiberFuture").field(&self.get()).finish()
    }
}

/// The wait for a value as an arm of [`select!`](crate::select); see [`FiberFuture::arm`].
///
/// # Examples
/// ```
/// use sinew::sync::FiberFuture;
/// use std::time::Duration;
///
/// let answer = FiberFuture::new();
/// sinew::scope(|s| {
///     s.spawn(|| answer.set(7).unwrap());
///     sinew::select! {
///         wait(answer) -> value => assert_eq!(*value, 7),
///         after(Duration::from_secs(60)) => panic!("no answer"),
///     }
/// });
/// ```
#[derive(Debug)]
pub struct FutureArm<'a, T> {
    future: &'a FiberFuture<T>,
    arm: WordArm<'a>,
}

impl<'a, T> FutureArm<'a, T> {
    /// Returns the value, after this arm was selected.
    ///
    /// # Panics
    /// Panics if the value is not set.
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::new();
    /// future.set(7).unwrap();
    /// assert_eq!(*future.arm().take(), 7);
    /// ```
    #[track_caller]
    pub fn take(&mut self) -> &'a T {
        self.future.get().expect("the arm was not selected: its value is not set")
    }
}

impl<T> Arm for FutureArm<'_, T> {}

impl<T> sealed::Arm for FutureArm<'_, T> {
    fn attempt(&mut self) -> bool {
        self.arm.attempt()
    }

    fn seems_ready(&self) -> bool {
        self.arm.attempt()
    }

    fn enter(&mut self, wait: Joint<'_>) -> Entered {
        self.arm.enter(wait)
    }

    fn leave(&mut self) -> Left {
        self.arm.leave()
    }
}
