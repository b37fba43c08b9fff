//! Wakes and messages from other threads.
//!
//! # Protocol
//!
//! The inbox is one word, the head of a list. Any thread pushes to the list, and the owner takes
//! everything at once. An empty list is 0, or `PARKED` if the owner sleeps or is about to. A pusher
//! that finds the mark removes it in the same step. So exactly one pusher learns that it must ring
//! the owner's bell, and only if the owner needs it.
//!
//! The owner marks the list by a compare-exchange from 0. If that fails, there is something to do.
//! If it succeeds, every later push finds the mark: no push goes unnoticed.
//!
//! A list that no owner marks may be taken by any thread: the injector of a crew and the offers of a
//! carrier are such lists. Each taker gets the whole list of a moment.
//!
//! Next: `carrier::tend`, which takes the entries, and `carrier/README.md`, the idle protocol.

use super::Linked;
use crate::primitive::{AtomicUsize, Ordering};
use core::marker::PhantomData;
use core::ptr;

/// The mark: the list is empty, and its owner sleeps or is about to.
const PARKED: usize = 0b01;
/// The tag of a message. A ready fiber has no tag. Items are aligned to more than the tags.
const MESSAGE: usize = 0b10;
const TAGS: usize = PARKED | MESSAGE;

/// An entry of an inbox: a ready item or a message, which any thread may have put there.
#[derive(Debug)]
pub(crate) enum Delivery<T> {
    /// The item is ready to run.
    Ready(*const T),
    /// There is a message for the item, which may be in any queue or none.
    Message(*const T),
}

impl<T> Clone for Delivery<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Delivery<T> {}

impl<T> Delivery<T> {
    fn encode(self) -> usize {
        match self {
            Delivery::Ready(item) => item.expose_provenance(),
            Delivery::Message(item) => item.expose_provenance() | MESSAGE,
        }
    }

    fn decode(word: usize) -> Option<Delivery<T>> {
        let item = ptr::with_exposed_provenance(word & !TAGS);
        match word & TAGS {
            _ if word <= PARKED => None,
            MESSAGE => Some(Delivery::Message(item)),
            _ => Some(Delivery::Ready(item)),
        }
    }
}

impl<T: Linked> Delivery<T> {
    /// Returns the link that this delivery uses.
    ///
    /// # Safety
    /// The item is alive.
    unsafe fn link<'a>(self) -> &'a crate::primitive::AtomicPtr<T>
    where
        T: 'a,
    {
        // SAFETY: the item is alive, as the caller ensures.
        unsafe {
            match self {
                Delivery::Ready(item) => (*item).link(),
                Delivery::Message(item) => (*item).message_link(),
            }
        }
    }
}

/// The list; see the page of this module.
pub(crate) struct Inbox<T> {
    head: AtomicUsize,
    kind: PhantomData<*const T>,
}

// SAFETY: the inbox only moves pointers; its users decide which thread may use an item.
unsafe impl<T> Sync for Inbox<T> {}
// SAFETY: the inbox is one word, and its users decide which thread may use an item.
unsafe impl<T> Send for Inbox<T> {}

impl<T: Linked> Inbox<T> {
    pub(crate) fn new() -> Self {
        Inbox { head: AtomicUsize::new(0), kind: PhantomData }
    }

    /// Adds `delivery`. Returns true if the owner was parked and the caller must wake it.
    ///
    /// # Safety
    /// The item of `delivery` is alive until it is taken out, and the link that it uses is free.
    #[inline]
    #[must_use]
    pub(crate) unsafe fn push(&self, delivery: Delivery<T>) -> bool {
        let word = delivery.encode();
        // SAFETY: the item is alive, as the caller ensures.
        let link = unsafe { delivery.link() };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // The mark is not a part of the list.
            let rest = if head == PARKED { 0 } else { head };
            link.store(ptr::with_exposed_provenance_mut(rest), Ordering::Relaxed);
            // ORDERING: Release publishes the delivery and its link; pairs with the Acquire in
            // `take`.
            match self.head.compare_exchange_weak(head, word, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return head == PARKED,
                Err(now) => head = now,
            }
        }
    }

    /// Returns whether the list was empty when this thread looked.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) <= PARKED
    }

    /// Takes everything, the oldest first, and removes the mark. If the list has an owner that marks
    /// it, only the owner calls this.
    pub(crate) fn take(&self, mut each: impl FnMut(Delivery<T>)) {
        // ORDERING: Acquire shows the pushers' earlier writes; pairs with the Release in `push`.
        let mut newest = self.head.swap(0, Ordering::Acquire);
        // Reverse the list, then walk it.
        let mut oldest = 0;
        while let Some(delivery) = Delivery::<T>::decode(newest) {
            // SAFETY: items in the list are alive, and belong to this thread since the swap.
            let link = unsafe { delivery.link() };
            let rest = link.load(Ordering::Relaxed).addr();
            link.store(ptr::with_exposed_provenance_mut(oldest), Ordering::Relaxed);
            oldest = newest;
            newest = rest;
        }
        while let Some(delivery) = Delivery::<T>::decode(oldest) {
            // SAFETY: items in the list are alive. The link is read before `each` can use it for
            // something else.
            oldest = unsafe { delivery.link() }.load(Ordering::Relaxed).addr();
            each(delivery);
        }
    }

    /// Marks the empty list, because the owner is about to sleep. Returns false if there is
    /// something to do.
    pub(crate) fn park(&self) -> bool {
        // ORDERING: SeqCst, for the idle protocol: the owner's final look comes after this mark;
        // pairs with the SeqCst accesses in `is_parked` and `unpark`, by which a publisher finds a
        // sleeper.
        self.head.compare_exchange(0, PARKED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Removes the mark. Returns true to the one caller that has removed it. That caller must wake
    /// the owner, unless it is the owner itself.
    pub(crate) fn unpark(&self) -> bool {
        // ORDERING: SeqCst; pairs with the mark in `park`.
        self.head.compare_exchange(PARKED, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Returns whether the owner sleeps or is about to.
    #[inline(always)]
    pub(crate) fn is_parked(&self) -> bool {
        // ORDERING: SeqCst; pairs with the mark in `park`.
        self.head.load(Ordering::SeqCst) == PARKED
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
