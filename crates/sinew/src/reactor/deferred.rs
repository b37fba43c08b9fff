//! Fibers that start only when a descriptor is readable.
//!
//! Such a fiber is a control block, its closure, and a node in the list of a slot. It has no stack.
//! The thread that takes the node out of the list, under the slot's lock, has the fiber and submits
//! it. That thread either delivers an event or cancels the fiber. A recurring fiber is armed again
//! each time that it rests.
//!
//! No cancellation is missed. The armer links the fiber before it looks at the mark, and the
//! canceller sets the mark before it looks for the fiber in its slot. So one of the two finds the
//! other. A fiber that was cancelled while it ran has its mark before it is armed. The canceller's
//! message to its carrier may come after the fiber has rested, and is ignored then
//! (`Control::is_bound_to`).
//!
//! No event is missed. An ordinary waiter tries first, and then compares the tick that it read
//! before. An unstarted fiber has made no attempt. So the kernel has to report whether the
//! descriptor is ready at the moment of arming. The kernel does so when the descriptor is added. If
//! the descriptor is watched already, the kernel does so when the armer asks again. The armer need
//! not ask if the last attempt to read, at the present tick, found the stream empty.

use super::Reactor;
use super::slot::{Unstarted, Waits};
use super::source::{Source, kind};
use super::sys::Direction;
use super::table;
use crate::carrier::{Crew, Owner, current, placement};
use crate::clock;
use crate::fiber::life::CANCELLED;
use crate::fiber::{Control, Disarm, Flags};
use crate::park::list::Node;
use crate::primitive::{Ordering, fence};
use crate::queue::Delivery;
use core::cell::UnsafeCell;
use core::pin::Pin;
use core::ptr;

/// The place of an unstarted fiber in the list of a slot. It must not move while the fiber is
/// linked.
pub(crate) struct Armed(UnsafeCell<Option<(Waits, Node<Waits>)>>);

impl Armed {
    /// Makes an empty place, for a fiber that does not exist yet.
    pub(crate) fn new() -> Armed {
        Armed(UnsafeCell::new(None))
    }

    /// Makes a new node for `control`.
    ///
    /// # Safety
    /// The previous node, if any, is in no list. This value does not move while the node is linked.
    unsafe fn node(&self, control: &Control) -> Pin<&Node<Waits>> {
        // SAFETY: no list has the previous node, as the caller ensures. The payload has its final
        // address before the node points to it.
        unsafe {
            let place = self.0.get();
            let waits = Waits::Unstarted(Unstarted(control));
            let (waits, node) = (*place).insert((waits, Node::marker(&Waits::Suspended)));
            *node = Node::marker(waits);
            Pin::new_unchecked(node)
        }
    }
}

/// How a cancelled unstarted fiber is taken out of its slot.
static DISARM: Disarm = Disarm { call: disarm };

/// Submits an unstarted fiber when `source` becomes readable, or when it is cancelled.
///
/// `source` and `armed` may be freed with the fiber before this returns, so they are not borrowed.
///
/// # Safety
/// The fiber is admitted to its crew, in no queue, and belongs to the caller. It keeps `armed`
/// alive and in place until it starts or is refused, and `source` at least as long.
pub(crate) unsafe fn arm(source: *const Source, armed: *const Armed, control: &'static Control) {
    // SAFETY: the fiber belongs to the caller until it is linked, and keeps both until it starts.
    let (fd, slot) = unsafe { ((*source).fd(), (*source).slot()) };
    control.record_wait(kind(Direction::Read), fd as usize, now_or_lately());
    if let Some(owner) = current::owner() {
        owner.note_rest(control);
    }
    let extra = control.extra_or_new();
    extra.captured.store(armed.cast_mut().cast(), Ordering::Relaxed);
    extra.source.store(source.cast_mut().cast(), Ordering::Relaxed);
    // A runtime that ends cancels its fibers before it closes its pollers. A cancelled fiber must
    // not register with a poller that may be dead: other users of the descriptor would rely on it.
    if control.life.marks() & CANCELLED != 0 {
        // SAFETY: the fiber was not linked, so it still belongs to the caller.
        return unsafe { submit_again(control) };
    }
    let entered = {
        let tick = slot.tick(Direction::Read);
        let mut state = slot.state.lock();
        // SAFETY: the fiber belongs to the caller until it is linked, and is not taken out before
        // the lock is released. Nothing else knows the node, which stays in its place.
        unsafe {
            match (*source).join_for_later(tick, &mut state) {
                Ok(()) => {
                    let reactor = chosen(control, state.watcher());
                    // ORDERING: Release publishes the recorded wait, which `disarm` reads; pairs
                    // with the Acquire in `cancel::request`.
                    extra.armed.store(ptr::from_ref(&DISARM).cast_mut(), Ordering::Release);
                    let node = (*armed).node(control);
                    slot.enter(fd, reactor, (Direction::Read, tick), &mut state, node)
                }
                // The descriptor cannot be watched. The fiber runs, and its first read returns the
                // reason.
                result => Some(result),
            }
        }
    };
    if entered.is_some() {
        // SAFETY: the fiber was not linked, so it still belongs to the caller.
        return unsafe { submit_again(control) };
    }
    // ORDERING: SeqCst fence; pairs with the one in `cancel::request`. Either this thread sees the
    // mark, or the canceller sees the linked fiber.
    fence(Ordering::SeqCst);
    // If the fiber has ended since, the block may belong to another fiber. That fiber is cancelled
    // too, so it may as well be disarmed here.
    if control.life.marks() & CANCELLED != 0 {
        disarm(control);
    }
}

/// Returns the time. On a carrier it may be some tens of microseconds old, because a carrier reads
/// the clock only now and then.
fn now_or_lately() -> u64 {
    current::owner().map_or_else(clock::now, |owner| owner.now.get())
}

/// Chooses the reactor that watches for an unstarted fiber. A fiber that is tied to a carrier takes
/// the reactor of that carrier. Other fibers take the reactor that watches already, if it belongs
/// to their crew, or else the reactor of the carrier with the least burden, so that the connections
/// of a server are dealt out evenly. The fiber runs on the carrier that finds the event, unless
/// another carrier takes it.
fn chosen<'a>(control: &Control, watcher: Option<&'a Reactor>) -> &'a Reactor {
    // SAFETY: the fiber is admitted, so its crew and the drivers of its carriers exist.
    unsafe {
        if control.flags().has(Flags::AFFINE) {
            return Reactor::of(&*control.carrier());
        }
        let crew = crew_of(control);
        // The reactor of another crew is not reliable: its runtime may end.
        match watcher {
            Some(watcher)
                if crew.carriers.iter().any(|&one| ptr::eq(Reactor::of(one), watcher)) =>
            {
                watcher
            }
            _ => Reactor::of(placement::least_burdened(&crew.carriers)),
        }
    }
}

/// Returns the crew of a fiber. Most often it is the crew of this thread's carrier, which needs no
/// look-up.
///
/// # Safety
/// The fiber has been admitted, and does not end while the caller uses the crew.
unsafe fn crew_of(control: &Control) -> &'static Crew {
    match owner_in_crew_of(control) {
        // The crew stays as long as it has fibers, and this is one of them.
        Some(owner) => owner.crew(),
        // SAFETY: the caller fulfils the conditions of `Crew::of`.
        None => unsafe { Crew::of(control) },
    }
}

/// Takes a fiber out of the slot in whose list it waits, and submits it. Does nothing if another
/// thread has taken it out.
fn disarm(control: &Control) {
    let (_, fd, _) = control.recorded_wait();
    let Some(slot) = i32::try_from(fd).ok().and_then(table::known) else { return };
    if slot.state.lock().take_unstarted(control) {
        // SAFETY: this thread alone has just taken the fiber out, under the lock.
        unsafe { submit(control) };
    }
}

/// Gives an unstarted fiber to its crew at once, because the fiber need not wait. In a foreign
/// loop, the fiber runs after all other fibers and after the loop has had its turn. Otherwise a
/// fiber that never has to wait would keep the loop from running.
///
/// # Safety
/// The fiber belongs to the caller, which has not linked it in its slot.
unsafe fn submit_again(control: &Control) {
    control.end_wait_unstarted();
    // SAFETY: the fiber belongs to the caller, and is in no queue.
    unsafe {
        match owner_in_crew_of(control) {
            Some(owner) if owner.is_embedded() => owner.behind_all(control),
            _ => submit(control),
        }
    }
}

/// Returns the owner of this thread's carrier, if the carrier is in the crew of the fiber.
fn owner_in_crew_of(control: &Control) -> Option<&'static Owner> {
    current::owner().filter(|owner| owner.crew().number == control.crew.load(Ordering::Relaxed))
}

/// Gives an unstarted fiber to its crew.
///
/// # Safety
/// The caller has taken the fiber out of its slot, or has not linked it there.
pub(super) unsafe fn submit(control: &Control) {
    control.end_wait_unstarted();
    // SAFETY: the fiber is admitted, so its crew exists as long as the fiber has not ended.
    unsafe {
        if control.flags().has(Flags::AFFINE) {
            let carrier = &*control.carrier();
            if carrier.inbox.push(Delivery::Ready(control)) {
                carrier.ring();
            }
        } else if let Some(owner) = owner_in_crew_of(control) {
            owner.publish(control);
        } else {
            // Keep the crew: once the fiber is published it may end, and its runtime with it.
            let crew = Crew::of(control).carriers[0].crew_counted();
            crew.inject(control);
        }
    }
}
