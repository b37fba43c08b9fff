//! Where control blocks come from: each carrier's own supply, and a common one for threads.
//!
//! Blocks are carved out of chunks that are never unmapped, so that whoever holds an old pointer
//! finds a block there, if not the same fiber. A chunk is aligned to its size: the block's address
//! leads to the chunk, and the chunk to the slab that its blocks go back to.
//!
//! A slab's owner takes and gives without atomics. Other threads give through a list that the owner
//! collects when its own is empty.
//!
//! # Giving memory back
//!
//! After a burst of fibers most chunks hold vacant blocks only. An idle owner [trims](Slab::trim) its slab: the pages of
//! such a chunk, but for the one with its head, go back to the system, which leaves zeros in their place. Addresses
//! stay valid, and zeros are a vacant block to everyone who has an old pointer: no reference, no wait under way. So a
//! stale wake does nothing, as before. When the chunk is needed again, the epochs of its blocks begin behind the
//! greatest that any of them had, which the head keeps: an epoch never comes twice. A chunk one of whose blocks has an
//! `Extra` stays, because others may reach that by an old pointer.

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
    /// The one that was made before it.
    pub(super) next: *const Chunk,
    /// Vacant blocks that a trim has counted. The rest belongs to the owner of `home`.
    vacant: Cell<usize>,
    /// No block has had more waits.
    waits: Cell<u64>,
    /// The next chunk without pages.
    next_bare: Cell<*const Chunk>,
}

const _: () = assert!(size_of::<Chunk>() <= size_of::<Control>());

pub(super) const BLOCKS: usize = CHUNK / size_of::<Control>() - 1;

/// Every chunk there is, the newest first, for those who look at all fibers.
pub(super) static CHUNKS: AtomicPtr<Chunk> = AtomicPtr::new(ptr::null_mut());

/// All chunks, each with the address of its blocks.
fn chunks() -> impl Iterator<Item = *const Control> {
    // ORDERING: Acquire: the heads and the blocks; pairs with the Release in `grow`.
    let mut next: *const Chunk = CHUNKS.load(Ordering::Acquire);
    core::iter::from_fn(move || {
        // SAFETY: chunks are never unmapped, and their heads never change.
        let chunk = unsafe { next.as_ref()? };
        let blocks = next.cast::<Control>();
        next = chunk.next;
        Some(blocks)
    })
}

/// Ids that have been given out.
static IDS: AtomicU64 = AtomicU64::new(1);

/// Ids that a slab takes at once.
const ID_BATCH: u64 = 1024;

/// A supply of control blocks.
pub(crate) struct Slab {
    /// The owner's free blocks, by their links.
    free: Cell<*const Control>,
    /// Freed by others.
    returned: Alone<AtomicPtr<Control>>,
    /// The ids that are left of the last batch: the next, and the end.
    ids: Cell<(u64, u64)>,
    /// Chunks whose pages were given back.
    bare: Cell<*const Chunk>,
    /// Chunks that have their pages.
    chunks: Cell<usize>,
}

// SAFETY: the plain fields are the owner's, as the unsafe functions ask.
unsafe impl Sync for Slab {}
// SAFETY: the same.
unsafe impl Send for Slab {}

impl Slab {
    pub(crate) const fn new() -> Slab {
        Slab {
            free: Cell::new(ptr::null()),
            returned: Alone::new(AtomicPtr::new(ptr::null_mut())),
            ids: Cell::new((0, 0)),
            bare: Cell::new(ptr::null()),
            chunks: Cell::new(0),
        }
    }

    /// Takes a vacant block, and an id.
    ///
    /// # Safety
    /// The caller is the owner, and the slab stays where it is for ever.
    #[inline(always)]
    pub(crate) unsafe fn take(&self) -> (&'static Control, u64) {
        let (id, end) = self.ids.get();
        let free = self.free.get();
        if free.is_null() || id == end {
            // SAFETY: as the caller promised.
            return unsafe { self.take_slow() };
        }
        self.ids.set((id + 1, end));
        // SAFETY: blocks are never unmapped.
        let control = unsafe { &*free };
        let next = control.link().load(Ordering::Relaxed);
        self.free.set(next);
        (control, id)
    }

    /// A number that no fiber has, nor anybody else.
    ///
    /// # Safety
    /// The caller is the owner.
    pub(crate) unsafe fn next_id(&self) -> u64 {
        let (id, end) = self.ids.get();
        if id == end {
            self.refill_ids();
            // SAFETY: as the caller promised; there are some now.
            return unsafe { self.next_id() };
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
    unsafe fn take_slow(&self) -> (&'static Control, u64) {
        if self.ids.get().0 == self.ids.get().1 {
            self.refill_ids();
        }
        if self.free.get().is_null() {
            // ORDERING: Acquire: what the last users wrote; pairs with the Release in `free`.
            self.free.set(self.returned.swap(ptr::null_mut(), Ordering::Acquire));
        }
        if self.free.get().is_null() {
            self.grow();
        }
        // SAFETY: as the caller promised; there is a block and an id now.
        unsafe { self.take() }
    }

    /// Provides free blocks.
    fn grow(&self) {
        self.chunks.set(self.chunks.get() + 1);
        let bare = self.bare.get();
        if bare.is_null() {
            return self.add_chunk();
        }
        // SAFETY: chunks are never unmapped, and the heads of bare ones are the owner's.
        let chunk = unsafe { &*bare };
        self.bare.set(chunk.next_bare.get());
        for index in (1..=BLOCKS).rev() {
            // SAFETY: a block of the chunk. Its memory is zero, which is a vacant block but for its vtable; others look
            // at its atomics only.
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
    ///
    /// # Safety
    /// The caller is the owner.
    pub(crate) unsafe fn is_large(&self) -> bool {
        cfg!(any(target_os = "linux", target_os = "android")) && self.chunks.get() >= FEW_CHUNKS
    }

    /// Gives back the memory of chunks that have vacant blocks only. Takes as long as there are vacant blocks, some
    /// nanoseconds each.
    ///
    /// # Safety
    /// The caller is the owner.
    pub(crate) unsafe fn trim(&self) {
        // SAFETY: the caller is the owner.
        if !unsafe { self.is_large() } {
            return;
        }
        // ORDERING: Acquire: what the last users wrote; pairs with the Release in `return_to`.
        let returned = self.returned.swap(ptr::null_mut(), Ordering::Acquire).cast_const();
        let vacant = || blocks_of(self.free.get()).chain(blocks_of(returned));
        // SAFETY: each block lies in a chunk of this slab, whose head the owner may use.
        let chunk_of = |block: &Control| unsafe { &*head_of(block) };
        for block in vacant() {
            let chunk = chunk_of(block);
            // One with an extra does not count: so its chunk is never complete.
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
                // The first of its blocks: the others find none counted.
                // SAFETY: all blocks of the chunk are vacant, and in no list any more.
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
        // SAFETY: fresh memory of that size; block `i` lies behind the head.
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
            // SAFETY: nobody else knows of it yet.
            unsafe { (*chunk).next = first };
            // ORDERING: Release: its head and its blocks; pairs with the Acquire in `chunks`.
            match CHUNKS.compare_exchange_weak(first, chunk, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }
}

/// Chunks that a slab keeps in any case: a megabyte.
const FEW_CHUNKS: usize = 16;

/// The head of the chunk that a block is in.
#[inline(always)]
fn head_of(control: *const Control) -> *const Chunk {
    control.map_addr(|address| address & !(CHUNK - 1)).cast()
}

/// The blocks of a list, by their links.
fn blocks_of(first: *const Control) -> impl Iterator<Item = &'static Control> {
    let mut next = first;
    core::iter::from_fn(move || {
        // SAFETY: blocks are never unmapped.
        let block = unsafe { next.as_ref()? };
        next = block.link().load(Ordering::Relaxed);
        Some(block)
    })
}

/// Gives back the pages of a chunk but for the first, which has its head. They read as zeros afterwards.
///
/// # Safety
/// All blocks of the chunk are vacant, and their owner uses them no more until it has revived them.
unsafe fn give_pages_back(chunk: &Chunk) {
    let page = sinew_context::stack::page_size();
    if page < CHUNK {
        let memory = ptr::from_ref(chunk).cast::<u8>().cast_mut();
        // SAFETY: whole pages of the chunk, whose blocks are all vacant. Blocks that lie on the first page keep theirs,
        // which is vacant as well.
        unsafe { libc::madvise(memory.add(page).cast(), CHUNK - page, libc::MADV_DONTNEED) };
    }
}

/// Gives a block back whose last reference is gone.
///
/// # Safety
/// Nobody uses the block any more, but for its atomics.
#[inline(always)]
pub(crate) unsafe fn free(control: *const Control) {
    // SAFETY: each block lies in a chunk.
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

#[cold]
#[inline(never)]
unsafe fn return_to(home: *const Slab, control: *const Control) {
    // SAFETY: slabs live for ever; the block is the caller's until it is in the list.
    unsafe {
        let returned = &(*home).returned;
        let mut head = returned.load(Ordering::Relaxed);
        loop {
            (*control).link().store(head, Ordering::Relaxed);
            // ORDERING: Release: pairs with the Acquire in `take_slow`, which takes all at once.
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

/// The supply of those who are no carrier.
static COMMON: SpinLock<&'static Slab> = {
    static SLAB: Slab = Slab::new();
    SpinLock::new(&SLAB)
};

/// Takes a vacant block for a thread that is no carrier, and an id.
pub(crate) fn take_common() -> (&'static Control, u64) {
    // SAFETY: whoever holds the lock is the owner, and the slab is static.
    unsafe { COMMON.lock().take() }
}

/// The block at an address, if there is one, vacant or not.
pub(crate) fn at(address: usize) -> Option<&'static Control> {
    let chunk = address & !(CHUNK - 1);
    let index = (address - chunk) / size_of::<Control>();
    let within = (1..=BLOCKS).contains(&index) && address == chunk + index * size_of::<Control>();
    let blocks = chunks().find(|blocks| within && blocks.addr() == chunk)?;
    // SAFETY: a block of a chunk, which is never unmapped.
    Some(unsafe { &*blocks.add(index) })
}

/// The block that an address is in, if there is one, vacant or not.
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
