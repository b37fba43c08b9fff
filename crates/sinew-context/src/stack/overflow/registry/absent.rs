//! In place of the registry of the process: in a model, each registry belongs to one execution.

use super::{Free, Registry, Slot, Span};
use crate::primitive::{AtomicPtr, AtomicUsize, Mutex};
use core::ptr;
use std::io;

impl Registry {
    pub(super) fn new() -> Registry {
        Registry {
            version: AtomicUsize::new(0),
            buckets: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            free: Mutex::new(Free::new()),
        }
    }
}

pub(crate) fn insert(_: Span) -> io::Result<()> {
    Ok(())
}

pub(crate) fn remove(_: usize) {}

pub(crate) fn find(_: usize) -> Option<Slot> {
    None
}

pub(crate) fn find_in_handler(_: usize) -> Option<Slot> {
    None
}
