//! One thread's supply of stacks from a pool: no lock and no atomic operation once warm.

use super::pool::{PoolCore, StackPool};
use super::{Home, Stack, StackAllocator, overflow};
use core::cell::{Cell, UnsafeCell};
use core::ptr::NonNull;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// The greatest number of stacks that move between a cache and the pool at a time. Most caches
/// fetch a quarter of their capacity at a time, up to this number.
///
/// A fiber that fetches stacks uses more of its own stack than others, so few fibers should do it.
const BATCH: usize = 32;

/// The default capacity of a cache, in stacks.
const DEFAULT_CAPACITY: usize = 64;

/// A thread's own supply of stacks from a [`StackPool`]: last in, first out, without locks.
///
/// A cache makes it cheap to create and end fibers on one thread. The cache keeps at most
/// `capacity` free stacks. When it has more, it gives half of them to the pool. Decay does not
/// reach the stacks in the cache.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, stack::{StackCache, StackPool}};
///
/// let pool = StackPool::new()?;
/// let stacks = StackCache::new(&pool);
/// for _ in 0..1000 {
///     assert!(FiberContext::with_allocator(&stacks, |caller| caller)?.resume().is_none());
/// }
/// assert_eq!(pool.stats().allocated, 1); // one stack, used again each time
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct StackCache {
    core: Rc<CacheCore>,
}

#[repr(C)]
struct CacheCore {
    home: Home,
    capacity: usize,
    /// The number of stacks that are taken from the pool at a time.
    batch: usize,
    /// The number of stacks that stay when the cache has too many.
    kept: usize,
    /// The lowest number of free stacks since the last `drop_unneeded`.
    fewest: Cell<usize>,
    /// Free slots; the most recently used one is last.
    free: Free,
    /// Whether the cache itself was dropped, so that stacks go straight to the pool.
    closed: Cell<bool>,
    pool: Arc<PoolCore>,
}

impl StackCache {
    /// Makes a cache of up to 64 stacks of `pool`.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackCache, StackPool};
    ///
    /// let pool = StackPool::new()?;
    /// let cache = StackCache::new(&pool);
    /// drop(cache.allocate()?);
    /// assert_eq!(cache.len(), 1); // the cache keeps the stack
    /// assert_eq!(pool.stats().in_use, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(pool: &StackPool) -> StackCache {
        Self::with_capacity(pool, DEFAULT_CAPACITY)
    }

    /// Makes a cache of up to `capacity` stacks of `pool`.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{Stack, StackAllocator, StackCache, StackPool};
    ///
    /// let pool = StackPool::new()?;
    /// let cache = StackCache::with_capacity(&pool, 8);
    /// let stacks: Result<Vec<Stack>, _> = (0..20).map(|_| cache.allocate()).collect();
    /// drop(stacks?);
    /// assert!(cache.len() <= 8);
    /// assert_eq!(pool.stats().in_use, cache.len()); // the pool has the others
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_capacity(pool: &StackPool, capacity: usize) -> StackCache {
        Self::make(pool, capacity, (capacity / 4).clamp(1, BATCH), capacity / 2)
    }

    /// Makes a cache of up to `capacity` stacks of `pool` that exchanges one stack at a time. It
    /// takes one from the pool when it has none, and gives one back when it has too many. So it
    /// holds only stacks that were in use.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{Stack, StackAllocator, StackCache, StackPool};
    ///
    /// let pool = StackPool::new()?;
    /// let cache = StackCache::exact(&pool, 8);
    /// let stacks: Result<Vec<Stack>, _> = (0..20).map(|_| cache.allocate()).collect();
    /// drop(stacks?);
    /// assert_eq!((cache.len(), pool.stats().warm), (8, 12));
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// The number of free stacks in the cache.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackCache, StackPool};
    ///
    /// let cache = StackCache::new(&StackPool::new()?);
    /// let stacks = (cache.allocate()?, cache.allocate()?);
    /// assert_eq!(cache.len(), 0); // both stacks are in use
    /// drop(stacks);
    /// assert_eq!(cache.len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.core.free.with(|free| free.len())
    }

    /// Whether the cache has no free stack.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackCache, StackPool};
    ///
    /// let cache = StackCache::new(&StackPool::new()?);
    /// assert!(cache.is_empty());
    /// drop(cache.allocate()?);
    /// assert!(!cache.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives back the stacks that were free at all times since the previous call, but keeps at
    /// least `least` free stacks.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackCache, StackPool};
    ///
    /// let cache = StackCache::new(&StackPool::new()?);
    /// drop((cache.allocate()?, cache.allocate()?, cache.allocate()?));
    /// cache.drop_unneeded(0);
    /// assert_eq!(cache.len(), 3); // all three were in use since the cache was made
    /// drop(cache.allocate()?);
    /// cache.drop_unneeded(0);
    /// assert_eq!(cache.len(), 1); // two were not needed since the previous call
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn drop_unneeded(&self, least: usize) {
        self.core.spill(self.core.fewest.get().min(self.len().saturating_sub(least)));
        self.core.fewest.set(self.len());
    }

    /// Gives all free stacks back to the pool.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackCache, StackPool};
    ///
    /// let pool = StackPool::new()?;
    /// let cache = StackCache::new(&pool);
    /// drop(cache.allocate()?);
    /// cache.flush();
    /// assert!(cache.is_empty());
    /// assert_eq!((pool.stats().in_use, pool.stats().warm), (0, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
        // SAFETY: `Rc::into_raw` does not return null.
        let home = unsafe { NonNull::new_unchecked(home) };
        // SAFETY: the slot is out and belongs to this call. `release` takes the reference back, on
        // this thread, because a `Stack` is not `Send`.
        Ok(unsafe { Stack::from_slot(low, home) })
    }
}

/// Takes back a stack that `allocate` handed out.
///
/// # Safety
/// `home` is the home of that stack, and `low` its lowest usable address. Called once, on the
/// cache's thread.
unsafe fn release(low: NonNull<u8>, home: NonNull<Home>) {
    // SAFETY: the home is the first field of a core, of which `allocate` left a reference on this
    // thread.
    let core = unsafe { Rc::<CacheCore>::from_raw(home.cast().as_ptr()) };
    if core.closed.get() {
        core.pool.give(&[low]);
    } else {
        core.put(low);
    }
}

impl CacheCore {
    /// Keeps a free slot in the cache.
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
            // An error cannot be reported here; the pool has room for the slot.
            return self.pool.give(&[low]);
        }
        let smaller = self.free.with(|free| {
            // The allocator may have used this cache and changed the list meanwhile.
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
        // The list hands out from its end, so the warmest of the rest must be last.
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

/// The list of free slots, without the bookkeeping of a `RefCell`: every creation of a fiber uses
/// it.
struct Free(UnsafeCell<Vec<NonNull<u8>>>);

impl Free {
    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(&mut Vec<NonNull<u8>>) -> R) -> R {
        // SAFETY: the cell stays on its thread, and no closure in this module can re-enter `with`.
        // The closures move slots and neither allocate nor free memory, because the program's
        // allocator may use this cache.
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
