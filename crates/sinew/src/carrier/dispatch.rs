//! From one fiber straight into the next.
//!
//! The decision is made on the stack of the fiber that stops, and the switch goes to the one that
//! is next; the carrier's own stack is entered only when there is nothing to run.
//!
//! What the next one finds to do for the one before is a closed set: note where it stopped, take
//! its stack back if it has ended, let others resume it if it is migratable. No user code is in it.

use super::{Carrier, Claimed, launch};
use crate::fiber::{Control, Flags};
use crate::primitive::{Ordering, prefetch};
use crate::queue::Linked;
use core::ptr;
use sinew_context::context::{self, Arrival, Context};

/// Lines of its stack that a fiber touches first when a wait is over: what was saved, and the frames
/// up to the caller's.
const FRAMES: usize = 7;

impl Carrier {
    /// What runs next: the root, if there is nothing.
    #[inline(always)]
    pub(crate) fn next(&self) -> *const Control {
        let tick = self.tick.get() - 1;
        self.tick.set(tick);
        if tick == 0 {
            return self.next_after_duties();
        }
        self.next_ready()
    }

    #[inline(always)]
    pub(super) fn next_ready(&self) -> *const Control {
        let slot = self.slot.get();
        if !slot.is_null() {
            self.slot.set(ptr::null());
            return slot;
        }
        match self.ready.pop() {
            Some(next) => {
                if let Some(ahead) = self.ready.peek() {
                    self.look_ahead(ahead, FRAMES);
                }
                next
            }
            None => self.next_elsewhere(),
        }
    }

    /// Fetches what the dispatch after the next will need: the block of the one after the next, and
    /// so many lines of the stack of the next, whose block was fetched a dispatch ago.
    #[inline(always)]
    fn look_ahead(&self, ahead: *const Control, lines: usize) {
        // SAFETY: what is in the list is ours. The link of the last one is stale, and only a hint.
        unsafe {
            prefetch((*ahead).link().load(Ordering::Relaxed).cast());
            if let Some(context) = (*ahead).context.get() {
                let stack = context.as_ptr().as_ptr().cast::<u8>();
                (0..lines).for_each(|line| prefetch(stack.wrapping_add(64 * line)));
            }
        }
    }

    /// Fetches what the next fibers will need that have rested, perhaps for long: of the next one what it has
    /// captured, of the one after it what leads there, and so on. More would be gone again before it is needed.
    #[inline(never)]
    fn look_ahead_of_unstarted(&self) {
        // SAFETY: this is the owner's thread. Others may have the fibers, but blocks are never unmapped.
        unsafe {
            let [next, second, third] = self.deque.oldest::<3>().map(|fiber| fiber.as_ref());
            next.inspect(|fiber| fiber.fetch_captured());
            second.inspect(|fiber| fiber.fetch_extra());
            third.inspect(|fiber| fiber.fetch());
        }
    }

    /// What runs next when no started fiber is ready here.
    #[inline(never)]
    fn next_elsewhere(&self) -> *const Control {
        if !self.inbox.is_empty() {
            self.take_inbox();
            if let Some(next) = self.ready.pop() {
                return next;
            }
        }
        if self.can_refuse() {
            return &self.root;
        }
        self.next_shared().unwrap_or(&self.root)
    }

    /// Where the root goes on.
    pub(super) fn root_context(&self) -> Context {
        self.root.context.get().expect("the root has run before any fiber")
    }

    /// Takes one of the fibers that might run anywhere.
    #[inline]
    pub(super) fn next_shared(&self) -> Option<*const Control> {
        let taken = if self.depth_first.get() {
            // SAFETY: this is the owner's thread.
            unsafe { self.deque.pop(self.crew().carriers.len() > 1) }
        } else {
            self.oldest_shared()
        };
        match taken {
            Some(next) => self.admit(next),
            None => {
                self.depth_first.set(false);
                self.take_injected().and_then(|next| self.admit(next))
            }
        }
    }

    /// Checks that what was taken out of a deque can be resumed: that a migratable fiber has left
    /// the stack on which it was published, a few instructions before it switches.
    ///
    /// If it has not, only the root waits for it. A fiber that waited on its own stack might wait
    /// for one that waits for it: it puts the other one back and lets the root decide.
    #[inline(always)]
    pub(super) fn admit(&self, next: *const Control) -> Option<*const Control> {
        #[cfg(sinew_force_migration)]
        if self.passes_on(next) {
            return None;
        }
        // SAFETY: what was in a deque is alive, and ours.
        if unsafe { (*next).has_left_stack() } || ptr::eq(next, self.current()) {
            return Some(next);
        }
        self.admit_later(next)
    }

    /// Gives a started fiber to whoever comes first every other time, for tests: it should not
    /// matter where it goes on.
    #[cfg(sinew_force_migration)]
    fn passes_on(&self, next: *const Control) -> bool {
        // SAFETY: what was in a deque is alive, and ours.
        let next = unsafe { &*next };
        let crew = self.crew();
        let started = next.life.marks() & crate::fiber::life::STARTED != 0;
        let here = started && ptr::eq(next.carrier(), self);
        let pass = here && crew.carriers.len() > 1 && self.random().is_multiple_of(2);
        if pass {
            // SAFETY: in no queue.
            unsafe { crew.inject(next) };
        }
        pass
    }

    #[cold]
    #[inline(never)]
    fn admit_later(&self, next: *const Control) -> Option<*const Control> {
        // SAFETY: as in `admit`; this is the owner's thread.
        unsafe {
            if !ptr::eq(self.current(), &self.root) {
                self.deque.push(next);
                return None;
            }
            await_left(&*next);
        }
        Some(next)
    }

    pub(super) fn oldest_shared(&self) -> Option<*const Control> {
        let next = self.take_oldest_shared()?;
        // SAFETY: what was in a deque is alive, and ours.
        if unsafe { (*next).flags() }.has(Flags::RECURRING) {
            self.look_ahead_of_unstarted();
        }
        Some(next)
    }

    fn take_oldest_shared(&self) -> Option<*const Control> {
        use crate::queue::Steal;
        if self.crew().carriers.len() == 1 {
            // SAFETY: this is the owner's thread, and there are no thieves.
            return unsafe { self.deque.pop_oldest() };
        }
        loop {
            match self.deque.steal() {
                Steal::Taken(next) => return Some(next),
                Steal::Empty => return None,
                Steal::Lost => core::hint::spin_loop(),
            }
        }
    }
}

/// Waits until a migratable fiber has left its stack.
fn await_left(control: &Control) {
    let mut tries = 0_u32;
    while !control.has_left_stack() {
        tries = tries.wrapping_add(1);
        if tries.is_multiple_of(128) {
            std::thread::yield_now();
        } else {
            core::hint::spin_loop();
        }
    }
}

/// Stops `me` and runs what is next; returns when `me` is dispatched again.
///
/// # Safety
/// `me` runs on `carrier`, and is in a queue of it or registered with whoever will wake it.
#[inline(always)]
pub(crate) unsafe fn suspend(carrier: &Carrier, me: &Control) {
    let next = carrier.next();
    if ptr::eq(next, me) {
        // Woken before it stopped.
        return;
    }
    // SAFETY: `next` was taken out of a queue, so it is suspended or unstarted, and ours.
    unsafe { go(carrier, me, &*next) };
}

/// The same, but `newest`, which has not started, is next if it is the newest in the deque and this
/// is not at the cost of others. It is taken out of there, where anybody may have it, when nothing
/// can come before it.
///
/// # Safety
/// As for `suspend`.
#[inline(always)]
pub(crate) unsafe fn suspend_for(carrier: &Carrier, me: &Control, newest: &Control) {
    let tick = carrier.tick.get() - 1;
    let alone = carrier.ready.is_empty();
    // SAFETY: this is the owner's thread; what is popped is unstarted, and ours.
    unsafe {
        if tick == 0
            || !carrier.slot.get().is_null()
            || !alone && carrier.slot_left.get() == 0
            || !carrier.deque.pop_if(newest, carrier.crew().carriers.len() > 1)
        {
            return suspend(carrier, me);
        }
        carrier.tick.set(tick);
        if !alone {
            carrier.slot_left.set(carrier.slot_left.get() - 1);
        }
        go(carrier, me, newest);
    }
}

/// Puts `me` behind the ready fibers and runs what is next; returns when `me` is dispatched again.
///
/// # Safety
/// `me` runs on `carrier`, is in no queue, and is not migratable.
#[inline(always)]
pub(crate) unsafe fn go_behind(carrier: &Carrier, me: &Control) {
    let tick = carrier.tick.get() - 1;
    // SAFETY: as the caller promised.
    unsafe {
        if tick == 0 || !carrier.slot.get().is_null() {
            return go_behind_slowly(carrier, me);
        }
        carrier.tick.set(tick);
        let len = carrier.ready.len();
        if len == 0 {
            return;
        }
        let next = &*carrier.ready.rotate(me);
        if len >= MANY {
            carrier.look_ahead(carrier.ready.first(), 1);
        }
        // Nobody who may move is in the list: those are published.
        match next.context.get() {
            Some(to) => switch(carrier, me, (next, to), message_of(me, false)),
            None => go_and_start(carrier, me, next),
        }
    }
}

/// From how many ready fibers on it pays to fetch them ahead.
const MANY: usize = 4;

#[inline(never)]
unsafe fn go_behind_slowly(carrier: &Carrier, me: &Control) {
    // SAFETY: as the caller of `go_behind` promised.
    unsafe {
        carrier.ready.push(me);
        suspend(carrier, me);
    }
}

#[inline(never)]
unsafe fn go_and_start(carrier: &Carrier, me: &Control, next: &Control) {
    // SAFETY: as the caller of `go` promised.
    unsafe { go(carrier, me, next) };
}

/// Goes on in a migratable fiber on this thread, which is no carrier, until it leaves again; then
/// gives it to its crew. `here` stands for the thread.
///
/// # Safety
/// The caller has claimed the fiber's wait.
pub(crate) unsafe fn ride(claimed: Claimed, here: &Control) {
    // SAFETY: the fiber is ours; its carrier is the one where it waited, which lives for ever.
    unsafe {
        let fiber = &*claimed.control();
        await_left(fiber);
        fiber.set_flags(Flags::ON_STACK);
        let to = fiber.context.get().expect("a fiber that waits has a context");
        arrive(here, context::switch_with(to, message_of(here, false), 0));
        // Once it is published it may end, and its runtime with it.
        let crew = (*fiber.carrier()).crew_counted();
        crew.inject(fiber);
    }
}

/// Leaves a thread that is no carrier; returns when a carrier dispatches the fiber.
///
/// # Safety
/// `me` was brought to this thread by [`ride`], with `here`.
pub(crate) unsafe fn leave_thread(me: &Control, here: &Control) {
    // SAFETY: as the caller promised. The thread gives the fiber to its crew when it has arrived.
    unsafe {
        let to = here.context.get().expect("it has suspended itself to go on in the fiber");
        arrive(me, context::switch_with(to, message_of(me, true), 0));
    }
}

/// Switches from `me` to `next`; returns when somebody switches back to `me`.
///
/// # Safety
/// `me` runs on `carrier`; `next` is suspended or unstarted, and nobody else will run it.
#[inline(always)]
pub(crate) unsafe fn go(carrier: &Carrier, me: &Control, next: &Control) {
    let message = message_of(me, me.flags().has(Flags::MIGRATABLE));
    // SAFETY: `next` is ours to run, as the caller promised.
    unsafe {
        let to = match next.context.get() {
            Some(context) => {
                if next.flags().has(Flags::MIGRATABLE) {
                    moved(carrier, next);
                }
                context
            }
            None => match launch::start(carrier, next) {
                Some(context) => context,
                None if me.flags().has(Flags::ROOT) => return,
                // There was no stack; the root tells whoever waits for it.
                None => {
                    let root = (&carrier.root, carrier.root_context());
                    return switch(carrier, me, root, message);
                }
            },
        };
        switch(carrier, me, (next, to), message);
    }
}

/// Notes that a migratable fiber is about to run here.
#[cold]
#[inline(never)]
pub(super) fn moved(carrier: &Carrier, next: &Control) {
    next.set_carrier(carrier);
    next.set_flags(Flags::ON_STACK);
}

/// Makes `next` the current one and goes on in its context.
///
/// The one who leaves says in the message who it is, so that whoever arrives has in a register what
/// it would else have to read through its own frame: what is read there has to wait until the stack
/// pointer has come from memory.
///
/// # Safety
/// As for `go`; `next` comes with its context, and the message is that of `me`.
#[inline(always)]
pub(super) unsafe fn switch(
    carrier: &Carrier,
    me: &Control,
    (next, to): (&Control, Context),
    message: usize,
) {
    carrier.set_current(next);
    // SAFETY: as the caller promised.
    unsafe { arrive(me, context::switch_with(to, message, 0)) };
}

/// Messages are the address of a block or of a launch, with one of these in the bits that alignment
/// leaves: a migratable fiber has stopped; a launch has exited, or rests.
const KIND: usize = 0b11;
const MOVES: usize = 0b01;
const ENDED: usize = 0b10;
const RESTS: usize = 0b11;

/// The message of a fiber that stops.
#[inline(always)]
pub(super) fn message_of(me: &Control, moves: bool) -> usize {
    ptr::from_ref(me).expose_provenance() | if moves { MOVES } else { 0 }
}

/// The message of a launch that exits, and whose stack is to be taken back.
pub(super) fn ended(launch: *mut ()) -> usize {
    launch.expose_provenance() | ENDED
}

/// The message of a launch that waits for the next fiber.
pub(super) fn rests(launch: *mut ()) -> usize {
    launch.expose_provenance() | RESTS
}

/// What a context does first when it runs: it sees to the one before.
///
/// # Safety
/// `me` has just been switched to, and its carrier field is right.
#[inline(always)]
pub(super) unsafe fn arrive(me: &Control, arrival: Arrival) {
    let message = arrival.word();
    // SAFETY: every switch between fibers sends such a message. Carriers live for ever; the field is
    // read after the switch: a migratable fiber may be on another one than before.
    unsafe {
        let address = message & !KIND;
        let before = ptr::with_exposed_provenance::<Control>(address);
        // Not one of four: that would be a jump through a table.
        if message & KIND == 0 {
            return (*before).context.set(arrival.from_suspended());
        }
        match message & KIND {
            MOVES => {
                (*before).context.set(arrival.from_suspended());
                (*before).left_stack();
            }
            RESTS => launch::keep(&*me.carrier(), address, arrival.from_suspended()),
            _ => launch::take_back(address),
        }
    }
}
