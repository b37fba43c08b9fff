//! One thread's supply of stacks out of a pool: no lock and no atomic operation once warm.

use super::pool::{PoolCore, StackPool};
use super::{Home, Stack, StackAllocator, overflow};
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// Stacks fetched from the pool in one go.
const BATCH: usize = 16;

/// Stacks that a cache keeps when nothing else is said.
const DEFAULT_CAPACITY: usize = 64;

/// A thread's own stacks out of a [`StackPool`]: last in, first out, without locks.
///
/// Makes creating and ending fibers cheap on one thread. It keeps at most its capacity and gives
/// half of it to the pool when that is exceeded; decay does not reach what it keeps.
///
/// # Examples
/// ```
/// use sinew_context::{Fiber, stack::{StackCache, StackPool}};
///
/// let pool = StackPool::new()?;
/// let stacks = StackCache::new(&pool);
/// for _ in 0..1000 {
///     Fiber::with_allocator(&stacks, |caller| caller)?.resume();
/// }
/// assert_eq!(pool.stats().allocated, 1); // the same stack each time
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct StackCache {
    core: Rc<CacheCore>,
}

#[derive(Debug)]
struct CacheCore {
    stack_size: usize,
    guard_size: usize,
    capacity: usize,
    /// Whether the cache itself is gone, so that stacks go straight to the pool.
    closed: Cell<bool>,
    free: RefCell<Vec<NonNull<u8>>>,
    pool: Arc<PoolCore>,
}

impl StackCache {
    /// A cache of up to 64 stacks of `pool`.
    pub fn new(pool: &StackPool) -> StackCache {
        Self::with_capacity(pool, DEFAULT_CAPACITY)
    }

    /// A cache of up to `capacity` stacks of `pool`.
    pub fn with_capacity(pool: &StackPool, capacity: usize) -> StackCache {
        overflow::arm();
        StackCache {
            core: Rc::new(CacheCore {
                stack_size: pool.stack_size(),
                guard_size: pool.core().guard_size,
                capacity,
                closed: Cell::new(false),
                free: RefCell::new(Vec::with_capacity(capacity.saturating_add(1).min(1024))),
                pool: pool.core().clone(),
            }),
        }
    }

    /// Free stacks in the cache.
    pub fn len(&self) -> usize {
        self.core.free.borrow().len()
    }

    /// Whether the cache has no free stack.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives all free stacks back to the pool.
    pub fn flush(&self) {
        self.core.spill(usize::MAX);
    }
}

// SAFETY: a slot is handed out to one `Stack` at a time.
unsafe impl StackAllocator for StackCache {
    #[inline]
    fn allocate(&self) -> io::Result<Stack> {
        let low = self.core.free.borrow_mut().pop();
        let low = match low {
            Some(low) => low,
            None => self.core.refill()?,
        };
        let owner = Rc::into_raw(self.core.clone()).cast();
        let home = Home { owner, release };
        // SAFETY: the slot is out, and ours; `release` takes the reference back. A `Stack` is not
        // `Send`, so that happens on this thread.
        Ok(unsafe { Stack::from_slot(low, self.core.stack_size, self.core.guard_size, home) })
    }
}

unsafe fn release(low: NonNull<u8>, _: usize, owner: *const ()) {
    // SAFETY: `allocate` made the owner from such a reference, on this thread.
    let core = unsafe { Rc::<CacheCore>::from_raw(owner.cast()) };
    if core.closed.get() {
        core.pool.give(&[low]);
        return;
    }
    let len = {
        let mut free = core.free.borrow_mut();
        free.push(low);
        free.len()
    };
    if len > core.capacity {
        core.spill(len - core.capacity / 2);
    }
}

impl CacheCore {
    #[cold]
    fn refill(&self) -> io::Result<NonNull<u8>> {
        let mut free = self.free.borrow_mut();
        self.pool
            .take_batch(BATCH.min(self.capacity.max(1)), &mut free)?;
        Ok(free.pop().expect("a batch has at least one"))
    }

    /// Gives the oldest `count` stacks to the pool.
    #[cold]
    fn spill(&self, count: usize) {
        let mut free = self.free.borrow_mut();
        let count = count.min(free.len());
        if count > 0 {
            self.pool.give(&free[..count]);
            free.drain(..count);
        }
    }
}

impl Drop for StackCache {
    fn drop(&mut self) {
        self.core.closed.set(true);
        self.flush();
    }
}
