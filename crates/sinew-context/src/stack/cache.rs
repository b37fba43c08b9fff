//! One thread's supply of stacks out of a pool: no lock and no atomic operation once warm.

use super::pool::{PoolCore, StackPool};
use super::{Home, Stack, StackAllocator, overflow};
use core::cell::{Cell, UnsafeCell};
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
///     assert!(Fiber::with_allocator(&stacks, |caller| caller)?.resume().is_none());
/// }
/// assert_eq!(pool.stats().allocated, 1); // the same stack each time
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct StackCache {
    core: Rc<CacheCore>,
}

#[repr(C)]
struct CacheCore {
    home: Home,
    capacity: usize,
    /// Free slots; the most recently used one last.
    free: Free,
    /// Whether the cache itself is gone, so that stacks go straight to the pool.
    closed: Cell<bool>,
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
                home: Home { release, ..pool.core().home },
                capacity,
                free: Free(UnsafeCell::new(Vec::new())),
                closed: Cell::new(false),
                pool: pool.core().clone(),
            }),
        }
    }

    /// Free stacks in the cache.
    pub fn len(&self) -> usize {
        self.core.free.with(|free| free.len())
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
        let low = match self.core.free.with(Vec::pop) {
            Some(low) => low,
            None => self.core.refill()?,
        };
        let home = NonNull::from(&*self.core).cast();
        core::mem::forget(self.core.clone());
        // SAFETY: the slot is out, and ours; `release` takes the reference back. A `Stack` is not
        // `Send`, so that happens on this thread.
        Ok(unsafe { Stack::from_slot(low, home) })
    }
}

unsafe fn release(low: NonNull<u8>, home: NonNull<Home>) {
    // SAFETY: the home is the first field of a core, to which `allocate` left a reference on this
    // thread.
    let core = unsafe { Rc::<CacheCore>::from_raw(home.cast().as_ptr()) };
    if core.closed.get() {
        core.pool.give(&[low]);
        return;
    }
    let len = core.free.with(|free| {
        // Nothing can be reported here: without memory for the list, the pool has the room.
        if free.len() == free.capacity() && free.try_reserve(1).is_err() {
            return None;
        }
        free.push(low);
        Some(free.len())
    });
    match len {
        Some(len) if len <= core.capacity => {}
        Some(len) => core.spill(len - core.capacity / 2),
        None => core.pool.give(&[low]),
    }
}

impl CacheCore {
    #[cold]
    fn refill(&self) -> io::Result<NonNull<u8>> {
        self.free.with(|free| {
            let count = BATCH.min(self.capacity.max(1));
            free.try_reserve(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
            self.pool.take_batch(count, free)?;
            Ok(free.pop().expect("a batch has at least one"))
        })
    }

    /// Gives the oldest `count` stacks to the pool.
    #[cold]
    fn spill(&self, count: usize) {
        self.free.with(|free| {
            let count = count.min(free.len());
            if count > 0 {
                self.pool.give(&free[..count]);
                free.drain(..count);
            }
        });
    }
}

/// The list of free slots, without the bookkeeping of a `RefCell`: it is on the path of every
/// fiber that is made.
struct Free(UnsafeCell<Vec<NonNull<u8>>>);

impl Free {
    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(&mut Vec<NonNull<u8>>) -> R) -> R {
        // SAFETY: the cell stays on its thread, and no closure in this module comes back here:
        // what they call is `Vec` and the pool, neither of which knows the cache.
        f(unsafe { &mut *self.0.get() })
    }
}

impl core::fmt::Debug for StackCache {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("StackCache")
            .field("stack_size", &self.core.home.size)
            .field("free", &self.len())
            .field("capacity", &self.core.capacity)
            .finish_non_exhaustive()
    }
}

impl Drop for StackCache {
    fn drop(&mut self) {
        self.core.closed.set(true);
        self.flush();
    }
}
