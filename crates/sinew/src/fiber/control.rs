//! The control block: everything the runtime knows of one fiber.
//!
//! Three cache lines. The first has the fields for dispatching and waiting, the second those for
//! joining. The third holds the closure until the fiber starts, and the result from its end until
//! it is taken. Data that few fibers have (a name, locals, a scope) is in [`Extra`]. `flags` has a
//! table of the fiber's flags.
//!
//! # Access to the fields
//!
//! A block is *type-stable*: it is recycled, never unmapped. So any thread that ever had a pointer
//! to it may read its atomics. The plain fields belong to
//!
//! - the maker of the fiber, until it is submitted;
//! - then the holder of the fiber: the queue it is in, the carrier that takes it out of there;
//! - from its start on, the thread of its carrier; for a migratable fiber, the thread that runs it
//!   or has taken it out of a queue;
//! - after its end, the holder of the join handle (the result) and the holder of the last
//!   reference.
//!
//! An OS thread that waits has a block as well, its *proxy*. Only the fields for the wait are used
//! in it.

use super::extra::Extra;
use super::flags::Flags;
use super::life::Life;
use super::state::{Epoch, WakeWord};
use super::task::{Storage, Vtable};
use super::wait_kind::WaitKind;
use crate::carrier::Carrier;
use crate::primitive::{AtomicPtr, AtomicU32, AtomicU64, Ordering, prefetch};
use crate::queue::Linked;
use core::cell::{Cell, UnsafeCell};
use core::ptr;
use sinew_context::context::Context;

/// A fiber's control block; see the page of this module.
#[repr(C, align(64))]
pub(crate) struct Control {
    /// The context in which the fiber continues.
    pub(crate) context: Place,
    /// The next block in this block's queue.
    link: AtomicPtr<Control>,
    /// Decides which waker ends the wait.
    pub(crate) wake: WakeWord,
    /// The carrier that dispatches the fiber. Null until the fiber starts, then the carrier it is
    /// bound to. Set from the beginning for an `AFFINE` fiber. For a migratable or resting fiber,
    /// the carrier that ran it last.
    pub(super) carrier: AtomicPtr<Carrier>,
    pub(crate) life: Life,
    /// The fiber's [`Flags`]. `flags` says which threads may write and read them.
    pub(super) flags: AtomicU32,
    /// When the fiber was made, in units of about a millisecond.
    born: AtomicU32,
    /// The recorded wait: its kind in the upper byte, the time of its beginning below.
    pub(super) wait: AtomicU64,
    pub(super) wait_address: AtomicU64,

    /// The functions of the closure's type. Constant as long as the fiber has the block.
    pub(crate) vtable: Cell<&'static Vtable>,
    /// The joiner to wake at the end, and its epoch. Written before `JOINING` or `JOINED_HERE` is
    /// set.
    joiner: AtomicPtr<Control>,
    joiner_epoch: AtomicU64,
    /// The data that few fibers have. Made on demand. Stays with the block when the block is
    /// recycled.
    pub(super) extra: AtomicPtr<Extra>,
    /// The id of the fiber or thread, never used twice. Zero for a carrier's root.
    pub(super) id: AtomicU64,
    /// The number of the fiber's crew. Zero for proxies.
    pub(crate) crew: AtomicU32,
    /// The low half of the number of waits that the block had before this fiber. The block may have
    /// served other fibers.
    first_wait: AtomicU32,
    /// The token of `park` and `unpark`.
    pub(crate) token: AtomicU64,
    message_link: AtomicPtr<Control>,

    pub(crate) storage: UnsafeCell<Storage>,
}

const _: () = assert!(size_of::<Control>() == 192);

// SAFETY: the page of this module says which thread may touch the plain fields at which time.
unsafe impl Sync for Control {}

// SAFETY: the wait's state keeps a fiber in one queue at a time. A fiber is a message at most once,
// because the mark `CANCELLED` is set once.
unsafe impl Linked for Control {
    #[inline(always)]
    fn link(&self) -> &AtomicPtr<Control> {
        &self.link
    }

    fn message_link(&self) -> &AtomicPtr<Control> {
        &self.message_link
    }
}

const KIND_SHIFT: u32 = 56;

/// In the place of a kind: the wait has ended, and the lower bits say when.
const WOKEN: u64 = 0xFF;

/// Shift from nanoseconds to the units of a fiber's birth, about a millisecond.
const BIRTH_SHIFT: u32 = 20;

impl Control {
    /// Creates a block without a fiber.
    pub(crate) fn vacant() -> Control {
        Control {
            context: Place::new(),
            link: AtomicPtr::new(ptr::null_mut()),
            wake: WakeWord::new(),
            carrier: AtomicPtr::new(ptr::null_mut()),
            life: Life::free(),
            flags: AtomicU32::new(0),
            born: AtomicU32::new(0),
            extra: AtomicPtr::new(ptr::null_mut()),
            id: AtomicU64::new(0),
            vtable: Cell::new(&Vtable::NONE),
            joiner: AtomicPtr::new(ptr::null_mut()),
            joiner_epoch: AtomicU64::new(0),
            wait: AtomicU64::new(0),
            wait_address: AtomicU64::new(0),
            crew: AtomicU32::new(0),
            first_wait: AtomicU32::new(0),
            token: AtomicU64::new(0),
            message_link: AtomicPtr::new(ptr::null_mut()),
            storage: UnsafeCell::new(Storage::uninit()),
        }
    }

    /// Turns zeroed memory into a vacant block again. Its next wait has a number above `epochs`.
    pub(super) fn revive(&self, epochs: u64) {
        self.wake.restart(epochs);
        self.vtable.set(&Vtable::NONE);
    }

    /// Turns a vacant block into a fiber with `references` that has not been submitted.
    #[inline(always)]
    pub(crate) fn occupy(
        &self,
        id: u64,
        vtable: &'static Vtable,
        flags: Flags,
        references: u64,
        now: u64,
    ) {
        self.context.clear();
        self.born.store((now >> BIRTH_SHIFT) as u32, Ordering::Relaxed);
        self.first_wait.store(self.wake.count(), Ordering::Relaxed);
        self.carrier.store(ptr::null_mut(), Ordering::Relaxed);
        self.flags.store(flags.0, Ordering::Relaxed);
        self.id.store(id, Ordering::Relaxed);
        self.vtable.set(vtable);
        self.wait.store(0, Ordering::Relaxed);
        self.token.store(0, Ordering::Relaxed);
        self.life.begin(references);
    }

    /// Records when the fiber was made, if its maker did not know the time.
    #[inline(always)]
    pub(crate) fn set_born(&self, now: u64) {
        self.born.store((now >> BIRTH_SHIFT) as u32, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> Flags {
        Flags(self.flags.load(Ordering::Relaxed))
    }

    /// Sets flags. Only the thread that owns the fiber calls this.
    #[inline(always)]
    pub(crate) fn set_flags(&self, flags: Flags) {
        self.flags.store(self.flags().0 | flags.0, Ordering::Relaxed);
    }

    /// Clears flags. Only the thread that owns the fiber calls this.
    #[inline(always)]
    pub(crate) fn clear_flags(&self, flags: Flags) {
        self.flags.store(self.flags().0 & !flags.0, Ordering::Relaxed);
    }

    /// Restores the flags of `mask` from `before`.
    pub(crate) fn restore_flags(&self, before: Flags, mask: Flags) {
        let kept = self.flags().0 & !mask.0;
        self.flags.store(kept | before.0 & mask.0, Ordering::Relaxed);
    }

    /// Keeps only flags that an unstarted fiber may have. Only the thread that owns the fiber calls
    /// this, as its last act.
    pub(crate) fn reset_flags(&self) {
        let kept = self.flags().0 & Flags::OF_UNSTARTED.0;
        let moves = Flags(kept).has(Flags::ROAMING);
        self.flags.store(kept | if moves { Flags::MIGRATABLE.0 } else { 0 }, Ordering::Relaxed);
    }

    /// Returns whether the fiber is bound to this carrier. The caller is on the carrier's thread.
    ///
    /// If so, the fiber stays bound until this thread continues it. A fiber that has rested may be
    /// bound to another carrier at any moment.
    pub(crate) fn is_bound_to(&self, carrier: &Carrier) -> bool {
        // The binding thread writes the carrier before it sets the mark. If it wrote this carrier,
        // it was this thread.
        self.life.has_started() && ptr::eq(self.carrier(), carrier)
    }

    /// Clears the mark that keeps other carriers from resuming a migratable fiber.
    #[inline(always)]
    pub(crate) fn left_stack(&self) {
        let flags = self.flags().0 & !Flags::ON_STACK.0;
        // ORDERING: Release publishes the saved context; pairs with the Acquire in
        // `has_left_stack`.
        self.flags.store(flags, Ordering::Release);
    }

    /// Returns whether a migratable fiber has left its stack, and may be resumed.
    #[inline(always)]
    pub(crate) fn has_left_stack(&self) -> bool {
        // ORDERING: Acquire shows the saved context; pairs with the Release in `left_stack`.
        self.flags.load(Ordering::Acquire) & Flags::ON_STACK.0 == 0
    }

    #[inline(always)]
    pub(crate) fn carrier(&self) -> *const Carrier {
        self.carrier.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set_carrier(&self, carrier: &Carrier) {
        self.carrier.store((&raw const *carrier).cast_mut(), Ordering::Relaxed);
    }

    /// Returns the fiber's age in nanoseconds, precise to about a millisecond. It wraps after 52
    /// days.
    pub(crate) fn age(&self, now: u64) -> u64 {
        let born = self.born.load(Ordering::Relaxed);
        u64::from(((now >> BIRTH_SHIFT) as u32).wrapping_sub(born)) << BIRTH_SHIFT
    }

    /// Returns the number of waits that the fiber has begun. It wraps after four billion.
    pub(crate) fn waits(&self) -> u32 {
        self.wake.count().wrapping_sub(self.first_wait.load(Ordering::Relaxed))
    }

    /// Records the wait that the fiber is about to begin. `since` is the carrier's last reading of
    /// the clock.
    #[inline(always)]
    pub(crate) fn record_wait(&self, kind: WaitKind, address: usize, since: u64) {
        self.context.clear();
        let since = since & ((1 << KIND_SHIFT) - 1);
        self.wait_address.store(address as u64, Ordering::Relaxed);
        self.wait.store(u64::from(kind as u8) << KIND_SHIFT | since, Ordering::Relaxed);
    }

    /// Records when the fiber was woken, and the id of its waker, over the record of the wait. Only
    /// the thread that has ended the wait calls this, before it makes the fiber run.
    pub(crate) fn note_wake(&self, at: u64, by: u64) {
        self.wait_address.store(by, Ordering::Relaxed);
        let at = at & ((1 << KIND_SHIFT) - 1);
        self.wait.store(WOKEN << KIND_SHIFT | at, Ordering::Relaxed);
    }

    /// Takes the time of the wake and the id of the waker, if a wake was recorded since the last
    /// call. Only the carrier that is about to run the fiber calls this.
    pub(crate) fn take_wake(&self) -> Option<(u64, u64)> {
        let wait = self.wait.load(Ordering::Relaxed);
        if wait >> KIND_SHIFT != WOKEN {
            return None;
        }
        self.wait.store(0, Ordering::Relaxed);
        let at = wait & ((1 << KIND_SHIFT) - 1);
        Some((at, self.wait_address.load(Ordering::Relaxed)))
    }

    /// Returns the recorded wait: its kind, its object's address, and its beginning (nanoseconds of
    /// sinew's clock).
    pub(crate) fn recorded_wait(&self) -> (WaitKind, usize, u64) {
        let wait = self.wait.load(Ordering::Relaxed);
        let kind = WaitKind::from_bits((wait >> KIND_SHIFT) as u8);
        let since = wait & ((1 << KIND_SHIFT) - 1);
        (kind, self.wait_address.load(Ordering::Relaxed) as usize, since)
    }

    /// Returns the wait of an unstarted fiber that is kept until an event, as far as a racy look
    /// tells.
    pub(crate) fn awaited_unstarted(&self) -> Option<(WaitKind, usize, u64)> {
        let armed =
            self.extra().is_some_and(|extra| !extra.armed.load(Ordering::Relaxed).is_null());
        let wait = self.recorded_wait();
        (armed && !self.life.has_started() && wait.0 != WaitKind::None).then_some(wait)
    }

    /// Ends the recorded wait of an unstarted fiber. Only the thread that has taken the fiber out
    /// of its keeping calls this.
    pub(crate) fn end_wait_unstarted(&self) {
        self.wait.store(0, Ordering::Relaxed);
    }

    /// Records the joiner to wake at the end. The holder of the join handle calls this, then sets
    /// the mark.
    #[inline(always)]
    pub(crate) fn set_joiner(&self, joiner: *const Control, epoch: Epoch) {
        self.joiner.store(joiner.cast_mut(), Ordering::Relaxed);
        self.joiner_epoch.store(epoch.bits(), Ordering::Relaxed);
    }

    /// Returns the joiner to wake at the end. The result is not used if the holder of the join
    /// handle changed it meanwhile: the exchange that ends the fiber then fails.
    #[inline(always)]
    pub(crate) fn joiner(&self) -> (*const Control, Epoch) {
        let epoch = Epoch::from_bits(self.joiner_epoch.load(Ordering::Relaxed));
        (self.joiner.load(Ordering::Relaxed), epoch)
    }

    /// Prefetches the memory of the block.
    #[inline(always)]
    pub(crate) fn fetch(&self) {
        fetch::<3>(ptr::from_ref(self).cast());
    }

    /// Prefetches the memory of `Extra`. The block was prefetched before.
    #[inline(always)]
    pub(crate) fn fetch_extra(&self) {
        fetch::<2>(self.extra.load(Ordering::Relaxed).cast());
    }

    /// Prefetches the captured values of an unstarted fiber. Its `Extra` was prefetched before.
    #[inline(always)]
    pub(crate) fn fetch_captured(&self) {
        if let Some(extra) = self.extra() {
            fetch::<2>(extra.captured.load(Ordering::Relaxed));
            fetch::<3>(extra.source.load(Ordering::Relaxed));
        }
    }

    /// Returns whether `address` is the address of the field `extra`.
    pub(crate) fn is_extra(&self, address: usize) -> bool {
        (&raw const self.extra).addr() == address
    }

    /// Returns the fiber's `Extra`, if the block has one.
    #[inline(always)]
    pub(crate) fn extra(&self) -> Option<&Extra> {
        // SAFETY: null, or a box that stays with the block.
        unsafe { self.extra.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the fiber's `Extra`, making it on the first call.
    pub(crate) fn extra_or_new(&self) -> &Extra {
        if let Some(extra) = self.extra() {
            return extra;
        }
        let new = Box::into_raw(Box::<Extra>::default());
        // ORDERING: AcqRel. Release publishes the new box; Acquire shows a box that another thread
        // has made.
        match self.extra.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire)
        {
            // SAFETY: just made; it stays with the block.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: the new box was not published; the other one stays with the block.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }
}

impl core::fmt::Debug for Control {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Control").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// The context in which a fiber continues.
///
/// Empty before the fiber first runs, and from the beginning of a wait until the fiber has stopped.
/// At all other times while the fiber runs, the place holds a stale context. So an observer may
/// read the fiber's stack if it finds first a begun wait, then a context here, and then that the
/// wait has not ended: the fiber has not run in between.
pub(crate) struct Place(AtomicPtr<()>);

impl Place {
    const fn new() -> Place {
        Place(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the context, for a carrier that may resume the fiber.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<Context> {
        let place = ptr::NonNull::new(self.0.load(Ordering::Relaxed));
        // SAFETY: `set` stores only contexts.
        place.map(|place| unsafe { Context::from_ptr(place) })
    }

    /// Returns the context, for an observer.
    pub(crate) fn look(&self) -> Option<Context> {
        // ORDERING: Acquire shows the content of the stack; pairs with the Release in `set`.
        let place = ptr::NonNull::new(self.0.load(Ordering::Acquire));
        // SAFETY: as in `get`.
        place.map(|place| unsafe { Context::from_ptr(place) })
    }

    /// Stores the context of the fiber, which has stopped.
    #[inline(always)]
    pub(crate) fn set(&self, context: Context) {
        // ORDERING: Release; pairs with the Acquire in `look`.
        self.0.store(context.as_ptr().as_ptr(), Ordering::Release);
    }

    /// Empties the place: the fiber is about to stop, or is new.
    #[inline(always)]
    fn clear(&self) {
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Prefetches some cache lines from `address` on.
#[inline(always)]
fn fetch<const LINES: usize>(address: *const u8) {
    (0..LINES).for_each(|line| prefetch(address.wrapping_add(64 * line)));
}
