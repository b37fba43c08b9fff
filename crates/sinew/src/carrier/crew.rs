//! Crews: carriers that share their work, and the state that they share.

use super::Carrier;
use super::bell::Bell;
use super::driver::Driver;
use super::idle::Idle;
use super::observe::Observers;
use crate::clock;
use crate::fiber::{Control, Flags};
use crate::metrics::Counters;
use crate::primitive::{
    Alone, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, SpinLock, fence, futex,
};
use crate::queue::{Delivery, Inbox};
use core::time::Duration;
use sinew_context::stack::{Decay, Stack, StackAllocator, StackPool};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock, Weak};

/// The user's idle hook, called with the carrier and the timeout; see `runtime::Idle`.
pub(crate) type IdleHook = dyn Fn(&Carrier, Option<Duration>) + Send + Sync;

/// The policy for a pinned fiber that waits, or does work that blocks its carrier.
///
/// # Examples
/// ```
/// use sinew::runtime::PinnedWait;
/// use std::time::Duration;
///
/// // For tests: a wait that would block a carrier panics.
/// let strict = sinew::Runtime::builder().pinned_wait(PinnedWait::Error).build()?;
/// let fiber = strict.spawn(|| sinew::pinned(|| sinew::sleep(Duration::from_millis(1))));
/// assert!(fiber.join().is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum PinnedWait {
    /// The carrier blocks, and the report hook is told which fiber blocks it and in which
    /// operation.
    #[default]
    Warn,
    /// The wait panics. If the fiber is already unwinding, the wait is reported instead.
    Error,
    /// The carrier blocks, without a report.
    Silent,
}

/// Settings of a crew that its carriers read.
pub(crate) struct Settings {
    pub(crate) name: Arc<str>,
    pub(crate) pinned_wait: PinnedWait,
    pub(crate) idle_hook: Option<Box<IdleHook>>,
    pub(crate) stack_size: usize,
    pub(crate) max_stacks: Option<usize>,
    /// Bytes of the guard of each stack; `None` for the default.
    pub(crate) guard_size: Option<usize>,
    /// The maximum number of free stacks of each size that keep their memory; `None` for no limit.
    pub(crate) max_warm: Option<usize>,
    /// The time between two decay passes; `None` for the default.
    pub(crate) decay: Option<Duration>,
    pub(crate) dump_on_panic: bool,
    /// Whether a foreign loop steps the crew's only carrier.
    pub(crate) embedded: bool,
    /// Whether the crew's fibers begin with [`Flags::MEASURED`].
    pub(crate) measured: bool,
}

/// How far the shutdown of a crew has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub(crate) enum Phase {
    Open = 0,
    /// Every fiber is cancelled, and scheduled until it ends.
    Closing = 1,
    /// No fiber is left, and none will come. The threads end.
    Closed = 2,
    /// The deadline has passed. Threads that still have fibers never end.
    Abandoned = 3,
}

/// All crews, by their numbers.
static CREWS: SpinLock<BTreeMap<u32, Weak<Crew>>> = SpinLock::new(BTreeMap::new());

/// The number of the next crew. Zero means no crew.
static NUMBERS: AtomicU32 = AtomicU32::new(1);

/// Carriers that share their work.
pub(crate) struct Crew {
    /// The number of the crew. No other crew ever has it.
    pub(crate) number: u32,
    pub(crate) carriers: Box<[&'static Carrier]>,
    /// The driver of each carrier, from which its events come.
    pub(crate) drivers: Box<[Box<dyn Driver>]>,
    /// Unstarted fibers that were submitted from outside.
    pub(crate) injector: Inbox<Control>,
    pub(crate) idle: Idle,
    /// Whether there is a sentinel: a sleeper that looks now and then for work that the work's own
    /// carrier does not get to.
    pub(crate) sentinel: AtomicBool,
    /// Whether a sleeper was woken to search and has not begun.
    pub(crate) waking: AtomicBool,
    phase: AtomicU32,
    /// Flags that every fiber of the crew begins with.
    pub(crate) birth: Flags,
    /// The number of fibers that were submitted from outside. Carriers count the fibers that start
    /// inside.
    submitted: Alone<AtomicU64>,
    /// The number of fibers from outside that were refused because the crew was closing.
    refused: AtomicU64,
    pub(crate) settings: Settings,
    pub(crate) pool: StackPool,
    /// Stack pools of sizes other than the default.
    pools: SpinLock<BTreeMap<usize, StackPool>>,
    /// The number of ended carrier threads. Shutdowns sleep on this word.
    ended: AtomicU32,
    /// The final counters of the carriers, copied before other crews could take the carriers.
    pub(crate) last_counts: OnceLock<Box<[Counters]>>,
    /// The observers of the carriers.
    pub(crate) observers: Observers,
    /// A count that selects the carrier at which `wake_one` begins. Each use advances it.
    next: AtomicUsize,
}

/// Stacks that each carrier keeps at hand, unless `max_warm` limits them.
const CACHED_STACKS: usize = 256;

impl Settings {
    /// Returns how many stacks each of `carriers` keeps at hand. All of them together keep at most
    /// half of the warm stacks, so that the pool, from which all carriers take, has the other half.
    pub(crate) fn cached_stacks(&self, carriers: usize) -> usize {
        self.max_warm.map_or(CACHED_STACKS, |max| CACHED_STACKS.min(max / (2 * carriers)))
    }

    /// Returns the flags that each of the crew's fibers begins with.
    fn birth(&self) -> Flags {
        let of = |flag: Flags, has| if has { flag.0 } else { 0 };
        Flags(of(Flags::EMBEDDED, self.embedded) | of(Flags::MEASURED, self.measured))
    }
}

impl Crew {
    /// Tells the carriers that their observers have changed. The caller's carrier, if it belongs to
    /// this crew, reacts at once. The others react when they wake up, or within some tens of
    /// dispatches.
    pub(crate) fn tell_observed(&self) {
        if let Some((owner, _)) = super::current::fiber()
            && core::ptr::eq(owner.crew(), self)
        {
            owner.heed_observers_now();
        }
    }

    /// Makes a crew of carriers without threads. `driver` makes the driver of each.
    pub(crate) fn new(
        count: usize,
        settings: Settings,
        driver: impl Fn(&'static Bell) -> Box<dyn Driver>,
    ) -> io::Result<Arc<Crew>> {
        // Stacks in the caches of carriers count against the limit of warm stacks. The pool gets
        // the rest.
        let cached = settings.cached_stacks(count);
        let left = settings.max_warm.map(|max| max - cached * count);
        let pool = new_pool(settings.stack_size, &settings, left)?;
        let carriers = take_carriers(count)?;
        let crew = Arc::new(Crew {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            drivers: carriers.iter().map(|carrier| driver(carrier.bell())).collect(),
            carriers: carriers.into(),
            injector: Inbox::new(),
            idle: Idle::new(),
            sentinel: AtomicBool::new(false),
            waking: AtomicBool::new(false),
            phase: AtomicU32::new(Phase::Open as u32),
            birth: settings.birth(),
            submitted: Alone::new(AtomicU64::new(0)),
            refused: AtomicU64::new(0),
            settings,
            pool,
            pools: SpinLock::new(BTreeMap::new()),
            ended: AtomicU32::new(0),
            last_counts: OnceLock::new(),
            observers: Observers::default(),
            next: AtomicUsize::new(0),
        });
        for (index, carrier) in crew.carriers.iter().enumerate() {
            carrier.assign(&crew, index);
        }
        CREWS.lock().insert(crew.number, Arc::downgrade(&crew));
        Ok(crew)
    }

    /// Returns the crew of a fiber.
    ///
    /// # Safety
    /// The fiber has been admitted, and does not end while the caller uses the crew.
    pub(crate) unsafe fn of(control: &Control) -> &'static Crew {
        let crew = CREWS.lock().get(&control.crew.load(Ordering::Relaxed)).map(Weak::as_ptr);
        // SAFETY: the fiber has not ended, and a crew lives as long as it has fibers.
        unsafe { &*crew.expect("a fiber that was admitted has a crew") }
    }

    /// Returns all crews, kept alive by the result.
    pub(crate) fn all() -> Vec<Arc<Crew>> {
        // The lock is released before the upgrades: dropping the last reference to a crew takes it.
        let crews: Vec<_> = CREWS.lock().values().cloned().collect();
        crews.iter().filter_map(Weak::upgrade).collect()
    }

    #[inline(always)]
    pub(crate) fn phase(&self) -> Phase {
        // ORDERING: Acquire; pairs with the SeqCst exchange in `advance`. A phase shows everything
        // that was done before it was set.
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Open,
            1 => Phase::Closing,
            2 => Phase::Closed,
            _ => Phase::Abandoned,
        }
    }

    /// Sets a later phase, and wakes every carrier to see it. Returns false if the phase was
    /// reached before.
    pub(crate) fn advance(&self, phase: Phase) -> bool {
        // ORDERING: SeqCst; pairs with the load of the phase in `count_submitted`. As a Release, it
        // publishes what was done before; pairs with the Acquire in `phase`.
        let before = self.phase.fetch_max(phase as u32, Ordering::SeqCst);
        for carrier in &self.carriers {
            carrier.alert();
        }
        before < phase as u32
    }

    /// Returns the number of fibers that were submitted from outside.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Whether no fiber is left.
    ///
    /// Both counts of each carrier only grow, and no fiber ends before it began. This function adds
    /// up the ends first and the beginnings afterwards. If the sums are equal, then no fiber was
    /// alive at some moment between the two sums. From that moment on, no fiber of the crew could
    /// start another one.
    pub(crate) fn is_empty(&self) -> bool {
        let sum = |count: fn(&Carrier) -> &AtomicU64| -> u64 {
            // ORDERING: SeqCst, so that the ends are read before the beginnings. As an Acquire, it
            // pairs with the Release in `metrics::add`: a thread that reads a fiber's end also sees
            // the beginnings which that fiber counted before.
            self.carriers.iter().map(|carrier| count(carrier).load(Ordering::SeqCst)).sum()
        };
        // ORDERING: SeqCst fence; pairs with the SeqCst accesses in `count_submitted`. The caller
        // has read the phase by an Acquire load, which alone would not order the closing of the
        // crew before the load of `submitted` below.
        fence(Ordering::SeqCst);
        // ORDERING: SeqCst; pairs with the exchange in `refuse`. A thread that reads a refusal also
        // sees the submission of the refused fiber.
        let refused = self.refused.load(Ordering::SeqCst);
        let ends = sum(|carrier| &carrier.counters.finished) + refused;
        // ORDERING: SeqCst; the load of `submitted` pairs with the exchange in `count_submitted`.
        let beginnings =
            sum(|carrier| &carrier.counters.spawned) + self.submitted.load(Ordering::SeqCst);
        ends == beginnings
    }

    /// Returns the number of fibers that are left, as far as a relaxed look tells.
    pub(crate) fn live(&self) -> usize {
        let sum = |count: fn(&Carrier) -> &AtomicU64| -> u64 {
            self.carriers.iter().map(|carrier| count(carrier).load(Ordering::Relaxed)).sum()
        };
        let ends = sum(|carrier| &carrier.counters.finished) + self.refused.load(Ordering::Relaxed);
        (sum(|carrier| &carrier.counters.spawned) + self.submitted()).saturating_sub(ends) as usize
    }

    /// Returns the number of stacks that fibers or the caches of carriers have.
    pub(crate) fn stacks_in_use(&self) -> usize {
        let others: usize = self.pools.lock().values().map(|pool| pool.stats().in_use).sum();
        self.pool.stats().in_use + others
    }

    /// Counts a fiber that is to be submitted from outside. Returns false if the crew is closing.
    /// Then the caller must count the fiber as refused.
    pub(crate) fn count_submitted(&self) -> bool {
        // ORDERING: SeqCst, both; the exchange pairs with the load of `submitted` in `is_empty`,
        // and the load pairs with the exchange in `advance`. Either `is_empty` counts the fiber, or
        // we see that the crew is closing.
        self.submitted.fetch_add(1, Ordering::SeqCst);
        self.phase.load(Ordering::SeqCst) == Phase::Open as u32
    }

    /// Takes an unstarted or migratable fiber from outside. The first carrier that gets to it runs
    /// it.
    ///
    /// # Safety
    /// The fiber is in no queue, counted, and belongs to the caller.
    pub(crate) unsafe fn inject(&self, control: &Control) {
        if self.settings.embedded {
            // SAFETY: the fiber is in no queue, so its link is free. The carrier takes it out of
            // the inbox.
            if unsafe { self.carriers[0].inbox.push(Delivery::Ready(control)) } {
                self.carriers[0].ring();
            }
            return;
        }
        // SAFETY: the fiber is in no queue, so its link is free. No carrier parks on the injector.
        let _ = unsafe { self.injector.push(Delivery::Ready(control)) };
        self.published();
    }

    /// Wakes a carrier for published work, if some carrier sleeps and none searches.
    #[inline(always)]
    pub(crate) fn published(&self) {
        if self.idle.wants_wake() {
            self.wake_one();
        }
    }

    /// Wakes a sleeper to search, unless one is already being woken.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake_one(&self) {
        // ORDERING: SeqCst; pairs with the store in `Owner::woken`, and with the store below in
        // another publisher. The thread that clears the flag executes a fence and then looks. So it
        // sees the work of every publisher that found the flag set.
        if self.waking.swap(true, Ordering::SeqCst) {
            return;
        }
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        for offset in 0..self.carriers.len() {
            let carrier = self.carriers[(start + offset) % self.carriers.len()];
            if carrier.inbox.is_parked() && carrier.inbox.unpark() {
                return carrier.ring();
            }
        }
        // No carrier had a mark: each carrier that counted as a sleeper had yet to look for work.
        // But since then, such a carrier may have looked, and other publishers may have relied on
        // this call, for work that the carrier did not see.
        // ORDERING: SeqCst; pairs with the exchange above in those publishers. The fence in
        // `wants_wake` follows.
        self.waking.store(false, Ordering::SeqCst);
        if self.idle.wants_wake() && self.carriers.iter().any(|carrier| carrier.inbox.is_parked()) {
            self.wake_one();
        }
    }

    /// Allocates a stack of a special size, or one that another thread may give back.
    pub(crate) fn stack(&self, size: usize) -> io::Result<Stack> {
        self.pool_of(size)?.allocate()
    }

    /// Returns the pool of stacks of `size`, and makes it if there is none. Fails if `size` is not
    /// possible.
    pub(crate) fn pool_of(&self, size: usize) -> io::Result<StackPool> {
        if size == self.settings.stack_size {
            return Ok(self.pool.clone());
        }
        if let Some(pool) = self.pools.lock().get(&size) {
            return Ok(pool.clone());
        }
        let new = new_pool(size, &self.settings, self.settings.max_warm)?;
        // Another thread may have made one meanwhile.
        Ok(self.pools.lock().entry(size).or_insert(new).clone())
    }

    /// Counts a carrier's thread that has ended or never began. Returns true for the last one. Only
    /// after that can the carriers serve another crew, because the threads of a crew look at the
    /// queues of all its carriers.
    pub(crate) fn thread_ended(&self) -> bool {
        // ORDERING: AcqRel; pairs with itself: the last thread sees the work of all others. Also
        // pairs with the Acquire in `wait_ended`.
        let ended = self.ended.fetch_add(1, Ordering::AcqRel) + 1;
        let last = ended as usize == self.carriers.len();
        if last {
            let counts = self.carriers.iter().map(|carrier| carrier.counters.copy()).collect();
            let _ = self.last_counts.set(counts);
            self.carriers.iter().for_each(|carrier| carrier.give_back());
        }
        futex::wake(self.ended.as_ptr());
        last
    }

    /// Counts a fiber from outside that was not admitted, and has ended.
    pub(crate) fn refuse(&self) {
        // ORDERING: SeqCst; pairs with the load of `refused` in `is_empty`, to which it publishes
        // the submission that `count_submitted` has counted.
        self.refused.fetch_add(1, Ordering::SeqCst);
        // The shutdown may wait for this fiber alone.
        self.carriers[0].alert();
    }

    /// Waits until the threads of all carriers have ended. Returns false if `timeout` passes first.
    pub(crate) fn wait_ended(&self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.map_or(clock::NEVER, |timeout| clock::after(clock::now(), timeout));
        loop {
            // ORDERING: Acquire; pairs with the AcqRel in `thread_ended`. Shows what the threads
            // did before they ended.
            let ended = self.ended.load(Ordering::Acquire);
            if ended as usize >= self.carriers.len() {
                return true;
            }
            let now = clock::now();
            if deadline <= now {
                return false;
            }
            futex::wait(self.ended.as_ptr(), ended, clock::until(now, deadline));
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        CREWS.lock().remove(&self.number);
    }
}

/// Takes `count` carriers, or none.
fn take_carriers(count: usize) -> io::Result<Vec<&'static Carrier>> {
    let mut carriers = Vec::with_capacity(count);
    for index in 0..count {
        match Carrier::take() {
            Ok(carrier) => carriers.push(carrier),
            Err(error) => {
                carriers.into_iter().for_each(Carrier::give_back);
                let message = format!(
                    "no descriptor for carrier {index} of {count}, which each need one: {error}; \
                     see `ulimit -n`"
                );
                return Err(io::Error::new(error.kind(), message));
            }
        }
    }
    Ok(carriers)
}

/// The smallest stack, in bytes: room for a closure that panics in a debug build.
const SMALLEST_STACK: usize = 16 * 1024;

fn new_pool(size: usize, settings: &Settings, max_warm: Option<usize>) -> io::Result<StackPool> {
    if size < SMALLEST_STACK {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "a stack of {size} bytes is too small for a fiber; use at least {SMALLEST_STACK}"
            ),
        ));
    }
    let mut builder = StackPool::builder().stack_size(size);
    if let Some(max) = settings.max_stacks {
        builder = builder.max_stacks(max);
    }
    if let Some(bytes) = settings.guard_size {
        builder = builder.guard_size(bytes);
    }
    if let Some(count) = max_warm {
        builder = builder.max_warm(count);
    }
    if let Some(interval) = settings.decay {
        builder = builder.decay(Decay::Background(interval));
    }
    builder.build()
}
