//! What the contenders of a runtime are given to do, the same for all, and how it is looked at.

use crate::floor::threads::{OnFirst, stay_on};
use crate::measure::Lap;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Tasks in a batch.
pub(crate) const BATCH: u64 = 10_000;

/// Levels of the tree that is forked and joined; its leaves are two to this power.
pub(crate) const TREE_DEPTH: u32 = 12;

/// Steps of [`mix`] in a leaf: some 300 ns.
pub(crate) const LEAF_STEPS: u64 = 210;

pub(crate) const SKYNET_LEAVES: u64 = 1_000_000;
pub(crate) const SKYNET_CHILDREN: u64 = 10;
pub(crate) const SKYNET_SUM: u64 = 499_999_500_000;

/// Fibers that begin in one place, how often each waits, and the steps of [`mix`] between: 20 us.
pub(crate) const CROWD: u64 = 64;
pub(crate) const WAITS: u64 = 100;
pub(crate) const WORK_STEPS: u64 = 14_200;

/// Fibers that want one lock, and those that read under one.
pub(crate) const RIVALS: u64 = 64;
pub(crate) const READERS: u64 = 8;

/// Of `channel_mpmc`: half of them send, the others receive; and what the channel holds.
pub(crate) const TALKERS: u64 = 8;
pub(crate) const ROOM: usize = 64;

/// The key that is locked, in `multilock`.
pub(crate) const KEY: u64 = 7;

/// Tasks that are added to a loop before it runs.
pub(crate) const TASKS: u64 = 100;

/// Of tasks that another thread adds: how many more than have run, at most. A power of two.
pub(crate) const OUTSTANDING: u64 = 1024;

/// How often each sleeper of `timers` sleeps.
pub(crate) const SLEEPS: usize = 10;

/// Longer than any measurement.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// A sleep as short as a program may ask for on an idle carrier.
pub(crate) const SHORT: Duration = Duration::from_micros(20);

/// How long nothing but sleep is watched.
pub(crate) const IDLE: Duration = Duration::from_secs(2);

/// How long things are left to calm down before they are looked at.
pub(crate) const CALM: Duration = Duration::from_millis(200);

/// Work that no compiler shortens: each step needs the one before.
#[inline(never)]
pub(crate) fn mix(seed: u64, steps: u64) -> u64 {
    let mut value = seed | 1;
    for _ in 0..steps {
        value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    value
}

/// Lets all begin at once, when they have all come: what it takes to make them does not count.
#[derive(Default)]
pub(crate) struct Gate {
    arrived: AtomicU64,
    open: AtomicBool,
}

impl Gate {
    /// Returns how many have come, the caller included.
    pub(crate) fn arrive(&self) -> u64 {
        self.arrived.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Acquire)
    }

    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

/// The durations that a sleeper sleeps, 1 to 100 ms.
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

/// How much later than `nap` after `start` it is, in microseconds.
pub(crate) fn late(start: Instant, nap: Duration) -> f32 {
    start.elapsed().saturating_sub(nap).as_secs_f32() * 1e6
}

/// What many sleeps cost, and how punctual they were.
pub(crate) struct Slept {
    pub(crate) cpu_ms: f64,
    /// The lateness that one in a hundred sleeps exceeds.
    pub(crate) late_us: f64,
    /// The same for the second half of each sleeper's sleeps: the first ones end while others are
    /// still being made.
    pub(crate) settled_us: f64,
}

impl Slept {
    /// Runs `work`, which gives the lateness of each sleep.
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

/// Bytes that each of `count` sleepers takes, which `sleep` makes: resident, and in page tables.
pub(crate) fn bytes_each(count: u64, sleep: impl FnOnce()) -> f64 {
    let before = crate::floor::memory();
    sleep();
    std::thread::sleep(CALM);
    (crate::floor::memory() - before) as f64 / count as f64
}

/// Nanoseconds until each of `count` sleepers sleeps.
pub(crate) fn time_each(count: u64, sleep: impl FnOnce()) -> f64 {
    let start = Instant::now();
    sleep();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// Milliseconds of processor time that are used while sleepers sleep and nothing else is done.
pub(crate) fn idle_cpu(sleep: impl FnOnce()) -> f64 {
    sleep();
    std::thread::sleep(CALM);
    let before = cpu();
    std::thread::sleep(IDLE);
    (cpu() - before).as_secs_f64() * 1e3
}

/// Processor time of this process, of user and system.
fn cpu() -> Duration {
    // SAFETY: an all-zero `timespec` is valid, and the call fills it in.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Who has had a lock last, and how often it has changed hands. The lock guards it, but need not hold
/// it: so these are atomics, which are only loaded and stored.
#[derive(Default)]
pub(crate) struct Hands {
    last: AtomicU64,
    changes: AtomicU64,
}

impl Hands {
    /// Notes who has it now; returns how often it has changed hands.
    pub(crate) fn take(&self, who: u64) -> u64 {
        let changed = u64::from(self.last.load(Ordering::Relaxed) != who);
        let changes = self.changes.load(Ordering::Relaxed) + changed;
        self.last.store(who, Ordering::Relaxed);
        self.changes.store(changes, Ordering::Relaxed);
        changes
    }
}

/// Counts what tasks of one thread do. It stays for ever, so that they need not share it.
pub(crate) fn counter() -> &'static Cell<u64> {
    Box::leak(Box::default())
}

/// How many tasks that another thread has added have run. Nothing else is in its cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Progress(AtomicU64);

impl Progress {
    /// One that stays for ever, so that tasks need not share it.
    pub(crate) fn new() -> &'static Progress {
        Box::leak(Box::default())
    }

    /// A task has run. Only the thread of the loop writes to it.
    pub(crate) fn advance(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    fn done(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Tasks that another thread adds to a loop of this one. Each is kept on a processor of its own: who
/// shares one takes turns, many tasks at a time, and none of them has to go from cache to cache.
pub(crate) struct Remote {
    pub(crate) count: u64,
    /// How many more are added than have run, at most; if it comes to that, half of them have to run
    /// first. With one, each is a round trip.
    pub(crate) outstanding: u64,
    pub(crate) progress: &'static Progress,
}

impl Remote {
    /// Runs `work`, the loop, while another thread calls `add` for each task and `end` after the last.
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
                        done = this.wait_for(number - this.outstanding / 2);
                    }
                    add();
                }
                drop(add);
                end();
            });
            // Starting a thread does not count.
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

    /// Waits until so many tasks have run; returns how many have. The more are missing, the less often
    /// it looks: whoever runs them would have to get the cache line back each time.
    fn wait_for(&self, least: u64) -> u64 {
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
