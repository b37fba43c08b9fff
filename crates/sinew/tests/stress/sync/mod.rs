//! Locks, signals and channels under stress.
//!
//! Fibers and threads use each primitive in turn on 1, 2 and 8 carriers, bound and migratable, with
//! random yields, sleeps, timeouts and cancellations. A *round* is one primitive in one setting. It
//! consists of short *bouts*. At the end of a bout all workers have ended, and the ledgers agree.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `SINEW_STRESS_SECONDS` | duration |
//! | `SINEW_STRESS_SEED` | seed of the random numbers |
//! | `SINEW_STRESS_ONLY` | the only primitive to run |
//! | `SINEW_STRESS_PATIENCE` | seconds until a bout counts as hanging |

mod bout;
mod channels;
mod counting;
mod exclusion;
mod passing;
mod selecting;
mod signals;
mod spreading;
mod turns;
mod waiting;
mod watch;

use self::bout::{Bout, Setting};
use sinew::Runtime;
use sinew::runtime::PinnedWait;
use sinew_testkit::Seed;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A primitive, and the function that runs a bout with it.
type Subject = (&'static str, fn(&mut Bout));

const SUBJECTS: &[Subject] = &[
    ("mutex", exclusion::mutex),
    ("fair_mutex", exclusion::fair_mutex),
    ("rwlock", exclusion::rwlock),
    ("multi_lock", exclusion::multi_lock),
    ("semaphore", counting::semaphore),
    ("barrier", counting::barrier),
    ("wait_group", counting::wait_group),
    ("condvar", signals::condvar),
    ("futex", signals::futex),
    ("baton", signals::baton),
    ("once", signals::once),
    ("event", turns::event),
    ("sequencer", turns::sequencer),
    ("fiber_future", passing::fiber_future),
    ("oneshot", passing::oneshot),
    ("channel", channels::channel),
    ("broadcast", spreading::broadcast),
    ("watch", spreading::watch),
    ("token", spreading::token),
    ("select", selecting::select),
    ("park", waiting::park),
    ("join", waiting::join),
];

static OPERATIONS: [AtomicU64; SUBJECTS.len()] = [const { AtomicU64::new(0) }; SUBJECTS.len()];

const CARRIERS: [usize; 3] = [1, 2, 8];

/// All settings, by number.
fn setting(number: usize) -> Setting {
    Setting {
        carriers: CARRIERS[number % 3],
        migratable: number / 3 % 2 == 1,
        threads: number / 6 % 2 == 1,
    }
}

#[test]
fn sync_primitives_keep_their_promises() {
    let start = Instant::now();
    let seconds = super::seconds().max(Duration::from_secs(2));
    let number = Seed::number_of("SINEW_STRESS_SEED");
    let only = std::env::var("SINEW_STRESS_ONLY").ok();
    println!("SINEW_STRESS_SEED={number}");
    watch::begin();
    let runtimes = CARRIERS.map(|carriers| {
        let builder = Runtime::builder().carriers(carriers).pinned_wait(PinnedWait::Silent);
        builder.name(format!("stress-{carriers}")).build().unwrap()
    });
    let mut rounds = 0_u64;
    let mut bouts = 0_u64;
    let shift = Seed::new(number).below(12);
    'rounds: for sweep in 0.. {
        for (index, (what, subject)) in SUBJECTS.iter().enumerate() {
            // Tokens have a lock of the standard library, whose slow path ThreadSanitizer does not
            // see.
            let unseen = cfg!(sinew_tsan) && *what == "token";
            if unseen || only.as_ref().is_some_and(|only| only != what) {
                continue;
            }
            if start.elapsed() >= seconds {
                break 'rounds;
            }
            rounds += 1;
            let setting = setting(shift + sweep + index * 5);
            // Each round has its own random numbers, however many bouts the previous one had.
            let mut seed = Seed::new(number ^ rounds.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            watch::new_round(number, rounds, what, setting);
            let runtime = &runtimes[CARRIERS.iter().position(|&n| n == setting.carriers).unwrap()];
            let length = Duration::from_millis(50 + seed.below(100) as u64);
            let length = length.min(seconds / SUBJECTS.len() as u32);
            let round = Instant::now();
            while round.elapsed() < length {
                bouts += 1;
                let seed = seed.fork();
                let mut bout = Bout::new(seed, runtime.handle(), setting, &OPERATIONS[index]);
                if catch_unwind(AssertUnwindSafe(|| subject(&mut bout))).is_err() {
                    watch::fail("the books do not agree");
                }
            }
        }
    }
    watch::over();
    for runtime in runtimes {
        runtime.shutdown_timeout(Duration::from_secs(60)).unwrap();
    }
    let mut total = 0;
    for ((what, _), operations) in SUBJECTS.iter().zip(&OPERATIONS) {
        let operations = operations.load(Ordering::Relaxed);
        total += operations;
        println!("{what:>12} {operations:>12} operations");
    }
    println!(
        "SINEW_STRESS_SEED={number}: {total} operations, {bouts} bouts, {rounds} rounds, {:.0} s",
        start.elapsed().as_secs_f64()
    );
}
