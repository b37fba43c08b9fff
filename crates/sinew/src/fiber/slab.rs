//! Where control blocks come from: each carrier's own supply, and a common one for threads.
//!
//! Blocks are carved out of chunks that are never unmapped, so that whoever holds an old pointer
//! finds a block there, if not the same fiber. A chunk is aligned to its size: the block's address
//! leads to the chunk, and the chunk to the slab that its blocks go back to.
//!
//! A slab's owner takes and gives without atomics. Other threads give through a list that the owner
//! collects when its own is empty.

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
}

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
            chunk.write(Chunk { home: self, next: ptr::null() });
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
