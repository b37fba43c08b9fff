//! Carriers that share their work: what one of them has to know of the others.

use super::Carrier;
use super::bell::Bell;
use super::driver::Driver;
use super::idle::Idle;
use super::observe::Observers;
use crate::clock;
use crate::fiber::{Control, Flags};
use crate::metrics::Counters;
use crate::primitive::{
    Alone, AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, SpinLock, futex,
};
use crate::queue::{Entry, Inbox};
use core::time::Duration;
use sinew_context::stack::{Decay, Stack, StackAllocator, StackPool};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock, Weak};

/// What a user's idle hook is called with; see `runtime::Idle`.
pub(crate) type IdleHook = dyn Fn(&Carrier, Option<Duration>) + Send + Sync;

/// What happens when a pinned fiber waits, or does work that blocks its carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum PinnedWait {
    /// The carrier blocks, and the report hook is told which fiber does it and how.
    #[default]
    Warn,
    /// The wait panics. It is reported instead if the fiber unwinds already.
    Error,
    /// The carrier blocks, and nobody is told.
    Silent,
}

/// Settings that carriers look at.
pub(crate) struct Settings {
    pub(crate) name: Arc<str>,
    pub(crate) pinned_wait: PinnedWait,
    pub(crate) idle_hook: Option<Box<IdleHook>>,
    pub(crate) stack_size: usize,
    pub(crate) max_stacks: Option<usize>,
    /// Bytes of the guard of each stack, if not the usual.
    pub(crate) guard_size: Option<usize>,
    /// Free stacks of each size that may keep their memory, if there is a limit.
    pub(crate) max_warm: Option<usize>,
    /// The time between two decay passes, if not the usual.
    pub(crate) decay: Option<Duration>,
    pub(crate) dump_on_panic: bool,
    /// Whether the one carrier is stepped by somebody else's loop.
    pub(crate) embedded: bool,
    /// Whether it wants to know of its fibers what [`Flags::MEASURED`] says.
    pub(crate) measured: bool,
}

/// How far the end of a crew has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub(crate) enum Phase {
    Open = 0,
    /// Every fiber is cancelled, and scheduled until it ends.
    Closing = 1,
    /// No fiber is left, and none will come: the threads end.
    Closed = 2,
    /// The deadline has passed: threads that still have fibers never end.
    Abandoned = 3,
}

/// The crews there are, by their numbers.
static CREWS: SpinLock<BTreeMap<u32, Weak<Crew>>> = SpinLock::new(BTreeMap::new());

/// The next number. Zero is none.
static NUMBERS: AtomicU32 = AtomicU32::new(1);

/// Carriers that share their work.
pub(crate) struct Crew {
    /// Never used twice.
    pub(crate) number: u32,
    pub(crate) carriers: Box<[&'static Carrier]>,
    /// Where the events of each carrier come from.
    pub(crate) drivers: Box<[Box<dyn Driver>]>,
    /// Fibers from outside that have not started.
    pub(crate) injector: Inbox<Control>,
    pub(crate) idle: Idle,
    /// Whether a sleeper looks now and then for work that its owner does not get to.
    pub(crate) sentinel: AtomicBool,
    /// Whether a sleeper was woken to search and has not begun.
    pub(crate) waking: AtomicBool,
    phase: AtomicU32,
    /// Flags that every fiber of the crew begins with.
    pub(crate) birth: Flags,
    /// Fibers that were submitted from outside; those from inside are counted by the carriers.
    submitted: Alone<AtomicU64>,
    /// Fibers from outside that were refused, because the crew was closing.
    refused: AtomicU64,
    pub(crate) settings: Settings,
    pub(crate) pool: StackPool,
    /// Pools of other stack sizes.
    pools: SpinLock<BTreeMap<usize, StackPool>>,
    /// Carriers whose threads have ended; those who shut down sleep on it.
    ended: AtomicU32,
    /// What the carriers had counted when they ended, before others could have them.
    pub(crate) last_counts: OnceLock<Box<[Counters]>>,
    /// Who wants to know what the carriers do.
    pub(crate) observers: Observers,
    /// Where the search for a victim begins, for threads that have no generator of their own.
    next: AtomicUsize,
}

/// Stacks that each carrier keeps at hand, if nothing limits them.
const CACHED_STACKS: usize = 256;

impl Settings {
    /// How many stacks each of `carriers` keeps at hand: at most half of the limit of warm stacks in all, so
    /// that the pool, from which all of them take, has the other half.
    pub(crate) fn cached_stacks(&self, carriers: usize) -> usize {
        self.max_warm.map_or(CACHED_STACKS, |max| CACHED_STACKS.min(max / (2 * carriers)))
    }

    /// What each of its fibers has from the beginning.
    fn birth(&self) -> Flags {
        let of = |flag: Flags, has| if has { flag.0 } else { 0 };
        Flags(of(Flags::EMBEDDED, self.embedded) | of(Flags::MEASURED, self.measured))
    }
}

impl Crew {
    /// Who observes the carriers has changed: that of the caller, if it is one of them, heeds it at once.
    /// The others do when they wake up, or within some tens of dispatches.
    pub(crate) fn tell_observed(&self) {
        if let Some((carrier, _)) = super::current::fiber()
            && core::ptr::eq(carrier.crew(), self)
        {
            carrier.heed_observers_now();
        }
    }

    /// Carriers without threads, each with a driver that `driver` makes.
    pub(crate) fn new(
        count: usize,
        settings: Settings,
        driver: impl Fn(&'static Bell) -> Box<dyn Driver>,
    ) -> io::Result<Arc<Crew>> {
        // What the caches of carriers keep counts against the limit of warm stacks; the pool gets the rest.
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

    /// That of a fiber.
    ///
    /// # Safety
    /// The fiber has been admitted, and does not end as long as the caller uses the crew.
    pub(crate) unsafe fn of(control: &Control) -> &'static Crew {
        let crew = CREWS.lock().get(&control.crew.load(Ordering::Relaxed)).map(Weak::as_ptr);
        // SAFETY: as the caller promised: a crew is there as long as it has fibers.
        unsafe { &*crew.expect("a fiber that was admitted has a crew") }
    }

    /// All there are, for as long as the caller keeps them.
    pub(crate) fn all() -> Vec<Arc<Crew>> {
        // The lock is not held when one of them is dropped: that needs it.
        let crews: Vec<_> = CREWS.lock().values().cloned().collect();
        crews.iter().filter_map(Weak::upgrade).collect()
    }

    #[inline(always)]
    pub(crate) fn phase(&self) -> Phase {
        // ORDERING: Acquire: a phase shows what was done before it was declared.
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Open,
            1 => Phase::Closing,
            2 => Phase::Closed,
            _ => Phase::Abandoned,
        }
    }

    /// Goes on to a later phase, and wakes every carrier to see it. False if it was reached before.
    pub(crate) fn advance(&self, phase: Phase) -> bool {
        let before = self.phase.fetch_max(phase as u32, Ordering::SeqCst);
        for carrier in &self.carriers {
            carrier.alert();
        }
        before < phase as u32
    }

    /// How many fibers were submitted from outside.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Whether no fiber is left.
    ///
    /// Both counts of each carrier only grow, and nothing ends before it began. If the ends that
    /// were counted first are as many as the beginnings that were counted later, there was a
    /// moment between the two at which nothing was alive; and what is not alive begins nothing.
    pub(crate) fn is_empty(&self) -> bool {
        let sum = |count: fn(&Carrier) -> &AtomicU64| -> u64 {
            // ORDERING: SeqCst: the ends are read before the beginnings.
            self.carriers.iter().map(|carrier| count(carrier).load(Ordering::SeqCst)).sum()
        };
        let refused = self.refused.load(Ordering::SeqCst);
        let ends = sum(|carrier| &carrier.counters.finished) + refused;
        let beginnings =
            sum(|carrier| &carrier.counters.spawned) + self.submitted.load(Ordering::SeqCst);
        ends == beginnings
    }

    /// How many fibers are left, as far as a look tells.
    pub(crate) fn live(&self) -> usize {
        let sum = |count: fn(&Carrier) -> &AtomicU64| -> u64 {
            self.carriers.iter().map(|carrier| count(carrier).load(Ordering::Relaxed)).sum()
        };
        let ends = sum(|carrier| &carrier.counters.finished) + self.refused.load(Ordering::Relaxed);
        (sum(|carrier| &carrier.counters.spawned) + self.submitted()).saturating_sub(ends) as usize
    }

    /// Stacks that fibers or the caches of carriers have.
    pub(crate) fn stacks_in_use(&self) -> usize {
        let others: usize = self.pools.lock().values().map(|pool| pool.stats().in_use).sum();
        self.pool.stats().in_use + others
    }

    /// Counts a fiber that is to be submitted from outside. False if the crew is closing; the
    /// caller counts it as refused then.
    pub(crate) fn admit(&self) -> bool {
        // ORDERING: SeqCst, both: either the fiber is counted before `is_empty` looks, or we see
        // that the crew is closing.
        self.submitted.fetch_add(1, Ordering::SeqCst);
        self.phase.load(Ordering::SeqCst) == Phase::Open as u32
    }

    /// Takes a fiber from outside. It runs on whichever carrier gets to it first.
    ///
    /// # Safety
    /// The fiber is unstarted, in no queue, and counted.
    pub(crate) unsafe fn inject(&self, control: &Control) {
        if self.settings.embedded {
            // SAFETY: as the caller promised; its carrier puts it where it belongs.
            if unsafe { self.carriers[0].inbox.push(Entry::Ready(control)) } {
                self.carriers[0].ring();
            }
            return;
        }
        // SAFETY: as the caller promised. Nobody parks on the injector.
        let _ = unsafe { self.injector.push(Entry::Ready(control)) };
        self.published();
    }

    /// Each carrier in turn, for what has to be somewhere.
    pub(crate) fn next_carrier(&self) -> &'static Carrier {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.carriers[next % self.carriers.len()]
    }

    /// Wakes a carrier for work that was published, if one sleeps and none searches.
    #[inline(always)]
    pub(crate) fn published(&self) {
        if self.idle.wants_wake() {
            self.wake_one();
        }
    }

    /// Wakes a sleeper to search, unless one is on its way.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake_one(&self) {
        // ORDERING: SeqCst: who finds the flag set has published before the one who is on its way
        // clears it, and looks.
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
        // Nobody sleeps after all: whoever counted itself has yet to look. But others may have
        // relied on us, for work that one of those did not see.
        self.waking.store(false, Ordering::SeqCst);
        if self.idle.wants_wake() && self.carriers.iter().any(|carrier| carrier.inbox.is_parked()) {
            self.wake_one();
        }
    }

    /// A stack of an unusual size, or one that may be given back by another thread.
    pub(crate) fn stack(&self, size: usize) -> io::Result<Stack> {
        self.pool_of(size)?.allocate()
    }

    /// The pool of stacks of `size`, made now if there is none; an error if there cannot be one.
    pub(crate) fn pool_of(&self, size: usize) -> io::Result<StackPool> {
        if size == self.settings.stack_size {
            return Ok(self.pool.clone());
        }
        if let Some(pool) = self.pools.lock().get(&size) {
            return Ok(pool.clone());
        }
        let new = new_pool(size, &self.settings, self.settings.max_warm)?;
        // Somebody else may have made one meanwhile.
        Ok(self.pools.lock().entry(size).or_insert(new).clone())
    }

    /// A carrier's thread has ended, or never began. When all have, their carriers can serve
    /// another crew: until then the others look at their queues. True for the last one.
    pub(crate) fn thread_ended(&self) -> bool {
        // ORDERING: AcqRel: the last one has seen the end of all others.
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
        self.refused.fetch_add(1, Ordering::SeqCst);
        // It may have been the last one that the end of the crew waits for.
        self.carriers[0].alert();
    }

    /// Waits until the threads of all carriers have ended; false if `timeout` is over before.
    pub(crate) fn wait_ended(&self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.map_or(clock::NEVER, |timeout| clock::after(clock::now(), timeout));
        loop {
            // ORDERING: Acquire: what the threads did before they ended.
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

/// Takes so many carriers, or none.
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

/// The smallest stack: room for a closure of a debug build that panics.
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
