//! A token that cancels many fibers at once.
//!
//! A futex tells its waiters that the token was cancelled. Two lists hold the child tokens and the
//! attached fibers. The canceller cancels them one after the other. `spawn::token` attaches fibers.

use super::futex::Futex;
use super::moment;
use super::select::sealed::{self, Entered, Joint, Left};
use super::select::{Arm, SignalArm};
use crate::cancel;
use crate::clock;
use crate::fiber::FiberRef;
use core::fmt;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A request to many fibers and threads to end. They can check the token or wait for it, and fibers
/// can be attached to it.
///
/// A clone is another handle to the same token. Cancelling a token also cancels its children and
/// the fibers that are [attached](Self::attach) to it. An attached fiber is unwound from its
/// current or next wait, as after [`JoinHandle::cancel`](crate::JoinHandle::cancel). A token stays
/// cancelled.
///
/// # Examples
/// ```
/// use sinew::sync::CancellationToken;
/// use std::time::Duration;
///
/// let token = CancellationToken::new();
/// let request = token.child();
/// // Cancelling the token unwinds this fiber from its wait.
/// let worker = request.spawn(|| sinew::sleep(Duration::MAX));
/// // This fiber checks the token itself.
/// let other = sinew::spawn(move || {
///     while !request.is_cancelled() {
///         sinew::yield_now();
///     }
/// });
/// token.cancel();
/// assert!(sinew::is_cancel(&*worker.join().unwrap_err()));
/// other.join().unwrap();
/// ```
#[derive(Clone)]
pub struct CancellationToken(Arc<Shared>);

struct Shared {
    /// The parent token. A child keeps its parent alive, because the ancestors of the parent reach
    /// the child through the parent.
    parent: Option<Arc<Shared>>,
    /// Posted when the token is cancelled. Cancellers that race may post it more than once.
    cancelled: Futex,
    /// A lock of the standard library: no fiber waits under it, and no user code but an allocator
    /// runs under it.
    dependents: Mutex<Dependents>,
}

/// The child tokens and fibers that a canceller has to cancel.
#[derive(Default)]
struct Dependents {
    /// Whether the token was cancelled. If so, no dependent is added.
    cancelled: bool,
    /// Child tokens. A canceller removes them only after it has cancelled them. So a second
    /// canceller that runs meanwhile finds and cancels them too, and when its `cancel` returns,
    /// they are cancelled.
    children: Vec<Weak<Shared>>,
    /// Attached fibers.
    fibers: Vec<FiberRef>,
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Dependents> {
        self.dependents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Drop the ancestors in a loop: recursion through a long chain would need much stack.
        let mut next = self.parent.take();
        while let Some(parent) = next {
            next = Arc::into_inner(parent).and_then(|mut parent| parent.parent.take());
        }
    }
}

/// Makes room for one more dependent in a list. If the list is full, removes the dependents that
/// are gone and returns them. The caller drops them without the lock.
fn make_room<T>(list: &mut Vec<T>, is_gone: impl Fn(&T) -> bool) -> Vec<T> {
    if list.len() < list.capacity() {
        return Vec::new();
    }
    let (gone, left): (Vec<T>, Vec<T>) = list.drain(..).partition(is_gone);
    *list = left;
    // Double the room, so that the next scan comes only after as many additions as there are
    // dependents.
    list.reserve(list.len().max(4));
    gone
}

impl CancellationToken {
    /// Creates a token that is not cancelled.
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::sync::CancellationToken::new().is_cancelled());
    /// ```
    pub fn new() -> CancellationToken {
        CancellationToken::with_parent(None)
    }

    fn with_parent(parent: Option<Arc<Shared>>) -> CancellationToken {
        CancellationToken(Arc::new(Shared {
            parent,
            cancelled: Futex::new(),
            dependents: Mutex::new(Dependents::default()),
        }))
    }

    /// Creates a token that is cancelled with this one, and can be cancelled alone.
    ///
    /// # Examples
    /// ```
    /// let token = sinew::sync::CancellationToken::new();
    /// let (one, other) = (token.child(), token.child());
    /// one.cancel();
    /// assert!(!token.is_cancelled() && !other.is_cancelled());
    /// token.cancel();
    /// assert!(other.is_cancelled());
    /// ```
    pub fn child(&self) -> CancellationToken {
        let child = CancellationToken::with_parent(Some(self.0.clone()));
        let (cancelled, gone) = {
            let mut dependents = self.0.lock();
            let gone = make_room(&mut dependents.children, |child| child.strong_count() == 0);
            if !dependents.cancelled {
                dependents.children.push(Arc::downgrade(&child.0));
            }
            (dependents.cancelled, gone)
        };
        drop(gone);
        if cancelled {
            child.cancel();
        }
        child
    }

    /// Attaches a fiber: it is cancelled with this token, or at once if the token was cancelled
    /// before.
    pub(crate) fn attach_fiber(&self, fiber: FiberRef) {
        let mut fiber = Some(fiber);
        let gone = {
            let mut dependents = self.0.lock();
            let gone = make_room(&mut dependents.fibers, |fiber| fiber.life.is_finished());
            if !dependents.cancelled {
                dependents.fibers.extend(fiber.take());
            }
            gone
        };
        drop(gone);
        if let Some(fiber) = fiber {
            cancel::request(&fiber);
        }
    }

    /// Cancels the token, its descendants, and all fibers that are attached to one of these tokens.
    ///
    /// # Examples
    /// ```
    /// let token = sinew::sync::CancellationToken::new();
    /// token.cancel();
    /// token.cancel();
    /// assert!(token.is_cancelled());
    /// ```
    pub fn cancel(&self) {
        let mut tokens = vec![self.0.clone()];
        let mut told = 0;
        while let Some(token) = tokens.get(told).cloned() {
            told += 1;
            let fibers = {
                let mut dependents = token.lock();
                dependents.cancelled = true;
                tokens.extend(dependents.children.iter().filter_map(Weak::upgrade));
                dependents.fibers.clone()
            };
            // Post without the lock: waking a waiter may run code that takes the lock.
            if token.cancelled.get() == 0 {
                token.cancelled.post();
            }
            fibers.iter().for_each(|fiber| cancel::request(fiber));
        }
        for token in tokens {
            let told = Dependents { cancelled: true, ..Dependents::default() };
            let told = core::mem::replace(&mut *token.lock(), told);
            drop(told);
        }
    }

    /// Returns whether the token was cancelled.
    ///
    /// # Examples
    /// ```
    /// let token = sinew::sync::CancellationToken::new();
    /// token.clone().cancel();
    /// assert!(token.is_cancelled());
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.get() > 0
    }

    /// Waits until the token is cancelled.
    ///
    /// # Examples
    /// ```
    /// let token = sinew::sync::CancellationToken::new();
    /// let theirs = token.clone();
    /// sinew::spawn(move || theirs.cancel());
    /// token.wait();
    /// ```
    #[track_caller]
    pub fn wait(&self) {
        self.0.cancelled.wait_till(1, clock::NEVER);
    }

    /// Waits at most `timeout` until the token is cancelled; returns whether it is.
    ///
    /// # Examples
    /// ```
    /// let token = sinew::sync::CancellationToken::new();
    /// assert!(!token.wait_timeout(std::time::Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.0.cancelled.wait_till(1, moment(timeout))
    }

    /// Returns an arm that waits until the token is cancelled, for [`select`](crate::sync::select).
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{CancellationToken, channel};
    ///
    /// let (token, messages) = (CancellationToken::new(), channel::unbounded::<u32>());
    /// token.cancel();
    /// sinew::select! {
    ///     recv(messages.1) -> _ => unreachable!(),
    ///     wait(token) -> () => {}
    /// }
    /// ```
    pub fn arm(&self) -> TokenArm<'_> {
        TokenArm { token: self, arm: SignalArm::new(&self.0.cancelled) }
    }

    /// Returns a guard that cancels the token when the guard is dropped.
    ///
    /// # Examples
    /// ```
    /// let token = sinew::sync::CancellationToken::new();
    /// drop(token.drop_guard());
    /// assert!(token.is_cancelled());
    /// ```
    pub fn drop_guard(&self) -> CancelOnDrop {
        CancelOnDrop(Some(self.clone()))
    }
}

impl Default for CancellationToken {
    fn default() -> Self {
        CancellationToken::new()
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancellationToken").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// A guard that cancels a [`CancellationToken`] when it is dropped.
///
/// # Examples
/// ```
/// use sinew::sync::CancellationToken;
///
/// let token = CancellationToken::new();
/// let helper = token.spawn(sinew::park);
/// {
///     let _guard = token.drop_guard();
///     // Work that the helper serves. If it fails, the helper ends too.
/// }
/// assert!(sinew::is_cancel(&*helper.join().unwrap_err()));
/// ```
#[derive(Debug)]
#[must_use = "the token is cancelled at once if this is not kept"]
pub struct CancelOnDrop(Option<CancellationToken>);

impl CancelOnDrop {
    /// Drops the guard without cancelling the token.
    ///
    /// # Examples
    /// ```
    /// let token = sinew::sync::CancellationToken::new();
    /// token.drop_guard().disarm();
    /// assert!(!token.is_cancelled());
    /// ```
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(token) = &self.0 {
            token.cancel();
        }
    }
}

/// The wait for a cancelled token as an arm of [`select!`](crate::select); see
/// [`CancellationToken::arm`].
///
/// # Examples
/// ```
/// use sinew::sync::{CancellationToken, channel};
///
/// let (token, (_sender, messages)) = (CancellationToken::new(), channel::unbounded::<u32>());
/// sinew::scope(|s| {
///     let worker = s.spawn(|| {
///         sinew::select! {
///             recv(messages) -> message => message.ok(),
///             wait(token) -> () => None, // ends in good order
///         }
///     });
///     token.cancel();
///     assert_eq!(worker.join().unwrap(), None);
/// });
/// ```
pub struct TokenArm<'a> {
    token: &'a CancellationToken,
    arm: SignalArm,
}

impl TokenArm<'_> {
    /// Does nothing: a cancelled token has no result.
    ///
    /// # Examples
    /// ```
    /// sinew::sync::CancellationToken::new().arm().take();
    /// ```
    pub fn take(&mut self) {}
}

impl Arm for TokenArm<'_> {}

impl sealed::Arm for TokenArm<'_> {
    fn attempt(&mut self) -> bool {
        self.token.is_cancelled()
    }

    fn seems_ready(&self) -> bool {
        self.token.is_cancelled()
    }

    fn enter(&mut self, wait: Joint<'_>) -> Entered {
        let token = self.token;
        self.arm.enter(wait, &token.0.cancelled, || token.is_cancelled())
    }

    fn leave(&mut self) -> Left {
        self.arm.leave();
        if self.token.is_cancelled() { Left::Ready } else { Left::Nothing }
    }
}

impl fmt::Debug for TokenArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenArm").field(&self.token).finish()
    }
}
