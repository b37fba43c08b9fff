//! Inspects a program from all sides while it does everything at once.

use super::{patience, seconds};
use sinew::inspect::{BacktraceError, all_asleep, deadlocks, dump_json};
use sinew::sync::Mutex;
use sinew::sync::channel::bounded;
use sinew::{FiberBuilder, FiberState, Runtime, WaitKind};
use sinew_testkit::Seed;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const FIBERS: usize = if cfg!(debug_assertions) { 1_000 } else { 10_000 };

#[inline(never)]
fn one_of_many(seed: &mut Seed, lock: &Mutex<u64>) {
    match seed.below(8) {
        0 => sinew::yield_now(),
        1 => sinew::sleep(Duration::from_micros(seed.below(300) as u64)),
        2 => {
            let mut guard = lock.lock();
            *guard += 1;
            if seed.below(4) == 0 {
                sinew::yield_now();
            }
        }
        3 => {
            let (sender, receiver) = bounded(1);
            let child = sinew::spawn(move || sender.send(7).is_ok());
            assert_eq!(receiver.recv(), Ok(7));
            assert!(child.join().unwrap());
        }
        4 => sinew::park_timeout(Duration::from_micros(seed.below(300) as u64)),
        // A wait with an address, then a wait without one.
        5 => {
            sinew::spawn(|| ()).join().unwrap();
            sinew::sleep(Duration::from_nanos(1));
        }
        6 => {
            let (mut reader, writer) = sinew::io::pipe().unwrap();
            let child = sinew::spawn(move || drop(writer));
            assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
            child.join().unwrap();
        }
        _ => {
            let child = sinew::spawn(sinew::park);
            child.cancel();
            assert!(child.join().is_err());
        }
    }
}

/// Checks that the facts about each fiber are possible.
fn look_at_all(seen: &AtomicUsize) {
    for info in sinew::fibers() {
        match info.state {
            FiberState::Suspended => assert!(info.wait.is_some(), "{info:?}"),
            _ => assert!(info.wait.is_none(), "{info:?}"),
        }
        if let Some(wait) = info.wait {
            assert_eq!(wait.kind == WaitKind::Join, wait.joins.is_some(), "{info:?}");
            assert!(wait.owner.is_none() || wait.kind == WaitKind::Lock, "{info:?}");
        }
        match info.fiber.backtrace() {
            Ok(backtrace) => {
                // Every stack leads down to the base of its fiber.
                let whole = backtrace.is_empty() || backtrace.addresses().len() > 3;
                assert!(whole, "{backtrace:#}");
                seen.fetch_add(1, Ordering::Relaxed);
            }
            Err(BacktraceError::Running | BacktraceError::Runnable | BacktraceError::Ended) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn snapshots_of_a_busy_program_are_consistent() {
    let _patience = patience();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let until = Instant::now() + seconds();
    let lock = Arc::new(Mutex::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let seed = Seed::number_of("SINEW_STRESS_SEED");
    let fibers: Vec<_> = (0..FIBERS as u64)
        .map(|number| {
            let lock = lock.clone();
            let builder = FiberBuilder::new().runtime(runtime.handle());
            // SAFETY: the closure keeps nothing that belongs to the thread across a wait.
            let builder = if number % 2 == 0 { unsafe { builder.migratable() } } else { builder };
            let body = move || {
                let mut seed = Seed::new(seed ^ number);
                while Instant::now() < until {
                    one_of_many(&mut seed, &lock);
                }
            };
            builder.spawn(body).unwrap()
        })
        .collect();
    let seen = Arc::new(AtomicUsize::new(0));
    let lookers: Vec<_> = (0..4)
        .map(|number| {
            let (done, seen, handle) = (done.clone(), seen.clone(), runtime.handle().clone());
            std::thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    match number {
                        0 => look_at_all(&seen),
                        1 => dump_json(&mut std::io::sink()).unwrap(),
                        // No fibers wait for each other in a circle.
                        2 => {
                            assert!(deadlocks().is_empty(), "{}", deadlocks()[0]);
                            assert!(all_asleep().is_none());
                        }
                        _ => {
                            let trace = handle.trace(1000).unwrap();
                            handle.measure(true);
                            for info in sinew::fibers().iter().take(100) {
                                let _ = info.fiber.backtrace_now();
                            }
                            trace.write_json(&mut std::io::sink()).unwrap();
                            handle.measure(false);
                            handle.metrics();
                        }
                    }
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    done.store(true, Ordering::Relaxed);
    lookers.into_iter().for_each(|looker| looker.join().unwrap());
    assert!(seen.load(Ordering::Relaxed) > 100, "{seen:?}");
}
