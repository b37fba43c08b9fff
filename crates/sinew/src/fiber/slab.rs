//! Where control blocks come from: each carrier's own supply, and a common one for threads.
//!
//! Blocks are carved out of chunks that are never unmapped, so that whoever holds an old pointer
//! finds a block there, if not the same fiber. A chunk is aligned to its size: the block's address
//! leads to the chunk, and the chunk to the slab that its blocks go back to.
//!
//! A slab's owner takes and gives without atomics. Other threads give through a list that the owner
//! collects when its own is empty.

use super::control::Control;
use crate::primitive::{AtomicPtr, AtomicU64, Ordering, SpinLock};
use crate::queue::Linked;
use core::cell::Cell;
use core::ptr;

/// Bytes of a chunk, and its alignment.
const CHUNK: usize = 64 * 1024;

/// The head of a chunk, in the place of its first block.
#[repr(C)]
struct Chunk {
    home: *const Slab,
}

const BLOCKS: usize = CHUNK / size_of::<Control>() - 1;

/// Every chunk there is, for those who look at all fibers.
static CHUNKS: SpinLock<Vec<ChunkPtr>> = SpinLock::new(Vec::new());

#[derive(Clone, Copy)]
struct ChunkPtr(*const Chunk);
// SAFETY: chunks are never unmapped, and their heads never change.
unsafe impl Send for ChunkPtr {}

/// Ids that have been given out.
static IDS: AtomicU64 = AtomicU64::new(1);

/// Ids that a slab takes at once.
const ID_BATCH: u64 = 1024;

/// A supply of control blocks.
pub(crate) struct Slab {
    /// The owner's free blocks, by their links.
    free: Cell<*const Control>,
    /// Freed by others.
    returned: AtomicPtr<Control>,
    /// The ids that are left of the last batch: the next, and the end.
    ids: Cell<(u64, u64)>,
}

// SAFETY: the plain fields are the owner's, as the unsafe functions ask.
unsafe impl Sync for Slab {}
// SAFETY: the same.
unsafe impl Send for Slab {}

impl Slab {
    pub(crate) const fn new() -> Slab {
        Slab {
            free: Cell::new(ptr::null()),
            returned: AtomicPtr::new(ptr::null_mut()),
            ids: Cell::new((0, 0)),
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
        self.free.set(control.link().load(Ordering::Relaxed));
        (control, id)
    }

    #[cold]
    #[inline(never)]
    unsafe fn take_slow(&self) -> (&'static Control, u64) {
        if self.ids.get().0 == self.ids.get().1 {
            let first = IDS.fetch_add(ID_BATCH, Ordering::Relaxed);
            self.ids.set((first, first + ID_BATCH));
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

    fn grow(&self) {
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
            chunk.write(Chunk { home: self });
            let blocks = memory.cast::<Control>();
            for index in (1..=BLOCKS).rev() {
                let block = blocks.add(index);
                block.write(Control::vacant());
                (*block).link().store(next.cast_mut(), Ordering::Relaxed);
                next = block;
            }
        }
        self.free.set(next);
        CHUNKS.lock().push(ChunkPtr(chunk));
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
        let home = (*control.map_addr(|address| address & !(CHUNK - 1)).cast::<Chunk>()).home;
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

/// Calls `each` with every block, vacant or not.
pub(crate) fn for_each(mut each: impl FnMut(&'static Control)) {
    // Chunks stay; the lock is not held while they are looked at.
    let chunks: Vec<ChunkPtr> = CHUNKS.lock().clone();
    for chunk in chunks {
        for index in 1..=BLOCKS {
            // SAFETY: inside the chunk, which is never unmapped.
            each(unsafe { &*chunk.0.cast::<Control>().add(index) });
        }
    }
}
