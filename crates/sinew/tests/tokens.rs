//! `CancellationToken`.

use sinew::sync::{CancellationToken, channel};
use sinew::{Runtime, is_cancel, select};
use sinew_testkit::watch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[test]
fn cancelling_a_token_wakes_all_waiters() {
    fn shared<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let token = shared(CancellationToken::new());
        let waiters: Vec<_> = (0..20)
            .map(|n| {
                let token = token.clone();
                runtime.spawn(move || match n % 4 {
                    0 => token.wait(),
                    1 => assert!(token.wait_timeout(Duration::MAX)),
                    2 => select! {
                        wait(token) -> () => {}
                        after(Duration::MAX) => unreachable!(),
                    },
                    _ => sinew::wait_until(|| token.is_cancelled()),
                })
            })
            .collect();
        let thread = {
            let token = token.clone();
            std::thread::spawn(move || token.wait())
        };
        token.cancel();
        waiters.into_iter().for_each(|fiber| fiber.join().unwrap());
        thread.join().unwrap();
        // The token stays cancelled.
        token.wait();
        assert!(token.child().is_cancelled());
    }
}

#[test]
fn children_end_with_their_parents() {
    let root = CancellationToken::new();
    let (left, right) = (root.child(), root.child());
    let leaf = left.child();
    left.cancel();
    assert!(leaf.is_cancelled() && !root.is_cancelled() && !right.is_cancelled());
    root.cancel();
    assert!(right.is_cancelled());
    // Very deep, without holders in between, and with many dropped children.
    let root = CancellationToken::new();
    let mut last = root.clone();
    for _ in 0..100_000 {
        last = last.child();
        drop(root.child());
    }
    root.cancel();
    assert!(last.is_cancelled());
}

#[test]
fn attached_fibers_are_cancelled() {
    let _watch = watch::a_minute();
    for migratable in [false, true] {
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        runtime.run(move || {
            let token = CancellationToken::new();
            let fibers: Vec<_> = (0..10)
                .map(|_| {
                    let mut builder = sinew::FiberBuilder::new();
                    if migratable {
                        // SAFETY: the closure keeps nothing that belongs to its thread.
                        builder = unsafe { builder.migratable() };
                    }
                    let fiber = builder.spawn(|| sinew::sleep(Duration::MAX)).unwrap();
                    token.child().attach(&fiber.fiber());
                    token.attach(&fiber.fiber());
                    fiber
                })
                .collect();
            let done = token.spawn(|| 7);
            assert_eq!(done.join().unwrap(), 7);
            // The canceller itself is unwound as well, by its next wait.
            token.attach(&sinew::current());
            let caught = catch_unwind(AssertUnwindSafe(|| {
                token.cancel();
                sinew::yield_now();
            }));
            assert!(is_cancel(&*caught.unwrap_err()));
            sinew::masked(|| {
                for fiber in fibers {
                    assert!(is_cancel(&*fiber.join().unwrap_err()));
                }
                // A fiber that is spawned too late is cancelled at once.
                assert!(is_cancel(&*token.spawn(sinew::park).join().unwrap_err()));
            });
        });
    }
    // A plain thread is not cancelled.
    let token = CancellationToken::new();
    token.attach(&sinew::current());
    token.cancel();
    sinew::yield_now();
}

#[test]
fn work_runs_until_the_token_is_cancelled() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let token = runtime.run(|| {
        let token = CancellationToken::new();
        let text = String::from("borrowed");
        assert_eq!(token.run(|| text.len()), Some(8));
        let caught = catch_unwind(AssertUnwindSafe(|| token.run(|| panic!("no luck"))));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"no luck"));
        let (started, begun) = channel::bounded::<()>(1);
        sinew::scope(|s| {
            s.spawn(|| {
                begun.recv().unwrap();
                token.cancel();
            });
            let result = token.run(|| {
                started.send(()).unwrap();
                sinew::park();
            });
            assert_eq!(result, None);
        });
        assert_eq!(token.run(sinew::park), None);
        token
    });
    // From a thread as well.
    assert_eq!(token.run(sinew::park), None);
}

#[test]
fn a_guard_cancels() {
    let token = CancellationToken::new();
    token.drop_guard().disarm();
    assert!(!token.is_cancelled());
    let theirs = token.clone();
    let caught = catch_unwind(AssertUnwindSafe(move || {
        let _guard = theirs.drop_guard();
        panic!("on the way");
    }));
    assert!(caught.is_err() && token.is_cancelled());
}

/// Two threads cancel at the same time. Each continues when all children are cancelled.
#[test]
fn cancelling_twice_at_once() {
    let _watch = watch::a_minute();
    for round in 0..2000 {
        let root = CancellationToken::new();
        let middle = root.child();
        let leaves: Vec<_> = (0..20).map(|_| middle.child()).collect();
        std::thread::scope(|s| {
            s.spawn(|| {
                middle.cancel();
                assert!(leaves.iter().all(CancellationToken::is_cancelled));
            });
            for _ in 0..round % 300 {
                std::hint::spin_loop();
            }
            root.cancel();
            assert!(leaves.iter().all(CancellationToken::is_cancelled));
        });
    }
}
