//! Settings of a pool.

use super::{FIRST_REGION, Inner, PoolCore, PoolStats, StackPool, release};
use crate::primitive::{AtomicUsize, Mutex};
use crate::stack::guard::GuardKind;
use crate::stack::protected::default_guard;
use crate::stack::{DEFAULT_STACK_SIZE, Home, check_guard, check_size, invalid, page_size};
use core::time::Duration;
use std::io;
use std::sync::Arc;

/// Who makes the decay passes of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decay {
    /// A thread, started when there is something to give back and ended when there is not.
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

    /// Usable bytes of each stack, a multiple of the page: 256 KiB if not set.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = bytes;
        self
    }

    /// Bytes below each stack that fault, a multiple of the page and at least 64 KiB, which it is
    /// if not set (1 MiB on riscv64).
    pub fn guard_size(mut self, bytes: usize) -> Self {
        self.guard_size = bytes;
        self
    }

    /// Uses one kind of guard only, instead of the cheapest that works.
    pub fn guards(mut self, kind: GuardKind) -> Self {
        self.guards = Some(kind);
        self
    }

    /// Stacks that may be in use at once; allocating more is an error. No limit if not set.
    pub fn max_stacks(mut self, count: usize) -> Self {
        self.max_stacks = count;
        self
    }

    /// Free stacks that may keep their memory; more are given back at once. No limit if not set,
    /// so that decay alone decides.
    pub fn max_warm(mut self, count: usize) -> Self {
        self.max_warm = count;
        self
    }

    /// Who makes the decay passes: a thread, every second, if not set.
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
