//! A callback that its owner has pinned, so that subscribing allocates nothing.
//!
//! # Protocol
//!
//! The word of the future points to the [`Head`] of the subscription. The setter exchanges the
//! word, moves the callback to its own stack, and marks the callback as taken. The mark is the
//! setter's last access to the subscription. Then the setter calls the callback.
//!
//! An owner that drops the subscription takes it out of the word by a compare-exchange. If that
//! fails, the setter has taken the callback or is about to take it, and the owner waits for the
//! mark. The setter sets the mark a few instructions later.
//!
//! A pinned value that is never dropped stays in its place for ever, so a setter may use a
//! forgotten subscription at any later time. Its callback borrows nothing, so it may be called at
//! any later time too.

use super::FiberFuture;
use super::word::{Attached, Word, pause, second_waiter};
use crate::primitive::{AtomicBool, Ordering};
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;

/// A callback for [`FiberFuture::subscribe_pinned`], and its place in memory.
///
/// Dropping the subscription also drops the callback if the value is not set. Otherwise the setter
/// has called the callback, or is about to call it.
///
/// # Examples
/// ```
/// use sinew::sync::{FiberFuture, Subscription, channel};
/// use std::pin::pin;
///
/// let (sender, told) = channel::unbounded();
/// let future = FiberFuture::new();
/// let subscription = pin!(Subscription::new(move || sender.send("is set").unwrap()));
/// future.subscribe_pinned(subscription.into_ref());
/// assert!(told.try_recv().is_err());
/// future.set(7).unwrap(); // calls the callback
/// assert_eq!(told.recv(), Ok("is set"));
/// ```
#[repr(C)]
pub struct Subscription<'f, F> {
    head: Head,
    callback: UnsafeCell<Option<F>>,
    /// The word of the future, after the subscription was entered. Invariant: the future outlives
    /// the subscription.
    word: Cell<Option<&'f Word>>,
    _pinned: PhantomPinned,
}

/// The part of a subscription that the setter finds. The alignment keeps the low three bits of its
/// address free for the marks of the word.
#[repr(C, align(8))]
pub(super) struct Head {
    /// Takes the callback out of the subscription and calls it.
    call: unsafe fn(*const Head),
    /// Whether the setter has taken the callback.
    taken: AtomicBool,
}

impl Head {
    /// Takes the callback out of a subscription and calls it.
    ///
    /// # Safety
    /// No other thread calls this subscription: the caller has taken the head out of the word by
    /// setting the word, or it found the word set and never entered the head. The subscription is
    /// alive, and its callback has not been called.
    pub(super) unsafe fn call(head: *const Head) {
        // SAFETY: the owner keeps the subscription alive until the callback is marked as taken.
        unsafe { ((*head).call)(head) };
    }
}

impl<F: FnOnce() + Send + 'static> Subscription<'_, F> {
    /// Creates a subscription that belongs to no future yet.
    ///
    /// # Examples
    /// ```
    /// let subscription = std::pin::pin!(sinew::sync::Subscription::new(|| println!("set")));
    /// # drop(subscription);
    /// ```
    pub const fn new(callback: F) -> Self {
        Subscription {
            head: Head { call: Self::call, taken: AtomicBool::new(false) },
            callback: UnsafeCell::new(Some(callback)),
            word: Cell::new(None),
            _pinned: PhantomPinned,
        }
    }

    /// Takes the callback out of the subscription of this head, and calls it.
    ///
    /// # Safety
    /// The contract of [`Head::call`] holds, and the head belongs to a subscription of this type.
    unsafe fn call(head: *const Head) {
        // SAFETY: the head is the first field of a `repr(C)` struct. The owner does not touch the
        // callback after subscribing, and keeps the place alive until the mark is set.
        let callback = unsafe {
            let callback = (*(*head.cast::<Self>()).callback.get()).take();
            // ORDERING: Release publishes that the callback was moved out; pairs with the Acquire
            // in `drop`. The owner may free the place after this store.
            (*head).taken.store(true, Ordering::Release);
            callback
        };
        if let Some(callback) = callback {
            callback();
        }
    }
}

impl<T> FiberFuture<T> {
    /// Registers a callback that the caller has pinned: the setter calls it. If the value is
    /// already set, this call calls it at once. Unlike [`subscribe`](Self::subscribe), it allocates
    /// nothing.
    ///
    /// # Panics
    /// Panics if the future has a waiter or a callback, or if the subscription was used before.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Baton, FiberFuture, Subscription};
    /// use std::pin::pin;
    ///
    /// static CALLED: Baton = Baton::new();
    ///
    /// let future = FiberFuture::new();
    /// let subscription = pin!(Subscription::new(|| CALLED.post()));
    /// future.subscribe_pinned(subscription.into_ref());
    /// future.set(7).unwrap();
    /// assert!(CALLED.is_posted());
    /// ```
    ///
    /// The future has to outlive the subscription:
    /// ```compile_fail,E0597
    /// use sinew::sync::{FiberFuture, Subscription};
    /// use std::pin::pin;
    ///
    /// let subscription = pin!(Subscription::new(|| ()));
    /// let future = FiberFuture::<u32>::new();
    /// future.subscribe_pinned(subscription.into_ref());
    /// ```
    ///
    /// The setter may call the callback after the subscription was leaked, so the callback must not
    /// borrow:
    /// ```compile_fail,E0597
    /// use sinew::sync::{FiberFuture, Subscription};
    ///
    /// let future = FiberFuture::<u32>::new();
    /// {
    ///     let count = std::sync::atomic::AtomicU32::new(0);
    ///     let borrows = || _ = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    ///     let subscription = Box::pin(Subscription::new(borrows));
    ///     future.subscribe_pinned(subscription.as_ref());
    ///     std::mem::forget(subscription);
    /// }
    /// future.set(7).unwrap();
    /// ```
    #[track_caller]
    pub fn subscribe_pinned<'f, F>(&'f self, subscription: Pin<&Subscription<'f, F>>)
    where
        F: FnOnce() + Send + 'static,
    {
        let place = subscription.get_ref();
        assert!(place.word.get().is_none(), "the subscription was used before");
        match self.word.attach_head(&raw const place.head) {
            Attached::Waiting => place.word.set(Some(&self.word)),
            Attached::Set => {
                place.word.set(Some(&self.word));
                // SAFETY: the value is set, and the head was not entered into the word, so no
                // setter calls the subscription.
                unsafe { Head::call(&raw const place.head) };
            }
            Attached::Taken(holder) => second_waiter(&self.word, &holder),
        }
    }
}

impl<F> Drop for Subscription<'_, F> {
    fn drop(&mut self) {
        let Some(word) = self.word.get() else { return };
        if word.detach_head(&raw const self.head) {
            return;
        }
        // ORDERING: Acquire pairs with the Release in `call`: the setter has moved the callback
        // out.
        while !self.head.taken.load(Ordering::Acquire) {
            pause();
        }
    }
}

impl<F> fmt::Debug for Subscription<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("subscribed", &self.word.get().is_some())
            .finish_non_exhaustive()
    }
}
