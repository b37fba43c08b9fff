//! One thread's supply of stacks out of a pool: no lock and no atomic operation once warm.

use super::pool::{PoolCore, StackPool};
use super::{Home, Stack, StackAllocator, overflow};
use core::cell::{Cell, UnsafeCell};
use core::ptr::NonNull;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// Stacks fetched from the pool in one go, at most: a quarter of what the cache holds.
///
/// Whoever fetches them uses more of its own stack than others, so the fewer do the better.
const BATCH: usize = 32;

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
    /// Stacks that are taken from the pool at a time, and kept when there are too many.
    batch: usize,
    kept: usize,
    /// The fewest free ones since somebody last asked.
    fewest: Cell<usize>,
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
        Self::make(pool, capacity, (capacity / 4).clamp(1, BATCH), capacity / 2)
    }

    /// The same, but of stacks that were in use: it takes one from the pool when it has none, and gives one back
    /// when it has too many, instead of several at a time.
    pub fn exact(pool: &StackPool, capacity: usize) -> StackCache {
        Self::make(pool, capacity, 1, capacity)
    }

    fn make(pool: &StackPool, capacity: usize, batch: usize, kept: usize) -> StackCache {
        overflow::arm();
        StackCache {
            core: Rc::new(CacheCore {
                home: Home { release, ..pool.core().home },
                capacity,
                batch,
                kept,
                fewest: Cell::new(0),
                free: Free(UnsafeCell::new(Vec::with_capacity(capacity.min(DEFAULT_CAPACITY) + 1))),
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

    /// Gives back as many free stacks as were free at all times since this was last called, but keeps `least`.
    pub fn drop_unneeded(&self, least: usize) {
        self.core.spill(self.core.fewest.get().min(self.len().saturating_sub(least)));
        self.core.fewest.set(self.len());
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
        let low = match self.core.free.with(|free| (free.pop(), free.len())) {
            (Some(low), left) => {
                if left < self.core.fewest.get() {
                    self.core.fewest.set(left);
                }
                low
            }
            (None, _) => {
                self.core.fewest.set(0);
                self.core.refill()?
            }
        };
        let home = Rc::into_raw(self.core.clone()).cast_mut().cast();
        // SAFETY: pointers to what is counted are not null.
        let home = unsafe { NonNull::new_unchecked(home) };
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
    } else {
        core.put(low);
    }
}

impl CacheCore {
    /// Keeps a free slot.
    #[inline]
    fn put(&self, low: NonNull<u8>) {
        let len = self.free.with(|free| {
            (free.len() < free.capacity()).then(|| {
                free.push(low);
                free.len()
            })
        });
        match len {
            Some(len) if len <= self.capacity => {}
            Some(len) => self.spill(len - self.kept),
            None => self.put_after_growing(low),
        }
    }

    #[cold]
    fn put_after_growing(&self, low: NonNull<u8>) {
        let mut larger = Vec::new();
        let wanted = (2 * self.free.with(|free| free.len())).max(BATCH);
        if larger.try_reserve_exact(wanted).is_err() {
            // Nothing can be reported here; the pool has the room.
            return self.pool.give(&[low]);
        }
        let smaller = self.free.with(|free| {
            // Somebody may have changed the list while memory was found for this one.
            if larger.capacity() > free.capacity() {
                larger.append(free);
                core::mem::swap(free, &mut larger);
            }
            larger
        });
        drop(smaller);
        self.put(low);
    }

    #[cold]
    fn refill(&self) -> io::Result<NonNull<u8>> {
        let mut batch = [NonNull::dangling(); BATCH];
        let wanted = self.batch;
        let count = self.pool.take_batch(&mut batch[..wanted])?;
        // The list hands out from its end: the warmest but one must be there.
        batch[1..count].iter().rev().for_each(|&low| self.put(low));
        Ok(batch[0])
    }

    /// Gives the oldest `count` stacks to the pool.
    #[cold]
    fn spill(&self, count: usize) {
        let mut left = count;
        while left > 0 {
            let mut batch = [NonNull::dangling(); BATCH];
            let now = self.free.with(|free| {
                let now = BATCH.min(left).min(free.len());
                batch[..now].copy_from_slice(&free[..now]);
                free.drain(..now);
                now
            });
            if now == 0 {
                break;
            }
            self.pool.give(&batch[..now]);
            left -= now;
        }
    }
}

/// The list of free slots, without the bookkeeping of a `RefCell`: it is on the path of every
/// fiber that is made.
struct Free(UnsafeCell<Vec<NonNull<u8>>>);

impl Free {
    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(&mut Vec<NonNull<u8>>) -> R) -> R {
        // SAFETY: the cell stays on its thread, and no closure in this module calls anything that
        // could come back here: they move slots about, and neither take nor free memory, because
        // the program's allocator may use this cache.
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
