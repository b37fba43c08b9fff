//! Stacks: what a fiber runs on, and where they come from.
//!
//! A [`Stack`] owns a range of writable memory and knows how to give it back. Allocators make
//! them:
//!
//! | allocator | memory | guard | for |
//! | --- | --- | --- | --- |
//! | [`ProtectedFixedSize`] | a mapping each | yes | a few fibers, no sharing |
//! | [`StackPool`] | slots of large mappings, kept warm | yes | many fibers; shared by threads |
//! | [`StackCache`] | a thread's own supply from a pool | yes | fibers made and ended all the time |
//! | [`Segmented`] | a large reservation, committed as touched | yes | recursion of unknown depth |
//! | [`FixedSize`] | the heap | no, hence `unsafe` | memory the program counts itself |
//!
//! # Layout
//!
//! ```text
//!            high |  owner words (16 bytes): the fiber on this stack, or null
//!                 |  the fiber's record and closure
//!                 |  stagger: so that not all stacks begin in the same cache sets
//!                 |  frames, growing down, committed page by page
//! low ----------- |
//!                 |  guard: at least 64 KiB of addresses that fault
//! ```
//!
//! Guarantee: a stack that was handed out is not handed out again, and not unmapped, until its
//! `Stack` value is dropped. A fiber that is forgotten keeps its stack for ever.
//!
//! Next: [`overflow`], which finds the stack that an address belongs to.

mod cache;
mod fixed;
mod guard;
mod mapping;
pub mod overflow;
mod pool;
mod protected;
mod segmented;
mod usage;

pub use cache::StackCache;
pub use fixed::FixedSize;
pub use guard::GuardKind;
pub use pool::{Decay, PoolBuilder, PoolStats, StackPool};
pub use protected::ProtectedFixedSize;
pub use segmented::Segmented;
pub(crate) use segmented::discard_below;

use crate::primitive::try_box;
use crate::sanitizer;
use core::ptr::NonNull;
use overflow::registry::{self, Span};
use std::io;

/// Size of a stack when nothing else is asked for: 256 KiB of addresses, committed as touched.
pub const DEFAULT_STACK_SIZE: usize = 256 * 1024;

/// Smallest stack that can be asked for.
pub const MIN_STACK_SIZE: usize = 4096;

/// Largest stack that can be asked for: 64 GiB of addresses.
pub const MAX_STACK_SIZE: usize = 64 << 30;

/// Addresses below a guarded stack that fault, unless a larger guard is asked for: 64 KiB, and
/// 1 MiB on riscv64.
///
/// Rust code touches each page of a large frame in order, so a page would do for it; on riscv64
/// the compiler does not, so a frame larger than the guard steps over it. C code does not anywhere:
/// one page is stepped over by any function with a 4 KiB buffer.
pub const DEFAULT_GUARD_SIZE: usize =
    if cfg!(target_arch = "riscv64") { 1024 * 1024 } else { MIN_GUARD_SIZE };

/// Smallest guard that can be asked for.
pub const MIN_GUARD_SIZE: usize = 64 * 1024;

/// Bytes at the top of each stack that belong to this module.
const OWNER_WORDS: usize = 16;

/// A source of stacks.
///
/// # Safety
/// A stack that `allocate` returns is not used by anything else until it is dropped.
pub unsafe trait StackAllocator {
    /// Gives out a stack.
    ///
    /// Fails if there is no memory or a limit is reached; the error says which and what to do.
    fn allocate(&self) -> io::Result<Stack>;
}

/// Whatever leads to an allocator is one.
macro_rules! pass_on {
    ($($pointer:ty),+) => {$(
        // SAFETY: passes on what the allocator behind the pointer promises.
        unsafe impl<A: StackAllocator + ?Sized> StackAllocator for $pointer {
            fn allocate(&self) -> io::Result<Stack> {
                (**self).allocate()
            }
        }
    )+};
}
pass_on!(&A, Box<A>, std::rc::Rc<A>, std::sync::Arc<A>);

/// Memory for one fiber to run on. Dropping it gives it back to where it came from.
///
/// Two words: a stack is moved into and out of the fiber that runs on it, each time one is made
/// and ends.
pub struct Stack {
    /// Lowest usable address; the guard lies below.
    low: NonNull<u8>,
    home: NonNull<Home>,
}

/// What the stacks of one origin have in common: the first field of whatever they go back to.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) size: usize,
    pub(crate) guard: usize,
    /// Takes a stack back, given its lowest usable address.
    pub(crate) release: unsafe fn(low: NonNull<u8>, home: NonNull<Home>),
}

/// Gives the memory of a stack back: its lowest usable address, its size, and the owner that was
/// named when the stack was made. Must not unwind.
pub type Release = unsafe fn(low: NonNull<u8>, size: usize, owner: *const ());

/// The home of a stack that is registered by itself.
#[repr(C)]
struct SingleHome {
    home: Home,
    owner: *const (),
    release: Release,
    /// The id by which valgrind knows the stack.
    valgrind: usize,
}

impl Stack {
    /// Makes a stack from memory that an allocator of one's own manages.
    ///
    /// `guard` bytes below `low` fault when touched; zero if nothing does. When the stack is
    /// dropped, `release` is called with `low`, `size` and `owner`.
    ///
    /// # Safety
    /// `size` bytes from `low` on are readable and writable, aligned to 16 at both ends, and used
    /// by nothing else until `release` is called; with a guard, they are private anonymous memory,
    /// which can be given back by the page. Overflowing a stack without a guard corrupts
    /// what lies below it. `release` is sound to call once, on the thread that drops the stack,
    /// and does not unwind.
    ///
    /// # Errors
    /// If the size or an alignment is wrong, or the heap has no memory for the bookkeeping.
    /// `release` is not called then.
    pub unsafe fn from_raw(
        low: NonNull<u8>,
        size: usize,
        guard: usize,
        owner: *const (),
        release: Release,
    ) -> io::Result<Stack> {
        if size < MIN_STACK_SIZE || !size.is_multiple_of(16) || !low.addr().get().is_multiple_of(16)
        {
            return Err(invalid(format_args!(
                "a stack of {size} bytes at {low:p} is too small or not aligned: \
                 {MIN_STACK_SIZE} bytes and an alignment of 16 are the least"
            )));
        }
        // `owner_at` and the frames name addresses on the stack as plain numbers.
        let (start, end) = (low.as_ptr().expose_provenance() - guard, low.addr().get() + size);
        let mut home = try_box(SingleHome {
            home: Home { size, guard, release: release_single },
            owner,
            release,
            valgrind: 0,
        })?;
        registry::insert(Span { start, end, stride: end - start, guard })?;
        // SAFETY: the caller promised `size` bytes.
        let high = unsafe { low.add(size) };
        home.valgrind = sanitizer::register_stack(low.as_ptr(), high.as_ptr());
        let stack = Stack { low, home: NonNull::from(Box::leak(home)).cast() };
        // SAFETY: nothing runs on the stack.
        unsafe { stack.set_owner(core::ptr::null_mut()) };
        Ok(stack)
    }

    /// Makes a stack from a slot whose region is registered already.
    ///
    /// # Safety
    /// As for [`Stack::from_raw`]; the owner words are null. The home is the first field of what
    /// its `release` takes it for, and stays until that was called.
    #[inline(always)]
    pub(crate) unsafe fn from_slot(low: NonNull<u8>, home: NonNull<Home>) -> Stack {
        Stack { low, home }
    }

    #[inline(always)]
    fn home(&self) -> &Home {
        // SAFETY: the home stays as long as the stack is out.
        unsafe { self.home.as_ref() }
    }

    /// Usable bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.home().size
    }

    /// Bytes below the stack that fault when touched.
    #[inline]
    pub fn guard_size(&self) -> usize {
        self.home().guard
    }

    /// Lowest usable address.
    #[inline]
    pub fn low(&self) -> NonNull<u8> {
        self.low
    }

    /// First address above the stack.
    #[inline]
    pub fn high(&self) -> NonNull<u8> {
        // SAFETY: the end of the allocation.
        unsafe { self.low.add(self.size()) }
    }

    /// Where the topmost thing on the stack may end: below the words that this module keeps.
    #[inline]
    pub fn top(&self) -> NonNull<u8> {
        // SAFETY: inside the allocation, which has at least `MIN_STACK_SIZE` bytes.
        unsafe { self.high().sub(OWNER_WORDS) }
    }

    /// How far below [`top`](Self::top) the first frame of this stack should begin.
    ///
    /// Slots lie a multiple of the page apart; if all stacks began at their very top, thousands
    /// of sleeping fibers would compete for the same few cache sets. The offset differs from
    /// stack to stack and leaves half of the first page for the fiber's frames. Of a small stack it takes
    /// a thirty-second at most.
    #[inline]
    pub fn stagger(&self) -> usize {
        stagger(self.low.addr().get(), self.size())
    }

    /// Names the fiber on this stack, for [`overflow::registry`]'s finder.
    ///
    /// # Safety
    /// Null, or a pointer that stays valid until it is set to null again.
    #[inline(always)]
    pub(crate) unsafe fn set_owner(&self, owner: *mut ()) {
        // SAFETY: the owner words are inside the stack and only this module's.
        unsafe { self.top().cast::<*mut ()>().write(owner) };
    }

    /// Bytes from the top to the lowest page that was ever touched, as far as the kernel knows:
    /// right within one page since the stack was mapped or last [trimmed](Self::trim).
    ///
    /// A stack that came warm out of a pool counts what earlier fibers touched as well.
    /// `None` where the platform cannot tell, and for memory of the heap.
    pub fn high_water_mark(&self) -> Option<usize> {
        if self.guard_size() == 0 {
            return None;
        }
        usage::touched_from(self.low.addr().get(), self.size())
    }

    /// Gives all memory of an unused stack back to the kernel; it reads as zero afterwards.
    /// Does nothing for memory of the heap.
    pub fn trim(&mut self) {
        if self.guard_size() > 0 {
            // SAFETY: `&mut self` and the contract of whoever runs contexts on a stack say that
            // nothing on it is in use; guarded memory is mapped by the page.
            unsafe { mapping::discard(self.low, self.size()) };
        }
    }

    /// The same memory as a plain range of addresses.
    pub fn range(&self) -> core::ops::Range<usize> {
        let low = self.low.addr().get();
        low..low + self.size()
    }
}

impl Drop for Stack {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: made with this home, and dropped once.
        unsafe { (self.home().release)(self.low, self.home) };
    }
}

/// Bytes that are left below the caller on the guarded stack that it runs on; `None` on the stack of a
/// thread, or one of the heap.
///
/// # Examples
/// ```
/// use sinew_context::{Fiber, stack};
///
/// assert_eq!(stack::remaining(), None);
/// let fiber = Fiber::new(|caller| {
///     assert!(stack::remaining().is_some_and(|bytes| bytes > 100_000));
///     caller
/// })?;
/// assert!(fiber.resume().is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remaining() -> Option<usize> {
    let here = crate::arch::stack_pointer();
    find(here).map(|found| here - found.range.start)
}

/// A guarded stack that was found by an address on it, for those who look at a program from outside. It
/// may be gone by now, or another fiber's.
#[derive(Clone, Debug)]
pub struct Found {
    range: core::ops::Range<usize>,
}

/// The guarded stack that `address` is on, if there is one.
///
/// # Examples
/// ```
/// use sinew_context::stack::{self, ProtectedFixedSize, StackAllocator};
///
/// let stack = ProtectedFixedSize::new(64 * 1024)?.allocate()?;
/// let found = stack::find(stack.low().addr().get() + 100).unwrap();
/// assert_eq!(found.range(), stack.range());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn find(address: usize) -> Option<Found> {
    let slot = registry::find(address)?;
    (slot.low..slot.high).contains(&address).then_some(Found { range: slot.low..slot.high })
}

/// The same without a lock: for those who must not wait for a thread, since that may be stopped.
#[doc(hidden)]
pub fn find_without_lock(address: usize) -> Option<Found> {
    let slot = registry::find_in_handler(address)?;
    (slot.low..slot.high).contains(&address).then_some(Found { range: slot.low..slot.high })
}

impl Found {
    /// As [`Stack::top`], by its address.
    #[doc(hidden)]
    pub fn top(&self) -> usize {
        self.range.end - OWNER_WORDS
    }

    /// As [`Stack::stagger`].
    #[doc(hidden)]
    pub fn stagger(&self) -> usize {
        stagger(self.range.start, self.range.len())
    }

    /// Its addresses.
    pub fn range(&self) -> core::ops::Range<usize> {
        self.range.clone()
    }

    /// As [`Stack::high_water_mark`].
    pub fn high_water_mark(&self) -> Option<usize> {
        usage::touched_from(self.range.start, self.range.len())
    }
}

/// [`Stack::stagger`] of a stack that begins at `low`.
#[inline(always)]
fn stagger(low: usize, size: usize) -> usize {
    const LINE: usize = 64;
    // Bits of the number of lines: at most 32 lines, half of the smallest page.
    let bits = match size / 1024 {
        0..16 => return 0,
        16..64 => 3,
        _ => 5,
    };
    // Multiples of the golden ratio fall apart evenly, whatever the distance of the slots.
    let page = (low as u64) >> 12;
    let spread = page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits);
    spread as usize * LINE
}

unsafe fn release_single(low: NonNull<u8>, home: NonNull<Home>) {
    // SAFETY: made by `from_raw` from such a box.
    let single = unsafe { Box::from_raw(home.cast::<SingleHome>().as_ptr()) };
    registry::remove(low.addr().get() - single.home.guard);
    sanitizer::deregister_stack(single.valgrind);
    // SAFETY: as promised to `from_raw`.
    unsafe { (single.release)(low, single.home.size, single.owner) };
}

impl core::fmt::Debug for Stack {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Stack")
            .field("range", &format_args!("{:#x?}", self.range()))
            .field("guard", &self.guard_size())
            .finish_non_exhaustive()
    }
}

/// The owner of the stack that `address` lies on: null if there is none, or `None` if the address
/// is on no stack of this crate, as those of OS threads are not.
pub(crate) fn owner_at(address: usize) -> Option<*mut ()> {
    let slot = registry::find(address)?;
    if address < slot.low {
        return None;
    }
    let words = core::ptr::with_exposed_provenance::<*mut ()>(slot.high - OWNER_WORDS);
    // SAFETY: the slot is mapped (the caller's address lies on it, in use), and its owner words
    // are always initialised.
    Some(unsafe { words.read() })
}

/// The size of a page.
pub fn page_size() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Checks the size of a stack that a user asked for.
pub(crate) fn check_size(size: usize) -> io::Result<()> {
    check("stack size", size, MIN_STACK_SIZE)
}

/// Checks the size of a guard that a user asked for.
pub(crate) fn check_guard(size: usize) -> io::Result<()> {
    check("guard size", size, MIN_GUARD_SIZE)
}

/// Checks that a size is a multiple of the page, at least `least`, and not absurd.
pub(crate) fn check(what: &str, size: usize, least: usize) -> io::Result<()> {
    let page = page_size();
    let least = least.max(page);
    if size < least {
        return Err(invalid(format_args!("{what} {size} is below the minimum of {least} bytes")));
    }
    if size > MAX_STACK_SIZE {
        return Err(invalid(format_args!(
            "{what} {size} is above the maximum of {MAX_STACK_SIZE} bytes"
        )));
    }
    if !size.is_multiple_of(page) {
        return Err(invalid(format_args!(
            "{what} {size} is not a multiple of the page size {page}; use {}",
            size.next_multiple_of(page)
        )));
    }
    Ok(())
}

pub(crate) fn invalid(message: core::fmt::Arguments<'_>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message.to_string())
}
