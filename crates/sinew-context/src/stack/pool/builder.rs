//! Settings of a pool.

use super::{FIRST_REGION, Inner, PoolCore, PoolStats, StackPool, release};
use crate::primitive::{AtomicUsize, Mutex};
use crate::stack::guard::GuardKind;
use crate::stack::protected::default_guard;
use crate::stack::{DEFAULT_STACK_SIZE, Home, check_guard, check_size, invalid, page_size};
use core::time::Duration;
use std::io;
use std::sync::Arc;

/// How the decay passes of a pool are made.
///
/// # Examples
/// ```
/// use sinew_context::stack::{Decay, StackPool};
/// use std::time::Duration;
///
/// let every_minute = Decay::Background(Duration::from_secs(60));
/// assert!(StackPool::builder().decay(every_minute).build().is_ok());
/// let always = Decay::Background(Duration::ZERO);
/// assert!(StackPool::builder().decay(always).build().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decay {
    /// A thread makes a pass each time this interval is over. The thread starts when there is a
    /// stack to give back, and ends when none is left.
    Background(Duration),
    /// The program makes the passes, by calling [`StackPool::decay`].
    Manual,
}

/// Settings of a [`StackPool`].
///
/// # Examples
/// ```
/// use sinew_context::stack::{Decay, StackPool};
///
/// let settings = StackPool::builder().decay(Decay::Manual).max_warm(100);
/// let small = settings.clone().stack_size(64 * 1024).build();
/// let large = settings.stack_size(1024 * 1024).build();
/// assert_eq!((small?.stack_size(), large?.stack_size()), (64 * 1024, 1024 * 1024));
/// # Ok::<(), std::io::Error>(())
/// ```
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

    /// Sets the usable bytes of each stack, a multiple of the page size. Default: 256 KiB.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::StackPool;
    ///
    /// let pool = StackPool::builder().stack_size(64 * 1024).build()?;
    /// assert_eq!(pool.stack_size(), 64 * 1024);
    /// assert!(StackPool::builder().stack_size(100_001).build().is_err()); // not whole pages
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = bytes;
        self
    }

    /// Sets how many bytes below each stack fault: a multiple of the page size, and at least 64
    /// KiB. Default: 64 KiB, and 1 MiB on riscv64.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackPool};
    ///
    /// let pool = StackPool::builder().guard_size(256 * 1024).build()?;
    /// assert_eq!(pool.allocate()?.guard_size(), 256 * 1024);
    /// assert!(StackPool::builder().guard_size(4096).build().is_err()); // below the minimum
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn guard_size(mut self, bytes: usize) -> Self {
        self.guard_size = bytes;
        self
    }

    /// Uses only this kind of guard, instead of the cheapest that works. Allocating a stack fails
    /// if the kernel refuses this kind.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{GuardKind, StackAllocator, StackPool};
    ///
    /// let pool = StackPool::builder().guards(GuardKind::Mprotect).build()?;
    /// let stack = pool.allocate()?;
    /// assert_eq!(pool.stats().mprotect_regions, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn guards(mut self, kind: GuardKind) -> Self {
        self.guards = Some(kind);
        self
    }

    /// Limits the number of stacks in use at once; allocating more is an error. Default: no limit.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackPool};
    ///
    /// let pool = StackPool::builder().max_stacks(1).build()?;
    /// let _only = pool.allocate()?;
    /// assert_eq!(pool.allocate().unwrap_err().kind(), std::io::ErrorKind::QuotaExceeded);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_stacks(mut self, count: usize) -> Self {
        self.max_stacks = count;
        self
    }

    /// Limits the number of free stacks that keep their memory; others are given back at once.
    /// Default: no limit, so that decay alone decides.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{Decay, StackAllocator, StackPool};
    ///
    /// let pool = StackPool::builder().max_warm(1).decay(Decay::Manual).build()?;
    /// drop((pool.allocate()?, pool.allocate()?));
    /// assert_eq!((pool.stats().warm, pool.stats().cold), (1, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_warm(mut self, count: usize) -> Self {
        self.max_warm = count;
        self
    }

    /// Sets how the decay passes are made. Default: by a thread, every second.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{Decay, StackAllocator, StackPool};
    ///
    /// let pool = StackPool::builder().decay(Decay::Manual).build()?;
    /// drop(pool.allocate()?);
    /// assert_eq!(pool.stats().warm, 1); // until the program calls `pool.decay()`
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn decay(mut self, decay: Decay) -> Self {
        self.decay = decay;
        self
    }

    /// Makes the pool. Maps nothing yet.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::StackPool;
    ///
    /// let pool = StackPool::builder().build()?;
    /// assert_eq!(pool.stats().reserved_bytes, 0); // nothing is mapped yet
    /// let error = StackPool::builder().stack_size(3000).build().unwrap_err();
    /// assert!(error.to_string().contains("stack size 3000 is below the minimum"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn build(self) -> io::Result<StackPool> {
        check_size(self.stack_size)?;
        check_guard(self.guard_size)?;
        if self.decay == Decay::Background(Duration::ZERO) {
            return Err(invalid(format_args!(
                "a decay interval of zero would keep a thread busy for ever; use a longer one"
            )));
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
