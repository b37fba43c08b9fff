//! A closure becomes a fiber, and its result comes back.

use sinew::{FiberBuilder, FiberState, Runtime};
use sinew_testkit::{Log, watch};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

fn one_carrier() -> Runtime {
    Runtime::builder().carriers(1).build().unwrap()
}

#[test]
fn a_result_comes_back_to_fibers_and_threads() {
    let _watch = watch::a_minute();
    assert_eq!(sinew::spawn(|| 7).join().unwrap(), 7);
    assert_eq!(sinew::run(|| sinew::spawn(|| 7).join().unwrap()), 7);
}

#[test]
fn large_and_aligned_closures_and_results_come_back() {
    #[repr(align(128))]
    #[derive(PartialEq, Debug)]
    struct Aligned(u8);
    let _watch = watch::a_minute();
    sinew::run(|| {
        let large = [7_u8; 4000];
        assert_eq!(sinew::spawn(move || large).join().unwrap(), [7; 4000]);
        let aligned = Aligned(3);
        let back = sinew::spawn(move || {
            assert!((&raw const aligned).addr().is_multiple_of(128));
            aligned
        });
        assert_eq!(back.join().unwrap(), Aligned(3));
        sinew::spawn(|| ()).join().unwrap();
    });
}

#[test]
fn a_panic_is_the_err_and_leaves_the_carrier_unharmed() {
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    let payload = runtime.spawn(|| panic!("on purpose")).join().unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(runtime.spawn(|| 7).join().unwrap(), 7);
}

#[test]
fn a_detached_fiber_goes_on_and_drops_its_result() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let theirs = log.clone();
    let gate = Arc::new(Barrier::new(2));
    let opened = gate.clone();
    let runtime = one_carrier();
    let fiber = runtime.spawn(move || {
        opened.wait();
        theirs.on_drop("result")
    });
    drop(fiber);
    gate.wait();
    runtime.shutdown_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(log.take(), ["result"]);
}

#[test]
fn a_result_that_is_not_taken_is_dropped_with_the_handle() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let theirs = log.clone();
    let fiber = sinew::spawn(move || theirs.on_drop("result"));
    fiber.fiber().wait_finished();
    assert!(log.take().is_empty());
    drop(fiber);
    assert_eq!(log.take(), ["result"]);
}

#[test]
fn join_timeout_gives_the_handle_back() {
    let _watch = watch::a_minute();
    let fiber = sinew::spawn(sinew::park);
    let fiber = fiber.join_timeout(Duration::ZERO).unwrap_err();
    let fiber = fiber.join_timeout(Duration::from_millis(2)).unwrap_err();
    assert!(!fiber.is_finished());
    fiber.fiber().unpark();
    assert!(fiber.join_timeout(Duration::MAX).unwrap().is_ok());
    sinew::run(|| {
        let fiber = sinew::spawn(sinew::park);
        let fiber = fiber.join_timeout(Duration::from_millis(2)).unwrap_err();
        fiber.fiber().unpark();
        assert!(fiber.join_timeout(Duration::from_secs(60)).unwrap().is_ok());
    });
}

#[test]
fn joining_oneself_is_an_error() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let (to_fiber, handle) = std::sync::mpsc::channel::<sinew::JoinHandle<()>>();
        let fiber = sinew::spawn(move || {
            let own = sinew::wait_until_received(&handle);
            let joined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| own.join()));
            let message = joined.unwrap_err().downcast::<String>().unwrap();
            assert!(message.contains("cannot wait for its own end"), "{message}");
        });
        let copy = fiber.fiber();
        to_fiber.send(fiber).unwrap();
        copy.wait_finished();
    });
}

/// `sinew` with one function more, to hand a fiber its own handle.
mod sinew {
    pub(super) use ::sinew::*;

    pub(super) fn wait_until_received<T>(from: &std::sync::mpsc::Receiver<T>) -> T {
        let mut received = None;
        wait_until(|| {
            received = from.try_recv().ok();
            received.is_some()
        });
        received.unwrap()
    }
}

#[test]
fn a_builder_names_and_places_a_fiber() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).name("pair").build().unwrap();
    for index in [0, 1, 0, 1] {
        let fiber = FiberBuilder::new()
            .name(format!("on {index}"))
            .carrier(index)
            .runtime(runtime.handle())
            .spawn(|| (sinew::current_carrier(), sinew::current().name().map(str::to_owned)))
            .unwrap();
        assert_eq!(fiber.join().unwrap(), (Some(index), Some(format!("on {index}"))));
    }
}

#[test]
fn a_builder_sets_the_stack_size() {
    let _watch = watch::a_minute();
    if cfg!(sinew_asan) {
        // The sanitizer keeps locals outside of the stack, so the depth of the stack cannot be
        // measured.
        return;
    }
    let deep =
        FiberBuilder::new().stack_size(8 << 20).spawn(|| sinew_testkit::stack::burn(6 << 20));
    deep.unwrap().join().unwrap();
}

#[test]
fn bad_settings_are_named() {
    let error = |builder: FiberBuilder| builder.spawn(|| ()).unwrap_err();
    let small = error(FiberBuilder::new().stack_size(1000));
    assert_eq!(small.kind(), std::io::ErrorKind::InvalidInput);
    let text = small.to_string();
    assert!(text.contains("1000 bytes") && text.contains("at least 16384"), "{text}");
    let odd = error(FiberBuilder::new().stack_size(20_000)).to_string();
    assert!(odd.contains("20000") && odd.contains("use 20480"), "{odd}");
    if !cfg!(any(sinew_asan, sinew_tsan)) {
        // Without a sanitizer, the smallest stack has room for a panic.
        let smallest = FiberBuilder::new().stack_size(16_384).spawn(|| panic!("on purpose"));
        assert!(smallest.unwrap().join().is_err());
    }
    let none = Runtime::builder().max_stacks(0).build().unwrap_err().to_string();
    assert!(none.contains("max_stacks(0)"), "{none}");
    let huge = error(FiberBuilder::new().stack_size(usize::MAX)).to_string();
    assert!(huge.contains("above the maximum"), "{huge}");
    let nowhere = error(FiberBuilder::new().carrier(5000)).to_string();
    assert!(nowhere.contains("carrier 5000 does not exist"), "{nowhere}");
    let none = Runtime::builder().carriers(0).build().unwrap_err().to_string();
    assert!(none.contains("at least 1 carrier"), "{none}");
    let many = Runtime::builder().carriers(1 << 20).build().unwrap_err().to_string();
    assert!(many.contains("1048576"), "{many}");
    let stack = Runtime::builder().stack_size(100).build().unwrap_err().to_string();
    assert!(stack.contains("100"), "{stack}");
}

#[test]
fn a_built_fiber_waits_to_be_submitted() {
    let _watch = watch::a_minute();
    let ran = Arc::new(AtomicBool::new(false));
    let theirs = ran.clone();
    let fiber = FiberBuilder::new().build(move || theirs.store(true, Ordering::Relaxed)).unwrap();
    let handle = fiber.fiber();
    assert_eq!(handle.state(), FiberState::Created);
    assert!(!handle.wait_finished_timeout(Duration::from_millis(5)));
    assert!(!ran.load(Ordering::Relaxed));
    fiber.submit().join().unwrap();
    assert!(ran.load(Ordering::Relaxed));
    assert_eq!(handle.state(), FiberState::Dead);
}

#[test]
fn a_built_fiber_that_is_dropped_drops_its_closure() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let captured = log.on_drop("closure");
    let fiber = FiberBuilder::new().build(move || drop(captured)).unwrap();
    let handle = fiber.fiber();
    drop(fiber);
    assert_eq!(log.take(), ["closure"]);
    assert!(!handle.is_alive());
    handle.wait_finished();
}

#[test]
fn a_local_fiber_shares_values_that_are_not_send() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    runtime.run(|| {
        let shared = Rc::new(Cell::new(0));
        let fibers: Vec<_> = (0..100)
            .map(|_| {
                let shared = shared.clone();
                sinew::spawn_local(move || {
                    for _ in 0..10 {
                        shared.set(shared.get() + 1);
                        sinew::yield_now();
                    }
                    shared
                })
            })
            .collect();
        for fiber in fibers {
            drop(fiber.join().unwrap());
        }
        assert_eq!(shared.get(), 1000);
        assert_eq!(Rc::strong_count(&shared), 1);
    });
}

#[test]
fn a_local_fiber_needs_a_carrier() {
    let _watch = watch::a_minute();
    let outside = std::panic::catch_unwind(|| sinew::spawn_local(|| ()));
    assert!(outside.unwrap_err().downcast::<String>().unwrap().contains("plain thread"));
    // SAFETY: the closure keeps nothing across a wait.
    let builder = unsafe { FiberBuilder::new().migratable() };
    let inside = builder.spawn(|| drop(sinew::spawn_local(|| ()))).unwrap();
    let payload = inside.join().unwrap_err();
    assert!(payload.downcast::<String>().unwrap().contains("migratable"));
}

#[test]
fn a_local_fiber_has_its_own_settings() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static USER: u32 = 0);
    let runtime = Runtime::builder().carriers(2).name("two").build().unwrap();
    runtime.run(|| {
        let carrier = sinew::current_carrier();
        let shared = Rc::new(Cell::new(0));
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let fibers: Vec<_> = (0..10_u32)
            .map(|n| {
                let (shared, order) = (shared.clone(), order.clone());
                let builder = FiberBuilder::new().name(format!("local {n}")).local(&USER, n);
                let builder = builder.stack_size(64 * 1024);
                builder.spawn_local(move || {
                    order.borrow_mut().push(n);
                    assert_eq!(sinew::current_carrier(), carrier);
                    assert_eq!(sinew::current().name(), Some(&*format!("local {n}")));
                    assert_eq!(USER.get(), n);
                    assert!(sinew::stack_remaining().unwrap() < 64 * 1024);
                    shared.set(shared.get() + 1);
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.unwrap().join().unwrap());
        assert_eq!(shared.get(), 10);
        assert_eq!(*order.borrow(), (0..10).collect::<Vec<_>>());
    });
    // The local fiber counts like any other, so the runtime knows when it is empty.
    runtime.handle().wait_empty();
}

#[test]
fn a_local_fiber_cannot_be_on_another_carrier() {
    let _watch = watch::a_minute();
    let other = Runtime::builder().carriers(1).name("other").build().unwrap();
    let runtime = Runtime::builder().carriers(2).name("two").build().unwrap();
    let elsewhere = FiberBuilder::new().runtime(other.handle());
    let here = FiberBuilder::new().runtime(runtime.handle());
    runtime.run(move || {
        let refused = |builder: FiberBuilder| builder.spawn_local(|| ()).unwrap_err().to_string();
        let carrier = sinew::current_carrier().unwrap();
        assert!(refused(elsewhere).contains("runtime \"two\", not to \"other\""));
        assert!(refused(FiberBuilder::new().carrier(1 - carrier)).contains("not on carrier"));
        // SAFETY: the fiber never runs.
        assert!(refused(unsafe { FiberBuilder::new().migratable() }).contains("migratable"));
        assert!(refused(FiberBuilder::new().stack_size(1)).contains("a stack of 1 bytes"));
        let fiber = here.carrier(carrier).spawn_local(sinew::current_carrier).unwrap();
        assert_eq!(fiber.join().unwrap(), Some(carrier));
    });
}

#[test]
fn a_migratable_fiber_cannot_be_kept_on_a_carrier() {
    // SAFETY: the fiber never runs.
    let builder = unsafe { FiberBuilder::new().migratable() };
    let error = builder.carrier(0).spawn(|| ()).unwrap_err();
    assert!(error.to_string().contains("cannot be kept on one carrier"), "{error}");
}

#[test]
fn spawn_in_a_fiber_stays_in_its_runtime() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).name("mine").build().unwrap();
    let name = runtime
        .run(|| sinew::spawn(|| sinew::RuntimeHandle::current().name().to_owned()).join().unwrap());
    assert_eq!(name, "mine");
    assert!(sinew::RuntimeHandle::try_current().is_none());
}

#[test]
fn a_handle_is_a_future() {
    let _watch = watch::a_minute();
    let fiber = sinew::spawn(|| {
        sinew::sleep(Duration::from_millis(2));
        7
    });
    assert_eq!(sinew::block_on(fiber).unwrap(), 7);
    sinew::run(|| {
        let (gate, open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (theirs, count) = (gate.clone(), open.clone());
        let fiber = sinew::spawn(move || {
            sinew::wait_until(|| theirs.load(Ordering::Acquire));
            count.fetch_add(1, Ordering::Relaxed);
        });
        let opener = sinew::spawn(move || gate.store(true, Ordering::Release));
        sinew::block_on(async {
            fiber.await.unwrap();
            opener.await.unwrap();
        });
        assert_eq!(open.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_future_that_was_polled_may_be_joined_or_dropped() {
    let _watch = watch::a_minute();
    let log = Log::new();
    for join in [true, false] {
        let theirs = log.clone();
        let mut fiber = sinew::spawn(move || {
            sinew::park();
            theirs.on_drop("result")
        });
        let polled = sinew::block_on(std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut fiber).poll(context).is_pending())
        }));
        assert!(polled);
        fiber.fiber().unpark();
        let handle = fiber.fiber();
        if join {
            drop(fiber.join().unwrap());
        } else {
            drop(fiber);
        }
        handle.wait_finished();
    }
    assert_eq!(log.take(), ["result", "result"]);
}

use std::future::Future;

#[test]
fn a_group_gives_results_in_the_order_of_submission() {
    let _watch = watch::a_minute();
    let group = sinew::Group::new();
    for n in (0..20_u64).rev() {
        group.submit(move || {
            sinew::sleep(Duration::from_micros(n * 100));
            assert!(n != 13, "unlucky");
            n
        });
    }
    assert_eq!(group.len(), 20);
    let results = group.finish();
    for (index, result) in results.into_iter().enumerate() {
        let n = 19 - index as u64;
        assert_eq!(result.ok(), (n != 13).then_some(n));
    }
    let group = sinew::Group::new();
    assert!(group.is_done() && group.is_empty());
    group.submit(sinew::park);
    assert!(!group.is_done());
    group.cancel();
    assert!(sinew::is_cancel(&**group.finish()[0].as_ref().unwrap_err()));
}

#[test]
fn states_follow_a_fiber() {
    let _watch = watch::a_minute();
    let runtime = one_carrier();
    runtime.run(|| {
        let fiber = sinew::spawn(|| {
            assert_eq!(sinew::current().state(), FiberState::Running);
            sinew::park();
        });
        let handle = fiber.fiber();
        assert_eq!(handle.state(), FiberState::Runnable);
        assert_eq!(handle.waits_for(), None);
        while handle.state() != FiberState::Suspended {
            sinew::yield_now();
        }
        assert_eq!(handle.waits_for(), Some(sinew::WaitKind::Park));
        assert!(handle.is_alive());
        handle.unpark();
        assert_eq!(handle.state(), FiberState::Runnable);
        fiber.join().unwrap();
        assert_eq!(handle.state(), FiberState::Dead);
        assert!(!handle.is_alive());
    });
}

#[test]
fn ids_are_never_used_twice() {
    let _watch = watch::a_minute();
    let ids = sinew::run(|| {
        let mut ids: Vec<u64> = (0..5000)
            .map(|_| sinew::spawn(|| sinew::current().id().as_u64()).join().unwrap())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    });
    assert_eq!(ids, 5000);
}

#[test]
fn many_fibers_wait_for_the_end_of_one() {
    let _watch = watch::a_minute();
    sinew::run(|| {
        let fiber = sinew::spawn(sinew::park);
        let waiters: Vec<_> = (0..50)
            .map(|n| {
                let handle = fiber.fiber();
                sinew::spawn(move || match n % 2 {
                    0 => assert!(handle.wait_finished_timeout(Duration::from_secs(60))),
                    _ => handle.wait_finished(),
                })
            })
            .collect();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let handle = fiber.fiber();
                std::thread::spawn(move || handle.wait_finished())
            })
            .collect();
        for waiter in &waiters {
            sinew::wait_until(|| waiter.fiber().state() == FiberState::Suspended);
        }
        fiber.fiber().unpark();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
