//! Fiber-locals: values that each fiber has for itself.

use sinew::{FiberBuilder, Runtime};
use sinew_testkit::{Log, Noisy, watch};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::OnceLock;

#[test]
fn each_fiber_and_each_thread_has_its_own() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static COUNT: Cell<usize> = Cell::new(10));
    COUNT.with(|count| count.set(1));
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    runtime.run(|| {
        let fibers: Vec<_> = (0..100)
            .map(|n| {
                sinew::spawn(move || {
                    COUNT.with(|count| {
                        assert_eq!(count.get(), 10);
                        for _ in 0..n {
                            count.set(count.get() + 1);
                            sinew::yield_now();
                        }
                        assert_eq!(count.get(), 10 + n);
                    });
                })
            })
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
    });
    assert_eq!(COUNT.with(Cell::get), 1);
    std::thread::spawn(|| assert_eq!(COUNT.with(Cell::get), 10)).join().unwrap();
}

#[test]
fn values_need_not_be_send() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static SHARED: Rc<RefCell<Vec<u32>>> = Rc::default());
    sinew::run(|| {
        let copy = SHARED.get();
        SHARED.with(|shared| shared.borrow_mut().push(7));
        assert_eq!(*copy.borrow(), [7]);
    });
}

static LOG: OnceLock<Log> = OnceLock::new();

fn noisy() -> Noisy {
    LOG.get_or_init(Log::new).on_drop("dropped")
}

#[test]
fn values_are_dropped_when_the_fiber_or_thread_ends() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static NOISY: Noisy = noisy());
    let log = LOG.get_or_init(Log::new);
    let fiber = sinew::spawn(|| NOISY.with(|_| sinew::park()));
    assert!(!fiber.fiber().wait_finished_timeout(std::time::Duration::from_millis(2)));
    assert!(log.take().is_empty());
    fiber.fiber().unpark();
    fiber.join().unwrap();
    assert_eq!(log.take(), ["dropped"]);
    std::thread::spawn(|| NOISY.with(|_| ())).join().unwrap();
    assert_eq!(log.take(), ["dropped"]);
    let panicked = sinew::spawn(|| NOISY.with(|_| panic!("on purpose")));
    assert!(panicked.join().is_err());
    assert_eq!(log.take(), ["dropped"]);
}

#[test]
fn a_binding_is_put_back() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static NAME: String = "default".into());
    let check = || {
        NAME.set("outer".into(), || {
            NAME.with(|outer| {
                // A reference to the outer value stays valid while an inner binding covers it.
                NAME.set("inner".into(), || assert_eq!(NAME.get(), "inner"));
                assert_eq!(outer, "outer");
            });
            let panicked = catch_unwind(|| NAME.set("lost".into(), || panic!("inside")));
            assert!(panicked.is_err());
            assert_eq!(NAME.get(), "outer");
        });
        assert_eq!(NAME.get(), "default");
        NAME.set("again".into(), || assert_eq!(NAME.get(), "again"));
    };
    check();
    sinew::run(check);
}

#[test]
fn a_binding_is_put_back_when_the_fiber_is_cancelled() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static NAME: String = "default".into());
    sinew::run(|| {
        let fiber = sinew::spawn(|| {
            let caught = catch_unwind(|| NAME.set("bound".into(), sinew::park));
            assert!(caught.is_err());
            assert_eq!(NAME.get(), "default");
        });
        sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
        fiber.cancel();
        fiber.join().unwrap();
    });
}

#[test]
fn a_builder_gives_initial_values() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static NAME: String = "default".into());
    sinew::fiber_local!(static SIZE: u32 = 1);
    let fiber = FiberBuilder::new()
        .local(&NAME, "first".into())
        .local(&SIZE, 2)
        .local(&NAME, "second".into())
        .spawn(|| (NAME.get(), SIZE.get()))
        .unwrap();
    assert_eq!(fiber.join().unwrap(), ("second".into(), 2));
    // An initial value is dropped with a fiber that never runs.
    sinew::fiber_local!(static NOISY: Option<Noisy> = None);
    let log = Log::new();
    drop(FiberBuilder::new().local(&NOISY, Some(log.on_drop("dropped"))).build(|| ()).unwrap());
    assert_eq!(log.take(), ["dropped"]);
    drop(FiberBuilder::new().local(&NOISY, Some(log.on_drop("dropped"))));
    assert_eq!(log.take(), ["dropped"]);
}

#[test]
fn children_inherit_locals_marked_inherit() {
    let _watch = watch::a_minute();
    sinew::fiber_local! {
        inherit static REQUEST: u64 = 0;
        static OTHER: u64 = 0;
    }
    let check = || {
        REQUEST.set(7, || {
            OTHER.set(7, || {
                let child = sinew::spawn(|| {
                    // A grandchild inherits the values that its parent inherited.
                    let grandchild = sinew::spawn(|| REQUEST.get());
                    (REQUEST.get(), OTHER.get(), grandchild.join().unwrap())
                });
                assert_eq!(child.join().unwrap(), (7, 0, 7));
                let named = FiberBuilder::new().local(&REQUEST, 9).spawn(|| REQUEST.get()).unwrap();
                assert_eq!(named.join().unwrap(), 9);
                let scoped = sinew::scope(|s| s.spawn(|| REQUEST.get()).join().unwrap());
                assert_eq!(scoped, 7);
            });
        });
        assert_eq!(sinew::spawn(|| REQUEST.get()).join().unwrap(), 0);
    };
    check();
    sinew::run(check);
}

#[test]
fn asking_for_a_value_while_it_is_made_is_an_error() {
    let _watch = watch::a_minute();
    fn again() -> u32 {
        LOOP.with(|value| *value)
    }
    sinew::fiber_local!(static LOOP: u32 = again());
    sinew::run(|| {
        let caught = catch_unwind(again).unwrap_err();
        let message = caught.downcast_ref::<&str>().copied().unwrap();
        assert!(message.contains("while it is being made"), "{message}");
        // The next try makes the value anew, and fails again.
        assert!(catch_unwind(again).is_err());
    });
}

#[test]
fn a_value_may_be_made_by_a_function_that_waits() {
    let _watch = watch::a_minute();
    fn slowly() -> u32 {
        sinew::sleep(std::time::Duration::from_millis(1));
        sinew::spawn(|| 7).join().unwrap()
    }
    sinew::fiber_local!(static SLOW: u32 = slowly());
    Runtime::builder().carriers(1).build().unwrap().run(|| {
        let fibers: Vec<_> = (0..10).map(|_| sinew::spawn(|| SLOW.get())).collect();
        assert!(fibers.into_iter().all(|fiber| fiber.join().unwrap() == 7));
    });
}

#[test]
fn destructors_may_use_other_values_and_wait() {
    let _watch = watch::a_minute();
    struct Uses;
    impl Drop for Uses {
        fn drop(&mut self) {
            sinew::yield_now();
            OTHER.with(|other| other.set(other.get() + 1));
        }
    }
    sinew::fiber_local!(static USES: Uses = Uses);
    sinew::fiber_local!(static OTHER: Cell<u32> = Cell::new(0));
    sinew::run(|| {
        for _ in 0..10 {
            sinew::spawn(|| USES.with(|_| ())).join().unwrap();
        }
    });
}

#[test]
fn values_that_are_made_anew_for_ever_are_leaked() {
    let _watch = watch::a_minute();
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            AGAIN.with(|_| ());
        }
    }
    sinew::fiber_local!(static AGAIN: Again = Again);
    sinew::spawn(|| AGAIN.with(|_| ())).join().unwrap();
}

#[test]
fn a_clone_that_panics_spawns_nothing() {
    let _watch = watch::a_minute();
    struct Bad(bool);
    impl Clone for Bad {
        fn clone(&self) -> Self {
            assert!(!self.0, "a bad clone");
            Bad(false)
        }
    }
    sinew::fiber_local!(inherit static BAD: Bad = Bad(false));
    sinew::run(|| {
        BAD.set(Bad(true), || {
            let spawned = catch_unwind(AssertUnwindSafe(|| sinew::spawn(|| ())));
            assert!(spawned.is_err());
        });
        assert_eq!(sinew::spawn(|| 7).join().unwrap(), 7);
    });
}
