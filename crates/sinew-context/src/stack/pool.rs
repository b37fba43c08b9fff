//! Stacks of one size for many fibers: slots of large mappings, kept warm, released by decay.
//!
//! # Ownership of slots
//!
//! A slot is in exactly one state:
//! - out: in a [`Stack`], or in a [`StackCache`](super::StackCache);
//! - *warm*: free, and it keeps its memory;
//! - *cold*: free, and its memory was given back to the kernel;
//! - never carved.
//!
//! Warm slots are reused last in, first out, because the slot used most recently has its pages and
//! is likely in the processor's cache. Every slot that is out holds a reference to the pool's core.
//! So a forgotten stack keeps its region mapped, even after the pool is dropped.
//!
//! # Decay
//!
//! Each pass reads the lowest number of warm slots since the previous pass: that number of slots
//! was not needed for a whole interval. It makes that many of the oldest warm slots cold, and
//! unmaps each region whose slots are all cold. So the memory of a burst is released after two
//! passes. By default a thread makes the passes. It starts when there is something to decay and
//! ends when there is nothing left. A runtime that does its own maintenance calls
//! [`StackPool::decay`].
//!
//! Next: `pool::region`, which cuts mappings into slots.

mod builder;
mod region;

pub use builder::{Decay, PoolBuilder};

use super::guard::GuardKind;
use super::mapping::discard;
use super::{Home, Stack, StackAllocator, overflow};
use crate::primitive::{AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use core::ptr::NonNull;
use core::time::Duration;
use region::Region;
use std::io;
use std::sync::{Arc, Weak};

/// Bytes of addresses in the first region, and in the largest.
const FIRST_REGION: usize = 16 * 1024 * 1024;
const LARGEST_REGION: usize = 1024 * 1024 * 1024;

/// The number of slots that a decay pass takes out of the pool at a time. The pass releases the
/// lock while it gives their memory back.
const DECAY_BATCH: usize = 256;

/// A pool of guarded stacks of one size, which threads can share.
///
/// A clone is another handle to the same pool. Dropping the last handle unmaps each large mapping
/// in which no stack is in use. The others follow when their last stack comes back.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, stack::StackPool};
///
/// let pool = StackPool::builder().stack_size(64 * 1024).build()?;
/// let fiber = FiberContext::with_allocator(&pool, |caller| caller)?;
/// assert_eq!(pool.stats().in_use, 1);
/// assert!(fiber.resume().is_none());
/// assert_eq!(pool.stats().in_use, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct StackPool {
    core: Arc<PoolCore>,
}

/// The state of a pool at one moment.
///
/// # Examples
/// ```
/// use sinew_context::stack::{Decay, StackAllocator, StackPool};
///
/// let pool = StackPool::builder().decay(Decay::Manual).build()?;
/// let stacks = (pool.allocate()?, pool.allocate()?);
/// drop(stacks.0);
/// let stats = pool.stats();
/// assert_eq!((stats.in_use, stats.warm, stats.cold), (1, 1, 0));
/// assert_eq!((stats.allocated, stats.reused), (2, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// The number of stacks handed out, including stacks that wait in a cache.
    pub in_use: usize,
    /// The number of free stacks that keep their memory.
    pub warm: usize,
    /// The number of free stacks without memory: the kernel has it back.
    pub cold: usize,
    /// The number of large mappings that the pool has.
    pub regions: usize,
    /// The number of regions that guard their stacks by `mprotect`, because guards in place were
    /// refused or not wanted.
    pub mprotect_regions: usize,
    /// The number of addresses that the regions span.
    pub reserved_bytes: usize,
    /// The number of stacks ever handed out.
    pub allocated: u64,
    /// The number of stacks handed out that were warm.
    pub reused: u64,
    /// The number of stacks that decay has made cold.
    pub decayed: u64,
}

impl StackPool {
    /// Makes a pool of stacks of the default size, 256 KiB.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{DEFAULT_STACK_SIZE, StackAllocator, StackPool};
    ///
    /// let pool = StackPool::new()?;
    /// assert_eq!(pool.allocate()?.size(), DEFAULT_STACK_SIZE);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> io::Result<StackPool> {
        Self::builder().build()
    }

    /// Returns a builder with the default settings of a pool.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackPool};
    ///
    /// let pool = StackPool::builder().stack_size(64 * 1024).max_stacks(1000).build()?;
    /// assert_eq!(pool.allocate()?.size(), 64 * 1024);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }

    /// The number of usable bytes of each stack.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::StackPool;
    ///
    /// let pool = StackPool::builder().stack_size(64 * 1024).build()?;
    /// assert_eq!(pool.stack_size(), 64 * 1024);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(&self) -> usize {
        self.core.home.size
    }

    /// Returns the current state of the pool.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackPool};
    ///
    /// let pool = StackPool::new()?;
    /// assert_eq!(pool.stats().regions, 0); // nothing is mapped yet
    /// let stack = pool.allocate()?;
    /// assert_eq!(pool.stats().regions, 1);
    /// assert!(pool.stats().reserved_bytes >= stack.size() + stack.guard_size());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stats(&self) -> PoolStats {
        let inner = self.core.lock();
        PoolStats {
            in_use: inner.in_use,
            warm: inner.warm.len(),
            cold: inner.cold.len(),
            regions: inner.regions.len(),
            mprotect_regions: inner
                .regions
                .iter()
                .filter(|region| region.guard_kind() == GuardKind::Mprotect)
                .count(),
            reserved_bytes: inner.regions.iter().map(Region::bytes).sum(),
            ..inner.stats
        }
    }

    /// Makes one decay pass: gives back the memory of stacks that were not needed since the
    /// previous pass. Returns whether free stacks with memory are left for later passes.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{Decay, StackAllocator, StackPool};
    ///
    /// let pool = StackPool::builder().decay(Decay::Manual).build()?;
    /// let (used, kept) = (pool.allocate()?, pool.allocate()?);
    /// drop(used);
    /// assert!(pool.decay()); // the stack was in use since the previous pass
    /// assert_eq!(pool.stats().warm, 1);
    /// assert!(!pool.decay());
    /// assert_eq!((pool.stats().warm, pool.stats().cold), (0, 1));
    /// # drop(kept);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn decay(&self) -> bool {
        self.core.decay_pass()
    }

    /// Gives back the memory of every free stack at once.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackPool};
    ///
    /// let pool = StackPool::new()?;
    /// drop(pool.allocate()?);
    /// pool.trim();
    /// assert_eq!(pool.stats().reserved_bytes, 0); // no stack is in use, so nothing stays mapped
    /// assert!(pool.allocate().is_ok()); // the pool maps again
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn trim(&self) {
        self.core.trim();
    }

    /// Unmaps each large mapping in which no stack is in use, and from then on each one as soon as
    /// its last stack comes back. Call it when the pool's user shuts down.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackPool};
    ///
    /// let pool = StackPool::new()?;
    /// let last = pool.allocate()?;
    /// pool.retire();
    /// assert_eq!(pool.stats().regions, 1); // `last` is in use
    /// drop(last);
    /// assert_eq!(pool.stats().regions, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn retire(&self) {
        self.core.close();
    }

    pub(super) fn core(&self) -> &Arc<PoolCore> {
        &self.core
    }
}

impl core::fmt::Debug for StackPool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("StackPool")
            .field("stack_size", &self.stack_size())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Clone for StackPool {
    fn clone(&self) -> Self {
        self.core.handles.fetch_add(1, Ordering::Relaxed);
        StackPool { core: self.core.clone() }
    }
}

impl Drop for StackPool {
    fn drop(&mut self) {
        if self.core.handles.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.core.close();
        }
    }
}

// SAFETY: a slot is handed out to one `Stack` at a time.
unsafe impl StackAllocator for StackPool {
    fn allocate(&self) -> io::Result<Stack> {
        overflow::arm();
        let low = self.core.lock().take(&self.core)?;
        let home = Arc::into_raw(self.core.clone()).cast_mut().cast();
        // SAFETY: `Arc::into_raw` does not return null.
        let home = unsafe { NonNull::new_unchecked(home) };
        // SAFETY: the slot is out and belongs to this call. `release` takes the reference back.
        Ok(unsafe { Stack::from_slot(low, home) })
    }
}

/// Takes back a stack that `allocate` handed out.
///
/// # Safety
/// `home` is the home of that stack, and `low` its lowest usable address. Called once.
unsafe fn release(low: NonNull<u8>, home: NonNull<Home>) {
    // SAFETY: the home is the first field of a core, of which `allocate` left a reference.
    let core = unsafe { Arc::<PoolCore>::from_raw(home.cast().as_ptr()) };
    core.give(&[low]);
}

/// The state that all handles, stacks and caches of a pool share.
#[repr(C)]
pub(super) struct PoolCore {
    pub(super) home: Home,
    guards: Option<GuardKind>,
    max_stacks: usize,
    max_warm: usize,
    decay: Decay,
    /// The number of handles of the program. Stacks hold references that are not counted here.
    handles: AtomicUsize,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Sorted by address.
    regions: Vec<Region>,
    /// Free slots with memory; the most recently used one is last.
    warm: Vec<NonNull<u8>>,
    /// Free slots without memory.
    cold: Vec<NonNull<u8>>,
    /// The least length of `warm` since the last decay pass.
    least_warm: usize,
    in_use: usize,
    /// The number of slots of all regions that were ever handed out. Both lists have this capacity,
    /// so returning a stack needs no memory. It includes slots that `cool` holds outside of both
    /// lists.
    carved: usize,
    /// The number of slots of the next region to map.
    next_region: usize,
    /// Whether a thread makes decay passes.
    decaying: bool,
    /// Whether the last handle was dropped or the pool was retired.
    closed: bool,
    stats: PoolStats,
}

// SAFETY: the pointers name free slots of these regions, which no thread owns.
unsafe impl Send for Inner {}

impl PoolCore {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Takes slots for a cache, at least one, the warmest first. Returns the count.
    pub(super) fn take_batch(&self, into: &mut [NonNull<u8>]) -> io::Result<usize> {
        let mut inner = self.lock();
        into[0] = inner.take(self)?;
        let mut count = 1;
        // Take only free slots: the pool must not grow for stacks that the cache may never need.
        while count < into.len()
            && let Some(low) = inner.take_free(self)
        {
            into[count] = low;
            count += 1;
        }
        Ok(count)
    }

    /// Takes slots back.
    pub(super) fn give(self: &Arc<Self>, slots: &[NonNull<u8>]) {
        let mut unmapped = Vec::new();
        let mut inner = self.lock();
        inner.in_use -= slots.len();
        if inner.closed {
            for &low in slots {
                // SAFETY: the slot is free, and in no list yet.
                unsafe { discard(low, self.home.size) };
                inner.make_cold(low);
            }
            unmapped = inner.take_idle_regions();
        } else {
            let room = self.max_warm.saturating_sub(inner.warm.len()).min(slots.len());
            inner.warm.extend_from_slice(&slots[..room]);
            for &low in &slots[room..] {
                // SAFETY: the slot is free, and in no list yet.
                unsafe { discard(low, self.home.size) };
                inner.make_cold(low);
            }
            self.start_decay(&mut inner);
        }
        drop(inner);
        // Unmap after the lock is released.
        drop(unmapped);
    }

    fn start_decay(self: &Arc<Self>, inner: &mut Inner) {
        let Decay::Background(interval) = self.decay else {
            return;
        };
        if inner.decaying {
            return;
        }
        let core = Arc::downgrade(self);
        // If the thread cannot be made, free stacks keep their memory. The next stack that comes
        // back tries again.
        inner.decaying = std::thread::Builder::new()
            .name("sinew-decay".into())
            .spawn(move || decay_loop(&core, interval))
            .is_ok();
    }

    fn decay_pass(&self) -> bool {
        let idle = self.lock().least_warm;
        self.cool(idle)
    }

    fn trim(&self) {
        self.cool(usize::MAX);
    }

    fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        drop(inner);
        // The slots of regions that stay, because one of their stacks is in use, keep no memory.
        self.cool(usize::MAX);
    }

    /// Makes the oldest `count` warm slots cold and unmaps the regions that have become idle.
    /// Returns whether warm slots are left.
    ///
    /// Gives memory back in batches. The slots of a batch are in no list meanwhile, and the lock is
    /// released.
    fn cool(&self, count: usize) -> bool {
        let mut left = count;
        let mut batch = Vec::new();
        let mut inner = self.lock();
        while left > 0 && !inner.warm.is_empty() {
            let now = DECAY_BATCH.min(left).min(inner.warm.len());
            batch.extend(inner.warm.drain(..now));
            left -= now;
            drop(inner);
            for &low in &batch {
                // SAFETY: the slot is free, and in no list.
                unsafe { discard(low, self.home.size) };
            }
            inner = self.lock();
            inner.stats.decayed += batch.len() as u64;
            for low in batch.drain(..) {
                inner.make_cold(low);
            }
        }
        let unmapped = inner.take_idle_regions();
        inner.least_warm = inner.warm.len();
        let more = inner.least_warm > 0;
        drop(inner);
        drop(unmapped);
        more
    }
}

fn decay_loop(core: &Weak<PoolCore>, interval: Duration) {
    loop {
        std::thread::sleep(interval);
        let Some(core) = core.upgrade() else { return };
        if !core.decay_pass() {
            let mut inner = core.lock();
            // Check again under the lock: a stack that came back since the pass found `decaying`
            // set and started no thread.
            if inner.warm.is_empty() {
                inner.decaying = false;
                return;
            }
        }
    }
}

impl Inner {
    /// Takes a free slot, or carves a new one.
    fn take(&mut self, pool: &PoolCore) -> io::Result<NonNull<u8>> {
        if self.in_use >= pool.max_stacks {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!(
                    "all {} stacks that the pool may hand out are in use; raise `max_stacks`",
                    pool.max_stacks
                ),
            ));
        }
        if let Some(low) = self.take_free(pool) {
            return Ok(low);
        }
        let index = match self.regions.iter().position(|region| !region.is_used_up()) {
            Some(index) => index,
            None => self.add_region(pool)?,
        };
        for list in [&mut self.warm, &mut self.cold] {
            let room = self.carved + 1 - list.len();
            list.try_reserve(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        let low = self.regions[index].carve()?;
        self.carved += 1;
        self.count_out();
        Ok(low)
    }

    fn take_free(&mut self, pool: &PoolCore) -> Option<NonNull<u8>> {
        if self.in_use >= pool.max_stacks {
            return None;
        }
        let low = if let Some(low) = self.warm.pop() {
            self.least_warm = self.least_warm.min(self.warm.len());
            self.stats.reused += 1;
            low
        } else {
            let low = self.cold.pop()?;
            self.region_of(low).cold -= 1;
            low
        };
        self.count_out();
        Some(low)
    }

    fn count_out(&mut self) {
        self.in_use += 1;
        self.stats.allocated += 1;
    }

    /// Maps a region, twice as large as the previous one up to a limit.
    fn add_region(&mut self, pool: &PoolCore) -> io::Result<usize> {
        let stride = pool.home.size + pool.home.guard;
        self.regions.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut slots = self.next_region;
        let region = loop {
            match Region::new(slots, stride, pool.home.guard, pool.guards) {
                Ok(region) => break region,
                // Under a limit on addresses, a smaller region may still fit.
                Err(error) if slots <= 4 => return Err(error),
                Err(_) => slots = (slots / 4).max(4),
            }
        };
        self.next_region = (slots * 2).min((LARGEST_REGION / stride).max(4));
        let start = region.start();
        let index = self.regions.partition_point(|other| other.start() < start);
        self.regions.insert(index, region);
        Ok(index)
    }

    fn region_of(&mut self, low: NonNull<u8>) -> &mut Region {
        let address = low.addr().get();
        let index = self.regions.partition_point(|region| region.start() <= address) - 1;
        debug_assert!(self.regions[index].contains(address));
        &mut self.regions[index]
    }

    fn make_cold(&mut self, low: NonNull<u8>) {
        self.region_of(low).cold += 1;
        self.cold.push(low);
    }

    /// Removes the regions in which every slot is cold; the caller unmaps them.
    fn take_idle_regions(&mut self) -> Vec<Region> {
        let idle = |region: &Region| region.cold == region.carved;
        if !self.regions.iter().any(idle) {
            return Vec::new();
        }
        let (gone, kept): (Vec<Region>, Vec<Region>) =
            core::mem::take(&mut self.regions).into_iter().partition(idle);
        self.regions = kept;
        self.cold.retain(|low| {
            let address = low.addr().get();
            let index = gone.partition_point(|region| region.start() <= address);
            index == 0 || !gone[index - 1].contains(address)
        });
        self.carved -= gone.iter().map(|region| region.carved).sum::<usize>();
        self.cold.shrink_to(self.carved);
        self.warm.shrink_to(self.carved);
        // After a burst, the next region is as small as the smallest that was unmapped.
        self.next_region = self.next_region.min(gone.iter().map(Region::slots).min().unwrap_or(4));
        gone
    }
}
