//! The work that the contenders of a runtime do, and helpers to measure it. It is equal for all
//! contenders.

use crate::floor::threads::{OnFirst, stay_on};
use crate::measure::Lap;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The number of tasks in a batch.
pub(crate) const BATCH: u64 = 10_000;

/// The levels of the tree in `fork_join`, which has two to this power leaves.
pub(crate) const TREE_DEPTH: u32 = 12;

/// The steps of [`mix`] in a leaf, about 300 ns.
pub(crate) const LEAF_STEPS: u64 = 210;

pub(crate) const SKYNET_LEAVES: u64 = 1_000_000;
pub(crate) const SKYNET_CHILDREN: u64 = 10;
pub(crate) const SKYNET_SUM: u64 = 499_999_500_000;

/// The number of fibers that begin on one carrier, how often each waits, and the steps of [`mix`]
/// between two waits (20 us).
pub(crate) const CROWD: u64 = 64;
pub(crate) const WAITS: u64 = 100;
pub(crate) const WORK_STEPS: u64 = 14_200;

/// The number of fibers that contend for one lock, and of those that read under one lock.
pub(crate) const RIVALS: u64 = 64;
pub(crate) const READERS: u64 = 8;

/// The number of fibers in `channel_mpmc`, of which half send and half receive, and the capacity of
/// its channel.
pub(crate) const TALKERS: u64 = 8;
pub(crate) const ROOM: usize = 64;

/// The key that `multilock` locks.
pub(crate) const KEY: u64 = 7;

/// The number of tasks that are added to a loop before it runs.
pub(crate) const TASKS: u64 = 100;

/// The most outstanding tasks: tasks that another thread has added and that have not run yet. A
/// power of two.
pub(crate) const OUTSTANDING: u64 = 1024;

/// How often each sleeper of `timers` sleeps.
pub(crate) const SLEEPS: usize = 10;

/// Longer than any measurement.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A sleep that is about as short as a program may ask for on an idle carrier.
pub(crate) const SHORT: Duration = Duration::from_micros(20);

/// How long `idle_cpu` watches the sleepers.
pub(crate) const IDLE: Duration = Duration::from_secs(2);

/// How long the process settles before a figure is read.
pub(crate) const CALM: Duration = Duration::from_millis(200);

/// Computes for `steps` steps. No compiler shortens the work, because each step needs the result of
/// the step before.
#[inline(never)]
pub(crate) fn mix(seed: u64, steps: u64) -> u64 {
    let mut value = seed | 1;
    for _ in 0..steps {
        value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    value
}

/// Lets all tasks begin at once when all of them have arrived, so that the time to make them does
/// not count.
#[derive(Default)]
pub(crate) struct Gate {
    arrived: AtomicU64,
    open: AtomicBool,
}

impl Gate {
    /// Counts the caller as arrived and returns how many have arrived, including the caller.
    pub(crate) fn arrive(&self) -> u64 {
        // ORDERING: Release publishes what the caller has prepared; pairs with the Acquire in
        // `arrived`, and with the Acquire of the arrivals after it.
        self.arrived.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn arrived(&self) -> u64 {
        // ORDERING: Acquire sees the preparations of the tasks that have arrived; pairs with the
        // Release in `arrive`.
        self.arrived.load(Ordering::Acquire)
    }

    pub(crate) fn open(&self) {
        // ORDERING: Release publishes what the opener has prepared; pairs with the Acquire in
        // `is_open`.
        self.open.store(true, Ordering::Release);
    }

    pub(crate) fn is_open(&self) -> bool {
        // ORDERING: Acquire sees what the opener has prepared; pairs with the Release in `open`.
        self.open.load(Ordering::Acquire)
    }
}

/// The durations that a sleeper sleeps, 1 ms to 100 ms each.
pub(crate) struct Naps(u64);

impl Naps {
    pub(crate) fn of(sleeper: u64) -> Naps {
        Naps(mix(sleeper * 2 + 1, 4))
    }

    pub(crate) fn next(&mut self) -> Duration {
        self.0 = mix(self.0, 1);
        Duration::from_micros(1_000 + (self.0 >> 33) % 99_001)
    }
}

/// Returns how many microseconds have passed since the moment `nap` after `start`.
pub(crate) fn late(start: Instant, nap: Duration) -> f32 {
    start.elapsed().saturating_sub(nap).as_secs_f32() * 1e6
}

/// The processor time and the lateness of many sleeps.
pub(crate) struct Slept {
    pub(crate) cpu_ms: f64,
    /// The lateness that one in a hundred sleeps exceeds, in microseconds.
    pub(crate) late_us: f64,
    /// The lateness that one in a hundred sleeps exceeds, over the second half of each sleeper's
    /// sleeps. The first half ends while other sleepers are still being made.
    pub(crate) settled_us: f64,
}

impl Slept {
    /// Runs `work`, which returns the lateness of each sleep.
    pub(crate) fn measure(work: impl FnOnce() -> Vec<[f32; SLEEPS]>) -> Slept {
        let before = cpu();
        let late = work();
        let cpu_ms = (cpu() - before).as_secs_f64() * 1e3;
        let settled = late.iter().flat_map(|late| &late[SLEEPS / 2..]).copied().collect();
        Slept {
            cpu_ms,
            late_us: p99(late.into_iter().flatten().collect()),
            settled_us: p99(settled),
        }
    }
}

fn p99(mut late: Vec<f32>) -> f64 {
    late.sort_by(f32::total_cmp);
    f64::from(late[late.len() * 99 / 100])
}

/// Returns the bytes for each of the `count` sleepers that `sleep` makes: resident memory and page
/// tables.
pub(crate) fn bytes_each(count: u64, sleep: impl FnOnce()) -> f64 {
    let before = crate::floor::memory();
    sleep();
    std::thread::sleep(CALM);
    (crate::floor::memory() - before) as f64 / count as f64
}

/// Returns the nanoseconds that `sleep` takes for each of the `count` sleepers that it makes.
pub(crate) fn time_each(count: u64, sleep: impl FnOnce()) -> f64 {
    let start = Instant::now();
    sleep();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// Returns the milliseconds of processor time that the process uses while all sleepers sleep.
pub(crate) fn idle_cpu(sleep: impl FnOnce()) -> f64 {
    sleep();
    std::thread::sleep(CALM);
    let before = cpu();
    std::thread::sleep(IDLE);
    (cpu() - before).as_secs_f64() * 1e3
}

/// Returns the user and system time of this process.
fn cpu() -> Duration {
    // SAFETY: an all-zero `timespec` is valid, and the call fills it in.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The last holder of a lock and the number of times that the holder changed. The lock protects
/// both fields. They need not lie inside the lock, because they are atomics that are only loaded
/// and stored.
#[derive(Default)]
pub(crate) struct Hands {
    last: AtomicU64,
    changes: AtomicU64,
}

impl Hands {
    /// Records the present holder; returns how often the holder has changed.
    pub(crate) fn take(&self, who: u64) -> u64 {
        let changed = u64::from(self.last.load(Ordering::Relaxed) != who);
        let changes = self.changes.load(Ordering::Relaxed) + changed;
        self.last.store(who, Ordering::Relaxed);
        self.changes.store(changes, Ordering::Relaxed);
        changes
    }
}

/// Returns a counter for the tasks of one thread. It is leaked, so that tasks need no shared
/// ownership.
pub(crate) fn counter() -> &'static Cell<u64> {
    Box::leak(Box::default())
}

/// The number of tasks that another thread has added and that have run. It shares no cache line
/// with other data.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Progress(AtomicU64);

impl Progress {
    /// Returns a leaked counter, so that tasks need no shared ownership.
    pub(crate) fn new() -> &'static Progress {
        Box::leak(Box::default())
    }

    /// Counts a task that has run. Only the thread of the loop calls this.
    pub(crate) fn advance(&self) {
        // ORDERING: Release publishes the effects of the task; pairs with the Acquire in `done`.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    fn done(&self) -> u64 {
        // ORDERING: Acquire sees the effects of the counted tasks; pairs with the Release in
        // `advance`.
        self.0.load(Ordering::Acquire)
    }
}

/// A thread that adds tasks to a loop on the current thread. Each of the two threads is kept on a
/// processor of its own. On one shared processor they would take turns, many tasks at a time, and
/// no task would go from cache to cache.
pub(crate) struct Remote {
    pub(crate) count: u64,
    /// The most outstanding tasks: added and not yet run. At this limit the adding thread waits
    /// until half of them have run. With a limit of one, each task is a round trip.
    pub(crate) outstanding: u64,
    pub(crate) progress: &'static Progress,
}

impl Remote {
    /// Runs `work`, the loop, while another thread calls `add` for each task and then `end` once.
    pub(crate) fn run(
        self,
        mut add: impl FnMut() + Send,
        end: impl FnOnce() + Send,
        work: impl FnOnce(),
    ) -> Lap {
        self.progress.0.store(0, Ordering::Relaxed);
        let gate = Gate::default();
        let (here, this) = (&gate, &self);
        let kept = OnFirst::stay();
        let other = kept.last();
        thread::scope(|scope| {
            scope.spawn(move || {
                stay_on(other);
                here.arrive();
                while !here.is_open() {
                    thread::yield_now();
                }
                let mut done = 0;
                for number in 0..this.count {
                    if number - done >= this.outstanding {
                        done = this.wait_timeout(number - this.outstanding / 2);
                    }
                    add();
                }
                drop(add);
                end();
            });
            // The time to start the thread does not count.
            while gate.arrived() == 0 {
                thread::yield_now();
            }
            let lap = Lap::run(self.count, || {
                gate.open();
                work();
            });
            assert_eq!(self.progress.done(), self.count);
            lap
        })
    }

    /// Waits until at least `least` tasks have run; returns how many have run. The more tasks still
    /// have to run, the longer it pauses between two looks, because each look takes the cache line
    /// from the thread that runs the tasks.
    fn wait_timeout(&self, least: u64) -> u64 {
        let mut tries = 0;
        loop {
            let done = self.progress.done();
            if done >= least {
                return done;
            }
            tries += 1;
            if tries < 100 {
                (done..least).take(64).for_each(|_| std::hint::spin_loop());
            } else {
                thread::yield_now();
            }
        }
    }
}
