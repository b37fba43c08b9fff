//! Settings of a pool.

use super::{FIRST_REGION, Inner, PoolCore, PoolStats, StackPool, release};
use crate::primitive::{AtomicUsize, Mutex};
use crate::stack::guard::GuardKind;
use crate::stack::protected::default_guard;
use crate::stack::{DEFAULT_STACK_SIZE, Home, check_guard, check_size, invalid, page_size};
use core::time::Duration;
use std::io;
use std::sync::Arc;

/// Selects the maker of the decay passes of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decay {
    /// A thread, which starts when there is something to give back and ends when there is nothing
    /// left. It makes a pass each time this interval has passed.
    Background(Duration),
    /// The program, by calling [`StackPool::decay`].
    Manual,
}

/// Settings of a [`StackPool`].
#[derive(Clone, Debug)]
pub struct PoolBuilder {
    stack_size: usize,
    guard_size: usize,
    guards: Option<GuardKind>,
    max_stacks: usize,
    max_warm: usize,
    decay: Decay,
}

impl PoolBuilder {
    pub(super) fn new() -> Self {
        PoolBuilder {
            stack_size: DEFAULT_STACK_SIZE.max(page_size()),
            guard_size: default_guard(),
            guards: None,
            max_stacks: usize::MAX,
            max_warm: usize::MAX,
            decay: Decay::Background(Duration::from_secs(1)),
        }
    }

    /// Sets the usable bytes of each stack, a multiple of the page. Default: 256 KiB.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = bytes;
        self
    }

    /// Sets the bytes below each stack that fault, a multiple of the page and at least 64 KiB.
    /// Default: 64 KiB, and 1 MiB on riscv64.
    pub fn guard_size(mut self, bytes: usize) -> Self {
        self.guard_size = bytes;
        self
    }

    /// Uses only this kind of guard, instead of the cheapest that works.
    pub fn guards(mut self, kind: GuardKind) -> Self {
        self.guards = Some(kind);
        self
    }

    /// Limits the number of stacks in use at once; allocating more is an error. Default: no limit.
    pub fn max_stacks(mut self, count: usize) -> Self {
        self.max_stacks = count;
        self
    }

    /// Limits the number of free stacks that keep their memory; others are given back at once.
    /// Default: no limit, so that decay alone decides.
    pub fn max_warm(mut self, count: usize) -> Self {
        self.max_warm = count;
        self
    }

    /// Selects the maker of the decay passes. Default: a thread, every second.
    pub fn decay(mut self, decay: Decay) -> Self {
        self.decay = decay;
        self
    }

    /// Makes the pool. Maps nothing yet.
    pub fn build(self) -> io::Result<StackPool> {
        check_size(self.stack_size)?;
        check_guard(self.guard_size)?;
        if self.decay == Decay::Background(Duration::ZERO) {
            return Err(invalid(format_args!("a decay interval of zero would never rest")));
        }
        let stride = self.stack_size + self.guard_size;
        Ok(StackPool {
            core: Arc::new(PoolCore {
                home: Home { size: self.stack_size, guard: self.guard_size, release },
                guards: self.guards,
                max_stacks: self.max_stacks,
                max_warm: self.max_warm,
                decay: self.decay,
                handles: AtomicUsize::new(1),
                inner: Mutex::new(Inner {
                    regions: Vec::new(),
                    warm: Vec::new(),
                    cold: Vec::new(),
                    least_warm: 0,
                    in_use: 0,
                    carved: 0,
                    next_region: (FIRST_REGION / stride).max(4),
                    decaying: false,
                    closed: false,
                    stats: PoolStats::default(),
                }),
            }),
        })
    }
}
