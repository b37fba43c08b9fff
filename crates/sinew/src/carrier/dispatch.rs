//! Switches from one fiber straight to the next.
//!
//! The fiber that stops picks the next one on its own stack, and switches there. The carrier's own
//! stack is entered only when no fiber is ready.
//!
//! The next context has a closed set of duties for the previous one: it notes where the previous
//! context stopped, takes its stack back if its fiber has ended, and lets other carriers resume a
//! migratable fiber. None of these duties runs user code.
//!
//! Next: `launch`, which starts and ends fibers, and `run`, the carrier's own loop.

use super::{Claimed, Owner, launch};
use crate::fiber::{Control, Flags};
use crate::primitive::{Ordering, prefetch};
use crate::queue::Linked;
use core::ptr;
use sinew_context::context::{self, Arrival, Context};

/// Cache lines of its stack that a fiber touches first after a wait: the saved registers, and the
/// frames up to the caller's.
const FRAMES: usize = 7;

impl Owner {
    /// Returns the fiber that runs next, or the root if none is ready.
    #[inline(always)]
    pub(crate) fn next(&self) -> *const Control {
        let left = self.stint_left.get() - 1;
        self.stint_left.set(left);
        if left == 0 {
            return self.next_after_stint();
        }
        self.next_ready()
    }

    #[inline(always)]
    pub(super) fn next_ready(&self) -> *const Control {
        let next = self.run_next.get();
        if !next.is_null() {
            self.run_next.set(ptr::null());
            return next;
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

    /// Prefetches for the following dispatches: the block of the fiber after `ahead`, and `lines`
    /// cache lines of the stack of `ahead`, whose block was prefetched one dispatch earlier.
    #[inline(always)]
    fn look_ahead(&self, ahead: *const Control, lines: usize) {
        // SAFETY: fibers in the list are ours. The link of the last one is stale, and only a hint.
        unsafe {
            prefetch((*ahead).link().load(Ordering::Relaxed).cast());
            if let Some(context) = (*ahead).context.get() {
                let stack = context.as_ptr().as_ptr().cast::<u8>();
                (0..lines).for_each(|line| prefetch(stack.wrapping_add(64 * line)));
            }
        }
    }

    /// Prefetches for the next fibers, which may have rested for long: the captured values of the
    /// next one, the `Extra` of the second, and the block of the third. Anything more would leave
    /// the cache again before it is needed.
    #[inline(never)]
    fn look_ahead_of_unstarted(&self) {
        // SAFETY: thieves may own the fibers by now, but blocks are never unmapped.
        let [next, second, third] =
            self.deque().oldest::<3>().map(|fiber| unsafe { fiber.as_ref() });
        next.inspect(|fiber| fiber.fetch_captured());
        second.inspect(|fiber| fiber.fetch_extra());
        third.inspect(|fiber| fiber.fetch());
    }

    /// Returns the fiber that runs next when no started fiber is ready in `ready`.
    #[inline(never)]
    fn next_elsewhere(&self) -> *const Control {
        if !self.shared().inbox.is_empty() {
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

    /// Returns the context in which the root goes on.
    pub(super) fn root_context(&self) -> Context {
        self.root.context.get().expect("the root has run before any fiber")
    }

    /// Takes a fiber that may run on any carrier: from the deque, or from outside.
    #[inline]
    pub(super) fn next_shared(&self) -> Option<*const Control> {
        self.deal_if_due();
        let taken = if self.depth_first.get() {
            // SAFETY: `has_thieves` says whether other carriers steal.
            unsafe { self.deque().pop(self.has_thieves()) }
        } else {
            self.oldest_shared()
        };
        match taken {
            Some(next) => self.resumable(next),
            None => {
                self.depth_first.set(false);
                self.take_from_outside().and_then(|next| self.resumable(next))
            }
        }
    }

    /// Checks that a fiber from a deque can be resumed: a migratable fiber may still be on the
    /// stack on which it was published, a few instructions before its switch.
    ///
    /// If it is still there, only the root may wait until it has left. If this code waited on the
    /// stack of a fiber, two fibers on two carriers might wait for each other. So on the stack of a
    /// fiber, this code puts `next` back into the deque, and lets the root decide.
    #[inline(always)]
    pub(super) fn resumable(&self, next: *const Control) -> Option<*const Control> {
        #[cfg(sinew_force_migration)]
        if self.passes_on(next) {
            return None;
        }
        // SAFETY: a fiber from a deque is alive, and ours.
        if unsafe { (*next).has_left_stack() } || ptr::eq(next, self.current()) {
            return Some(next);
        }
        self.resumable_later(next)
    }

    /// Gives about half of the started fibers to the first carrier that takes them, for tests: it
    /// must not matter where a fiber goes on.
    #[cfg(sinew_force_migration)]
    fn passes_on(&self, next: *const Control) -> bool {
        // SAFETY: a fiber from a deque is alive, and ours.
        let next = unsafe { &*next };
        let crew = self.crew();
        let started = next.life.marks() & crate::fiber::life::STARTED != 0;
        let here = started && ptr::eq(next.carrier(), self.shared());
        let pass = here && crew.carriers.len() > 1 && self.random().is_multiple_of(2);
        if pass {
            // SAFETY: the fiber was taken out of the deque and is in no other queue.
            unsafe { crew.inject(next) };
        }
        pass
    }

    #[cold]
    #[inline(never)]
    fn resumable_later(&self, next: *const Control) -> Option<*const Control> {
        if !ptr::eq(self.current(), &self.root) {
            self.deque().push(next);
            return None;
        }
        // SAFETY: a fiber from a deque is alive, and ours.
        await_left(unsafe { &*next });
        Some(next)
    }

    pub(super) fn oldest_shared(&self) -> Option<*const Control> {
        let next = self.take_oldest_shared()?;
        // SAFETY: a fiber from a deque is alive, and ours.
        if unsafe { (*next).flags() }.has(Flags::RECURRING) {
            self.look_ahead_of_unstarted();
        }
        Some(next)
    }

    pub(super) fn take_oldest_shared(&self) -> Option<*const Control> {
        use crate::queue::Steal;
        if !self.has_thieves() {
            // SAFETY: a crew of one carrier has no thieves.
            return unsafe { self.deque().pop_oldest() };
        }
        loop {
            match self.shared().deque.steal() {
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

/// Stops `me` and runs the next fiber. Returns when `me` is dispatched again.
///
/// # Safety
/// `me` is the running fiber, and is in a queue of its carrier or registered with its waker.
#[inline(always)]
pub(crate) unsafe fn suspend(owner: &Owner, me: &Control) {
    let next = owner.next();
    if ptr::eq(next, me) {
        // The fiber was woken before it stopped.
        return;
    }
    // SAFETY: `next` was taken out of a queue, so it is suspended or unstarted, and ours.
    unsafe { go(owner, me, &*next) };
}

/// Stops `me` and runs `newest`, an unstarted fiber, if it is the youngest in the deque and no
/// other fiber loses a turn. Otherwise does as [`suspend`]. `newest` is in the deque, where thieves
/// may take it. This function pops it last, when no other fiber is to run first.
///
/// # Safety
/// As for [`suspend`].
#[inline(always)]
pub(crate) unsafe fn suspend_for(owner: &Owner, me: &Control, newest: &Control) {
    let left = owner.stint_left.get() - 1;
    let alone = owner.ready.is_empty();
    // SAFETY: `has_thieves` says whether other carriers steal. A popped fiber is unstarted and
    // ours.
    unsafe {
        if left == 0
            || !owner.run_next.get().is_null()
            || !alone && owner.run_next_left.get() == 0
            || !owner.deque().pop_if(newest, owner.has_thieves())
        {
            return suspend(owner, me);
        }
        owner.stint_left.set(left);
        if !alone {
            owner.run_next_left.set(owner.run_next_left.get() - 1);
        }
        go(owner, me, newest);
    }
}

/// Puts `me` behind the ready fibers and runs the next one. Returns when `me` is dispatched again.
///
/// # Safety
/// `me` is the running fiber, is in no queue, and is not migratable.
#[inline(always)]
pub(crate) unsafe fn go_behind(owner: &Owner, me: &Control) {
    let left = owner.stint_left.get() - 1;
    // SAFETY: `me` is in no queue, so its link is free. A fiber from `ready` is ours to run.
    unsafe {
        if left == 0 || !owner.run_next.get().is_null() {
            return go_behind_slowly(owner, me);
        }
        owner.stint_left.set(left);
        let len = owner.ready.len();
        if len == 0 {
            return;
        }
        let next = &*owner.ready.rotate(me);
        if len >= MANY {
            owner.look_ahead(owner.ready.first(), 1);
        }
        // `ready` holds no migratable fibers: those are published.
        match next.context.get() {
            Some(to) => switch(owner, me, (next, to), message_of(me, false)),
            None => go_and_start(owner, me, next),
        }
    }
}

/// Prefetching pays if at least this many fibers are ready.
const MANY: usize = 4;

/// The part of [`go_behind`] that is out of line: the stint is over, or `run_next` is in use.
///
/// # Safety
/// As for [`go_behind`].
#[inline(never)]
unsafe fn go_behind_slowly(owner: &Owner, me: &Control) {
    // SAFETY: `me` runs and is in no queue, so its link is free.
    unsafe {
        owner.ready.push(me);
        suspend(owner, me);
    }
}

/// The part of [`go_behind`] that is out of line: `next` is unstarted.
///
/// # Safety
/// As for [`go`].
#[inline(never)]
unsafe fn go_and_start(owner: &Owner, me: &Control, next: &Control) {
    // SAFETY: as the caller promised.
    unsafe { go(owner, me, next) };
}

/// Runs a migratable fiber on this thread, which is no carrier, until the fiber leaves; then gives
/// it to its crew. `here` stands for the thread.
///
/// # Safety
/// The caller has claimed the fiber's wait.
pub(crate) unsafe fn ride(claimed: Claimed, here: &Control) {
    // SAFETY: the claim makes the fiber ours. Its carrier is the one where it waited, and carriers
    // are never freed.
    unsafe {
        let fiber = &*claimed.control();
        await_left(fiber);
        fiber.set_flags(Flags::ON_STACK);
        let to = fiber.context.get().expect("a fiber that waits has a context");
        arrive(here, context::switch_with(to, message_of(here, false), 0));
        // Keep the crew: once the fiber is published, it may end, and its runtime with it.
        let crew = (*fiber.carrier()).crew_counted();
        crew.inject(fiber);
    }
}

/// Leaves a thread that is no carrier. Returns when a carrier dispatches the fiber.
///
/// # Safety
/// [`ride`] brought `me` to this thread, with `here`.
pub(crate) unsafe fn leave_thread(me: &Control, here: &Control) {
    // SAFETY: `here` is suspended in `ride`, which gives the fiber to its crew when it goes on.
    unsafe {
        let to = here.context.get().expect("it has suspended itself to go on in the fiber");
        arrive(me, context::switch_with(to, message_of(me, true), 0));
    }
}

/// Switches from `me` to `next`. Returns when another context switches back to `me`.
///
/// # Safety
/// `me` is the running fiber or the root. `next` is suspended or unstarted, and only the caller may
/// run it.
#[inline(always)]
pub(crate) unsafe fn go(owner: &Owner, me: &Control, next: &Control) {
    let message = message_of(me, me.flags().has(Flags::MIGRATABLE));
    // SAFETY: `next` is suspended or unstarted, and only the caller may run it.
    unsafe {
        let to = match next.context.get() {
            Some(context) => {
                if next.flags().has(Flags::MIGRATABLE) {
                    moved(owner, next);
                }
                context
            }
            None => match launch::start(owner, next) {
                Some(context) => context,
                None if me.flags().has(Flags::ROOT) => return,
                // There is no stack. The root ends the fiber, which wakes its joiner.
                None => {
                    let root = (owner.shared().root(), owner.root_context());
                    return switch(owner, me, root, message);
                }
            },
        };
        switch(owner, me, (next, to), message);
    }
}

/// Records that a migratable fiber is about to run on this carrier.
#[cold]
#[inline(never)]
pub(super) fn moved(owner: &Owner, next: &Control) {
    next.set_carrier(owner.shared());
    next.set_flags(Flags::ON_STACK);
}

/// Makes `next` the current fiber and goes on in its context.
///
/// The message names the context that leaves, so the context that arrives has that name in a
/// register. Without the message, the arriving context would read the name through its own frame,
/// and such a read has to wait until the stack pointer has come from memory.
///
/// # Safety
/// As for `go`. `to` is the context of `next`, and `message` is the message of `me`.
#[inline(always)]
pub(super) unsafe fn switch(
    owner: &Owner,
    me: &Control,
    (next, to): (&Control, Context),
    message: usize,
) {
    owner.set_current(next);
    // SAFETY: only the caller may run `next`, and `to` is its context.
    unsafe { arrive(me, context::switch_with(to, message, 0)) };
}

/// A message is the address of a block or of a launch, with its kind in the two lowest bits, which
/// alignment leaves free. Zero: a bound fiber has stopped. `MOVES`: a migratable fiber has stopped.
/// `ENDED`: a launch has exited. `SPARE`: a launch becomes the carrier's spare.
const KIND: usize = 0b11;
const MOVES: usize = 0b01;
const ENDED: usize = 0b10;
const SPARE: usize = 0b11;

/// Returns the message of a fiber that stops.
#[inline(always)]
pub(super) fn message_of(me: &Control, moves: bool) -> usize {
    ptr::from_ref(me).expose_provenance() | if moves { MOVES } else { 0 }
}

/// Returns the message of a launch that exits, so that its stack is taken back.
pub(super) fn ended(launch: *mut ()) -> usize {
    launch.expose_provenance() | ENDED
}

/// Returns the message of a launch that becomes the carrier's spare.
pub(super) fn kept(launch: *mut ()) -> usize {
    launch.expose_provenance() | SPARE
}

/// Handles the message of the previous context. Every context does this first when it runs.
///
/// # Safety
/// `me` has just been switched to, and its carrier field is right.
#[inline(always)]
pub(super) unsafe fn arrive(me: &Control, arrival: Arrival) {
    let message = arrival.word();
    // SAFETY: every switch between fibers sends such a message. Carriers are never freed. The
    // carrier field is read after the switch, because a migratable fiber may have moved.
    unsafe {
        let address = message & !KIND;
        let before = ptr::with_exposed_provenance::<Control>(address);
        // The most frequent kind is tested alone: a match of all four would become a jump table.
        if message & KIND == 0 {
            return (*before).context.set(arrival.from_suspended());
        }
        match message & KIND {
            MOVES => {
                (*before).context.set(arrival.from_suspended());
                (*before).left_stack();
            }
            SPARE => launch::keep(Owner::of_running(me), address, arrival.from_suspended()),
            _ => launch::take_back(address),
        }
    }
}
