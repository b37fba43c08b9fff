//! A snapshot of all fibers: their states, waits and ages.

use crate::carrier::{Crew, TimedWaits};
use crate::clock;
use crate::fiber::life::{CANCELLED, FINISHED};
use crate::fiber::state::Epoch;
use crate::fiber::{Control, FiberRef, Flags, WaitKind, slab};
use crate::fiber::{Fiber, FiberId, FiberState};
use crate::park::table::{self, Entry, Key};
use crate::primitive::{Ordering, fence};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

/// A description of one fiber, at the moment when [`fibers`] looked at it.
///
/// # Examples
/// ```
/// let sleeper = sinew::FiberBuilder::new().name("sleeper").spawn(sinew::park)?;
/// sinew::wait_until(|| sleeper.fiber().state() == sinew::FiberState::Suspended);
/// let all = sinew::fibers();
/// let info = all.iter().find(|info| info.name() == Some("sleeper")).unwrap();
/// assert_eq!(info.fiber, sleeper.fiber());
/// assert_eq!(info.state, sinew::FiberState::Suspended);
/// assert!(!info.cancel_requested && !info.pinned);
/// sleeper.fiber().unpark();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FiberInfo {
    /// A handle to the fiber.
    pub fiber: Fiber,
    /// The state of the fiber.
    pub state: FiberState,
    /// The wait that the fiber was in, if any. A pinned fiber that waits counts as running, because
    /// it keeps its carrier.
    pub wait: Option<WaitInfo>,
    /// The carrier that the fiber is bound to, or ran on last, as a number in its runtime.
    pub carrier: Option<usize>,
    /// The name of the fiber's runtime.
    pub runtime: Option<Arc<str>>,
    /// Time since the fiber was made, accurate to two milliseconds. It starts at zero again after
    /// 52 days.
    pub age: Duration,
    /// How many waits the fiber had begun.
    pub waits: u32,
    /// Whether the fiber was in a [`pinned`](crate::pinned) region, a predicate or a hook, where it
    /// keeps its carrier.
    pub pinned: bool,
    /// Whether the fiber was [built](crate::FiberBuilder::migratable) to move between carriers.
    pub migratable: bool,
    /// Whether the fiber's cancellation was requested. A fiber that is [masked](crate::masked), or
    /// that runs for long, may not have learned of it.
    pub cancel_requested: bool,
    /// The epoch of `wait`, if the fiber was suspended in it.
    epoch: Option<Epoch>,
    /// Where the fiber was on its stack, if it was suspended.
    stack_at: Option<usize>,
}

/// The wait of a fiber in a [`FiberInfo`]: its kind, its object and its duration.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let sleeper = sinew::spawn(|| sinew::sleep(Duration::from_secs(3600)));
/// sinew::wait_until(|| sleeper.fiber().state() == sinew::FiberState::Suspended);
/// let all = sinew::fibers();
/// let info = all.iter().find(|info| info.fiber == sleeper.fiber()).unwrap();
/// let wait = info.wait.unwrap();
/// assert_eq!(wait.kind, sinew::WaitKind::Sleep);
/// assert!(wait.left.unwrap() <= Duration::from_secs(3600));
/// sleeper.cancel();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WaitInfo {
    /// The kind of wait.
    pub kind: WaitKind,
    /// The object of the wait: the address of a lock, a channel or another object, the address of
    /// the waiter's entry for a key of a `MultiLock`, or the number of a descriptor. Zero if there
    /// is none.
    pub address: usize,
    /// The joined fiber, if the wait is for the end of a fiber.
    pub joins: Option<FiberId>,
    /// The fiber or thread that holds the lock, if the wait is for a lock that is held exclusively.
    pub owner: Option<FiberId>,
    /// How long the wait has lasted, accurate to some tens of microseconds.
    pub since: Duration,
    /// How much longer the wait will last at most: until the end of the sleep, the timeout, or the
    /// nearest enclosing [`timeout`](crate::timeout) or [`deadline`](crate::deadline). `None` if
    /// there is no limit.
    pub left: Option<Duration>,
}

/// Size and use of a fiber's stack, in bytes; see [`FiberInfo::stack`].
///
/// # Examples
/// ```
/// let fiber = sinew::FiberBuilder::new().stack_size(64 * 1024).spawn(sinew::park)?;
/// sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
/// let all = sinew::fibers();
/// let info = all.iter().find(|info| info.fiber == fiber.fiber()).unwrap();
/// let stack = info.stack().unwrap();
/// assert!(stack.size >= 64 * 1024 && stack.used < stack.size);
/// fiber.fiber().unpark();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StackInfo {
    /// Size of the stack.
    pub size: usize,
    /// Bytes that were in use when the fiber was suspended.
    pub used: usize,
    /// Bytes that were ever touched, accurate to one page, by this fiber or an earlier one on this
    /// stack. `None` where the platform cannot tell.
    pub high_water_mark: Option<usize>,
}

impl FiberInfo {
    /// Returns the id of the fiber.
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

    /// Whether the fiber is still suspended in the wait that the snapshot saw.
    pub(super) fn is_still_so(&self) -> bool {
        self.epoch.is_some_and(|epoch| self.fiber.control().wake.is_waiting(epoch))
    }

    /// Returns the name of the fiber.
    ///
    /// # Examples
    /// ```
    /// let named = sinew::FiberBuilder::new().name("worker").spawn(|| {
    ///     assert!(sinew::fibers().iter().any(|info| info.name() == Some("worker")));
    /// })?;
    /// named.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.fiber.name()
    }

    /// Returns size and use of the fiber's stack, if the fiber was suspended.
    ///
    /// The call asks the kernel, which takes some microseconds. If the fiber has ended since the
    /// snapshot, the numbers may belong to another fiber on that stack.
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

/// Returns all fibers of all runtimes that have not ended, the oldest first.
///
/// The call stops no fiber. It looks at one fiber after the other, so each description was true at
/// a moment of its own. Fibers that begin or end during the call may be missing. The call takes
/// about two tenths of a microsecond per fiber.
///
/// # Examples
/// ```
/// use sinew::WaitKind;
///
/// let fiber = sinew::FiberBuilder::new().name("sleeper").spawn(sinew::park)?;
/// sinew::wait_until(|| fiber.fiber().waits_for() == Some(WaitKind::Park));
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
        // SAFETY: `try_acquire` has counted a reference, which the `FiberRef` takes over.
        let fiber = unsafe { FiberRef::from_counted(control) };
        if !fiber.flags().has(Flags::PROXY) {
            fibers.push(look(fiber, now, &crews));
        }
    });
    fill_in_deadlines(&mut fibers);
    fibers.sort_by_key(|info| info.id());
    fibers
}

/// Fills in how much longer suspended fibers will wait.
///
/// A fiber sets its timer before it stops, and the timer stays until the wait ends. This function
/// copies the timers after `fibers` has looked at the fibers. So each wait that was seen has its
/// timer in the copy, or has ended. The clock is read after the copy was made. So no timer seems to
/// have more time left than it was set for.
fn fill_in_deadlines(fibers: &mut [FiberInfo]) {
    let timed = TimedWaits::collect();
    let now = clock::now();
    for info in fibers {
        let deadline = info.epoch.and_then(|epoch| timed.deadline(info.fiber.control(), epoch));
        if let (Some(wait), Some(deadline)) = (&mut info.wait, deadline) {
            wait.left = clock::until(now, deadline);
        }
    }
}

/// Describes one fiber.
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

/// The state of a fiber at one moment.
struct Seen {
    state: FiberState,
    wait: Option<WaitInfo>,
    /// The epoch of the wait, if the fiber was suspended in it.
    epoch: Option<Epoch>,
    stack_at: Option<usize>,
}

impl Seen {
    fn unplaced(state: FiberState, wait: Option<WaitInfo>) -> Seen {
        Seen { state, wait, epoch: None, stack_at: None }
    }
}

/// Reads the state of a fiber, and its wait if it is in one.
fn state_of(fiber: &Fiber, now: u64) -> Seen {
    let place = || fiber.control().context.look().map(|context| context.address());
    let before = place();
    if let Some((kind, address, since)) = fiber.control().awaited_unstarted() {
        let since = Duration::from_nanos(now.saturating_sub(since));
        let wait = WaitInfo { kind, address, joins: None, owner: None, since, left: None };
        return Seen::unplaced(FiberState::Suspended, Some(wait));
    }
    let pinned = || pinned_wait_of(fiber.control(), now).map(|(_, _, wait)| wait);
    match wait_of(fiber.control(), now) {
        // The fiber has not stopped yet, or was woken meanwhile. If it has not stopped, a hook may
        // run and block it as a pinned fiber.
        Some(_) if before.is_none() || place() != before => {
            Seen::unplaced(FiberState::Running, pinned())
        }
        Some((epoch, wait)) => Seen {
            state: FiberState::Suspended,
            wait: Some(wait),
            epoch: Some(epoch),
            stack_at: before,
        },
        None => match fiber.state() {
            // The fiber was woken, and waited again, during this look.
            FiberState::Suspended => Seen::unplaced(FiberState::Runnable, None),
            FiberState::Running => Seen::unplaced(FiberState::Running, pinned()),
            state => Seen::unplaced(state, None),
        },
    }
}

/// Reads the wait of a pinned fiber. Such a fiber waits as its thread. Returns the block of that
/// thread, the epoch, and the wait.
pub(super) fn pinned_wait_of(
    control: &Control,
    now: u64,
) -> Option<(&'static Control, Epoch, WaitInfo)> {
    let extra = control.extra()?;
    // ORDERING: Acquire shows the epoch; pairs with the Release in `Wait::begin_as_thread`.
    // SAFETY: control blocks are never unmapped.
    let thread = unsafe { extra.pinned_as.load(Ordering::Acquire).as_ref()? };
    let epoch = Epoch::from_bits(extra.pinned_epoch.load(Ordering::Relaxed));
    let (now_in, mut wait) = wait_of(thread, now)?;
    wait.left = clock::left_until(extra.pinned_until.load(Ordering::Relaxed));
    // ORDERING: Acquire fence: if the deadline belongs to a later wait, the check below sees that
    // this wait is over; pairs with the Release in `Wait::publish_deadline`.
    fence(Ordering::Acquire);
    (now_in == epoch && thread.wake.is_waiting(epoch)).then_some((thread, epoch, wait))
}

/// Reads the wait of a fiber or thread and its epoch, both as of one moment.
pub(super) fn wait_of(control: &Control, now: u64) -> Option<(Epoch, WaitInfo)> {
    for _ in 0..8 {
        let epoch = control.wake.waiting()?;
        let (kind, address, since) = control.recorded_wait();
        // Until the check below, kind and address may belong to different waits.
        let joins = if kind == WaitKind::Join { block_id(address) } else { None };
        let owner = match kind {
            WaitKind::Lock => owner(address),
            WaitKind::Key => owner_of_key(address),
            _ => None,
        };
        // The waiter writes the record before the wait begins, and leaves it alone until the wait
        // has ended.
        // ORDERING: Acquire fence: the second read of the word comes after the reads above. The
        // Acquire in `waiting`, which pairs with the Release in `WakeWord::begin`, has shown the
        // record.
        fence(Ordering::Acquire);
        if control.wake.is_waiting(epoch) {
            let since = Duration::from_nanos(now.saturating_sub(since));
            let sleeps = kind == WaitKind::Sleep;
            // The wait may have begun after `now`, so this reads the clock again.
            let left = sleeps.then(|| clock::left_until(address as u64)).flatten();
            let address = if sleeps { 0 } else { address };
            return Some((epoch, WaitInfo { kind, address, joins, owner, since, left }));
        }
    }
    None
}

/// Reads the owner of the lock at `address`. The lock may be gone if its waiter was woken, so the
/// word is read as a debugger would read it.
fn owner(address: usize) -> Option<FiberId> {
    /// Locks that name their owner keep the address of its block in their first word, with marks in
    /// the bits that alignment leaves zero. Other values of that word are smaller than any address
    /// of a block.
    const MARKS: usize = align_of::<Control>() - 1;
    let word = super::memory::word(address).ok()?;
    block_id(word & !MARKS)
}

/// Reads the owner of the `MultiLock` key for which the entry at `address` waits.
fn owner_of_key(address: usize) -> Option<FiberId> {
    let mut key = [0; size_of::<Key>()];
    super::memory::copy(address + Entry::KEY, &mut key).ok()?;
    let key = Key::from_bytes(key);
    // The first entry in the queue owns the key, and names the block of its fiber or thread.
    let first = table::bucket(key).lock().queue(key)?.first()?.payload().word.get();
    block_id(first)
}

/// Returns the id of the block at `address`, if there is a block.
fn block_id(address: usize) -> Option<FiberId> {
    slab::at(address).map(|control| FiberId::new(control.id()))
}

/// Returns how many bytes are left on the stack of the running fiber; `None` on a plain thread.
///
/// Recursive code can use it to stop before the stack overflows. The call takes some tens of
/// nanoseconds.
///
/// # Examples
/// ```
/// assert_eq!(sinew::stack_remaining(), None);
/// sinew::run(|| assert!(sinew::stack_remaining().unwrap() > 100_000));
/// ```
pub fn stack_remaining() -> Option<usize> {
    sinew_context::stack::remaining()
}
