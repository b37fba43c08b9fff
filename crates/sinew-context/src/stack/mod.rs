//! Stacks for fibers, and the allocators that make them.
//!
//! A [`Stack`] owns a range of writable memory and knows how to give it back. Allocators make
//! stacks:
//!
//! | allocator | memory | guard | for |
//! | --- | --- | --- | --- |
//! | [`ProtectedFixedSize`] | a mapping each | yes | a few fibers, no sharing |
//! | [`StackPool`] | slots of large mappings, kept warm | yes | many fibers; shared by threads |
//! | [`StackCache`] | a thread's own supply from a pool | yes | fibers made and ended all the time |
//! | [`Segmented`] | a large reservation, committed as touched | yes | recursion of unknown depth |
//! | [`FixedSize`] | the heap | no, hence `unsafe` | programs that account for their memory themselves |
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
//! Guarantee: after a stack was handed out, it is neither handed out again nor unmapped until its
//! `Stack` value is dropped. A forgotten fiber keeps its stack for ever.
//!
//! Next: [`overflow`], which finds the stack that an address belongs to.

mod cache;
mod find;
mod fixed;
mod guard;
mod mapping;
pub mod overflow;
mod pool;
mod protected;
mod segmented;
mod usage;

pub use cache::StackCache;
pub(crate) use find::owner_at;
pub use find::{Found, find, find_without_lock, remaining};
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

/// The default size of a stack: 256 KiB of addresses, committed as touched.
///
/// # Examples
/// ```
/// use sinew_context::stack::{DEFAULT_STACK_SIZE, ProtectedFixedSize, StackAllocator};
///
/// let stack = ProtectedFixedSize::default().allocate()?;
/// assert!(stack.size() <= DEFAULT_STACK_SIZE);
/// # Ok::<(), std::io::Error>(())
/// ```
pub const DEFAULT_STACK_SIZE: usize = 256 * 1024;

/// The smallest stack size that allocators accept.
///
/// # Examples
/// ```
/// use sinew_context::stack::{MIN_STACK_SIZE, StackPool};
///
/// assert!(StackPool::builder().stack_size(MIN_STACK_SIZE - 1).build().is_err());
/// ```
pub const MIN_STACK_SIZE: usize = 4096;

/// The largest stack size that allocators accept: 64 GiB of addresses.
///
/// # Examples
/// ```
/// use sinew_context::stack::{MAX_STACK_SIZE, StackPool};
///
/// assert!(StackPool::builder().stack_size(MAX_STACK_SIZE + 1).build().is_err());
/// ```
pub const MAX_STACK_SIZE: usize = 64 << 30;

/// The default size of a guard, the addresses below a stack that fault: 64 KiB, and 1 MiB on
/// riscv64.
///
/// Rust code touches each page of a large frame in order, so one page would be enough for it. On
/// riscv64 the compiler does not do this, so a frame larger than the guard can step over it. C code
/// does not do this on any architecture: a function with a 4 KiB buffer can step over one page.
///
/// # Examples
/// ```
/// use sinew_context::stack::{DEFAULT_GUARD_SIZE, MIN_GUARD_SIZE};
///
/// assert!(DEFAULT_GUARD_SIZE >= MIN_GUARD_SIZE);
/// ```
pub const DEFAULT_GUARD_SIZE: usize =
    if cfg!(target_arch = "riscv64") { 1024 * 1024 } else { MIN_GUARD_SIZE };

/// The smallest guard size that allocators accept.
///
/// # Examples
/// ```
/// use sinew_context::stack::{MIN_GUARD_SIZE, StackPool};
///
/// assert!(StackPool::builder().guard_size(MIN_GUARD_SIZE - 1).build().is_err());
/// ```
pub const MIN_GUARD_SIZE: usize = 64 * 1024;

/// The number of bytes at the top of each stack that belong to this module.
const OWNER_WORDS: usize = 16;

/// A source of stacks.
///
/// # Safety
/// Nothing else uses a stack that `allocate` returned until that stack is dropped.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, stack::{Stack, StackAllocator, StackPool}};
/// use std::{cell::Cell, io};
///
/// struct Counting(StackPool, Cell<usize>);
///
/// // SAFETY: the pool makes the stacks and keeps the promise.
/// unsafe impl StackAllocator for Counting {
///     fn allocate(&self) -> io::Result<Stack> {
///         self.1.set(self.1.get() + 1);
///         self.0.allocate()
///     }
/// }
///
/// let stacks = Counting(StackPool::new()?, Cell::new(0));
/// let fiber = FiberContext::with_allocator(&stacks, |caller| caller)?;
/// assert_eq!(stacks.1.get(), 1);
/// # Ok::<(), io::Error>(())
/// ```
pub unsafe trait StackAllocator {
    /// Hands out a stack.
    ///
    /// Fails if there is no memory or a limit is reached. The error names the cause and a remedy.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{StackAllocator, StackPool};
    ///
    /// let pool = StackPool::builder().max_stacks(1).build()?;
    /// let stack = pool.allocate()?;
    /// let error = pool.allocate().unwrap_err();
    /// assert!(error.to_string().contains("raise `max_stacks`"));
    /// drop(stack); // goes back to the pool
    /// assert!(pool.allocate().is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn allocate(&self) -> io::Result<Stack>;
}

/// Implements [`StackAllocator`] for pointers to an allocator.
macro_rules! pass_on {
    ($($pointer:ty),+) => {$(
        // SAFETY: the allocator behind the pointer keeps the promise.
        unsafe impl<A: StackAllocator + ?Sized> StackAllocator for $pointer {
            fn allocate(&self) -> io::Result<Stack> {
                (**self).allocate()
            }
        }
    )+};
}
pass_on!(&A, Box<A>, std::rc::Rc<A>, std::sync::Arc<A>);

/// Memory for one fiber to run on. Dropping the stack gives the memory back to its origin.
///
/// A `Stack` is two words, because it is moved into a fiber when the fiber is made, and out when
/// the fiber ends.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, stack::{StackAllocator, StackPool}};
///
/// let pool = StackPool::new()?;
/// let stack = pool.allocate()?;
/// assert_eq!(pool.stats().in_use, 1);
/// let fiber = FiberContext::on_stack(stack, |caller| caller)?;
/// assert!(fiber.resume().is_none()); // it has ended, and its stack was dropped
/// assert_eq!(pool.stats().in_use, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Stack {
    /// Lowest usable address; the guard lies below.
    low: NonNull<u8>,
    home: NonNull<Home>,
}

/// The properties that all stacks of one origin share. A `Home` is the first field of the structure
/// that takes the stacks back.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) size: usize,
    pub(crate) guard: usize,
    /// Takes a stack back, given its lowest usable address.
    pub(crate) release: unsafe fn(low: NonNull<u8>, home: NonNull<Home>),
}

/// A function that gives the memory of a stack back. It receives the lowest usable address, the
/// size, and the owner that was passed to [`Stack::from_raw`]. It must not unwind.
///
/// # Examples
/// ```
/// use sinew_context::stack::Release;
/// use std::ptr::NonNull;
///
/// fn keep(_low: NonNull<u8>, _size: usize, _owner: *const ()) {} // the memory is a static's
/// let _release: Release = keep;
/// ```
pub type Release = unsafe fn(low: NonNull<u8>, size: usize, owner: *const ());

/// The home of a stack that is registered on its own.
#[repr(C)]
struct SingleHome {
    home: Home,
    owner: *const (),
    release: Release,
    /// The id by which valgrind knows the stack.
    valgrind: usize,
}

impl Stack {
    /// Makes a stack from memory that the caller's own allocator manages.
    ///
    /// The `guard` bytes below `low` fault when touched; `guard` is zero if there is no guard.
    /// Dropping the stack calls `release` with `low`, `size` and `owner`.
    ///
    /// # Safety
    /// The `size` bytes from `low` on are readable and writable, aligned to 16 at both ends, and
    /// used by nothing else until `release` is called. If there is a guard, they are private
    /// anonymous memory, which can be given back by the page. If there is none, an overflow
    /// corrupts the memory below. `release` is sound to call once, on the thread that drops the
    /// stack, and does not unwind.
    ///
    /// # Errors
    /// If the size or an alignment is wrong, or the heap has no memory for the bookkeeping.
    /// `release` is not called in these cases.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{FiberContext, stack::Stack};
    /// use std::alloc::{Layout, alloc, dealloc};
    /// use std::ptr::{NonNull, null};
    ///
    /// const LAYOUT: Layout = Layout::new::<[u128; 16 * 1024]>();
    /// unsafe fn release(low: NonNull<u8>, _size: usize, _owner: *const ()) {
    ///     // SAFETY: the memory was allocated with this layout, and nothing uses it.
    ///     unsafe { dealloc(low.as_ptr(), LAYOUT) };
    /// }
    ///
    /// // SAFETY: the layout is not empty.
    /// let low = NonNull::new(unsafe { alloc(LAYOUT) }).expect("out of memory");
    /// // SAFETY: nothing else uses the memory until `release` frees it. The fiber needs little.
    /// let stack = unsafe { Stack::from_raw(low, LAYOUT.size(), 0, null(), release)? };
    /// assert!(FiberContext::on_stack(stack, |caller| caller)?.resume().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
                "a stack of {size} bytes at {low:p} is too small or not aligned; it needs at \
                 least {MIN_STACK_SIZE} bytes, and address and size must be multiples of 16"
            )));
        }
        // `owner_at` and the frames use addresses on the stack as plain numbers.
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

    /// Makes a stack from a slot of a region that is already registered.
    ///
    /// # Safety
    /// As for [`Stack::from_raw`]; in addition, the owner words are null. `home` is the first field
    /// of the structure that its `release` expects, and stays valid until `release` has been
    /// called.
    #[inline(always)]
    pub(crate) unsafe fn from_slot(low: NonNull<u8>, home: NonNull<Home>) -> Stack {
        Stack { low, home }
    }

    #[inline(always)]
    fn home(&self) -> &Home {
        // SAFETY: the home stays valid as long as the stack is handed out.
        unsafe { self.home.as_ref() }
    }

    /// The number of usable bytes.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::new(64 * 1024)?.allocate()?;
    /// assert_eq!(stack.size(), 64 * 1024);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn size(&self) -> usize {
        self.home().size
    }

    /// The number of bytes below the stack that fault when touched.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::with_guard(64 * 1024, 128 * 1024)?.allocate()?;
    /// assert_eq!(stack.guard_size(), 128 * 1024); // below the 64 KiB
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn guard_size(&self) -> usize {
        self.home().guard
    }

    /// The lowest usable address.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::default().allocate()?;
    /// // SAFETY: the address is inside the stack, and nothing runs on it.
    /// unsafe {
    ///     stack.low().write(7);
    ///     assert_eq!(stack.low().read(), 7);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn low(&self) -> NonNull<u8> {
        self.low
    }

    /// The first address above the stack.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::default().allocate()?;
    /// assert_eq!(stack.high().addr().get() - stack.low().addr().get(), stack.size());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn high(&self) -> NonNull<u8> {
        // SAFETY: the end of the allocation.
        unsafe { self.low.add(self.size()) }
    }

    /// The upper end of the memory that a fiber may use. The owner words of this module lie above.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::default().allocate()?;
    /// assert!(stack.top() < stack.high());
    /// assert_eq!(stack.top().addr().get() % 16, 0); // as the calling conventions want it
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn top(&self) -> NonNull<u8> {
        // SAFETY: inside the allocation, which has at least `MIN_STACK_SIZE` bytes.
        unsafe { self.high().sub(OWNER_WORDS) }
    }

    /// Returns how far below [`top`](Self::top) the first frame of this stack should begin.
    ///
    /// The distance between stacks of a pool is a multiple of the page size. If all stacks began at
    /// their very top, thousands of sleeping fibers would compete for a few cache sets. The offset
    /// differs from stack to stack and leaves half of the first page for the fiber's frames. In a
    /// small stack it takes a thirty-second at most.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::default().allocate()?;
    /// let first_frame = stack.top().addr().get() - stack.stagger();
    /// assert!(stack.high().addr().get() - first_frame <= 2048);
    /// assert_eq!(first_frame % 16, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[inline]
    pub fn stagger(&self) -> usize {
        stagger(self.low.addr().get(), self.size())
    }

    /// Names the fiber on this stack, so that [`owner_at`] finds it.
    ///
    /// # Safety
    /// `owner` is null, or a pointer that stays valid until the owner is set to null again.
    #[inline(always)]
    pub(crate) unsafe fn set_owner(&self, owner: *mut ()) {
        // SAFETY: the owner words are inside the stack, and only this module uses them.
        unsafe { self.top().cast::<*mut ()>().write(owner) };
    }

    /// Returns the number of bytes from the top down to the lowest page that was ever touched, as
    /// far as the kernel knows. The result is exact to one page. It counts pages touched since the
    /// stack was mapped, or since the last [trim](Self::trim).
    ///
    /// A stack that came warm out of a pool also counts the pages that earlier fibers touched.
    /// Returns `None` where the platform does not tell, and for heap stacks.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// let stack = ProtectedFixedSize::default().allocate()?;
    /// assert!(stack.high_water_mark().unwrap() < 100_000);
    /// // SAFETY: the address is inside the stack, and nothing runs on it.
    /// unsafe { stack.high().sub(100_000).write(1) };
    /// assert!(stack.high_water_mark().unwrap() >= 100_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn high_water_mark(&self) -> Option<usize> {
        if self.guard_size() == 0 {
            return None;
        }
        usage::touched_from(self.low.addr().get(), self.size())
    }

    /// Gives all memory of an unused stack back to the kernel; it reads as zero afterwards. Does
    /// nothing for heap stacks.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::stack::{ProtectedFixedSize, StackAllocator};
    ///
    /// let mut stack = ProtectedFixedSize::default().allocate()?;
    /// // SAFETY: the address is inside the stack, and nothing runs on it.
    /// unsafe {
    ///     stack.low().write(7);
    ///     stack.trim();
    ///     assert_eq!(stack.low().read(), 0);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn trim(&mut self) {
        if self.guard_size() > 0 {
            // SAFETY: `&mut self` means that no fiber runs on the stack, and code that runs raw
            // contexts on a stack does not trim it meanwhile. Guarded memory is mapped by the page.
            unsafe { mapping::discard(self.low, self.size()) };
        }
    }

    /// The addresses of the stack as a range of plain numbers.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{FiberContext, stack::{ProtectedFixedSize, StackAllocator}};
    ///
    /// let stack = ProtectedFixedSize::default().allocate()?;
    /// let range = stack.range();
    /// let fiber = FiberContext::on_stack(stack, move |caller| {
    ///     let local = 7;
    ///     assert!(range.contains(&(&raw const local).addr()));
    ///     caller
    /// })?;
    /// assert!(fiber.resume().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn range(&self) -> core::ops::Range<usize> {
        let low = self.low.addr().get();
        low..low + self.size()
    }
}

impl Drop for Stack {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the stack was made with this home, and is released once.
        unsafe { (self.home().release)(self.low, self.home) };
    }
}

/// Computes [`Stack::stagger`] of a stack that begins at `low`.
#[inline(always)]
fn stagger(low: usize, size: usize) -> usize {
    const LINE: usize = 64;
    // The logarithm of the number of lines: at most 32 lines, half of the smallest page.
    let bits = match size / 1024 {
        0..16 => return 0,
        16..64 => 3,
        _ => 5,
    };
    // Multiples of the golden ratio spread evenly, whatever the distance of the slots.
    let page = (low as u64) >> 12;
    let spread = page.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits);
    spread as usize * LINE
}

/// Gives back a stack that [`Stack::from_raw`] made.
///
/// # Safety
/// `home` is the home of that stack, and `low` its lowest usable address. Called once.
unsafe fn release_single(low: NonNull<u8>, home: NonNull<Home>) {
    // SAFETY: `from_raw` made the home from such a box.
    let single = unsafe { Box::from_raw(home.cast::<SingleHome>().as_ptr()) };
    registry::remove(low.addr().get() - single.home.guard);
    sanitizer::deregister_stack(single.valgrind);
    // SAFETY: the caller of `from_raw` promised that `release` is sound to call once.
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

/// Returns the size of a page.
///
/// # Examples
/// ```
/// let page = sinew_context::stack::page_size();
/// assert!(page.is_power_of_two() && page >= 4096);
/// ```
pub fn page_size() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Checks a stack size that the user passed.
pub(crate) fn check_size(size: usize) -> io::Result<()> {
    check("stack size", size, MIN_STACK_SIZE)
}

/// Checks a guard size that the user passed.
pub(crate) fn check_guard(size: usize) -> io::Result<()> {
    check("guard size", size, MIN_GUARD_SIZE)
}

/// Checks that a size is a multiple of the page size, at least `least`, and at most
/// [`MAX_STACK_SIZE`].
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
