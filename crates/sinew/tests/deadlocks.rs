//! Programs that hang in different ways, and the reports about them.
#![allow(clippy::print_stderr, reason = "what was said instead is of interest")]

use sinew::sync::{FairMutex, MultiLock, MultiLockPlace, Mutex, Semaphore};
use sinew::{FiberBuilder, Runtime};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::pin::pin;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

/// Returns a runtime that reports hangs, and the text of its reports.
fn watched() -> (Runtime, Arc<StdMutex<String>>) {
    let said: Arc<StdMutex<String>> = Arc::default();
    let hook = said.clone();
    sinew::set_report_hook(move |line| {
        let mut said = hook.lock().unwrap();
        said.push_str(line);
        said.push('\n');
    });
    let builder = Runtime::builder().carriers(2).report_deadlocks(Duration::from_millis(10));
    (builder.build().unwrap(), said)
}

/// Runs `hang` in a separate process. All parts of `expected` must be reported, and the first part
/// once. A plain thread that does not use sinew checks this, because a waiting fiber of sinew could
/// count as a possible waker.
fn hangs(name: &str, hang: fn(&Runtime) -> Fibers, expected: &'static [&'static str]) {
    child(name, || {
        let _watch = watch::a_minute();
        let (runtime, said) = watched();
        std::thread::spawn(move || {
            let all_said = || {
                let said = said.lock().unwrap();
                expected.iter().all(|part| said.contains(part))
            };
            while !all_said() {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Leave time for more passes of the detector.
            std::thread::sleep(Duration::from_millis(50));
            let text = said.lock().unwrap().clone();
            let once = text.matches(expected[0]).count() == 1;
            if !once {
                eprintln!("{text}");
            }
            std::process::exit(i32::from(!once));
        });
        hang(&runtime).into_iter().for_each(|fiber| fiber.join().unwrap());
    })
    .assert_success();
}

type Fibers = Vec<sinew::JoinHandle<()>>;

fn spawn(
    runtime: &Runtime,
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> sinew::JoinHandle<()> {
    FiberBuilder::new().name(name).runtime(runtime.handle()).spawn(body).unwrap()
}

#[test]
fn two_locks_in_two_orders() {
    fn hang(runtime: &Runtime) -> Fibers {
        let locks = [(); 2].map(|()| Arc::new(Mutex::new(())));
        let both = Arc::new(sinew::sync::Barrier::new(2));
        let each = |(name, index): (&str, usize)| {
            let (mine, other, both) =
                (locks[index].clone(), locks[1 - index].clone(), both.clone());
            spawn(runtime, name, move || {
                let _mine = mine.lock();
                both.wait();
                drop(other.lock());
            })
        };
        [("left", 0), ("right", 1)].map(each).into()
    }
    hangs(
        "two_locks_in_two_orders",
        hang,
        &[
            "deadlock of 2:",
            "fiber \"left\"",
            "fiber \"right\"",
            "waits for the lock at 0x",
            "two_locks",
        ],
    );
}

#[test]
fn a_lock_and_a_join() {
    fn hang(runtime: &Runtime) -> Fibers {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.clone();
        let parent = spawn(runtime, "parent", move || {
            let _guard = held.lock();
            let child = FiberBuilder::new().name("child").spawn(move || drop(lock.lock())).unwrap();
            child.join().unwrap();
        });
        vec![parent]
    }
    hangs(
        "a_lock_and_a_join",
        hang,
        &[
            "deadlock of 2:",
            "\"parent\"",
            "waits for the end of fiber \"child\"",
            "waits for the lock",
        ],
    );
}

#[test]
fn a_lock_and_a_scope() {
    fn hang(runtime: &Runtime) -> Fibers {
        let lock = Arc::new(Mutex::new(()));
        // This fiber keeps the program from being all asleep.
        let awake = spawn(runtime, "awake", || {
            loop {
                sinew::sleep(Duration::from_millis(1));
            }
        });
        let parent = spawn(runtime, "parent", move || {
            let _guard = lock.lock();
            sinew::scope(|s| {
                s.spawn(|| ());
                s.spawn(|| drop(lock.lock()));
            });
        });
        vec![awake, parent]
    }
    hangs(
        "a_lock_and_a_scope",
        hang,
        &["deadlock of 2:", "\"parent\"", "which is in its scope", "waits for the lock"],
    );
}

#[test]
fn a_thread_and_a_fiber() {
    fn hang(runtime: &Runtime) -> Fibers {
        let locks = [(); 2].map(|()| Arc::new(Mutex::new(())));
        let both = Arc::new(sinew::sync::Barrier::new(2));
        let (mine, other) = (locks[0].clone(), locks[1].clone());
        let meet = both.clone();
        let fiber = spawn(runtime, "fiber", move || {
            let _mine = mine.lock();
            meet.wait();
            drop(other.lock());
        });
        std::thread::spawn(move || {
            let _mine = locks[1].lock();
            both.wait();
            drop(locks[0].lock());
        });
        vec![fiber]
    }
    hangs(
        "a_thread_and_a_fiber",
        hang,
        &["deadlock of 2:", "fiber \"fiber\"", "waits for the lock at"],
    );
}

#[test]
fn three_fibers_that_join_each_other() {
    fn hang(runtime: &Runtime) -> Fibers {
        let handles: [_; 3] =
            std::array::from_fn(|_| Arc::new(StdMutex::new(None::<sinew::Fiber>)));
        let fibers: Vec<_> = (0..3)
            .map(|index| {
                let next = handles[(index + 1) % 3].clone();
                spawn(runtime, &format!("member {index}"), move || {
                    sinew::wait_until(|| next.lock().unwrap().is_some());
                    let next = next.lock().unwrap().take().unwrap();
                    next.wait_finished();
                })
            })
            .collect();
        for (fiber, handle) in fibers.iter().zip(&handles) {
            *handle.lock().unwrap() = Some(fiber.fiber());
        }
        fibers
    }
    hangs(
        "three_fibers_that_join_each_other",
        hang,
        &["deadlock of 3:", "member 0", "member 1", "member 2"],
    );
}

#[test]
fn a_pinned_fiber_and_one_of_its_carrier() {
    fn hang(runtime: &Runtime) -> Fibers {
        let lock = Arc::new(Mutex::new(()));
        let (locked, is_locked) = sinew::sync::channel::oneshot::<()>();
        let handle = runtime.handle();
        let here = |name| FiberBuilder::new().name(name).runtime(handle).carrier(0);
        let theirs = lock.clone();
        let owner = here("owner").spawn(move || {
            let _guard = theirs.lock();
            locked.send(()).unwrap();
            sinew::yield_now();
        });
        let pinned = here("pinned").spawn(move || {
            is_locked.recv().unwrap();
            sinew::pinned(|| drop(lock.lock()));
        });
        vec![owner.unwrap(), pinned.unwrap()]
    }
    hangs(
        "a_pinned_fiber_and_one_of_its_carrier",
        hang,
        &["deadlock of 2:", "fiber \"pinned\"", "is pinned and blocks the carrier of both"],
    );
}

#[test]
fn fair_locks_in_two_orders() {
    fn hang(runtime: &Runtime) -> Fibers {
        let locks = [(); 2].map(|()| Arc::new(FairMutex::new(())));
        let both = Arc::new(sinew::sync::Barrier::new(2));
        let each = |(name, first, second): (&str, usize, usize)| {
            let (first, second) = (locks[first].clone(), locks[second].clone());
            let both = both.clone();
            spawn(runtime, name, move || {
                let _first = first.lock();
                both.wait();
                drop(second.lock());
            })
        };
        [("up", 0, 1), ("down", 1, 0)].map(each).into()
    }
    hangs(
        "fair_locks_in_two_orders",
        hang,
        &["deadlock of 2:", "fiber \"up\"", "fiber \"down\"", "waits for the lock at"],
    );
}

#[test]
fn keys_in_two_orders() {
    fn hang(runtime: &Runtime) -> Fibers {
        let rows = Arc::new(MultiLock::new());
        let both = Arc::new(sinew::sync::Barrier::new(2));
        let each = |(name, first, second)| {
            let (rows, both) = (rows.clone(), both.clone());
            spawn(runtime, name, move || {
                let slots = (pin!(MultiLockPlace::new()), pin!(MultiLockPlace::new()));
                let _first = rows.lock(first, slots.0);
                both.wait();
                drop(rows.lock(second, slots.1));
            })
        };
        [("up", 1, 2), ("down", 2, 1)].map(each).into()
    }
    hangs(
        "keys_in_two_orders",
        hang,
        &["deadlock of 2:", "fiber \"up\"", "fiber \"down\"", "waits for the lock at"],
    );
}

#[test]
fn a_receive_without_a_sender() {
    fn hang(runtime: &Runtime) -> Fibers {
        let forgetful = spawn(runtime, "forgetful", || {
            let (sender, receiver) = sinew::sync::channel::bounded::<u8>(1);
            let _ = receiver.recv();
            drop(sender);
        });
        vec![forgetful]
    }
    hangs(
        "a_receive_without_a_sender",
        hang,
        &["all fibers are asleep, 1 of them", "waiting in recv", "forgetful"],
    );
}

/// The only sender belongs to a plain thread, which could send at any time. The report says that it
/// cannot see such threads, and claims no deadlock.
#[test]
fn a_report_of_sleepers_tells_of_threads_that_it_cannot_see() {
    fn hang(runtime: &Runtime) -> Fibers {
        let (sender, receiver) = sinew::sync::channel::bounded::<u8>(1);
        std::thread::spawn(move || {
            let _sender = sender;
            loop {
                std::thread::park();
            }
        });
        vec![spawn(runtime, "patient", move || _ = receiver.recv())]
    }
    hangs(
        "a_report_of_sleepers_tells_of_threads_that_it_cannot_see",
        hang,
        &[
            "all fibers are asleep, 1 of them, and only ",
            " threads outside of sinew could wake them",
        ],
    );
}

#[test]
fn a_channel_that_only_its_receiver_has() {
    fn hang(runtime: &Runtime) -> Fibers {
        // This fiber keeps the program from being all asleep.
        let awake = spawn(runtime, "awake", || {
            loop {
                sinew::sleep(Duration::from_millis(1));
            }
        });
        let forgetful = spawn(runtime, "forgetful", || {
            let (sender, receiver) = sinew::sync::channel::bounded::<u8>(1);
            let _ = receiver.recv();
            drop(sender);
        });
        vec![awake, forgetful]
    }
    if cfg!(any(sinew_asan, sinew_tsan)) {
        // One sanitizer keeps locals outside of the stack, and the other has more memory than can
        // be searched.
        return;
    }
    hangs(
        "a_channel_that_only_its_receiver_has",
        hang,
        &[
            "waits for ever in recv at 0x",
            "only fibers that wait for ever have a pointer to that channel",
            "forgetful",
        ],
    );
}

#[test]
fn permits_that_never_come_back() {
    fn hang(runtime: &Runtime) -> Fibers {
        let permits = Arc::new(Semaphore::new(1));
        let each = |name| {
            let permits = permits.clone();
            spawn(runtime, name, move || {
                std::mem::forget(permits.acquire());
                std::mem::forget(permits.acquire());
            })
        };
        ["first", "second"].map(each).into()
    }
    hangs(
        "permits_that_never_come_back",
        hang,
        &["all fibers are asleep, 2 of them", "a semaphore"],
    );
}
