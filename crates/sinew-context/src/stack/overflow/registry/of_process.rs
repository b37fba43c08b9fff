//! The registry of the process.

use super::{BUCKETS, Free, Registry, Slot, Span};
use crate::primitive::{AtomicPtr, AtomicUsize, Mutex};
use core::ptr;
use std::io;

static REGISTRY: Registry = Registry::new();

impl Registry {
    pub(super) const fn new() -> Registry {
        Registry {
            version: AtomicUsize::new(0),
            buckets: [const { AtomicPtr::new(ptr::null_mut()) }; BUCKETS],
            free: Mutex::new(Free::new()),
        }
    }
}

/// Adds a span. Its addresses are in no other span.
pub(crate) fn insert(span: Span) -> io::Result<()> {
    REGISTRY.insert(span)
}

/// Removes the span that starts at `start`.
pub(crate) fn remove(start: usize) {
    REGISTRY.remove(start);
}

/// Finds the stack at an address. An address in the guard counts too.
pub(crate) fn find(address: usize) -> Option<Slot> {
    REGISTRY.find(address)
}

/// Finds the stack at an address without waiting, for a signal handler.
pub(crate) fn find_in_handler(address: usize) -> Option<Slot> {
    REGISTRY.find_unlocked(address)
}
