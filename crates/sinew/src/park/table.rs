//! Who waits for what, by address: for waits so rare that the object has no room for them.
//!
//! A waiter's entry lies on its own stack and is linked into the list of one of a few buckets, each
//! under its lock. An entry is unlinked under the lock by whoever ends the wait, or by the waiter
//! itself when it leaves for another reason; nobody touches it after that. No wait allocates.

use super::{Wait, Waiter};
use crate::fiber::state::Outcome;
use crate::primitive::SpinLock;
use core::cell::Cell;
use core::marker::PhantomPinned;
use core::pin::pin;
use core::ptr;

const BUCKETS: usize = 64;
/// Waiters that are woken in one go, outside of the lock.
const BATCH: usize = 16;

/// One that waits for what the key and the generation stand for.
struct Entry {
    key: usize,
    /// What tells apart the objects that live at the address one after the other.
    generation: u64,
    waiter: Waiter,
    linked: Cell<bool>,
    next: Cell<*const Entry>,
    previous: Cell<*const Entry>,
    _pinned: PhantomPinned,
}

struct Bucket {
    first: *const Entry,
    last: *const Entry,
}

// SAFETY: entries are touched under the lock of their bucket, and live while they are linked.
unsafe impl Send for Bucket {}

static TABLE: [SpinLock<Bucket>; BUCKETS] =
    [const { SpinLock::new(Bucket { first: ptr::null(), last: ptr::null() }) }; BUCKETS];

fn bucket(key: usize) -> &'static SpinLock<Bucket> {
    let spread = (key as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &TABLE[(spread >> 58) as usize % BUCKETS]
}

/// Waits for `key` until somebody releases it. `still` is asked under the lock of the table: if it
/// says no, what is waited for has happened.
pub(crate) fn wait(
    wait: Wait,
    key: usize,
    generation: u64,
    deadline: u64,
    still: impl FnOnce() -> bool,
) -> Outcome {
    let entry = pin!(Entry {
        key,
        generation,
        waiter: wait.waiter(),
        linked: Cell::new(false),
        next: Cell::new(ptr::null()),
        previous: Cell::new(ptr::null()),
        _pinned: PhantomPinned,
    });
    let entry = entry.into_ref().get_ref();
    {
        let mut bucket = bucket(key).lock();
        if !still() {
            drop(bucket);
            wait.withdraw();
            return Outcome::Notified;
        }
        bucket.link(entry);
    }
    let outcome = wait.suspend(deadline);
    let mut bucket = bucket(key).lock();
    if entry.linked.get() {
        bucket.unlink(entry);
    }
    outcome
}

/// Wakes everybody who waits for `key`.
pub(crate) fn release(key: usize, generation: u64) {
    loop {
        let mut batch = [None; BATCH];
        let mut count = 0;
        {
            let mut bucket = bucket(key).lock();
            let mut next = bucket.first;
            while let (false, true) = (next.is_null(), count < BATCH) {
                // SAFETY: what is linked is alive.
                let entry = unsafe { &*next };
                next = entry.next.get();
                if entry.key == key && entry.generation == generation {
                    bucket.unlink(entry);
                    batch[count] = Some(entry.waiter);
                    count += 1;
                }
            }
        }
        for waiter in batch.iter().flatten() {
            waiter.wake();
        }
        if count < BATCH {
            return;
        }
    }
}

/// Wakes everybody who waits for the end of a fiber.
pub(crate) fn release_finished(address: usize, id: u64) {
    release(address, id);
}

impl Bucket {
    fn link(&mut self, entry: &Entry) {
        entry.linked.set(true);
        entry.previous.set(self.last);
        // SAFETY: what is linked is alive.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.next.set(entry),
            None => self.first = entry,
        }
        self.last = entry;
    }

    fn unlink(&mut self, entry: &Entry) {
        entry.linked.set(false);
        let (previous, next) = (entry.previous.get(), entry.next.get());
        // SAFETY: what is linked is alive.
        unsafe {
            match previous.as_ref() {
                Some(previous) => previous.next.set(next),
                None => self.first = next,
            }
            match next.as_ref() {
                Some(next) => next.previous.set(previous),
                None => self.last = previous,
            }
        }
    }
}
