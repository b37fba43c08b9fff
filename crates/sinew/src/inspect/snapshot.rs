//! All fibers at a glance.

use crate::carrier::{Crew, TimedWaits};
use crate::clock;
use crate::fiber::life::{CANCELLED, FINISHED};
use crate::fiber::state::Epoch;
use crate::fiber::{Control, FiberRef, Flags, WaitKind, slab};
use crate::park::table::{self, Entry, Key};
use crate::primitive::{Ordering, fence};
use crate::spawn::{Fiber, FiberId, State};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

/// What is known of one fiber, at the moment when [`fibers`] looked at it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FiberInfo {
    /// A handle to it.
    pub fiber: Fiber,
    /// How far it had come.
    pub state: State,
    /// What it waited for, if it did. One that is pinned runs while it waits: it keeps its carrier.
    pub wait: Option<WaitInfo>,
    /// The carrier that it is bound to, or that it was on last, by its number in the runtime.
    pub carrier: Option<usize>,
    /// The name of its runtime.
    pub runtime: Option<Arc<str>>,
    /// How long ago it was made, right within two milliseconds. Starts anew after 52 days.
    pub age: Duration,
    /// How often it had begun to wait.
    pub waits: u32,
    /// Whether it was in a [`pinned`](crate::pinned) region, a predicate or a hook, where it keeps its carrier.
    pub pinned: bool,
    /// Whether it was [built](crate::Builder::migratable) to move between carriers.
    pub migratable: bool,
    /// Whether its cancellation was requested. A fiber that is [masked](crate::masked), or that runs for long,
    /// may not have learned of it.
    pub cancel_requested: bool,
    /// Which of its waits `wait` is, if it was suspended in one.
    epoch: Option<Epoch>,
    /// Where it was on its stack, if it was suspended.
    stack_at: Option<usize>,
}

/// What a fiber waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WaitInfo {
    /// What kind of thing it is.
    pub kind: WaitKind,
    /// Which one: the address of a lock, a channel or another object, that of the slot for a key of a
    /// `MultiLock`, or the number of a descriptor. Zero if there is none.
    pub address: usize,
    /// The fiber that it waits for, if it waits for the end of one.
    pub joins: Option<FiberId>,
    /// The fiber or thread that has the lock, if it waits for one that somebody has alone.
    pub owner: Option<FiberId>,
    /// For how long it has waited, right within some tens of microseconds.
    pub since: Duration,
    /// How much longer it will wait at most: until the end of its sleep, its timeout, or the nearest
    /// [`timeout`](crate::timeout) or [`deadline`](crate::deadline) around it. `None` if there is no limit.
    pub left: Option<Duration>,
}

/// Bytes of a fiber's stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StackInfo {
    /// How many there are.
    pub size: usize,
    /// How many were in use when the fiber was suspended.
    pub used: usize,
    /// How many were ever touched, right within one page, by this fiber or one before it on the same
    /// stack. `None` where the platform cannot tell.
    pub high_water_mark: Option<usize>,
}

impl FiberInfo {
    /// Its number.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let me = sinew::current().id();
    ///     assert!(sinew::fibers().iter().any(|info| info.id() == me));
    /// });
    /// ```
    pub fn id(&self) -> FiberId {
        self.fiber.id()
    }

    /// Whether it is still suspended in the wait that was seen.
    pub(super) fn is_still_so(&self) -> bool {
        self.epoch.is_some_and(|epoch| self.fiber.control().wake.is_waiting(epoch))
    }

    /// Its name.
    ///
    /// # Examples
    /// ```
    /// let named = sinew::Builder::new().name("worker").spawn(|| {
    ///     assert!(sinew::fibers().iter().any(|info| info.name() == Some("worker")));
    /// })?;
    /// named.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.fiber.name()
    }

    /// Its stack, if it was suspended. Asks the kernel, which takes some microseconds; if the fiber has
    /// ended since, what is said may be of another one.
    ///
    /// # Examples
    /// ```
    /// for info in sinew::fibers() {
    ///     if let Some(stack) = info.stack() {
    ///         println!("{}: {} of {} bytes", info.id(), stack.used, stack.size);
    ///     }
    /// }
    /// ```
    pub fn stack(&self) -> Option<StackInfo> {
        let address = self.stack_at?;
        let found = sinew_context::stack::find(address)?;
        Some(StackInfo {
            size: found.range().len(),
            used: found.range().end - address,
            high_water_mark: found.high_water_mark(),
        })
    }
}

/// All fibers of all runtimes that have not ended, the oldest first.
///
/// Nothing is stopped: each fiber is looked at by itself, and what is said of it was true at one moment.
/// Those that begin or end meanwhile may be missing. Takes about two tenths of a microsecond for each.
///
/// # Examples
/// ```
/// use sinew::WaitKind;
///
/// let fiber = sinew::Builder::new().name("sleeper").spawn(sinew::park)?;
/// sinew::wait_until(|| fiber.fiber().waits_for() == Some(WaitKind::Park), None);
/// let all = sinew::fibers();
/// let sleeper = all.iter().find(|info| info.name() == Some("sleeper")).unwrap();
/// assert_eq!(sleeper.wait.unwrap().kind, WaitKind::Park);
/// fiber.fiber().unpark();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn fibers() -> Vec<FiberInfo> {
    let crews: HashMap<u32, Arc<Crew>> =
        Crew::all().into_iter().map(|crew| (crew.number, crew)).collect();
    let now = clock::now();
    let mut fibers = Vec::new();
    slab::for_each(|control| {
        if control.life.marks() & FINISHED != 0 || control.flags().has(Flags::PROXY) {
            return;
        }
        if !control.life.try_acquire() {
            return;
        }
        // SAFETY: just counted.
        let fiber = unsafe { FiberRef::from_counted(control) };
        if !fiber.flags().has(Flags::PROXY) {
            fibers.push(look(fiber, now, &crews));
        }
    });
    fill_in_deadlines(&mut fibers, now);
    fibers.sort_by_key(|info| info.id());
    fibers
}

/// Notes how much longer suspended fibers will wait.
///
/// A fiber sets its timer before it stops, and the timer stays until the wait ends. So a wait that was seen has its
/// timer in the copy that is made after the look, or has ended.
fn fill_in_deadlines(fibers: &mut [FiberInfo], now: u64) {
    let timed = TimedWaits::collect();
    for info in fibers {
        let deadline = info.epoch.and_then(|epoch| timed.deadline(info.fiber.control(), epoch));
        if let (Some(wait), Some(deadline)) = (&mut info.wait, deadline) {
            wait.left = clock::until(now, deadline);
        }
    }
}

/// What can be said of one fiber.
fn look(fiber: FiberRef, now: u64, crews: &HashMap<u32, Arc<Crew>>) -> FiberInfo {
    let crew = crews.get(&fiber.crew.load(Ordering::Relaxed));
    let place = fiber.carrier();
    let carrier = crew
        .and_then(|crew| crew.carriers.iter().position(|carrier| core::ptr::eq(*carrier, place)));
    let age = Duration::from_nanos(fiber.age(now));
    let waits = fiber.waits();
    let fiber = Fiber::from_ref(fiber);
    let Seen { state, wait, epoch, stack_at } = state_of(&fiber, now);
    let flags = fiber.control().flags();
    FiberInfo {
        state,
        wait,
        carrier,
        runtime: crew.map(|crew| crew.settings.name.clone()),
        age,
        waits,
        pinned: flags.has(Flags::PINNED),
        migratable: flags.has(Flags::ROAMING),
        cancel_requested: fiber.control().life.marks() & CANCELLED != 0,
        epoch,
        stack_at,
        fiber,
    }
}

/// What a fiber did at one moment.
struct Seen {
    state: State,
    wait: Option<WaitInfo>,
    /// Which of its waits that is, if it was suspended in one.
    epoch: Option<Epoch>,
    stack_at: Option<usize>,
}

impl Seen {
    fn unplaced(state: State, wait: Option<WaitInfo>) -> Seen {
        Seen { state, wait, epoch: None, stack_at: None }
    }
}

/// What a fiber does, and if it waits, for what.
fn state_of(fiber: &Fiber, now: u64) -> Seen {
    let place = || fiber.control().context.look().map(|context| context.address());
    let before = place();
    if let Some((kind, address, since)) = fiber.control().awaited_unstarted() {
        let since = Duration::from_nanos(now.saturating_sub(since));
        let wait = WaitInfo { kind, address, joins: None, owner: None, since, left: None };
        return Seen::unplaced(State::Suspended, Some(wait));
    }
    let pinned = || pinned_wait_of(fiber.control(), now).map(|(_, _, wait)| wait);
    match wait_of(fiber.control(), now) {
        // It has not stopped yet, or was woken meanwhile. A hook that runs before it stops may block.
        Some(_) if before.is_none() || place() != before => {
            Seen::unplaced(State::Running, pinned())
        }
        Some((epoch, wait)) => {
            Seen { state: State::Suspended, wait: Some(wait), epoch: Some(epoch), stack_at: before }
        }
        None => match fiber.state() {
            // It was woken, and waited again, while it was looked at.
            State::Suspended => Seen::unplaced(State::Runnable, None),
            State::Running => Seen::unplaced(State::Running, pinned()),
            state => Seen::unplaced(state, None),
        },
    }
}

/// What a pinned fiber waits for, and the block of the thread that it waits as.
pub(super) fn pinned_wait_of(
    control: &Control,
    now: u64,
) -> Option<(&'static Control, Epoch, WaitInfo)> {
    let extra = control.extra()?;
    // ORDERING: Acquire: the epoch; pairs with the Release of the one who waits.
    // SAFETY: blocks are never unmapped.
    let thread = unsafe { extra.pinned_as.load(Ordering::Acquire).as_ref()? };
    let epoch = Epoch::from_bits(extra.pinned_epoch.load(Ordering::Relaxed));
    let (now_in, mut wait) = wait_of(thread, now)?;
    wait.left = clock::until(now, extra.pinned_until.load(Ordering::Relaxed));
    // ORDERING: Acquire fence: a deadline of a later wait shows that this one is over; pairs with the Release in
    // `Wait::publish_deadline`.
    fence(Ordering::Acquire);
    (now_in == epoch && thread.wake.is_waiting(epoch)).then_some((thread, epoch, wait))
}

/// What a fiber or thread waits for, and which of its waits that is: all of it at the same moment.
pub(super) fn wait_of(control: &Control, now: u64) -> Option<(Epoch, WaitInfo)> {
    for _ in 0..8 {
        let epoch = control.wake.waiting()?;
        let (kind, address, since) = control.recorded_wait();
        // Kind and address may be of different waits as long as it was not checked.
        let joins = if kind == WaitKind::Join { block_id(address) } else { None };
        let owner = match kind {
            WaitKind::Lock => owner(address),
            WaitKind::Key => owner_of_key(address),
            _ => None,
        };
        // The record is made before the wait begins, and not changed before it has ended.
        // ORDERING: Acquire fence: what was read above is not read after the word.
        fence(Ordering::Acquire);
        if control.wake.is_waiting(epoch) {
            let since = Duration::from_nanos(now.saturating_sub(since));
            let sleeps = kind == WaitKind::Sleep;
            let left = sleeps.then(|| clock::until(now, address as u64)).flatten();
            let address = if sleeps { 0 } else { address };
            return Some((epoch, WaitInfo { kind, address, joins, owner, since, left }));
        }
    }
    None
}

/// Who has the lock at `address`. It may be gone if the one who waits for it was woken: so it is read as
/// a debugger would.
fn owner(address: usize) -> Option<FiberId> {
    /// Locks that name their owner have the address of its block in their first word, and marks in the
    /// bits that are always zero there. No number that they may have instead is as large.
    const MARKS: usize = align_of::<Control>() - 1;
    let word = super::memory::word(address).ok()?;
    block_id(word & !MARKS)
}

/// Who has the key of a `MultiLock` for which the entry at `address` waits.
fn owner_of_key(address: usize) -> Option<FiberId> {
    let mut key = [0; size_of::<Key>()];
    super::memory::copy(address + Entry::KEY, &mut key).ok()?;
    let key = Key::from_bytes(key);
    // The first in the queue has it, and its entry says who that is.
    let first = table::bucket(key).lock().queue(key)?.first()?.payload().word.get();
    block_id(first)
}

/// Whose block is at `address`, if there is one.
fn block_id(address: usize) -> Option<FiberId> {
    slab::at(address).map(|control| FiberId::new(control.id()))
}

/// Bytes that are left on the stack of the running fiber; `None` on a plain thread.
///
/// For code that recurses and would rather stop than overflow. Takes some tens of nanoseconds.
///
/// # Examples
/// ```
/// assert_eq!(sinew::stack_remaining(), None);
/// sinew::run(|| assert!(sinew::stack_remaining().unwrap() > 100_000));
/// ```
pub fn stack_remaining() -> Option<usize> {
    sinew_context::stack::remaining()
}
