//! The supply of control blocks: a slab for each carrier, and a common one for threads.
//!
//! Blocks are carved out of chunks that are never unmapped. So the holder of an old pointer finds a
//! block there, although perhaps of another fiber. A chunk is aligned to its size: the address of a
//! block leads to the chunk, and the chunk to the slab that its blocks go back to.
//!
//! The owner of a slab takes and frees blocks without atomic exchanges. Other threads free blocks
//! through a list that the owner collects when its own is empty.
//!
//! # Giving memory back
//!
//! After a burst of fibers, most chunks hold only vacant blocks. An idle owner [trims](Slab::trim)
//! its slab: all pages of such a chunk but the one with its head go back to the system, which
//! leaves zeros in their place. Addresses stay valid, and a zeroed block looks vacant through an
//! old pointer: no reference, no wait under way. So a stale wake still does nothing. The head keeps
//! the greatest epoch that any block of the chunk had. When the chunk is needed again, the epochs
//! of its blocks begin after that one, so no epoch comes twice. A chunk with a block that has an
//! `Extra` keeps its pages, because other threads may reach the `Extra` by an old pointer.

use super::control::Control;
use crate::primitive::{Alone, AtomicPtr, AtomicU64, Ordering, SpinLock};
use crate::queue::Linked;
use core::cell::Cell;
use core::ptr;

/// Bytes of a chunk, and its alignment.
const CHUNK: usize = 64 * 1024;

/// The head of a chunk, in the place of its first block.
#[repr(C)]
pub(super) struct Chunk {
    home: *const Slab,
    /// The chunk that was made before this one.
    pub(super) next: *const Chunk,
    /// The number of vacant blocks that a trim has counted. This field and the fields below it
    /// belong to the owner of `home`.
    vacant: Cell<usize>,
    /// An upper bound of the number of waits that each block has had.
    waits: Cell<u64>,
    /// The next chunk without pages.
    next_bare: Cell<*const Chunk>,
}

const _: () = assert!(size_of::<Chunk>() <= size_of::<Control>());

pub(super) const BLOCKS: usize = CHUNK / size_of::<Control>() - 1;

/// All chunks, the newest first, for code that looks at all fibers.
pub(super) static CHUNKS: AtomicPtr<Chunk> = AtomicPtr::new(ptr::null_mut());

/// Iterates over all chunks, as pointers to their blocks.
fn chunks() -> impl Iterator<Item = *const Control> {
    // ORDERING: Acquire shows the heads and the blocks; pairs with the Release in `add_chunk`.
    let mut next: *const Chunk = CHUNKS.load(Ordering::Acquire);
    core::iter::from_fn(move || {
        // SAFETY: chunks are never unmapped, and `next` does not change after publication.
        let chunk = unsafe { next.as_ref()? };
        let blocks = next.cast::<Control>();
        next = chunk.next;
        Some(blocks)
    })
}

/// The next id to be given out.
static IDS: AtomicU64 = AtomicU64::new(1);

/// The number of ids that a slab takes at once.
const ID_BATCH: u64 = 1024;

/// A supply of control blocks.
pub(crate) struct Slab {
    /// The owner's free blocks, linked.
    free: Cell<*const Control>,
    /// Blocks that other threads have freed, linked.
    returned: Alone<AtomicPtr<Control>>,
    /// The ids that are left of the last batch: the next, and the end.
    ids: Cell<(u64, u64)>,
    /// Chunks without pages, linked.
    bare: Cell<*const Chunk>,
    /// The number of chunks that have their pages.
    chunks: Cell<usize>,
}

// SAFETY: the pointers lead to blocks and chunks, which are never unmapped and belong to no thread.
// A slab is not `Sync`: its methods are for the owner. Other threads touch `returned` alone.
unsafe impl Send for Slab {}

impl Slab {
    /// Creates an empty slab.
    ///
    /// # Safety
    /// The slab is not moved after its first use, and never freed: its blocks lead back to it.
    pub(crate) const unsafe fn new() -> Slab {
        Slab {
            free: Cell::new(ptr::null()),
            returned: Alone::new(AtomicPtr::new(ptr::null_mut())),
            ids: Cell::new((0, 0)),
            bare: Cell::new(ptr::null()),
            chunks: Cell::new(0),
        }
    }

    /// Takes a vacant block and an id.
    #[inline(always)]
    pub(crate) fn take(&self) -> (&'static Control, u64) {
        let (id, end) = self.ids.get();
        let free = self.free.get();
        if free.is_null() || id == end {
            return self.take_slow();
        }
        self.ids.set((id + 1, end));
        // SAFETY: blocks are never unmapped.
        let control = unsafe { &*free };
        let next = control.link().load(Ordering::Relaxed);
        self.free.set(next);
        (control, id)
    }

    /// Returns a number that no fiber has, and that is not given out again.
    pub(crate) fn next_id(&self) -> u64 {
        let (id, end) = self.ids.get();
        if id == end {
            self.refill_ids();
            return self.next_id();
        }
        self.ids.set((id + 1, end));
        id
    }

    fn refill_ids(&self) {
        let first = IDS.fetch_add(ID_BATCH, Ordering::Relaxed);
        self.ids.set((first, first + ID_BATCH));
    }

    #[cold]
    #[inline(never)]
    fn take_slow(&self) -> (&'static Control, u64) {
        if self.ids.get().0 == self.ids.get().1 {
            self.refill_ids();
        }
        if self.free.get().is_null() {
            // ORDERING: Acquire shows the writes of the last users; pairs with the Release in
            // `return_to`.
            self.free.set(self.returned.swap(ptr::null_mut(), Ordering::Acquire));
        }
        if self.free.get().is_null() {
            self.grow();
        }
        // There is a block and an id now.
        self.take()
    }

    /// Provides free blocks, from a chunk without pages or from a new one.
    fn grow(&self) {
        self.chunks.set(self.chunks.get() + 1);
        let bare = self.bare.get();
        if bare.is_null() {
            return self.add_chunk();
        }
        // SAFETY: chunks are never unmapped, and the owner owns the heads of those without pages.
        let chunk = unsafe { &*bare };
        self.bare.set(chunk.next_bare.get());
        for index in (1..=BLOCKS).rev() {
            // SAFETY: a block of the chunk. Zeroed memory is a vacant block but for its vtable,
            // which `revive` sets. Other threads read only its atomics.
            let block = unsafe { &*bare.cast::<Control>().add(index) };
            block.revive(chunk.waits.get());
            self.push_free(block);
        }
    }

    fn push_free(&self, block: &Control) {
        block.link().store(self.free.get().cast_mut(), Ordering::Relaxed);
        self.free.set(block);
    }

    /// Whether there are so many chunks with pages that a trim may give memory back.
    pub(crate) fn is_large(&self) -> bool {
        cfg!(any(target_os = "linux", target_os = "android")) && self.chunks.get() >= FEW_CHUNKS
    }

    /// Gives back the memory of chunks that have only vacant blocks. Takes some nanoseconds for
    /// each vacant block.
    pub(crate) fn trim(&self) {
        if !self.is_large() {
            return;
        }
        // ORDERING: Acquire shows the writes of the last users; pairs with the Release in
        // `return_to`.
        let returned = self.returned.swap(ptr::null_mut(), Ordering::Acquire).cast_const();
        let vacant = || blocks_of(self.free.get()).chain(blocks_of(returned));
        // SAFETY: each block lies in a chunk of this slab, and the owner may use its head.
        let chunk_of = |block: &Control| unsafe { &*head_of(block) };
        for block in vacant() {
            let chunk = chunk_of(block);
            // A block with an `Extra` is not counted, so its chunk never counts as vacant.
            let counts = usize::from(block.extra().is_none());
            chunk.vacant.set(chunk.vacant.get() + counts);
            chunk.waits.set(chunk.waits.get().max(block.wake.epochs()));
        }
        let all: Vec<&Control> = vacant().collect();
        self.free.set(ptr::null());
        for block in all.iter().rev() {
            let chunk = chunk_of(block);
            if chunk.vacant.get() < BLOCKS {
                self.push_free(block);
            }
        }
        for block in all {
            let chunk = chunk_of(block);
            if chunk.vacant.replace(0) == BLOCKS {
                // This is the chunk's first block in the list: for the others the count is zero.
                // SAFETY: all blocks of the chunk are vacant and in no list.
                unsafe { give_pages_back(chunk) };
                chunk.next_bare.set(self.bare.replace(chunk));
                self.chunks.set(self.chunks.get() - 1);
            }
        }
    }

    fn add_chunk(&self) {
        let layout = core::alloc::Layout::from_size_align(CHUNK, CHUNK).expect("a valid layout");
        // SAFETY: the size is not zero.
        let memory = unsafe { std::alloc::alloc(layout) };
        if memory.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        let chunk = memory.cast::<Chunk>();
        let mut next = ptr::null::<Control>();
        // SAFETY: fresh memory of that size. Block `index` lies behind the head and inside the
        // chunk.
        unsafe {
            chunk.write(Chunk {
                home: self,
                next: ptr::null(),
                vacant: Cell::new(0),
                waits: Cell::new(0),
                next_bare: Cell::new(ptr::null()),
            });
            let blocks = memory.cast::<Control>();
            for index in (1..=BLOCKS).rev() {
                let block = blocks.add(index);
                block.write(Control::vacant());
                (*block).link().store(next.cast_mut(), Ordering::Relaxed);
                next = block;
            }
        }
        self.free.set(next);
        let mut first = CHUNKS.load(Ordering::Relaxed);
        loop {
            // SAFETY: the chunk is not published yet.
            unsafe { (*chunk).next = first };
            // ORDERING: Release publishes the head and the blocks; pairs with the Acquire in
            // `chunks`.
            match CHUNKS.compare_exchange_weak(first, chunk, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}

/// The number of chunks that a slab keeps in any case: a megabyte.
const FEW_CHUNKS: usize = 16;

/// Returns the head of the chunk that a block is in.
#[inline(always)]
fn head_of(control: *const Control) -> *const Chunk {
    control.map_addr(|address| address & !(CHUNK - 1)).cast()
}

/// Iterates over the blocks of a list.
fn blocks_of(first: *const Control) -> impl Iterator<Item = &'static Control> {
    let mut next = first;
    core::iter::from_fn(move || {
        // SAFETY: blocks are never unmapped.
        let block = unsafe { next.as_ref()? };
        next = block.link().load(Ordering::Relaxed);
        Some(block)
    })
}

/// Gives back the pages of a chunk, but for the first, which has the head. They read as zeros
/// afterwards.
///
/// # Safety
/// All blocks of the chunk are vacant, and the owner does not use them before it has revived them.
unsafe fn give_pages_back(chunk: &Chunk) {
    let page = sinew_context::stack::page_size();
    if page < CHUNK {
        let memory = ptr::from_ref(chunk).cast::<u8>().cast_mut();
        // SAFETY: whole pages of the chunk, with vacant blocks only. Blocks on the first page keep
        // their content, which is vacant too.
        unsafe { libc::madvise(memory.add(page).cast(), CHUNK - page, libc::MADV_DONTNEED) };
    }
}

/// Gives a block back after its last reference was dropped.
///
/// # Safety
/// The block is not used any more, but for reads of its atomics through old pointers.
#[inline(always)]
pub(crate) unsafe fn free(control: *const Control) {
    // SAFETY: each block lies in a chunk. If this thread's slab is its home, this thread is the
    // owner.
    unsafe {
        if let Some(extra) = (*control).extra() {
            extra.clear();
        }
        let home = (*head_of(control)).home;
        if ptr::eq(home, crate::carrier::current::slab()) {
            (*control).link().store((*home).free.get().cast_mut(), Ordering::Relaxed);
            (*home).free.set(control);
        } else {
            return_to(home, control);
        }
    }
}

/// Gives a block back to a slab that is not this thread's.
///
/// # Safety
/// As for [`free`]. `home` is the slab of the block's chunk.
#[cold]
#[inline(never)]
unsafe fn return_to(home: *const Slab, control: *const Control) {
    // SAFETY: slabs live for ever. The caller owns the block until it is in the list.
    unsafe {
        let returned = &(*home).returned;
        let mut head = returned.load(Ordering::Relaxed);
        loop {
            (*control).link().store(head, Ordering::Relaxed);
            // ORDERING: Release publishes the writes to the block; pairs with the Acquire in
            // `take_slow` and `trim`, which take the whole list.
            match returned.compare_exchange_weak(
                head,
                control.cast_mut(),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// The supply for threads that are no carriers.
// SAFETY: a static is neither moved nor freed.
static COMMON: SpinLock<Slab> = SpinLock::new(unsafe { Slab::new() });

/// Takes a vacant block and an id for a thread that is no carrier.
pub(crate) fn take_common() -> (&'static Control, u64) {
    // The holder of the lock is the owner.
    COMMON.lock().take()
}

/// Returns the block at an address, if there is one, vacant or not.
pub(crate) fn at(address: usize) -> Option<&'static Control> {
    let chunk = address & !(CHUNK - 1);
    let index = (address - chunk) / size_of::<Control>();
    let within = (1..=BLOCKS).contains(&index) && address == chunk + index * size_of::<Control>();
    let blocks = chunks().find(|blocks| within && blocks.addr() == chunk)?;
    // SAFETY: a block of a chunk, and chunks are never unmapped.
    Some(unsafe { &*blocks.add(index) })
}

/// Returns the block that contains an address, if there is one, vacant or not.
pub(crate) fn around(address: usize) -> Option<&'static Control> {
    let chunk = address & !(CHUNK - 1);
    at(address - (address - chunk) % size_of::<Control>())
}

/// Calls `each` with every block, vacant or not.
pub(crate) fn for_each(mut each: impl FnMut(&'static Control)) {
    for blocks in chunks() {
        for index in 1..=BLOCKS {
            // SAFETY: inside the chunk, which is never unmapped.
            each(unsafe { &*blocks.add(index) });
        }
    }
}

#[cfg(test)]
mod tests;
