//! Work that blocks runs on threads of a pool while its fiber waits.

use sinew::runtime::PinnedWait;
use sinew::sync::channel;
use sinew::{FiberBuilder, Runtime};
use sinew_testkit::child::{child, child_with};
use sinew_testkit::{Log, watch};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

fn on_each(test: impl Fn(&Runtime)) {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        test(&Runtime::builder().carriers(carriers).build().unwrap());
    }
}

fn this_thread() -> ThreadId {
    thread::current().id()
}

/// Returns the number of threads of the pool.
fn pool_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("sinew-blocking")).count()
}

/// A gate that blocks until it is opened.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn pass(&self) {
        let mut open = self.0.lock().unwrap();
        while !*open {
            open = self.1.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

#[test]
fn the_closure_borrows_from_its_fiber() {
    on_each(|runtime| {
        runtime.run(|| {
            let here = this_thread();
            let mut words = ["b".to_owned(), "a".to_owned()];
            let (there, len) = sinew::blocking(|| {
                words.sort();
                (this_thread(), words.len())
            });
            assert_eq!((len, words[0].as_str()), (2, "a"));
            assert_ne!(there, here);
            assert!(sinew::blocking(sinew::current_carrier).is_none());
        });
    });
}

#[test]
fn other_fibers_run_during_blocking_work() {
    on_each(|runtime| {
        let gate = Arc::new(Gate::default());
        let theirs = gate.clone();
        let blocks = runtime.spawn(move || sinew::blocking(|| theirs.pass()));
        runtime.spawn(move || gate.open()).join().unwrap();
        blocks.join().unwrap();
    });
}

#[test]
fn a_panic_goes_on_in_the_fiber() {
    on_each(|runtime| {
        let fiber = runtime.spawn(|| {
            let caught = catch_unwind(|| sinew::blocking(|| resume_unwind(Box::new(7))));
            assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 7);
            sinew::blocking(|| resume_unwind(Box::new("again")))
        });
        let payload = fiber.join().unwrap_err();
        assert_eq!(*payload.downcast::<&str>().unwrap(), "again");
        // The pool still works.
        assert_eq!(runtime.run(|| sinew::blocking(|| 7)), 7);
    });
}

#[test]
fn a_cancelled_fiber_waits_for_the_closure_and_the_next_wait_raises() {
    on_each(|runtime| {
        let (gate, log) = (Arc::new(Gate::default()), Log::new());
        let (theirs, lines) = (gate.clone(), log.clone());
        let fiber = runtime.spawn(move || {
            let local = 5;
            let result = sinew::blocking(|| {
                theirs.pass();
                lines.line("closure ended");
                local + 2
            });
            lines.line(format!("got {result}"));
            sinew::sleep(Duration::from_secs(60));
            lines.line("went on");
        });
        let handle = fiber.fiber();
        sinew::wait_until(|| handle.waits_for() == Some(sinew::WaitKind::Blocking));
        fiber.cancel();
        (0..50).for_each(|_| thread::yield_now());
        assert!(!fiber.is_finished());
        gate.open();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        assert_eq!(log.take(), ["closure ended", "got 7"]);
        // A fiber that reaches its deadline waits for the closure too.
        let gate = Arc::new(Gate::default());
        let limit = Duration::from_millis(2);
        let opens = gate.clone();
        let late = runtime.spawn(move || {
            let scope = || {
                sinew::blocking(|| gate.pass());
                sinew::park();
            };
            sinew::timeout(limit, scope).is_err()
        });
        sinew::sleep(limit * 2);
        opens.open();
        assert!(late.join().unwrap());
    });
}

#[test]
fn the_pool_grows_to_its_limit_and_shrinks() {
    let name = "the_pool_grows_to_its_limit_and_shrinks";
    let prepare =
        |command: &mut std::process::Command| _ = command.env("SINEW_BLOCKING_KEEP", "50");
    child_with(name, prepare, || {
        let _watch = watch::a_minute();
        sinew::set_max_blocking_threads(3);
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let gate = Arc::new(Gate::default());
        let start = || {
            let (inside, most, gate) = (inside.clone(), most.clone(), gate.clone());
            runtime.spawn(move || {
                sinew::blocking(|| {
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    gate.pass();
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            })
        };
        let fibers: Vec<_> = (0..20).map(|_| start()).collect();
        sinew::wait_until(|| inside.load(Ordering::SeqCst) == 3);
        assert_eq!(pool_threads(), 3);
        // A higher limit starts threads for waiting jobs at once.
        sinew::set_max_blocking_threads(5);
        sinew::wait_until(|| inside.load(Ordering::SeqCst) == 5);
        assert_eq!(pool_threads(), 5);
        gate.open();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(most.load(Ordering::SeqCst), 5);
        sinew::wait_until(|| pool_threads() == 0);
        // The pool grows again.
        assert_eq!(runtime.run(|| sinew::blocking(|| 7)), 7);
        assert!(pool_threads() <= 1);
    })
    .assert_success();
}

#[test]
fn a_lower_limit_counts_at_once_also_for_idle_threads() {
    child("a_lower_limit_counts_at_once_also_for_idle_threads", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        let barrier = Arc::new(Barrier::new(4));
        let meet = || {
            let barrier = barrier.clone();
            runtime.spawn(move || sinew::blocking(|| _ = barrier.wait()))
        };
        let fibers: Vec<_> = (0..4).map(|_| meet()).collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        sinew::set_max_blocking_threads(1);
        let inside = Arc::new(AtomicUsize::new(0));
        let alone = || {
            let inside = inside.clone();
            runtime.spawn(move || {
                sinew::blocking(|| {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "more than one at a time");
                    (0..20).for_each(|_| thread::yield_now());
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            })
        };
        let fibers: Vec<_> = (0..100).map(|_| alone()).collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        sinew::wait_until(|| pool_threads() == 1);
    })
    .assert_success();
}

#[test]
fn the_closure_may_wait_for_fibers() {
    on_each(|runtime| {
        runtime.run(|| {
            let (send, receive) = channel::bounded(0);
            let sender = sinew::spawn(move || (0..10).for_each(|n| send.send(n).unwrap()));
            let sum = sinew::blocking(|| std::iter::from_fn(|| receive.recv().ok()).sum::<i32>());
            assert_eq!(sum, 45);
            sender.join().unwrap();
            // A fiber that is started there, and a fiber of this carrier.
            let here = sinew::spawn(|| 7);
            let handle = sinew::RuntimeHandle::current();
            assert_eq!(sinew::blocking(|| here.join().unwrap()), 7);
            assert_eq!(sinew::blocking(|| handle.spawn(|| 8).join().unwrap()), 8);
        });
    });
}

#[test]
fn blocking_within_blocking_work_is_a_plain_call() {
    on_each(|runtime| {
        runtime.run(|| {
            let (outer, inner) = sinew::blocking(|| (this_thread(), sinew::blocking(this_thread)));
            assert_eq!(outer, inner);
        });
    });
}

#[test]
fn blocking_on_threads_and_pinned_fibers_is_a_plain_call() {
    on_each(|runtime| {
        assert_eq!(sinew::blocking(this_thread), this_thread());
        runtime.run(|| {
            let here = this_thread();
            assert_eq!(sinew::pinned(|| sinew::blocking(this_thread)), here);
            // A predicate runs on the carrier, and must not wait.
            let there = Cell::new(None);
            sinew::wait_until(|| there.replace(Some(sinew::blocking(this_thread))).is_some());
            assert_eq!(there.get(), Some(here));
        });
    });
}

#[test]
fn destructors_may_call_blocking_while_unwinding() {
    struct Blocks(Log);
    impl Drop for Blocks {
        fn drop(&mut self) {
            let value = sinew::blocking(thread::panicking);
            self.0.line(format!("dropped, {value}"));
        }
    }
    on_each(|runtime| {
        let log = Log::new();
        let theirs = log.clone();
        let panics = runtime.spawn(move || {
            let _blocks = Blocks(theirs);
            resume_unwind(Box::new(1));
        });
        assert!(panics.join().is_err());
        let theirs = log.clone();
        let is_cancelled = runtime.spawn(move || {
            let _blocks = Blocks(theirs);
            sinew::park();
        });
        let handle = is_cancelled.fiber();
        sinew::wait_until(|| handle.waits_for().is_some());
        is_cancelled.cancel();
        assert!(sinew::is_cancel(&*is_cancelled.join().unwrap_err()));
        assert_eq!(log.take(), ["dropped, false", "dropped, false"]);
    });
}

#[test]
fn without_threads_blocking_work_blocks_the_carrier_with_a_report() {
    let outcome = child("without_threads_blocking_work_blocks_the_carrier_with_a_report", || {
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        if !forbid_threads() {
            return;
        }
        let threads = runtime.run(|| {
            let here = this_thread();
            assert_eq!(sinew::blocking(this_thread), here);
            // SAFETY: the closure keeps nothing that belongs to the thread.
            let builder = unsafe { FiberBuilder::new().migratable() };
            let rides = builder.spawn(|| sinew::on_thread(this_thread)).unwrap();
            assert_eq!(rides.join().unwrap(), here);
            pool_threads()
        });
        assert_eq!(threads, 0);
        println!("done");
    });
    outcome.assert_success();
    let said = outcome.stderr.contains("no thread for blocking work");
    assert!(said || outcome.stdout.contains("skipped"), "{outcome:#?}");
}

#[test]
fn jobs_that_need_their_first_thread_at_a_time_all_run_without_threads() {
    let name = "jobs_that_need_their_first_thread_at_a_time_all_run_without_threads";
    let outcome = child(name, || {
        let _watch = watch::a_minute();
        sinew::set_max_blocking_threads(1);
        let runtime = Runtime::builder().carriers(4).build().unwrap();
        if !forbid_threads() {
            return;
        }
        sinew::set_report_hook(|_| {}); // there is a report for each job
        for round in 0..5_000 {
            let gate = Arc::new(Barrier::new(4));
            let fibers: Vec<_> = (0..4)
                .map(|carrier| {
                    let gate = gate.clone();
                    let builder = FiberBuilder::new().runtime(runtime.handle()).carrier(carrier);
                    let fiber = builder.spawn(move || {
                        gate.wait(); // blocks the carrier: all submit their jobs at once
                        sinew::blocking(move || round)
                    });
                    fiber.unwrap()
                })
                .collect();
            assert!(fibers.into_iter().all(|fiber| fiber.join().unwrap() == round));
        }
        println!("done");
    });
    outcome.assert_success();
    assert!(outcome.stdout.contains("done") || outcome.stdout.contains("skipped"), "{outcome:#?}");
}

/// Makes the system refuse new threads to this process. Returns false, after a note, if it cannot.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn forbid_threads() -> bool {
    // SAFETY: no preconditions. The limit applies to ordinary users; root is exempt.
    if unsafe { libc::getuid() } == 0 && unsafe { libc::setuid(65_534) } != 0 {
        println!("skipped: cannot become an ordinary user");
        return false;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the limit. An ordinary user may lower its own limit.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NPROC, &mut limit), 0);
        limit.rlim_cur = 0;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &limit), 0);
    }
    true
}

#[test]
fn thousands_of_jobs_share_a_few_threads() {
    child("thousands_of_jobs_share_a_few_threads", || {
        sinew::set_max_blocking_threads(2);
        on_each(|runtime| {
            let done = Arc::new(AtomicUsize::new(0));
            let job = |n: usize| {
                let done = done.clone();
                move || {
                    assert_eq!(sinew::blocking(|| n + 1), n + 1);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            };
            let fibers: Vec<_> = (0..2000).map(|n| runtime.spawn(job(n))).collect();
            for (n, fiber) in fibers.into_iter().enumerate() {
                if n % 3 == 0 {
                    fiber.cancel();
                }
                let _ = fiber.join();
            }
            assert!(done.load(Ordering::Relaxed) >= 1300);
            assert!(pool_threads() <= 2);
        });
    })
    .assert_success();
}

/// Spawns a fiber that may move to threads of the pool.
fn spawn_migratable<T: Send + 'static>(
    runtime: &Runtime,
    f: impl FnOnce() -> T + Send + 'static,
) -> sinew::JoinHandle<T> {
    // SAFETY: the closures of these tests keep no value that is not `Send` across a wait.
    let builder = unsafe { FiberBuilder::new().migratable() };
    builder.runtime(runtime.handle()).spawn(f).unwrap()
}

#[test]
fn a_migratable_fiber_goes_to_a_thread_and_comes_back() {
    on_each(|runtime| {
        let fiber = spawn_migratable(runtime, || {
            for _ in 0..20 {
                let me = sinew::current().id();
                assert!(sinew::current_carrier().is_some());
                let (carrier, name) = sinew::on_thread(|| {
                    (sinew::current_carrier(), thread::current().name().map(str::to_owned))
                });
                assert_eq!(carrier, None);
                assert!(name.unwrap().starts_with("sinew-blocking"));
                assert!(sinew::current_carrier().is_some());
                assert_eq!(sinew::current().id(), me);
                sinew::yield_now();
            }
        });
        fiber.join().unwrap();
    });
}

#[test]
fn others_run_while_a_fiber_is_on_a_thread() {
    on_each(|runtime| {
        let gate = Arc::new(Gate::default());
        let theirs = gate.clone();
        let rides = spawn_migratable(runtime, move || sinew::on_thread(|| theirs.pass()));
        runtime.spawn(move || gate.open()).join().unwrap();
        rides.join().unwrap();
    });
}

#[test]
fn locks_are_held_across_a_ride() {
    on_each(|runtime| {
        let lock = Arc::new(sinew::sync::Mutex::new(0));
        let fibers: Vec<_> = (0..50)
            .map(|_| {
                let lock = lock.clone();
                spawn_migratable(runtime, move || {
                    let mut count = lock.lock();
                    let before = *count;
                    sinew::on_thread(thread::yield_now);
                    *count = before + 1;
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(*lock.lock(), 50);
    });
}

#[test]
fn a_fiber_on_a_thread_waits_and_spawns_like_a_thread() {
    on_each(|runtime| {
        let handle = runtime.handle().clone();
        let fiber = spawn_migratable(runtime, move || {
            sinew::on_thread(|| {
                let here = this_thread();
                assert_eq!(sinew::on_thread(this_thread), here);
                assert_eq!(sinew::blocking(this_thread), here);
                assert_eq!(handle.spawn(|| 7).join().unwrap(), 7);
                sinew::sleep(Duration::from_millis(1));
                let (mut one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
                let writes = handle.spawn(move || std::io::Write::write_all(&mut other, b"x"));
                sinew::io::wait_readable(&one).unwrap();
                std::io::Read::read_exact(&mut one, &mut [0]).unwrap();
                writes.join().unwrap().unwrap();
                assert_eq!(this_thread(), here);
            });
        });
        fiber.join().unwrap();
    });
}

#[test]
fn a_panic_on_a_thread_goes_on_in_the_fiber() {
    on_each(|runtime| {
        let fiber = spawn_migratable(runtime, || {
            let ride = || sinew::on_thread(|| resume_unwind(Box::new(7)));
            let caught = catch_unwind(AssertUnwindSafe(ride));
            assert_eq!(*caught.unwrap_err().downcast::<i32>().unwrap(), 7);
            assert!(sinew::current_carrier().is_some());
            sinew::on_thread(|| panic!("on purpose"));
        });
        assert_eq!(*fiber.join().unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    });
}

#[test]
fn a_fiber_that_is_cancelled_on_a_thread_learns_it_when_it_is_back() {
    on_each(|runtime| {
        let (gate, log) = (Arc::new(Gate::default()), Log::new());
        let (theirs, lines) = (gate.clone(), log.clone());
        let inside = Arc::new(AtomicBool::new(false));
        let enters = inside.clone();
        let fiber = spawn_migratable(runtime, move || {
            sinew::on_thread(|| {
                enters.store(true, Ordering::SeqCst);
                theirs.pass();
                sinew::sleep(Duration::from_micros(10));
                lines.line("not interrupted");
            });
            lines.line("back");
            sinew::park();
            lines.line("went on");
        });
        sinew::wait_until(|| inside.load(Ordering::SeqCst));
        fiber.cancel();
        gate.open();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        assert_eq!(log.take(), ["not interrupted", "back"]);
    });
}

#[test]
fn a_bound_fiber_blocks_its_carrier_or_is_refused() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).pinned_wait(PinnedWait::Silent).build().unwrap();
    runtime.run(|| assert_eq!(sinew::on_thread(this_thread), this_thread()));
    assert_eq!(sinew::on_thread(this_thread), this_thread());
    let runtime = Runtime::builder().carriers(1).pinned_wait(PinnedWait::Error).build().unwrap();
    let refused = runtime.spawn(|| sinew::on_thread(|| ())).join().unwrap_err();
    assert!(refused.downcast::<String>().unwrap().contains("block carrier 0"));
    // A fiber that may move goes to a thread in any case.
    spawn_migratable(&runtime, || sinew::on_thread(|| ())).join().unwrap();
}

#[test]
fn thousands_of_rides_race_with_moves_and_cancellations() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let rides = Arc::new(AtomicUsize::new(0));
    for _ in 0..5 {
        let fibers: Vec<_> = (0..40)
            .map(|n: usize| {
                let rides = rides.clone();
                spawn_migratable(&runtime, move || {
                    for round in 0..20 {
                        let sum = sinew::on_thread(|| n + round);
                        assert_eq!(sum, n + round);
                        rides.fetch_add(1, Ordering::Relaxed);
                        sinew::yield_now();
                    }
                })
            })
            .collect();
        for (n, fiber) in fibers.into_iter().enumerate() {
            if n % 4 == 0 {
                fiber.cancel();
            }
            match fiber.join() {
                Ok(()) => {}
                Err(payload) => assert!(n % 4 == 0 && sinew::is_cancel(&*payload)),
            }
        }
    }
    assert!(rides.load(Ordering::Relaxed) >= 5 * 30 * 20);
}
