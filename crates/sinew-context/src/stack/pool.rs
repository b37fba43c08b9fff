//! Stacks of one size for many fibers: slots of large mappings, kept warm, given back by decay.
//!
//! # Who owns what
//!
//! A slot is in exactly one place: out (in a [`Stack`], or in a [`StackCache`](super::StackCache)),
//! *warm* (free, its memory untouched), *cold* (free, its memory given back), or never carved.
//! Warm slots are reused last in, first out: the one used most recently is in the cache and its
//! pages are there. Every out slot holds a reference to the pool's core, so a stack that is
//! forgotten keeps its region mapped, whatever happens to the pool.
//!
//! # Decay
//!
//! Each pass looks at the least number of warm slots since the pass before: so many were not
//! needed for a whole interval. The oldest so many become cold, and a region of which all slots
//! are cold is unmapped. A burst is thus forgotten after two passes.
//! By default a thread makes the passes; it is started when there is something to decay and ends
//! when there is not. A runtime that has maintenance of its own calls [`StackPool::decay`].
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

/// Bytes of addresses in the first region and in the largest.
const FIRST_REGION: usize = 16 * 1024 * 1024;
const LARGEST_REGION: usize = 1024 * 1024 * 1024;

/// Slots that a decay pass works on without letting others in between.
const DECAY_BATCH: usize = 256;

/// A pool of guarded stacks of one size, to be shared by threads.
///
/// A clone is another handle to the same pool. When the last handle goes, all memory that no
/// stack is using is unmapped; the rest follows as its stacks come back.
///
/// # Examples
/// ```
/// use sinew_context::{Fiber, stack::StackPool};
///
/// let pool = StackPool::builder().stack_size(64 * 1024).build()?;
/// let fiber = Fiber::with_allocator(&pool, |caller| caller)?;
/// assert_eq!(pool.stats().in_use, 1);
/// assert!(fiber.resume().is_none());
/// assert_eq!(pool.stats().in_use, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct StackPool {
    core: Arc<PoolCore>,
}

/// What a pool holds at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// Stacks handed out, those that wait in a cache among them.
    pub in_use: usize,
    /// Free stacks that keep their memory.
    pub warm: usize,
    /// Free stacks whose memory was given back.
    pub cold: usize,
    /// Large mappings.
    pub regions: usize,
    /// Of these, how many guard their stacks by `mprotect`: because guards in place were refused,
    /// or not wanted.
    pub mprotect_regions: usize,
    /// Addresses that the regions span.
    pub reserved_bytes: usize,
    /// Stacks ever handed out.
    pub allocated: u64,
    /// Of these, how many were warm.
    pub reused: u64,
    /// Stacks whose memory decay gave back.
    pub decayed: u64,
}

impl StackPool {
    /// A pool of stacks of the default size, 256 KiB.
    pub fn new() -> io::Result<StackPool> {
        Self::builder().build()
    }

    /// Starts to set up a pool.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }

    /// Usable bytes of each stack.
    pub fn stack_size(&self) -> usize {
        self.core.home.size
    }

    /// What the pool holds now.
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

    /// Makes one decay pass: gives back the memory of stacks that were not needed since the pass
    /// before. Says whether there may be more to do later.
    pub fn decay(&self) -> bool {
        self.core.decay_pass()
    }

    /// Gives back the memory of every free stack now.
    pub fn trim(&self) {
        self.core.trim();
    }

    /// Keeps nothing from now on: what is free goes, and what comes back. For the end of whoever uses the pool.
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
        // SAFETY: pointers to what is counted are not null.
        let home = unsafe { NonNull::new_unchecked(home) };
        // SAFETY: the slot is out, and ours; `release` takes the reference back.
        Ok(unsafe { Stack::from_slot(low, home) })
    }
}

unsafe fn release(low: NonNull<u8>, home: NonNull<Home>) {
    // SAFETY: the home is the first field of a core, to which `allocate` left a reference.
    let core = unsafe { Arc::<PoolCore>::from_raw(home.cast().as_ptr()) };
    core.give(&[low]);
}

/// What all handles, stacks and caches of a pool share.
#[repr(C)]
pub(super) struct PoolCore {
    pub(super) home: Home,
    guards: Option<GuardKind>,
    max_stacks: usize,
    max_warm: usize,
    decay: Decay,
    /// Handles of the program, as opposed to references of stacks.
    handles: AtomicUsize,
    inner: Mutex<Inner>,
}

struct Inner {
    /// Sorted by address.
    regions: Vec<Region>,
    /// Free slots with memory; the most recently used one last.
    warm: Vec<NonNull<u8>>,
    /// Free slots without memory.
    cold: Vec<NonNull<u8>>,
    /// The least length of `warm` since the last decay pass.
    least_warm: usize,
    in_use: usize,
    /// Slots of all regions that were ever handed out. Either list has room for so many, so that
    /// giving a stack back needs no memory; it counts those that `cool` holds outside of both.
    carved: usize,
    /// Slots of the region to map next.
    next_region: usize,
    /// Whether a thread makes passes.
    decaying: bool,
    /// Whether the last handle is gone.
    closed: bool,
    stats: PoolStats,
}

// SAFETY: the pointers name free slots of the regions here, which no thread owns.
unsafe impl Send for Inner {}

impl PoolCore {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Takes slots for a cache, at least one, the warmest first; says how many.
    pub(super) fn take_batch(&self, into: &mut [NonNull<u8>]) -> io::Result<usize> {
        let mut inner = self.lock();
        into[0] = inner.take(self)?;
        let mut count = 1;
        // Only what is there: a cache does not grow the pool for later.
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
                inner.make_cold(low);
            }
            unmapped = inner.take_idle_regions();
        } else {
            let room = self.max_warm.saturating_sub(inner.warm.len()).min(slots.len());
            inner.warm.extend_from_slice(&slots[..room]);
            for &low in &slots[room..] {
                // SAFETY: the slot is free, and not in a list yet.
                unsafe { discard(low, self.home.size) };
                inner.make_cold(low);
            }
            self.start_decay(&mut inner);
        }
        drop(inner);
        // Unmapped without the lock.
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
        // Without the thread, the memory is kept until the next stack comes back.
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
        for low in core::mem::take(&mut inner.warm) {
            inner.make_cold(low);
        }
        let unmapped = inner.take_idle_regions();
        drop(inner);
        drop(unmapped);
    }

    /// Makes the oldest `count` warm slots cold and unmaps the regions that have become idle;
    /// says whether warm slots are left.
    ///
    /// Memory is given back batch by batch, with the slots out of all lists and the lock free.
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
            // Looked at again under the lock: a stack that came back since the pass found
            // `decaying` set and started no thread.
            if inner.warm.is_empty() {
                inner.decaying = false;
                return;
            }
        }
    }
}

impl Inner {
    /// Takes a free slot, or a new one.
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

    /// Maps a region, each twice as large as the one before up to a limit.
    fn add_region(&mut self, pool: &PoolCore) -> io::Result<usize> {
        let stride = pool.home.size + pool.home.guard;
        self.regions.try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut slots = self.next_region;
        let region = loop {
            match Region::new(slots, stride, pool.home.guard, pool.guards) {
                Ok(region) => break region,
                // Under a limit on addresses a smaller region may still fit.
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

    /// Takes out the regions of which every slot is cold; the caller unmaps them.
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
        // After a burst the next region is as small as the first.
        self.next_region = self.next_region.min(gone.iter().map(Region::slots).min().unwrap_or(4));
        gone
    }
}
