//! A large mapping, cut into slots. Each slot has its guard below and its stack above.

use super::super::guard::{self, GuardKind, Row};
use super::super::mapping::Mapping;
use super::super::overflow::registry::{self, Span};
use crate::sanitizer;
use core::ptr::NonNull;
use std::io;

/// The number of slots that become usable at a time, at most.
const BLOCK: usize = 64;

/// A mapping of slots. Dropping it unmaps it, so no stack of it may be in use then.
pub(super) struct Region {
    map: Mapping,
    stride: usize,
    guard: usize,
    wanted: Option<GuardKind>,
    /// The kind of guard of the slots that were made ready last. Earlier slots may have the other
    /// kind, if the program has locked its memory since.
    guard_kind: GuardKind,
    /// The number of slots committed and guarded, from the low end on.
    ready: usize,
    /// The number of slots handed out at least once, from the low end on.
    pub(super) carved: usize,
    /// The number of carved slots that are free and hold no memory.
    pub(super) cold: usize,
    /// The ids by which valgrind knows the slots; empty outside valgrind.
    valgrind: Vec<usize>,
}

impl Region {
    /// Maps a region of `slots` slots and makes the first ones ready.
    ///
    /// Finds out which kind of guard works: for instance, locked memory refuses guards in place.
    pub(super) fn new(
        slots: usize,
        stride: usize,
        guard: usize,
        wanted: Option<GuardKind>,
    ) -> io::Result<Region> {
        let len = slots.checked_mul(stride).ok_or(io::ErrorKind::OutOfMemory)?;
        let map = Mapping::reserve(len)?;
        let mut region = Region {
            map,
            stride,
            guard,
            wanted,
            guard_kind: GuardKind::InPlace,
            ready: 0,
            carved: 0,
            cold: 0,
            valgrind: Vec::new(),
        };
        region.make_ready()?;
        registry::insert(Span { start: region.start(), end: region.start() + len, stride, guard })?;
        Ok(region)
    }

    pub(super) fn start(&self) -> usize {
        self.map.low().addr().get()
    }

    pub(super) fn slots(&self) -> usize {
        self.map.len() / self.stride
    }

    pub(super) fn bytes(&self) -> usize {
        self.map.len()
    }

    pub(super) fn guard_kind(&self) -> GuardKind {
        self.guard_kind
    }

    pub(super) fn contains(&self, address: usize) -> bool {
        (self.start()..self.start() + self.map.len()).contains(&address)
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.carved == self.slots()
    }

    /// Hands out a slot that was never used. Returns its lowest usable address.
    pub(super) fn carve(&mut self) -> io::Result<NonNull<u8>> {
        debug_assert!(!self.is_used_up());
        if self.carved == self.ready {
            self.make_ready()?;
        }
        let slot = self.slot(self.carved);
        self.carved += 1;
        // SAFETY: the stack begins above the guard, inside the slot.
        Ok(unsafe { slot.add(self.guard) })
    }

    fn slot(&self, index: usize) -> NonNull<u8> {
        // SAFETY: inside the mapping.
        unsafe { self.map.low().add(index * self.stride) }
    }

    /// Commits and guards the next block of slots, twice as many as before up to a limit.
    fn make_ready(&mut self) -> io::Result<()> {
        let total = self.slots();
        let count = self.ready.clamp(4, BLOCK).min(total - self.ready);
        let offset = self.ready * self.stride;
        self.map.commit(offset, count * self.stride)?;
        let (first, len, stride) = (self.slot(self.ready), self.guard, self.stride);
        // SAFETY: the slots are ours, and nothing uses them yet.
        self.guard_kind =
            unsafe { guard::install(Row { first, len, stride, count }, self.wanted)? };
        for index in self.ready..self.ready + count {
            let slot = self.slot(index);
            // SAFETY: the bounds of one slot.
            let (low, high) = unsafe { (slot.add(self.guard), slot.add(self.stride)) };
            let id = sanitizer::register_stack(low.as_ptr(), high.as_ptr());
            if id != 0 {
                self.valgrind.push(id);
            }
        }
        self.ready += count;
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        registry::remove(self.start());
        for &id in &self.valgrind {
            sanitizer::deregister_stack(id);
        }
    }
}
