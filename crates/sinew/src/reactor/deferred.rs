//! Fibers that do not start before a descriptor is readable.
//!
//! Such a fiber is a control block, its closure, and a node in the list of a slot: no stack. Whoever
//! takes the node out of the list, under the slot's lock, has the fiber and submits it: the one who
//! delivers an event, or the one who cancels the fiber. A fiber that runs again and again is armed anew
//! each time that it rests.
//!
//! Why a cancellation is not missed: who arms a fiber says where before it looks at the mark, and who
//! cancels sets the mark before it looks where. One of the two finds the other. One that was cancelled
//! while it ran has its mark before it is armed; what its carrier was told of that comes too late, and is
//! left alone (`Control::is_bound_to`).
//!
//! Why no event is missed: who waits in the ordinary way tries first, and compares the tick of before.
//! Here nobody has tried. So the kernel reports what is ready at that moment: because the descriptor is
//! added, or, if it is watched already, because it is asked again. It need not be asked if the last
//! attempt to read, at the present tick, has found the end of what was there.

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

/// The place of an unstarted fiber in the list of a slot. Stays where it is.
pub(crate) struct Armed(UnsafeCell<Option<(Waits, Node<Waits>)>>);

impl Armed {
    /// For a fiber that is yet to be made.
    pub(crate) fn new() -> Armed {
        Armed(UnsafeCell::new(None))
    }

    /// A new node for `control`.
    ///
    /// # Safety
    /// The one before, if there was any, is in no list. It stays where it is while it is linked.
    unsafe fn node(&self, control: &Control) -> Pin<&Node<Waits>> {
        // SAFETY: as the caller promised. The payload is at its address for good before the node
        // points to it.
        unsafe {
            let place = self.0.get();
            let waits = Waits::Unstarted(Unstarted(control));
            let (waits, node) = (*place).insert((waits, Node::marker(&Waits::Suspended)));
            *node = Node::marker(waits);
            Pin::new_unchecked(node)
        }
    }
}

/// How an unstarted fiber that was cancelled is taken out of its slot.
static DISARM: Disarm = Disarm { call: disarm };

/// Submits an unstarted fiber when `source` becomes readable, or when it is cancelled. Both may be gone, with the
/// fiber, before this returns: which is why they are not borrowed.
///
/// # Safety
/// The fiber is admitted to its crew, in no queue, and the caller's. It keeps `armed` until it
/// starts or is refused, and `source` at least as long.
pub(crate) unsafe fn arm(source: *const Source, armed: *const Armed, control: &'static Control) {
    // SAFETY: the fiber is the caller's until it is linked, and keeps both until it starts.
    let (fd, slot) = unsafe { ((*source).fd(), (*source).slot()) };
    control.record_wait(kind(Direction::Read), fd as usize, now_or_lately());
    // SAFETY: null, or the carrier of this thread, which stays.
    if let Some(here) = unsafe { current::carrier().as_ref() } {
        here.note_rest(control);
    }
    let extra = control.extra_or_new();
    extra.captured.store(armed.cast_mut().cast(), Ordering::Relaxed);
    extra.source.store(source.cast_mut().cast(), Ordering::Relaxed);
    // Those of a runtime that ends are cancelled before its pollers are closed. Nothing is to be watched by one that
    // nobody looks at any more, where others who have the same descriptor would rely on it.
    if control.life.marks() & CANCELLED != 0 {
        // SAFETY: it is still ours.
        return unsafe { submit_again(control) };
    }
    let entered = {
        let tick = slot.tick(Direction::Read);
        let mut state = slot.state.lock();
        // SAFETY: the same; who is linked is not taken out before the lock is released. Nobody else knows of the
        // node, which stays in its place.
        unsafe {
            match (*source).join_for_later(tick, &mut state) {
                Ok(()) => {
                    let reactor = chosen(control, state.watcher());
                    // ORDERING: Release, published with the node by the lock.
                    extra.armed.store(ptr::from_ref(&DISARM).cast_mut(), Ordering::Release);
                    let node = (*armed).node(control);
                    slot.enter(fd, reactor, (Direction::Read, tick), &mut state, node)
                }
                // It cannot be watched: the fiber finds out why by itself.
                result => Some(result),
            }
        }
    };
    if entered.is_some() {
        // SAFETY: it was not linked, so it is still ours.
        return unsafe { submit_again(control) };
    }
    // ORDERING: SeqCst fence; pairs with the one in `cancel::request`.
    fence(Ordering::SeqCst);
    // If it has ended since, the block may be another fiber's. Then that one is cancelled, and may as well be
    // disarmed by us.
    if control.life.marks() & CANCELLED != 0 {
        disarm(control);
    }
}

/// The time, right within some tens of microseconds on a carrier, which looks at its clock that often.
fn now_or_lately() -> u64 {
    let here = current::carrier();
    // SAFETY: null, or the carrier of this thread, which stays.
    match unsafe { here.as_ref() } {
        Some(carrier) => carrier.now.get(),
        None => clock::now(),
    }
}

/// The reactor that watches for an unstarted fiber: that of the carrier it has to run on, the one that
/// does already, or that of each carrier in turn. It runs where the event is found, unless somebody who is
/// idle takes it.
fn chosen<'a>(control: &Control, watcher: Option<&'a Reactor>) -> &'a Reactor {
    // SAFETY: the fiber is admitted, so that its crew and its carriers' drivers are there.
    unsafe {
        if control.flags().has(Flags::AFFINE) {
            return Reactor::of(&*control.carrier());
        }
        let crew = crew_of(control);
        // That of another runtime is not to be relied upon.
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

/// The crew of a fiber: most often that of the carrier that this runs on, which need not be looked up.
///
/// # Safety
/// As for [`Crew::of`].
unsafe fn crew_of(control: &Control) -> &'static Crew {
    // SAFETY: as the caller promised; null, or the carrier of this thread, which has its crew.
    unsafe {
        match current::carrier().as_ref().map(Carrier::crew) {
            Some(crew) if crew.number == control.crew.load(Ordering::Relaxed) => {
                // It stays as long as it has fibers, and this is one.
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
        // SAFETY: just taken out, under the lock, by us alone.
        unsafe { submit(control) };
    }
}

/// Gives an unstarted fiber to its crew that need not wait, and perhaps never will: in somebody else's loop it comes
/// after everything else, and after the loop had its turn.
///
/// # Safety
/// The caller has it, and it was never in its slot.
unsafe fn submit_again(control: &Control) {
    control.end_wait_unstarted();
    // SAFETY: as the caller promised; null, or the carrier of this thread, which has its crew.
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
/// The caller has taken it out of its slot, or it was never there.
pub(super) unsafe fn submit(control: &Control) {
    control.end_wait_unstarted();
    // SAFETY: the fiber is admitted, so that its crew is there as long as it has not ended; the carrier of
    // this thread is there as well, with its crew.
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
            // Once it is published it may end, and its runtime with it.
            let crew = Crew::of(control).carriers[0].crew_counted();
            crew.inject(control);
        }
    }
}
