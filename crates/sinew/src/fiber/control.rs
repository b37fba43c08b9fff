//! The control block: all that is known of one fiber.
//!
//! Three cache lines. The first has what dispatching and waiting need; the second what joining needs;
//! the third holds the closure until the fiber starts, and the result from its end until it is
//! taken. What few fibers have (a name, locals, a scope) is in [`Extra`].
//!
//! # Who may touch what
//!
//! A block is *type-stable*: it is recycled, never unmapped, so its atomics may be read by anybody
//! who ever had a pointer to it. The plain fields belong to
//!
//! - the one who makes the fiber, until it is submitted;
//! - then the one who holds it: the queue it is in, the carrier that takes it out of there;
//! - from its start on the thread of its carrier; for a migratable fiber the thread that runs it
//!   or has taken it out of a queue;
//! - after its end, the holder of the join handle (result), and the last holder of a reference.
//!
//! An OS thread that waits has a block as well, its *proxy*, of which only the wait is used.

use super::extra::Extra;
use super::life::Life;
use super::slab;
use super::state::{Epoch, WakeWord};
use super::task::{Storage, Vtable};
use crate::carrier::Carrier;
use crate::primitive::{AtomicPtr, AtomicU32, AtomicU64, Ordering, prefetch};
use crate::queue::Linked;
use core::cell::{Cell, UnsafeCell};
use core::ptr;
use sinew_context::context::Context;

/// A fiber's control block; see the page of this module.
#[repr(C, align(64))]
pub(crate) struct Control {
    /// Where the fiber goes on.
    pub(crate) context: Place,
    /// The next one in the queue that this one is in.
    link: AtomicPtr<Control>,
    /// Decides who ends the wait.
    pub(crate) wake: WakeWord,
    /// The carrier that dispatches it: null until it starts, then the one it is bound to; set from
    /// the beginning if it is `AFFINE`; for a migratable fiber, or one that rests, the one that ran it last.
    pub(super) carrier: AtomicPtr<Carrier>,
    pub(crate) life: Life,
    /// What makes a wait or a yield take the longer way. Belongs to the fiber's thread.
    pub(super) flags: AtomicU32,
    /// When it was made, in milliseconds or so.
    born: AtomicU32,
    /// What it waits for: the kind in the upper byte, since when below.
    pub(super) wait: AtomicU64,
    pub(super) wait_address: AtomicU64,

    /// How to run it. Constant from birth to the end of the block.
    pub(crate) vtable: Cell<&'static Vtable>,
    /// Whom to wake at the end, and its epoch: written before `JOINING` or `JOINED_HERE` is set.
    joiner: AtomicPtr<Control>,
    joiner_epoch: AtomicU64,
    /// Lazily made; stays with the block when it is recycled.
    pub(super) extra: AtomicPtr<Extra>,
    /// Never used twice.
    pub(super) id: AtomicU64,
    /// The number of the crew that it belongs to. Zero for proxies.
    pub(crate) crew: AtomicU32,
    /// The lower half of the number of its first wait: the block may have served others before.
    first_wait: AtomicU32,
    /// The word of `park` and `unpark`.
    pub(crate) token: AtomicU64,
    message_link: AtomicPtr<Control>,

    pub(crate) storage: UnsafeCell<Storage>,
}

const _: () = assert!(size_of::<Control>() == 192);

// SAFETY: who may touch the plain fields is laid down above.
unsafe impl Sync for Control {}

// SAFETY: a fiber is in one queue at a time, by the state of its wait; it is a message once, by
// the mark `CANCELLED`, which is set once.
unsafe impl Linked for Control {
    #[inline(always)]
    fn link(&self) -> &AtomicPtr<Control> {
        &self.link
    }

    fn message_link(&self) -> &AtomicPtr<Control> {
        &self.message_link
    }
}

/// What makes a fiber's waits special.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flags(pub(crate) u32);

impl Flags {
    /// May not be suspended: `pinned`, or a hook of the user's runs.
    pub(crate) const PINNED: Flags = Flags(1);
    /// Cancellation is postponed.
    pub(crate) const MASKED: Flags = Flags(1 << 1);
    /// Uses context slots, which are swapped at each switch.
    pub(crate) const SLOTS: Flags = Flags(1 << 2);
    /// A panic began in this fiber since the thread was last seen without one.
    pub(crate) const PANICKED: Flags = Flags(1 << 3);
    /// Moves between carriers.
    pub(crate) const MIGRATABLE: Flags = Flags(1 << 4);
    /// Was made to move between carriers, whether or not it may at present.
    pub(crate) const ROAMING: Flags = Flags(1 << 14);
    /// Its carrier has told it that it was cancelled. Set on its own thread, so that a yield has one
    /// word to look at.
    pub(crate) const TOLD: Flags = Flags(1 << 16);
    /// `joiner` names a fiber of the same carrier, which is to be woken at the end.
    pub(crate) const JOINED_HERE: Flags = Flags(1 << 17);
    /// A panic of a context slot's hook is to be raised when the wait has been left.
    pub(crate) const PENDING: Flags = Flags(1 << 15);
    /// Inside a deadline scope.
    pub(crate) const DEADLINE: Flags = Flags(1 << 5);
    /// Its stack is of a size of its own.
    pub(crate) const SIZED: Flags = Flags(1 << 6);
    /// Not a fiber but a thread.
    pub(crate) const PROXY: Flags = Flags(1 << 7);
    /// May only run on the carrier that the builder named.
    pub(crate) const AFFINE: Flags = Flags(1 << 8);
    /// A migratable fiber that has not left its stack yet: nobody may resume it.
    pub(crate) const ON_STACK: Flags = Flags(1 << 9);
    /// The one that the carrier's own loop runs as.
    pub(crate) const ROOT: Flags = Flags(1 << 10);
    /// A predicate or a hook runs: even blocking the thread is an error.
    pub(crate) const NO_WAIT: Flags = Flags(1 << 11);
    /// A cancellation was raised in it before: it was caught, and is raised again.
    pub(crate) const RAISED: Flags = Flags(1 << 12);
    /// A proxy whose thread waits in the kernel for descriptors, and for the bell in `Extra`.
    pub(crate) const POLLS: Flags = Flags(1 << 18);
    /// A proxy whose thread sleeps until somebody ends its wait: no deadline does.
    pub(crate) const ASLEEP: Flags = Flags(1 << 19);
    /// Suspended in the middle of an unwinding.
    pub(crate) const UNWINDING: Flags = Flags(1 << 13);

    /// On a carrier that somebody else's loop steps.
    pub(crate) const EMBEDDED: Flags = Flags(1 << 21);
    /// Has yielded, on such a carrier, and is not ready before all others have run.
    pub(crate) const YIELDED: Flags = Flags(1 << 22);
    /// Has interrupted itself for something on the root of such a carrier, or for another fiber.
    pub(crate) const IMMEDIATE: Flags = Flags(1 << 23);
    /// A task of which its manager wants to know how much stack it uses, or how long it runs.
    pub(crate) const MEASURED: Flags = Flags(1 << 24);
    /// The latter was asked for this one in particular.
    pub(crate) const TIMED: Flags = Flags(1 << 25);

    /// Runs again and again, and is unstarted in between: what is true of its carrier is true until it rests.
    pub(crate) const RECURRING: Flags = Flags(1 << 26);
    /// Its closure has returned, and is to run again: it rests as soon as nothing of it is on the stack.
    pub(crate) const RESTS: Flags = Flags(1 << 27);

    /// What an unstarted fiber may have.
    const OF_UNSTARTED: Flags = Flags(
        Flags::ROAMING.0
            | Flags::SIZED.0
            | Flags::AFFINE.0
            | Flags::EMBEDDED.0
            | Flags::MEASURED.0
            | Flags::TIMED.0
            | Flags::RECURRING.0
            | Flags::OBSERVED.0,
    );

    /// Somebody wants to know when it is woken, and knows its name.
    pub(crate) const OBSERVED: Flags = Flags(1 << 20);

    /// What makes waking a fiber on its own carrier more than a push.
    pub(crate) const NOT_PLAIN: Flags = Flags(Flags::MIGRATABLE.0 | Flags::OBSERVED.0);
    /// And what makes others able to end its wait meanwhile, or want to know.
    pub(crate) const NOT_ALONE: Flags = Flags(Flags::ROAMING.0 | Flags::OBSERVED.0);

    /// What keeps a cancellation from ending a wait.
    pub(crate) const DEAF: Flags = Flags(Flags::MASKED.0 | Flags::UNWINDING.0);

    /// What makes `yield_now` more than two moves.
    pub(crate) const SLOW_YIELD: Flags = Flags(
        Flags::PINNED.0
            | Flags::SLOTS.0
            | Flags::PANICKED.0
            | Flags::MIGRATABLE.0
            | Flags::DEADLINE.0
            | Flags::ROOT.0
            | Flags::TOLD.0
            | Flags::EMBEDDED.0
            | Flags::NO_WAIT.0,
    );

    #[inline(always)]
    pub(crate) fn has(self, any_of: Flags) -> bool {
        self.0 & any_of.0 != 0
    }
}

/// What a fiber waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum WaitKind {
    /// Nothing: it is not waiting.
    None = 0,
    /// A moment: `sleep` and `sleep_until`.
    Sleep,
    /// Somebody who calls `unpark`.
    Park,
    /// The end of another fiber.
    Join,
    /// A predicate of `wait_until`.
    Predicate,
    /// A future, in `block_on`.
    Future,
    /// The children of a scope.
    Scope,
    /// A lock, to have it alone or, of a `RwLock`, to share it.
    Lock,
    /// A key of a `MultiLock`.
    Key,
    /// A condition variable.
    Condvar,
    /// A `Futex`, an `Event`, a `Sequencer` or what is built on them.
    Event,
    /// A `FiberFuture`, or several.
    Value,
    /// Permits of a semaphore.
    Semaphore,
    /// A channel: room to send.
    Send,
    /// A channel: something to receive.
    Receive,
    /// The first of several, in `select!`.
    Select,
    /// A descriptor: something to read, or a connection to accept.
    Readable,
    /// A descriptor: room to write, or a connection to be made.
    Writable,
    /// Work that blocks, on another thread.
    Blocking,
}

impl WaitKind {
    pub(crate) fn from_bits(bits: u8) -> WaitKind {
        const ALL: [WaitKind; 19] = [
            WaitKind::None,
            WaitKind::Sleep,
            WaitKind::Park,
            WaitKind::Join,
            WaitKind::Predicate,
            WaitKind::Future,
            WaitKind::Scope,
            WaitKind::Lock,
            WaitKind::Key,
            WaitKind::Condvar,
            WaitKind::Event,
            WaitKind::Value,
            WaitKind::Semaphore,
            WaitKind::Send,
            WaitKind::Receive,
            WaitKind::Select,
            WaitKind::Readable,
            WaitKind::Writable,
            WaitKind::Blocking,
        ];
        ALL.get(usize::from(bits)).copied().unwrap_or(WaitKind::None)
    }

    /// As an operation, for messages.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            WaitKind::None => "nothing",
            WaitKind::Sleep => "sleep",
            WaitKind::Park => "park",
            WaitKind::Join => "join",
            WaitKind::Predicate => "wait_until",
            WaitKind::Future => "block_on",
            WaitKind::Scope => "the end of a scope",
            WaitKind::Lock | WaitKind::Key => "lock",
            WaitKind::Condvar => "a condition variable",
            WaitKind::Event => "an event",
            WaitKind::Value => "a future",
            WaitKind::Semaphore => "a semaphore",
            WaitKind::Send => "send",
            WaitKind::Receive => "recv",
            WaitKind::Select => "select",
            WaitKind::Readable => "reading from a descriptor",
            WaitKind::Writable => "writing to a descriptor",
            WaitKind::Blocking => "blocking work",
        }
    }
}

const KIND_SHIFT: u32 = 56;

/// In the place of a kind: the wait has ended, and when is noted in its place.
const WOKEN: u64 = 0xFF;

/// The birth of a fiber is kept in units of about a millisecond.
const BIRTH_SHIFT: u32 = 20;

/// Where a fiber goes on: nothing before it first runs, and from the beginning of a wait until it has
/// stopped; stale while it runs otherwise.
///
/// So whoever finds that a wait has begun, then a place here, and then that the wait has not ended, knows
/// that the fiber has not run in between, and what is on its stack.
pub(crate) struct Place(AtomicPtr<()>);

impl Place {
    const fn new() -> Place {
        Place(AtomicPtr::new(ptr::null_mut()))
    }

    /// For who may resume the fiber.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<Context> {
        let place = ptr::NonNull::new(self.0.load(Ordering::Relaxed));
        // SAFETY: only contexts are put here.
        place.map(|place| unsafe { Context::from_ptr(place) })
    }

    /// For anybody else.
    pub(crate) fn look(&self) -> Option<Context> {
        // ORDERING: Acquire: what is on the stack; pairs with the Release in `set`.
        let place = ptr::NonNull::new(self.0.load(Ordering::Acquire));
        // SAFETY: as in `get`.
        place.map(|place| unsafe { Context::from_ptr(place) })
    }

    /// The fiber has stopped.
    #[inline(always)]
    pub(crate) fn set(&self, context: Context) {
        // ORDERING: Release; pairs with the Acquire in `look`.
        self.0.store(context.as_ptr().as_ptr(), Ordering::Release);
    }

    /// The fiber is about to stop, or is a new one.
    #[inline(always)]
    fn clear(&self) {
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

impl Control {
    /// A block without a fiber.
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

    /// Makes zeros a vacant block again, none of whose waits was among the first `epochs`.
    pub(super) fn revive(&self, epochs: u64) {
        self.wake.restart(epochs);
        self.vtable.set(&Vtable::NONE);
    }

    /// Makes a vacant block a fiber that has not been submitted, with `references`.
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

    /// Notes when it was made, if who made it did not know.
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

    /// Sets flags. Only the thread that the fiber belongs to calls this.
    #[inline(always)]
    pub(crate) fn set_flags(&self, flags: Flags) {
        self.flags.store(self.flags().0 | flags.0, Ordering::Relaxed);
    }

    /// Clears flags. Only the thread that the fiber belongs to calls this.
    #[inline(always)]
    pub(crate) fn clear_flags(&self, flags: Flags) {
        self.flags.store(self.flags().0 & !flags.0, Ordering::Relaxed);
    }

    /// Puts those of `mask` back to what they were in `before`.
    pub(crate) fn restore_flags(&self, before: Flags, mask: Flags) {
        let kept = self.flags().0 & !mask.0;
        self.flags.store(kept | before.0 & mask.0, Ordering::Relaxed);
    }

    /// Makes the flags those of an unstarted fiber again. Only the thread that the fiber belongs to calls this,
    /// as its last act.
    pub(crate) fn reset_flags(&self) {
        let kept = self.flags().0 & Flags::OF_UNSTARTED.0;
        let moves = Flags(kept).has(Flags::ROAMING);
        self.flags.store(kept | if moves { Flags::MIGRATABLE.0 } else { 0 }, Ordering::Relaxed);
    }

    /// Whether the fiber is bound to this carrier, on whose thread this is called: then it stays so until the
    /// thread goes on with it. One that has rested may be bound elsewhere at any moment.
    pub(crate) fn is_bound_to(&self, carrier: &Carrier) -> bool {
        // Who binds it names the carrier first. If this is the carrier, it was this thread that has set the mark.
        self.life.has_started() && ptr::eq(self.carrier(), carrier)
    }

    /// Clears the mark that keeps others from resuming a migratable fiber.
    #[inline(always)]
    pub(crate) fn left_stack(&self) {
        let flags = self.flags().0 & !Flags::ON_STACK.0;
        // ORDERING: Release publishes the saved context; pairs with the Acquire in
        // `has_left_stack`.
        self.flags.store(flags, Ordering::Release);
    }

    /// Whether a migratable fiber has left its stack, and may be resumed.
    #[inline(always)]
    pub(crate) fn has_left_stack(&self) -> bool {
        // ORDERING: Acquire: the saved context; pairs with the Release in `left_stack`.
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

    /// How old the fiber is, in nanoseconds, to about a millisecond. It starts anew after 52 days.
    pub(crate) fn age(&self, now: u64) -> u64 {
        let born = self.born.load(Ordering::Relaxed);
        u64::from(((now >> BIRTH_SHIFT) as u32).wrapping_sub(born)) << BIRTH_SHIFT
    }

    /// How many waits it has begun. It starts anew after four billion.
    pub(crate) fn waits(&self) -> u32 {
        self.wake.count().wrapping_sub(self.first_wait.load(Ordering::Relaxed))
    }

    /// Notes what the fiber is about to wait for. `since` is the carrier's last look at the clock.
    #[inline(always)]
    pub(crate) fn record_wait(&self, kind: WaitKind, address: usize, since: u64) {
        self.context.clear();
        let since = since & ((1 << KIND_SHIFT) - 1);
        self.wait_address.store(address as u64, Ordering::Relaxed);
        self.wait.store(u64::from(kind as u8) << KIND_SHIFT | since, Ordering::Relaxed);
    }

    /// Notes when the fiber was woken, and by which: what it waited for is of no use any more. Only who has
    /// ended its wait calls this, before it is made to run.
    pub(crate) fn note_wake(&self, at: u64, by: u64) {
        self.wait_address.store(by, Ordering::Relaxed);
        let at = at & ((1 << KIND_SHIFT) - 1);
        self.wait.store(WOKEN << KIND_SHIFT | at, Ordering::Relaxed);
    }

    /// When it was woken and by which, if that was noted since this was last asked. Only who is about to
    /// run it calls this.
    pub(crate) fn take_wake(&self) -> Option<(u64, u64)> {
        let wait = self.wait.load(Ordering::Relaxed);
        if wait >> KIND_SHIFT != WOKEN {
            return None;
        }
        self.wait.store(0, Ordering::Relaxed);
        let at = wait & ((1 << KIND_SHIFT) - 1);
        Some((at, self.wait_address.load(Ordering::Relaxed)))
    }

    /// What it waits for, on what, and since when (nanoseconds of sinew's clock).
    pub(crate) fn recorded_wait(&self) -> (WaitKind, usize, u64) {
        let wait = self.wait.load(Ordering::Relaxed);
        let kind = WaitKind::from_bits((wait >> KIND_SHIFT) as u8);
        let since = wait & ((1 << KIND_SHIFT) - 1);
        (kind, self.wait_address.load(Ordering::Relaxed) as usize, since)
    }

    /// What an unstarted fiber waits for, if it is kept until something happens, as far as a look tells.
    pub(crate) fn awaited_unstarted(&self) -> Option<(WaitKind, usize, u64)> {
        let armed =
            self.extra().is_some_and(|extra| !extra.armed.load(Ordering::Relaxed).is_null());
        let wait = self.recorded_wait();
        (armed && !self.life.has_started() && wait.0 != WaitKind::None).then_some(wait)
    }

    /// An unstarted fiber does not wait any more. Only who has taken it out of where it was kept calls this.
    pub(crate) fn end_wait_unstarted(&self) {
        self.wait.store(0, Ordering::Relaxed);
    }

    /// Names whom to wake at the end. The holder of the join handle calls this, then sets the mark.
    #[inline(always)]
    pub(crate) fn set_joiner(&self, joiner: *const Control, epoch: Epoch) {
        self.joiner.store(joiner.cast_mut(), Ordering::Relaxed);
        self.joiner_epoch.store(epoch.bits(), Ordering::Relaxed);
    }

    /// Whom to wake at the end. What is read while the holder of the join handle changes it is not
    /// used: the exchange that ends the fiber fails then.
    #[inline(always)]
    pub(crate) fn joiner(&self) -> (*const Control, Epoch) {
        let epoch = Epoch::from_bits(self.joiner_epoch.load(Ordering::Relaxed));
        (self.joiner.load(Ordering::Relaxed), epoch)
    }

    /// Asks for the memory of the block.
    #[inline(always)]
    pub(crate) fn fetch(&self) {
        fetch::<3>(ptr::from_ref(self).cast());
    }

    /// Asks for the memory of what few fibers have. The block was asked for before.
    #[inline(always)]
    pub(crate) fn fetch_extra(&self) {
        fetch::<2>(self.extra.load(Ordering::Relaxed).cast());
    }

    /// Asks for the memory of what an unstarted fiber has captured. What few have was asked for before.
    #[inline(always)]
    pub(crate) fn fetch_captured(&self) {
        if let Some(extra) = self.extra() {
            fetch::<2>(extra.captured.load(Ordering::Relaxed));
            fetch::<3>(extra.source.load(Ordering::Relaxed));
        }
    }

    /// Whether the pointer to what few fibers have is at an address.
    pub(crate) fn is_extra(&self, address: usize) -> bool {
        (&raw const self.extra).addr() == address
    }

    /// What few fibers have, if this one ever had any of it.
    #[inline(always)]
    pub(crate) fn extra(&self) -> Option<&Extra> {
        // SAFETY: null, or a box that stays with the block.
        unsafe { self.extra.load(Ordering::Acquire).as_ref() }
    }

    /// The same, made now if need be.
    pub(crate) fn extra_or_new(&self) -> &Extra {
        if let Some(extra) = self.extra() {
            return extra;
        }
        let new = Box::into_raw(Box::<Extra>::default());
        // ORDERING: AcqRel: Release publishes the box; Acquire shows one that another has made.
        match self.extra.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire)
        {
            // SAFETY: just made, and stays with the block.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: ours was not published; the other stays with the block.
                unsafe {
                    drop(Box::from_raw(new));
                    &*other
                }
            }
        }
    }
}

/// Asks for some lines of memory from `address` on.
#[inline(always)]
fn fetch<const LINES: usize>(address: *const u8) {
    (0..LINES).for_each(|line| prefetch(address.wrapping_add(64 * line)));
}

/// A counted reference to a control block.
#[derive(Debug)]
pub(crate) struct FiberRef(ptr::NonNull<Control>);

// SAFETY: what a reference gives access to is atomic, or guarded by the rules of the block.
unsafe impl Send for FiberRef {}
// SAFETY: the same.
unsafe impl Sync for FiberRef {}

impl FiberRef {
    /// Takes over a reference that was counted already.
    ///
    /// # Safety
    /// The caller owns one, and gives it away.
    #[inline(always)]
    pub(crate) unsafe fn from_counted(control: *const Control) -> FiberRef {
        // SAFETY: pointers to blocks are not null.
        FiberRef(unsafe { ptr::NonNull::new_unchecked(control.cast_mut()) })
    }

    /// Adds a reference to a block that is alive.
    pub(crate) fn new(control: &Control) -> FiberRef {
        control.life.acquire();
        FiberRef(ptr::NonNull::from(control))
    }

    /// Gives the reference up without dropping it; [`from_counted`](Self::from_counted) takes it
    /// back.
    pub(crate) fn into_counted(self) -> *const Control {
        core::mem::ManuallyDrop::new(self).0.as_ptr()
    }

    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> *const Control {
        self.0.as_ptr()
    }
}

impl core::ops::Deref for FiberRef {
    type Target = Control;
    #[inline(always)]
    fn deref(&self) -> &Control {
        // SAFETY: a reference keeps the block.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for FiberRef {
    fn clone(&self) -> Self {
        FiberRef::new(self)
    }
}

impl Drop for FiberRef {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the block is alive until the last reference goes.
        unsafe {
            if self.0.as_ref().life.release() {
                slab::free(self.0.as_ptr());
            }
        }
    }
}

impl core::fmt::Debug for Control {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Control").field("id", &self.id()).finish_non_exhaustive()
    }
}
