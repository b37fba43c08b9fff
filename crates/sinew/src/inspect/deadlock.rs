//! Finds deadlocks: fibers and threads that wait for each other.

use super::snapshot::{WaitInfo, pinned_wait_of, wait_of};
use crate::carrier::{Carrier, TimedWaits};
use crate::clock;
use crate::fiber::life::{FINISHED, STARTED};
use crate::fiber::state::Epoch;
use crate::fiber::{Control, FiberRef, Flags, WaitKind, slab};
use crate::fiber::{Fiber, FiberId, describe};
use crate::primitive::Ordering;
use core::fmt;
use std::collections::{HashMap, HashSet};

/// Fibers and threads that wait for each other, so that none of them will ever go on; see
/// [`deadlocks`].
///
/// # Examples
/// ```
/// // Two fibers that wait for each other's end.
/// let (sender, receiver) = sinew::sync::channel::oneshot::<sinew::JoinHandle<()>>();
/// let first = sinew::spawn(move || _ = receiver.recv().unwrap().join());
/// let handle = first.fiber();
/// let second = sinew::spawn(move || _ = first.join());
/// sender.send(second).unwrap();
/// sinew::wait_until(|| !sinew::inspect::deadlocks().is_empty());
/// let deadlocks = sinew::inspect::deadlocks();
/// println!("{}", deadlocks[0]); // a line for each member
/// assert!(deadlocks[0].members().any(|(fiber, _)| *fiber == handle));
/// handle.cancel(); // ends the deadlock
/// ```
#[derive(Clone, Debug)]
pub struct Deadlock {
    members: Vec<(Fiber, Option<WaitInfo>)>,
}

impl Deadlock {
    /// Returns the members of the deadlock. Each waits for the next, and the last for the first. A
    /// member without a wait could go on if the next member, which is pinned, did not block the
    /// carrier of both.
    ///
    /// # Examples
    /// ```
    /// for deadlock in sinew::inspect::deadlocks() {
    ///     for (fiber, wait) in deadlock.members() {
    ///         println!("{fiber:?} waits for {wait:?}");
    ///     }
    /// }
    /// ```
    pub fn members(&self) -> impl Iterator<Item = (&Fiber, Option<&WaitInfo>)> {
        self.members.iter().map(|(fiber, wait)| (fiber, wait.as_ref()))
    }
}

/// A fiber or thread that cannot go on before another one acts.
struct Waiting {
    fiber: Fiber,
    why: Why,
}

#[derive(Clone, Copy)]
enum Why {
    /// The member is in this wait. The block belongs to the fiber, or to the thread of a pinned
    /// fiber, which waits as its thread.
    Waits(&'static Control, Epoch, WaitInfo),
    /// The fiber is bound to this carrier, which the pinned fiber with this id blocks.
    Blocked(*const Carrier, FiberId),
}

impl Waiting {
    /// Returns the fibers that this member waits for. It waits for all of them.
    fn next(&self, scopes: &HashMap<usize, Vec<FiberId>>) -> Vec<FiberId> {
        match self.why {
            Why::Waits(_, _, WaitInfo { kind: WaitKind::Scope, address, .. }) => {
                scopes.get(&address).cloned().unwrap_or_default()
            }
            Why::Waits(_, _, wait) => wait.owner.or(wait.joins).into_iter().collect(),
            Why::Blocked(_, by) => vec![by],
        }
    }

    fn wait(&self) -> Option<WaitInfo> {
        match self.why {
            Why::Waits(_, _, wait) => Some(wait),
            Why::Blocked(..) => None,
        }
    }

    /// Whether the member still cannot go on, for the reason that was found first.
    fn is_still_so(&self) -> bool {
        match self.why {
            Why::Waits(waiter, epoch, wait) => {
                let again = wait_of(waiter, clock::now());
                let same = |(now_in, now): (Epoch, WaitInfo)| {
                    now_in == epoch && now.owner == wait.owner && has_stopped(waiter)
                };
                again.is_some_and(same)
            }
            Why::Blocked(carrier, _) => is_bound(self.fiber.control(), carrier),
        }
    }

    /// Whether the member still waits, and no deadline will end the wait.
    fn waits_on(&self, timed: &TimedWaits) -> bool {
        match self.why {
            Why::Waits(waiter, epoch, _) => !timed.has(waiter) && waiter.wake.is_waiting(epoch),
            Why::Blocked(..) => true,
        }
    }
}

/// Whether a waiter has stopped, outside of any deadline scope. If a fiber that has stopped has a
/// deadline, it is among the [`TimedWaits`]. A thread counts as stopped only if its wait has no
/// deadline.
pub(super) fn has_stopped(waiter: &Control) -> bool {
    let flags = waiter.flags();
    if flags.has(Flags::PROXY) {
        return flags.has(Flags::ASLEEP);
    }
    waiter.context.look().is_some() && !flags.has(Flags::DEADLINE)
}

/// Whether a fiber can only run on `carrier`.
fn is_bound(control: &Control, carrier: *const Carrier) -> bool {
    let marks = control.life.marks();
    let stays = !control.flags().has(Flags(Flags::MIGRATABLE.0 | Flags::PROXY.0));
    let started = marks & STARTED != 0 && marks & FINISHED == 0;
    stays && started && core::ptr::eq(control.carrier(), carrier)
}

/// Returns the circles of fibers and threads in which each member waits for the next one. A member
/// waits for a lock that the next one has, or for the end of the next one. Or it cannot run,
/// because the next one is pinned and blocks the carrier of both.
///
/// Each result was true at one moment: every member was in its wait before and after the look at
/// all members, and none of the waits has a deadline. The search does not follow a wait for a lock
/// that several readers share.
///
/// # Examples
/// ```
/// assert!(sinew::inspect::deadlocks().is_empty());
/// ```
pub fn deadlocks() -> Vec<Deadlock> {
    let mut waiting = everybody();
    let mut found = circles(&waiting);
    if block_carriers(&mut waiting) {
        // Circles without a blocked member were found before.
        let is_new = |deadlock: &Deadlock| deadlock.members.iter().any(|(_, wait)| wait.is_none());
        found.extend(circles(&waiting).into_iter().filter(is_new));
    }
    found
}

fn circles(waiting: &HashMap<FiberId, Waiting>) -> Vec<Deadlock> {
    let scopes = children(waiting);
    let mut found = Vec::new();
    let mut followed: HashSet<FiberId> = HashSet::new();
    let mut starts: Vec<_> = waiting.keys().copied().collect();
    starts.sort();
    for start in starts {
        // The members of a chain, each with the fibers that it waits for and that were not followed
        // yet.
        let mut path: Vec<(&Waiting, Vec<FiberId>)> = Vec::new();
        let mut next = Some(start);
        loop {
            let entered = next.and_then(|id| waiting.get(&id));
            match entered.map(|one| (one, one.fiber.id())) {
                Some((one, id)) if followed.insert(id) => path.push((one, one.next(&scopes))),
                Some((_, id)) => {
                    // This member is on the path, or was followed before.
                    let first = path.iter().position(|(member, _)| member.fiber.id() == id);
                    let circle = first.map(|first| path[first..].iter().map(|(one, _)| *one));
                    found.extend(circle.and_then(|circle| confirm(&circle.collect::<Vec<_>>())));
                }
                None => {}
            }
            // Go on with the innermost member that has a fiber left to follow.
            while path.last().is_some_and(|(_, rest)| rest.is_empty()) {
                path.pop();
            }
            let Some((_, rest)) = path.last_mut() else { break };
            next = rest.pop();
        }
    }
    found
}

/// Returns the waiting children of scopes, by the addresses of the scopes.
fn children(waiting: &HashMap<FiberId, Waiting>) -> HashMap<usize, Vec<FiberId>> {
    let mut scopes: HashMap<usize, Vec<FiberId>> = HashMap::new();
    for (id, one) in waiting {
        let scope = one.fiber.control().extra().and_then(|extra| {
            // The word belongs to another thread, but does not change during the life of the fiber.
            super::memory::word((&raw const extra.scope).addr()).ok()
        });
        if let Some(scope) = scope.filter(|scope| *scope != 0) {
            scopes.entry(scope).or_default().push(*id);
        }
    }
    scopes
}

fn confirm(circle: &[&Waiting]) -> Option<Deadlock> {
    if circle.len() == 1 && circle[0].wait().is_some_and(|wait| wait.owner.is_some()) {
        // The fiber waits for a lock that it has: the lock was just handed to it, and it is about
        // to be woken. This is no second attempt to lock it, because that panics at once.
        return None;
    }
    super::memory::settle();
    let same = circle.iter().all(|one| one.is_still_so());
    let timed = TimedWaits::collect();
    // If both checks succeed, all members were in these waits, for these owners, at the moment at
    // which the first check looked at the last member.
    super::memory::settle();
    let confirmed = same && circle.iter().all(|one| one.waits_on(&timed));
    confirmed.then(|| Deadlock {
        members: circle.iter().map(|one| (one.fiber.clone(), one.wait())).collect(),
    })
}

/// Returns all waiters, threads included. A pinned fiber waits as its thread.
fn everybody() -> HashMap<FiberId, Waiting> {
    let now = clock::now();
    let mut waiting = HashMap::new();
    slab::for_each(|control| {
        let pinned = control.extra().is_some_and(|extra| {
            // ORDERING: Acquire shows the epoch of the wait; pairs with the Release in
            // `Wait::begin_as_thread`.
            !extra.pinned_as.load(Ordering::Acquire).is_null()
        });
        if !pinned && control.wake.waiting().is_none() || !control.life.try_acquire() {
            return;
        }
        // SAFETY: `try_acquire` has counted a reference, which the `FiberRef` takes over.
        let fiber = Fiber::from_ref(unsafe { FiberRef::from_counted(control) });
        let why = match wait_of(control, now) {
            Some((epoch, wait)) => Some(Why::Waits(control, epoch, wait)),
            None => pinned_wait_of(control, now)
                .map(|(thread, epoch, wait)| Why::Waits(thread, epoch, wait)),
        };
        if let Some(why) = why {
            waiting.insert(fiber.id(), Waiting { fiber, why });
        }
    });
    waiting
}

/// Adds the fibers that are bound to a carrier that a pinned fiber blocks: they wait for the pinned
/// fiber. Returns false if no carrier is blocked.
fn block_carriers(waiting: &mut HashMap<FiberId, Waiting>) -> bool {
    let mut blocked: HashMap<*const Carrier, FiberId> = HashMap::new();
    for (id, one) in waiting.iter() {
        let control = one.fiber.control();
        if matches!(one.why, Why::Waits(waiter, ..) if !core::ptr::eq(waiter, control)) {
            blocked.insert(control.carrier(), *id);
        }
    }
    if blocked.is_empty() {
        return false;
    }
    slab::for_each(|control| {
        let carrier = control.carrier();
        let Some(by) = blocked.get(&carrier).copied() else { return };
        if !is_bound(control, carrier) || !control.life.try_acquire() {
            return;
        }
        // SAFETY: `try_acquire` has counted a reference, which the `FiberRef` takes over.
        let fiber = Fiber::from_ref(unsafe { FiberRef::from_counted(control) });
        if fiber.id() != by && is_bound(control, carrier) {
            let why = Why::Blocked(carrier, by);
            waiting.insert(fiber.id(), Waiting { fiber, why });
        }
    });
    true
}

/// Writes for each member which other member it waits for, and its backtrace.
impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "deadlock of {}:", self.members.len())?;
        for (index, (fiber, wait)) in self.members.iter().enumerate() {
            let (next, _) = &self.members[(index + 1) % self.members.len()];
            let (who, whom) = (describe(fiber.control()), describe(next.control()));
            match wait {
                None => writeln!(
                    f,
                    "{who} cannot run, because {whom} is pinned and blocks the carrier of both"
                )?,
                Some(WaitInfo { joins: Some(_), .. }) => {
                    writeln!(f, "{who} waits for the end of {whom}")?;
                }
                Some(WaitInfo { kind: WaitKind::Scope, .. }) => {
                    writeln!(f, "{who} waits for the end of {whom}, which is in its scope")?;
                }
                Some(WaitInfo { address, .. }) => {
                    writeln!(f, "{who} waits for the lock at {address:#x}, which {whom} has")?;
                }
            }
            if let Ok(backtrace) = super::backtrace::anyhow(fiber) {
                write!(f, "{backtrace}")?;
            }
        }
        Ok(())
    }
}
