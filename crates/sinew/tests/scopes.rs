//! Scopes: children that borrow.

use sinew::Runtime;
use sinew_testkit::{Log, watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn children_borrow_on_any_carrier() {
    let _watch = watch::a_minute();
    let check = || {
        let mut data: Vec<u64> = (0..1000).collect();
        let total = AtomicUsize::new(0);
        sinew::scope(|s| {
            for chunk in data.chunks_mut(10) {
                let total = &total;
                s.spawn(move || {
                    for value in chunk {
                        *value += 1;
                        total.fetch_add(1, Ordering::Relaxed);
                    }
                    sinew::yield_now();
                });
            }
        });
        assert_eq!(total.into_inner(), 1000);
        assert_eq!(data.iter().sum::<u64>(), 500_500);
    };
    check();
    Runtime::builder().carriers(3).build().unwrap().run(check);
    Runtime::builder().carriers(1).build().unwrap().run(check);
}

#[test]
fn scopes_nest_and_children_have_children() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let count = AtomicUsize::new(0);
        sinew::scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    s.spawn(|| {
                        sinew::scope(|inner| {
                            inner.spawn(|| count.fetch_add(1, Ordering::Relaxed));
                        });
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!(count.into_inner(), 30);
    });
}

#[test]
fn a_panic_in_the_body_waits_for_the_children() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let count = AtomicUsize::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            sinew::scope(|s| {
                for _ in 0..5 {
                    s.spawn(|| {
                        sinew::sleep(Duration::from_millis(2));
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                }
                panic!("in the body");
            })
        }));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"in the body"));
        assert_eq!(count.into_inner(), 5);
    });
}

#[test]
fn a_panic_of_an_unjoined_child_is_passed_on() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let unseen = catch_unwind(|| {
            sinew::scope(|s| {
                s.spawn(|| panic!("in a child"));
            })
        });
        assert_eq!(unseen.unwrap_err().downcast_ref::<&str>(), Some(&"a scoped fiber panicked"));
        let seen = sinew::scope(|s| s.spawn(|| panic!("in a child")).join().is_err());
        assert!(seen);
    });
}

#[test]
fn cancelling_the_parent_cancels_the_children_first() {
    let _watch = watch::a_minute();
    let log = Log::new();
    sinew::run({
        let log = log.clone();
        move || {
            let parent = sinew::spawn({
                let log = log.clone();
                move || {
                    let _parent = log.on_drop("parent");
                    let borrowed = String::from("borrowed");
                    sinew::scope(|s| {
                        s.spawn(|| {
                            let _child = log.on_drop("child");
                            let _still_there = borrowed.len();
                            sinew::park();
                        });
                        sinew::yield_now();
                    });
                    log.line("not reached");
                }
            });
            sinew::wait_until(|| parent.fiber().waits_for() == Some(sinew::WaitKind::Scope));
            parent.cancel();
            assert!(sinew::is_cancel(&*parent.join().unwrap_err()));
        }
    });
    let lines = log.take();
    assert!(lines == ["child", "parent"] || lines == ["parent"], "{lines:?}");
}

#[test]
fn a_deadline_is_passed_on_to_the_children() {
    let _watch = watch::a_minute();
    let check = || {
        let out = sinew::timeout(Duration::from_millis(5), || {
            sinew::scope(|s| {
                s.spawn(sinew::park);
                s.spawn(|| sinew::sleep(Duration::MAX));
            });
        });
        assert_eq!(out, Err(sinew::Elapsed));
    };
    sinew::run(check);
}

#[test]
fn a_leaked_handle_does_not_keep_the_scope() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let value = 7;
    sinew::scope(|s| {
        let handle = s.spawn(|| (log.on_drop("result"), &value));
        std::mem::forget(handle);
    });
    // A result that cannot be taken is not dropped either.
    assert!(log.take().is_empty());
    sinew::scope(|s| drop(s.spawn(|| (log.on_drop("result"), &value))));
    assert_eq!(log.take(), ["result"]);
}

#[test]
fn results_are_dropped_before_the_scope_returns() {
    let _watch = watch::a_minute();
    struct Uses<'a>(&'a AtomicUsize);
    impl Drop for Uses<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    sinew::run(|| {
        for _ in 0..200 {
            let used = AtomicUsize::new(0);
            sinew::scope(|s| {
                for _ in 0..5 {
                    s.spawn(|| Uses(&used));
                }
            });
            assert_eq!(used.into_inner(), 5);
        }
    });
}

#[test]
fn a_scope_cancels_all_its_children() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        sinew::scope(|s| {
            let fibers: Vec<_> = (0..20).map(|_| s.spawn(sinew::park)).collect();
            s.cancel();
            for fiber in fibers {
                assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
            }
            // Children that are spawned later are cancelled at once.
            assert!(s.spawn(|| 7).join().is_err());
        });
    });
}

#[test]
fn a_child_without_a_stack_is_a_failure() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).max_stacks(1).build().unwrap();
    runtime.run(|| {
        let mut values = [0; 4];
        let scope = catch_unwind(AssertUnwindSafe(|| {
            sinew::scope(|s| {
                for value in &mut values {
                    s.spawn(|| *value = 1);
                }
            });
        }));
        assert!(scope.is_err());
        assert_eq!(values, [0; 4]);
        // The joiner of a child gets its error, and the scope does not raise it again.
        sinew::scope(|s| assert!(s.spawn(|| ()).join().is_err()));
    });
}

#[test]
fn a_child_has_its_own_settings() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static USER: u32 = 0);
    let text = String::from("borrowed");
    let spawn_all = || {
        sinew::scope(|s| {
            let builder =
                sinew::FiberBuilder::new().name("child").stack_size(64 * 1024).local(&USER, 7);
            let child = builder.spawn_scoped(s, || {
                let stack = sinew::stack_remaining().unwrap();
                (text.as_str(), sinew::current().name().map(str::to_owned), USER.get(), stack)
            });
            let (borrowed, name, user, stack) = child.unwrap().join().unwrap();
            assert_eq!((borrowed, name.as_deref(), user), ("borrowed", Some("child"), 7));
            assert!(stack < 64 * 1024, "{stack}");
        });
    };
    spawn_all(); // on a thread
    sinew::scope(|s| s.spawn(spawn_all).join().unwrap()); // in a fiber
}

#[test]
fn invalid_settings_leave_a_scope_without_the_child() {
    let _watch = watch::a_minute();
    let dropped = AtomicUsize::new(0);
    struct OnDrop<'a>(&'a AtomicUsize);
    impl Drop for OnDrop<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    sinew::scope(|s| {
        let held = OnDrop(&dropped);
        let error = sinew::FiberBuilder::new().stack_size(1).spawn_scoped(s, move || drop(held));
        assert!(error.unwrap_err().to_string().contains("a stack of 1 bytes"));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_child_with_settings_is_awaited_cancelled_and_its_panic_passed_on() {
    let _watch = watch::a_minute();
    let ended = AtomicUsize::new(0);
    sinew::scope(|s| {
        let child = sinew::FiberBuilder::new().name("slow").spawn_scoped(s, || {
            sinew::sleep(Duration::from_millis(2));
            ended.fetch_add(1, Ordering::Relaxed)
        });
        drop(child.unwrap());
    });
    assert_eq!(ended.load(Ordering::Relaxed), 1);
    sinew::scope(|s| {
        let child = sinew::FiberBuilder::new().spawn_scoped(s, sinew::park).unwrap();
        s.cancel();
        assert!(sinew::is_cancel(&*child.join().unwrap_err()));
    });
    let heard = catch_unwind(AssertUnwindSafe(|| {
        sinew::scope(|s| {
            drop(sinew::FiberBuilder::new().spawn_scoped(s, || panic!("unseen")).unwrap())
        })
    }));
    assert_eq!(heard.unwrap_err().downcast_ref::<&str>(), Some(&"a scoped fiber panicked"));
    // On another runtime, also one that has ended.
    let runtime = Runtime::builder().carriers(1).name("other").build().unwrap();
    let handle = runtime.handle().clone();
    sinew::scope(|s| {
        let builder = sinew::FiberBuilder::new().runtime(&handle);
        let name =
            builder.spawn_scoped(s, || sinew::RuntimeHandle::current().name().len()).unwrap();
        assert_eq!(name.join().unwrap(), 5);
        drop(runtime);
        let late = sinew::FiberBuilder::new().runtime(&handle).spawn_scoped(s, || ()).unwrap();
        assert!(sinew::is_cancel(&*late.join().unwrap_err()));
    });
}
