//! Wakes and messages from other threads.
//!
//! # Protocol
//!
//! One word, the head of a list to which anybody pushes and from which the owner takes everything
//! at once. An empty list is 0, or `PARKED` if the owner sleeps or is about to. Whoever pushes over
//! the mark removes it in the same step, so exactly one pusher learns that it must ring the
//! owner's bell, and only if the owner needs it.
//!
//! The owner marks the list by a compare-exchange from 0. If it fails, there is something to do.
//! If it succeeds, every later push finds the mark: no push goes unnoticed.

use super::Linked;
use crate::primitive::{AtomicUsize, Ordering};
use core::marker::PhantomData;
use core::ptr;

const PARKED: usize = 0b01;
/// Tells a message from a fiber that is ready. What is pointed to is aligned to more.
const MESSAGE: usize = 0b10;
const TAGS: usize = PARKED | MESSAGE;

/// What somebody put into an inbox.
#[derive(Debug)]
pub(crate) enum Entry<T> {
    /// It is ready to run.
    Ready(*const T),
    /// Somebody wants something of it; it may be anywhere.
    Message(*const T),
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Entry<T> {}

impl<T> Entry<T> {
    fn encode(self) -> usize {
        match self {
            Entry::Ready(item) => item.expose_provenance(),
            Entry::Message(item) => item.expose_provenance() | MESSAGE,
        }
    }

    fn decode(word: usize) -> Option<Entry<T>> {
        let item = ptr::with_exposed_provenance(word & !TAGS);
        match word & TAGS {
            _ if word <= PARKED => None,
            MESSAGE => Some(Entry::Message(item)),
            _ => Some(Entry::Ready(item)),
        }
    }
}

impl<T: Linked> Entry<T> {
    /// # Safety
    /// What is pointed to is alive.
    unsafe fn link<'a>(self) -> &'a crate::primitive::AtomicPtr<T>
    where
        T: 'a,
    {
        // SAFETY: as the caller promised.
        unsafe {
            match self {
                Entry::Ready(item) => (*item).link(),
                Entry::Message(item) => (*item).message_link(),
            }
        }
    }
}

/// The list; see the page of this module.
pub(crate) struct Inbox<T> {
    head: AtomicUsize,
    kind: PhantomData<*const T>,
}

// SAFETY: pointers are all that is moved; who may use what they lead to is up to the users.
unsafe impl<T> Sync for Inbox<T> {}
// SAFETY: the same.
unsafe impl<T> Send for Inbox<T> {}

impl<T: Linked> Inbox<T> {
    pub(crate) fn new() -> Self {
        Inbox { head: AtomicUsize::new(0), kind: PhantomData }
    }

    /// Adds `entry`; true if the owner was parked and the caller must wake it.
    ///
    /// # Safety
    /// What `entry` points to is alive until it is taken out, and the link that it uses is free.
    #[inline]
    #[must_use]
    pub(crate) unsafe fn push(&self, entry: Entry<T>) -> bool {
        let word = entry.encode();
        // SAFETY: alive, as the caller promised.
        let link = unsafe { entry.link() };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // The mark is no part of the list.
            let rest = if head == PARKED { 0 } else { head };
            link.store(ptr::with_exposed_provenance_mut(rest), Ordering::Relaxed);
            // ORDERING: Release publishes the entry and its link; pairs with the Acquire in `take`.
            match self.head.compare_exchange_weak(head, word, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return head == PARKED,
                Err(now) => head = now,
            }
        }
    }

    /// Whether there is nothing to take, as far as a look tells.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) <= PARKED
    }

    /// Takes everything, oldest first. Removes the mark. Only the owner calls this.
    pub(crate) fn take(&self, mut each: impl FnMut(Entry<T>)) {
        // ORDERING: Acquire: what the pushers wrote before; pairs with the Release in `push`.
        let mut newest = self.head.swap(0, Ordering::Acquire);
        // Turn the list round, then walk it.
        let mut oldest = 0;
        while let Some(entry) = Entry::<T>::decode(newest) {
            // SAFETY: what is in the list is alive, and ours now.
            let link = unsafe { entry.link() };
            let rest = link.load(Ordering::Relaxed).addr();
            link.store(ptr::with_exposed_provenance_mut(oldest), Ordering::Relaxed);
            oldest = newest;
            newest = rest;
        }
        while let Some(entry) = Entry::<T>::decode(oldest) {
            // SAFETY: the same. Read before `each` uses the link for something else.
            oldest = unsafe { entry.link() }.load(Ordering::Relaxed).addr();
            each(entry);
        }
    }

    /// Marks the empty list: the owner is about to sleep. False if there is something to do.
    pub(crate) fn park(&self) -> bool {
        // ORDERING: SeqCst, for the idle protocol: what its final look reads is read after this.
        self.head.compare_exchange(0, PARKED, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Removes the mark. True for one caller, who must wake the owner unless it is the owner.
    pub(crate) fn unpark(&self) -> bool {
        self.head.compare_exchange(PARKED, 0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Whether the owner sleeps or is about to.
    #[inline(always)]
    pub(crate) fn is_parked(&self) -> bool {
        self.head.load(Ordering::SeqCst) == PARKED
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
#[cfg(all(test, not(sinew_loom)))]
mod tests;
