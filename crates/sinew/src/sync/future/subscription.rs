//! A callback that its owner has pinned, so that subscribing it takes no memory.
//!
//! # Protocol
//!
//! The word of the future points to the [`Head`] of the subscription. The setter exchanges the word, takes the callback
//! out of the subscription, marks it as taken, which is its last access there, and then calls the callback, which is
//! on its own stack by then.
//! An owner that drops the subscription takes it out of the word by a compare-exchange. If that fails, the setter has
//! come to it or is about to; the owner waits for the mark, a few instructions away.
//!
//! A subscription that is forgotten stays in its place for ever, as everything that is pinned and not dropped. Its
//! callback borrows nothing, so it may be called at any later time.

use super::FiberFuture;
use super::word::{Attached, Word, pause, second_waiter};
use crate::primitive::{AtomicBool, Ordering};
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;

/// A callback for [`FiberFuture::subscribe_pinned`], and its place.
///
/// Dropping it takes the callback back, unless the value was set: then the callback was called, or the setter is about
/// to.
#[repr(C)]
pub struct Subscription<'f, F> {
    head: Head,
    callback: UnsafeCell<Option<F>>,
    /// The future, if it was subscribed. Invariant: the future outlives the subscription.
    word: Cell<Option<&'f Word>>,
    _pinned: PhantomPinned,
}

/// The part of a subscription that the setter finds. Aligned, so that the word has room for its marks.
#[repr(C, align(8))]
pub(super) struct Head {
    /// Takes the callback out and calls it.
    call: unsafe fn(*const Head),
    /// Whether the setter has taken the callback.
    taken: AtomicBool,
}

impl Head {
    /// Takes the callback out of a subscription and calls it.
    ///
    /// # Safety
    /// The subscription stood in the word of a future, which the caller has set. It was not called before.
    pub(super) unsafe fn call(head: *const Head) {
        // SAFETY: the subscription is there until its callback was taken.
        unsafe { ((*head).call)(head) };
    }
}

impl<F: FnOnce() + Send + 'static> Subscription<'_, F> {
    /// A callback that was not subscribed.
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

    /// # Safety
    /// As for [`Head::call`]; the head is of such a subscription.
    unsafe fn call(head: *const Head) {
        // SAFETY: the head is the first field. The owner does not touch the callback while it is subscribed, and the
        // place is there until the mark is set.
        let callback = unsafe {
            let callback = (*(*head.cast::<Self>()).callback.get()).take();
            // ORDERING: Release: the callback was taken; pairs with the Acquire in `drop`. The place may be gone
            // after this.
            (*head).taken.store(true, Ordering::Release);
            callback
        };
        if let Some(callback) = callback {
            callback();
        }
    }
}

impl<T> FiberFuture<T> {
    /// As [`subscribe`](Self::subscribe), with a callback that the caller has pinned: nothing is allocated.
    ///
    /// # Panics
    /// If the future has a waiter or a callback, and if the subscription was used before.
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
    /// The future has to live longer than the subscription:
    /// ```compile_fail,E0597
    /// use sinew::sync::{FiberFuture, Subscription};
    /// use std::pin::pin;
    ///
    /// let subscription = pin!(Subscription::new(|| ()));
    /// let future = FiberFuture::<u32>::new();
    /// future.subscribe_pinned(subscription.into_ref());
    /// ```
    ///
    /// The callback may be called after its place was leaked, so it borrows nothing:
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
        assert!(place.word.get().is_none(), "a subscription is used a second time");
        match self.word.attach_head(&raw const place.head) {
            Attached::Waiting => place.word.set(Some(&self.word)),
            Attached::Set => {
                place.word.set(Some(&self.word));
                // SAFETY: the value is set, and the subscription is not in the word: the call is ours.
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
        // ORDERING: Acquire: the setter has taken the callback; pairs with the Release in `call`.
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
