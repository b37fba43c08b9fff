//! Fibers that start only when a descriptor is readable.
//!
//! Such a fiber is a control block, its closure, and a node in the list of a slot. It has no stack.
//! The thread that takes the node out of the list, under the slot's lock, has the fiber and submits
//! it: it delivers an event, or cancels the fiber. A fiber that runs again and again is armed anew
//! each time that it rests.
//!
//! No cancellation is missed. The armer links the fiber before it looks at the mark, and the
//! canceller sets the mark before it looks for the fiber in its slot. So one of the two finds the
//! other. A fiber that was cancelled while it ran has its mark before it is armed. The message
//! about that to its carrier comes too late, and is ignored (`Control::is_bound_to`).
//!
//! No event is missed. An ordinary waiter tries first, and then compares the tick from before. Here
//! there was no attempt. So the kernel has to report what is ready at that moment: because the
//! descriptor is added, or, if it is watched already, because the kernel is asked again. It need
//! not be asked if the last attempt to read, at the present tick, found the stream empty.

use super::Reactor;
use super::slot::{Unstarted, Waits};
use super::source::{Source, kind};
use super::sys::Direction;
use super::table;
use crate::carrier::{Carrier, Crew, current};
use crate::clock;
use crate::fiber::life::CANCELLED;
use crate::fiber::{Control, Disarm, Flags};
use crate::park::list::Node;
use crate::primitive::{Ordering, fence};
use crate::queue::Entry;
use core::cell::UnsafeCell;
use core::pin::Pin;
use core::ptr;

/// The place of an unstarted fiber in the list of a slot. It does not move.
pub(crate) struct Armed(UnsafeCell<Option<(Waits, Node<Waits>)>>);

impl Armed {
    /// Makes the place for a fiber that is yet to be made.
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
/// until it starts or is refused, and `source` at least as long.
pub(crate) unsafe fn arm(source: *const Source, armed: *const Armed, control: &'static Control) {
    // SAFETY: the fiber belongs to the caller until it is linked, and keeps both until it starts.
    let (fd, slot) = unsafe { ((*source).fd(), (*source).slot()) };
    control.record_wait(kind(Direction::Read), fd as usize, now_or_lately());
    // SAFETY: null, or the carrier of this thread, which stays.
    if let Some(here) = unsafe { current::carrier().as_ref() } {
        here.note_rest(control);
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
                    // ORDERING: Release; the slot's lock publishes it together with the node.
                    extra.armed.store(ptr::from_ref(&DISARM).cast_mut(), Ordering::Release);
                    let node = (*armed).node(control);
                    slot.enter(fd, reactor, (Direction::Read, tick), &mut state, node)
                }
                // The descriptor cannot be watched. The fiber finds out why by itself.
                result => Some(result),
            }
        }
    };
    if entered.is_some() {
        // SAFETY: the fiber was not linked, so it still belongs to the caller.
        return unsafe { submit_again(control) };
    }
    // ORDERING: SeqCst fence; pairs with the one in `cancel::request`.
    fence(Ordering::SeqCst);
    // If the fiber has ended since, the block may belong to another fiber. That fiber is cancelled
    // too, so it may as well be disarmed here.
    if control.life.marks() & CANCELLED != 0 {
        disarm(control);
    }
}

/// Returns the time, accurate to some tens of microseconds on a carrier, which reads its clock that
/// often.
fn now_or_lately() -> u64 {
    let here = current::carrier();
    // SAFETY: null, or the carrier of this thread, which stays.
    match unsafe { here.as_ref() } {
        Some(carrier) => carrier.now.get(),
        None => clock::now(),
    }
}

/// Chooses the reactor that watches for an unstarted fiber: the reactor of the carrier that the
/// fiber is tied to, the one that watches already, or the next carrier's in turn. The fiber runs on
/// the carrier that finds the event, unless an idle carrier takes it.
fn chosen<'a>(control: &Control, watcher: Option<&'a Reactor>) -> &'a Reactor {
    // SAFETY: the fiber is admitted, so its crew and the drivers of its carriers exist.
    unsafe {
        if control.flags().has(Flags::AFFINE) {
            return Reactor::of(&*control.carrier());
        }
        let crew = crew_of(control);
        // The reactor of another runtime is not reliable.
        match watcher {
            Some(watcher)
                if crew.carriers.iter().any(|&one| ptr::eq(Reactor::of(one), watcher)) =>
            {
                watcher
            }
            _ => Reactor::of(crew.next_carrier()),
        }
    }
}

/// Returns the crew of a fiber. Most often it is the crew of this thread's carrier, which needs no
/// look-up.
///
/// # Safety
/// As for [`Crew::of`].
unsafe fn crew_of(control: &Control) -> &'static Crew {
    // SAFETY: the caller fulfils the conditions of `Crew::of`. The pointer is null, or the carrier
    // of this thread, which has its crew.
    unsafe {
        match current::carrier().as_ref().map(Carrier::crew) {
            Some(crew) if crew.number == control.crew.load(Ordering::Relaxed) => {
                // The crew stays as long as it has fibers, and this is one of them.
                &*ptr::from_ref(crew)
            }
            _ => Crew::of(control),
        }
    }
}

/// Takes a fiber out of the slot for which it waits, if it still does, and submits it.
fn disarm(control: &Control) {
    let (_, fd, _) = control.recorded_wait();
    let Some(slot) = i32::try_from(fd).ok().and_then(table::known) else { return };
    if slot.state.lock().take_unstarted(control) {
        // SAFETY: this thread alone has just taken the fiber out, under the lock.
        unsafe { submit(control) };
    }
}

/// Gives an unstarted fiber that need not wait to its crew. In a foreign loop the fiber comes after
/// everything else, and after the loop had its turn, because it may never have to wait.
///
/// # Safety
/// The fiber belongs to the caller, and was never in its slot.
unsafe fn submit_again(control: &Control) {
    control.end_wait_unstarted();
    // SAFETY: the fiber belongs to the caller. The pointer is null, or the carrier of this thread,
    // which has its crew.
    unsafe {
        match current::carrier().as_ref() {
            Some(here)
                if here.is_embedded()
                    && here.crew().number == control.crew.load(Ordering::Relaxed) =>
            {
                here.behind_all(control);
            }
            _ => submit(control),
        }
    }
}

/// Gives an unstarted fiber to its crew.
///
/// # Safety
/// The caller has taken the fiber out of its slot, or it was never there.
pub(super) unsafe fn submit(control: &Control) {
    control.end_wait_unstarted();
    // SAFETY: the fiber is admitted, so its crew exists as long as the fiber has not ended. The
    // carrier of this thread exists as well, with its crew.
    unsafe {
        let here = current::carrier();
        if control.flags().has(Flags::AFFINE) {
            let carrier = &*control.carrier();
            if carrier.inbox.push(Entry::Ready(control)) {
                carrier.ring();
            }
        } else if !here.is_null() && (*here).crew().number == control.crew.load(Ordering::Relaxed) {
            (*here).publish(control);
        } else {
            // Once the fiber is published it may end, and its runtime with it.
            let crew = Crew::of(control).carriers[0].crew_counted();
            crew.inject(control);
        }
    }
}
