//! A bout: workers use one primitive for some milliseconds, and all end.
//!
//! Every bout ends on its own, with no waiter left. So a later wake cannot make up for one that was
//! lost in it.

use super::watch;
use sinew::{Fiber, FiberBuilder, JoinHandle, RuntimeHandle};
use sinew_testkit::Seed;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

/// The place where the workers run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) carriers: usize,
    pub(super) migratable: bool,
    /// Whether plain threads take part.
    pub(super) threads: bool,
}

/// The state that the workers of a bout share.
struct Shared {
    setting: Setting,
    /// Whether waits have timeouts. Without them, a worker that is not woken does not go on.
    timeouts: bool,
    /// Whether no worker sleeps, and every timeout is short.
    hurried: bool,
    cancels_left: AtomicUsize,
    /// The fibers that may be cancelled at random.
    fibers: Shelf<Vec<Fiber>>,
    /// Fibers of [`Worker::spawn`] that have not ended.
    helpers: AtomicUsize,
    steps: usize,
    operations: &'static AtomicU64,
    runtime: RuntimeHandle,
    driver: std::thread::Thread,
}

impl Shared {
    fn builder(&self) -> FiberBuilder {
        let builder = FiberBuilder::new().runtime(&self.runtime);
        if !self.setting.migratable {
            return builder;
        }
        // SAFETY: guards of these locks belong to the fiber, on whichever thread it runs. Nothing
        // else that is not `Send` is kept across a wait, and code that uses thread-locals is out of
        // line.
        unsafe { builder.migratable() }
    }

    /// Cancels one of the fibers.
    fn cancel_somebody(&self, seed: &mut Seed) {
        let take = |left: usize| left.checked_sub(1);
        if self.cancels_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return;
        }
        self.fibers.with(|fibers| {
            if !fibers.is_empty() {
                fibers[seed.below(fibers.len())].cancel();
            }
        });
    }
}

/// The work of a fiber of [`Worker::spawn`]. The fiber is counted until its closure is dropped.
struct Helper<F> {
    f: Option<F>,
    shared: Arc<Shared>,
}

impl<F> Helper<F> {
    fn run<T>(mut self) -> T
    where
        F: FnOnce() -> T,
    {
        self.f.take().expect("it runs once")()
    }
}

impl<F> Drop for Helper<F> {
    fn drop(&mut self) {
        drop(self.f.take());
        // ORDERING: Release; pairs with the Acquire in `Bout::all_ended`.
        self.shared.helpers.fetch_sub(1, Ordering::Release);
    }
}

/// A worker, with its own random numbers.
pub(super) struct Worker {
    seed: Seed,
    shared: Arc<Shared>,
    is_fiber: bool,
}

impl Worker {
    /// How often the worker shall repeat its work.
    pub(super) fn steps(&self) -> usize {
        self.shared.steps
    }

    /// Counts an operation.
    pub(super) fn did(&self) {
        self.shared.operations.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.seed.below(end)
    }

    /// True once in `many` times.
    pub(super) fn once_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    /// Whether waits may have timeouts in this bout.
    pub(super) fn has_timeouts(&self) -> bool {
        self.shared.timeouts
    }

    /// The carrier on which workers queue in the order of their calls: a fiber that stays there is
    /// not interrupted between taking a ticket and entering a queue.
    pub(super) fn ordered_on(&self) -> Option<usize> {
        let ordered = self.is_fiber && !self.shared.setting.migratable && !cfg!(sinew_force_yield);
        ordered.then(sinew::current_carrier).flatten()
    }

    /// Whether all workers run on one carrier. Then nothing happens between the note that a worker
    /// is about to wait and its wait.
    pub(super) fn has_order(&self) -> bool {
        let Setting { carriers, threads, .. } = self.shared.setting;
        carriers == 1 && !threads && self.ordered_on().is_some()
    }

    /// Starts a fiber that only the caller cancels. If the caller is cancelled while it joins the
    /// fiber, the fiber goes on; [`Bout::all_ended`] waits for it.
    #[inline(never)]
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.shared.helpers.fetch_add(1, Ordering::Relaxed);
        let helper = Helper { f: Some(f), shared: self.shared.clone() };
        self.shared.builder().spawn(move || helper.run()).unwrap()
    }

    /// Returns another source of random numbers.
    pub(super) fn fork(&mut self) -> Seed {
        self.seed.fork()
    }

    /// Returns a timeout: zero, or up to a millisecond.
    pub(super) fn patience(&mut self) -> Duration {
        let micros = match self.below(if self.shared.hurried { 2 } else { 4 }) {
            0 => 0,
            1 => self.below(20),
            2 => self.below(200),
            _ => self.below(1000),
        };
        Duration::from_micros(micros as u64)
    }

    /// Goes on at once, lets others run for a while, or cancels a fiber: perhaps itself.
    pub(super) fn pause(&mut self) {
        match self.below(32) {
            0..=15 => {}
            27 if !self.shared.hurried => {
                let patience = self.patience() / 4;
                sinew::sleep(patience);
            }
            16..=27 => sinew::yield_now(),
            28..=30 => (0..self.below(200)).for_each(|_| std::hint::spin_loop()),
            _ => self.shared.cancel_somebody(&mut self.seed),
        }
    }

    /// Performs an operation that may have to wait, in one of several ways.
    pub(super) fn attempt<R>(
        &mut self,
        at_once: impl FnOnce() -> Option<R>,
        timed: impl FnOnce(Duration) -> Option<R>,
        plain: impl FnOnce() -> R,
    ) -> Option<R> {
        match self.below(if self.shared.timeouts { 10 } else { 5 }) {
            0 => at_once(),
            1 => Some(sinew::masked(plain)),
            2..=4 => Some(plain()),
            5..=7 => timed(self.patience()),
            8 => {
                let patience = self.patience() / 4;
                sinew::pinned(|| timed(patience))
            }
            _ => sinew::timeout(self.patience(), plain).ok(),
        }
    }
}

type Work = Arc<dyn Fn(&mut Worker) + Send + Sync>;

/// The rule by which the fibers of a crew are cancelled and replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// They are cancelled at random, and new fibers replace them.
    Replaced,
    /// They are never cancelled.
    Safe,
    /// They are cancelled when the driver requests it, and not replaced.
    Doomed,
}

/// Workers that do the same work.
struct Crew {
    role: &'static str,
    fate: Fate,
    work: Work,
    fibers: Vec<JoinHandle<()>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// The index of a crew.
#[derive(Clone, Copy)]
pub(super) struct CrewId(usize);

pub(super) struct Bout {
    pub(super) seed: Seed,
    shared: Arc<Shared>,
    crews: Vec<Crew>,
    cancels: bool,
}

impl Bout {
    pub(super) fn new(
        mut seed: Seed,
        runtime: &RuntimeHandle,
        setting: Setting,
        operations: &'static AtomicU64,
    ) -> Bout {
        watch::new_bout();
        let cancels = seed.below(3) > 0;
        let most = 1 << seed.below(7);
        let shared = Shared {
            setting,
            timeouts: seed.below(2) > 0,
            hurried: seed.below(3) > 0,
            cancels_left: AtomicUsize::new(if cancels { seed.below(most) } else { 0 }),
            fibers: Shelf::default(),
            helpers: AtomicUsize::new(0),
            steps: 1 << seed.below(8),
            operations,
            runtime: runtime.clone(),
            driver: std::thread::current(),
        };
        Bout { seed, shared: Arc::new(shared), crews: Vec::new(), cancels }
    }

    /// Whether some of the workers are cancelled and begin anew.
    pub(super) fn has_cancels(&self) -> bool {
        self.cancels
    }

    pub(super) fn has_timeouts(&self) -> bool {
        self.shared.timeouts
    }

    pub(super) fn steps(&self) -> usize {
        self.shared.steps
    }

    /// Stops random cancellations.
    pub(super) fn no_more_cancels(&self) {
        self.shared.cancels_left.store(0, Ordering::SeqCst);
    }

    /// A number of workers: at least two, and mostly few.
    pub(super) fn some(&mut self) -> usize {
        let bits = self.seed.below(6);
        2 + self.seed.below(1 << bits)
    }

    /// Starts `count` workers with this work: fibers, and threads if they take part.
    pub(super) fn start(
        &mut self,
        role: &'static str,
        count: usize,
        work: impl Fn(&mut Worker) + Send + Sync + 'static,
    ) -> CrewId {
        self.start_as(Fate::Replaced, role, count, Arc::new(work))
    }

    /// Starts workers that are never cancelled.
    pub(super) fn start_safe(
        &mut self,
        role: &'static str,
        count: usize,
        work: impl Fn(&mut Worker) + Send + Sync + 'static,
    ) -> CrewId {
        self.start_as(Fate::Safe, role, count, Arc::new(work))
    }

    /// Starts fibers that only [`cancel`](Self::cancel) cancels.
    pub(super) fn start_doomed(
        &mut self,
        role: &'static str,
        count: usize,
        work: impl Fn(&mut Worker) + Send + Sync + 'static,
    ) -> CrewId {
        self.start_as(Fate::Doomed, role, count, Arc::new(work))
    }

    /// Cancels all fibers of a crew.
    pub(super) fn cancel(&self, crew: CrewId) {
        self.crews[crew.0].fibers.iter().for_each(JoinHandle::cancel);
    }

    fn start_as(&mut self, fate: Fate, role: &'static str, count: usize, work: Work) -> CrewId {
        let takes_threads = self.shared.setting.threads && fate != Fate::Doomed;
        let threads = if takes_threads { count.div_ceil(4).min(3) } else { 0 };
        let mut crew = Crew { role, fate, work, fibers: Vec::new(), threads: Vec::new() };
        for _ in 0..count - threads {
            let fiber = self.spawn(fate, role, crew.work.clone());
            crew.fibers.push(fiber);
        }
        for _ in 0..threads {
            let body = self.body(crew.work.clone(), false);
            crew.threads.push(std::thread::spawn(body));
        }
        self.crews.push(crew);
        CrewId(self.crews.len() - 1)
    }

    fn body(&mut self, work: Work, is_fiber: bool) -> impl FnOnce() + Send + 'static {
        /// Tells the driver of the end, also if the fiber never began.
        struct End(Arc<Shared>);
        impl Drop for End {
            fn drop(&mut self) {
                self.0.driver.unpark();
            }
        }
        let end = End(self.shared.clone());
        let mut worker = Worker { seed: self.seed.fork(), shared: self.shared.clone(), is_fiber };
        move || {
            let _end = end;
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| work(&mut worker))) {
                if !sinew::is_cancel(&*payload) {
                    watch::fail("a worker panicked");
                }
                resume_unwind(payload);
            }
        }
    }

    fn spawn(&mut self, fate: Fate, role: &'static str, work: Work) -> JoinHandle<()> {
        let body = self.body(work, true);
        let fiber = self.shared.builder().name(role).spawn(body).unwrap();
        watch::new_fiber(fiber.fiber());
        if fate == Fate::Replaced {
            self.shared.fibers.with(|fibers| {
                fibers.retain(Fiber::is_alive);
                fibers.push(fiber.fiber());
            });
        }
        fiber
    }

    /// Waits until all workers of a crew have ended. Cancelled workers begin anew.
    pub(super) fn ended(&mut self, crew: CrewId) {
        self.drive(|bout| {
            bout.crews[crew.0].fibers.is_empty() && bout.crews[crew.0].threads.is_empty()
        });
    }

    /// Waits until all workers have ended, and all fibers that they have started.
    pub(super) fn all_ended(&mut self) {
        for crew in 0..self.crews.len() {
            self.ended(CrewId(crew));
        }
        // ORDERING: Acquire shows what the fibers have done; pairs with the Release of the drop.
        self.drive(|bout| bout.shared.helpers.load(Ordering::Acquire) == 0);
    }

    /// Waits until the condition is true.
    pub(super) fn until(&mut self, mut condition: impl FnMut() -> bool) {
        self.drive(|_| condition());
    }

    fn drive(&mut self, mut done: impl FnMut(&Bout) -> bool) {
        loop {
            for index in 0..self.crews.len() {
                self.look_after(index);
            }
            if done(self) {
                return;
            }
            if self.seed.below(3) == 0 {
                let Bout { shared, seed, .. } = self;
                shared.cancel_somebody(seed);
            }
            let moment = 1 + self.seed.below(if self.shared.hurried { 20 } else { 200 }) as u64;
            std::thread::park_timeout(Duration::from_micros(moment));
        }
    }

    /// Takes the results of workers that have ended, and replaces cancelled ones.
    fn look_after(&mut self, index: usize) {
        let crew = &mut self.crews[index];
        let (fate, role, work) = (crew.fate, crew.role, crew.work.clone());
        for thread in crew.threads.extract_if(.., |thread| thread.is_finished()) {
            thread.join().unwrap();
        }
        let ended: Vec<_> = crew.fibers.extract_if(.., |fiber| fiber.is_finished()).collect();
        for fiber in ended {
            if let Err(payload) = fiber.join() {
                assert!(sinew::is_cancel(&*payload), "a fiber ended with another payload");
                assert!(fate != Fate::Safe, "nobody has cancelled it");
                if fate == Fate::Replaced {
                    let fiber = self.spawn(fate, role, work.clone());
                    self.crews[index].fibers.push(fiber);
                }
            }
        }
    }
}

/// A value that workers use for a moment, without waiting.
///
/// The lock is only tried, again and again: the slow path of the standard library's lock is hidden
/// from the sanitizers.
#[derive(Default)]
pub(super) struct Shelf<T>(Mutex<T>);

impl<T> Shelf<T> {
    pub(super) const fn new(value: T) -> Shelf<T> {
        Shelf(Mutex::new(value))
    }

    /// Out of line: the lock reads a thread-local, which a migratable fiber must not do in a
    /// function that waits.
    #[inline(never)]
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        loop {
            match self.0.try_lock() {
                Ok(mut value) => return f(&mut value),
                Err(TryLockError::Poisoned(mut value)) => return f(value.get_mut()),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}

/// A worker is in an exclusive region until this is dropped.
pub(super) struct Inside<'a>(&'a AtomicUsize);

impl<'a> Inside<'a> {
    /// Enters the region. No more than `others` workers may be there already.
    #[track_caller]
    pub(super) fn enter(count: &'a AtomicUsize, others: usize) -> Inside<'a> {
        let before = count.fetch_add(1, Ordering::SeqCst);
        assert!(before <= others, "{before} are inside, where {others} may be");
        Inside(count)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Checks that workers are served in their order of arrival, as far as that order is known.
#[derive(Default)]
pub(super) struct Order {
    next: AtomicU64,
    /// The ticket that was served last, by carrier.
    served: [AtomicU64; 8],
}

/// The ticket of a worker that has arrived.
#[derive(Clone, Copy)]
pub(super) struct Ticket(Option<usize>, u64);

impl Order {
    /// A worker arrives, and queues before it lets others run.
    pub(super) fn come(&self, worker: &Worker) -> Ticket {
        Ticket(worker.ordered_on(), self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The worker is served. Only one worker is served at a time.
    #[track_caller]
    pub(super) fn served(&self, Ticket(carrier, ticket): Ticket) {
        if let Some(carrier) = carrier {
            let before = self.served[carrier].swap(ticket, Ordering::Relaxed);
            assert!(before < ticket, "{ticket} was served after {before}");
        }
    }
}
