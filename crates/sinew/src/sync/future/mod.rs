//! A value that one side makes and the other waits for.
//!
//! [`word`] has the protocol.

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

/// A value that one side sets, once, and the other waits for: on a stack, in a struct, in an `Arc`,
/// without memory of its own.
///
/// One waiter at a time, and one callback instead of it. With an error code it is 16 bytes.
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

const _: () = assert!(cfg!(sinew_loom) || size_of::<FiberFuture<i32>>() == 16);

// SAFETY: a value crosses from who sets it, and is shared by reference after that.
unsafe impl<T: Send + Sync> Sync for FiberFuture<T> {}
// SAFETY: the value goes along.
unsafe impl<T: Send> Send for FiberFuture<T> {}
impl<T: UnwindSafe> UnwindSafe for FiberFuture<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for FiberFuture<T> {}

impl<T> FiberFuture<T> {
    /// One that is not set.
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::sync::FiberFuture::<u32>::new().is_set());
    /// ```
    pub const fn new() -> FiberFuture<T> {
        FiberFuture { word: Word::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Sets the value, and wakes who waits for it or calls the callback.
    ///
    /// # Errors
    /// If it was set before: the value.
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
        // SAFETY: one has the right, and nobody reads before it is set.
        unsafe {
            (*self.value.get()).write(value);
            Word::set(&raw const self.word);
        }
        Ok(())
    }

    /// Whether it is set.
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

    /// The value, if it is set.
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
        // SAFETY: written before it was set, and not changed after.
        self.is_set().then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Waits until it is set.
    ///
    /// # Panics
    /// If somebody else waits for it, or a callback was subscribed.
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
        self.get().expect("it was waited for")
    }

    /// Waits until it is set, at most for `timeout`.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::<u32>::new();
    /// assert_eq!(future.wait_with_timeout(std::time::Duration::from_millis(1)), None);
    /// ```
    #[track_caller]
    pub fn wait_with_timeout(&self, timeout: Duration) -> Option<&T> {
        self.word.wait_for_value(moment(timeout));
        self.get()
    }

    /// Has the setter call `callback`; calls it at once if the value is set.
    ///
    /// Takes memory for the callback; [`subscribe_pinned`](Self::subscribe_pinned) does not.
    ///
    /// # Panics
    /// If the future has a waiter or a callback.
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

    /// Makes it as new, and returns the value if it was set. Nobody can be waiting or setting it.
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
        // SAFETY: set, and taken out once: the mark is gone.
        self.word.reset().then(|| unsafe { self.value.get_mut().assume_init_read() })
    }

    /// Waiting for the value as one of several operations, for [`select`](crate::sync::select).
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

/// Something that is set once and that one waits for: a [`FiberFuture`], or a place in the order of
/// others, such as [`SequencerTurn`](super::SequencerTurn) and
/// [`FairMutexTicket`](super::FairMutexTicket).
pub trait Waitable: sealed_waitable::Waitable {}

pub(super) mod sealed_waitable {
    /// What can be waited for has a word.
    pub trait Waitable {
        /// The word.
        fn word(&self) -> &super::Word;
    }
}

impl<T> Waitable for FiberFuture<T> {}

impl<T> sealed_waitable::Waitable for FiberFuture<T> {
    fn word(&self) -> &Word {
        &self.word
    }
}

/// Waits until one of several is set, and returns the index of one that is; `None` if there are
/// none. The same may be there twice.
///
/// # Panics
/// If somebody else waits for one of them, or a callback was subscribed to it.
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
/// // Of different kinds:
/// let words = FiberFuture::<String>::new();
/// let both: [&dyn Waitable; 2] = [&words, &futures[1]];
/// assert_eq!(wait_for_multiple(&both), Some(1));
/// assert_eq!(wait_for_multiple::<dyn Waitable>(&[]), None);
/// ```
#[track_caller]
pub fn wait_for_multiple<W: Waitable + ?Sized>(futures: &[&W]) -> Option<usize> {
    word::wait_for_one(futures.len(), |index| futures[index].word())
}

/// Waits until something is set, at most for `timeout`; false if that was over before.
///
/// # Panics
/// If somebody else waits for it, or a callback was subscribed to it.
///
/// # Examples
/// ```
/// use sinew::sync::{FiberFuture, wait_with_timeout};
/// use std::time::Duration;
///
/// let future = FiberFuture::<u32>::new();
/// assert!(!wait_with_timeout(&future, Duration::from_millis(1)));
/// ```
#[track_caller]
pub fn wait_with_timeout<W: Waitable + ?Sized>(future: &W, timeout: Duration) -> bool {
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

/// Waiting for a value as one of several operations; see [`FiberFuture::arm`].
#[derive(Debug)]
pub struct FutureArm<'a, T> {
    future: &'a FiberFuture<T>,
    arm: WordArm<'a>,
}

impl<'a, T> FutureArm<'a, T> {
    /// The value, after this arm was selected.
    ///
    /// # Panics
    /// If it is not set.
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::new();
    /// future.set(7).unwrap();
    /// assert_eq!(*future.arm().take(), 7);
    /// ```
    #[track_caller]
    pub fn take(&mut self) -> &'a T {
        self.future.get().expect("the arm was not selected")
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
