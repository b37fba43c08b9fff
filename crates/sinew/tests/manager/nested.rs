//! Several managers on one thread, nested in each other and in a runtime.

use crate::kit::{MS, kept, panic_of, simple};
use sinew::manager::{
    self, EventLoop, FiberManager, ManagerHandle, Options, SimpleLoopController, manager_for,
    run_in_main_context,
};
use sinew::sync::{Baton, channel};
use sinew::{Runtime, RuntimeHandle};
use sinew_testkit::watch;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Adds a task to the current manager and says whether that is this one.
fn is_current(manager: &ManagerHandle) -> bool {
    let before = manager.active_tasks();
    let Some(current) = ManagerHandle::current() else { return false };
    current.add_task(|| ());
    manager.active_tasks() == before + 1
}

#[test]
fn a_loop_runs_on_the_main_context_of_another() {
    let _watch = watch::a_minute();
    let (outer, outer_controller) = simple();
    let (inner, inner_controller) = simple();
    let handles = (ManagerHandle::clone(&outer), ManagerHandle::clone(&inner));
    let ran = outer.add_task_future(move || {
        let (outer, inner) = handles;
        assert!(is_current(&outer));
        let nested = run_in_main_context(|| {
            let inner_again = inner.clone();
            let future = inner.add_task_future(move || is_current(&inner_again));
            inner_controller.run();
            assert!(is_current(&outer));
            future.get().unwrap()
        });
        nested && is_current(&outer)
    });
    outer_controller.run();
    assert!(ran.get().unwrap());
    assert!(ManagerHandle::current().is_none());
}

#[test]
fn event_loops_run_inside_of_each_other() {
    let _watch = watch::a_minute();
    let outer = EventLoop::new().unwrap();
    let inner = EventLoop::new().unwrap();
    let done = kept(Cell::new(false));
    let (outer_manager, inner_manager) = (manager_for(&outer), manager_for(&inner));
    let outer_handle = outer_manager.clone();
    outer_manager.add_task(move || {
        run_in_main_context(|| {
            let handle = inner_manager.clone();
            inner_manager.add_task(move || {
                sinew::sleep(MS);
                assert!(is_current(&handle));
                done.set(true);
            });
            inner.run();
        });
        assert!(done.get() && is_current(&outer_handle));
    });
    outer.run();
    assert!(done.get());
}

#[test]
fn fibers_of_one_thread_wait_for_each_other_across_managers() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let first = manager_for(&events);
    let second = manager::manager_for_with(&events, Options::default().stack_size(128 * 1024));
    let handle = second.clone();
    let (to, from) = channel::bounded(0);
    let sum = first.add_task_future(move || {
        let other = handle
            .add_task_future(move || from.iter().inspect(|_| sinew::yield_now()).sum::<u32>());
        (0..50).for_each(|n| to.send(n).unwrap());
        drop(to);
        other.get().unwrap()
    });
    events.run();
    assert_eq!(sum.get().unwrap(), 1225);
}

#[test]
fn an_inner_loop_does_not_run_the_outer_fibers() {
    let _watch = watch::a_minute();
    let (outer, outer_controller) = simple();
    let (inner, inner_controller) = simple();
    let outer_ran = kept(Cell::new(false));
    let inner_handle = ManagerHandle::clone(&inner);
    outer.add_task(move || {
        manager::add_task(|| outer_ran.set(true));
        run_in_main_context(|| {
            inner_handle.add_task(|| {
                sinew::yield_now();
                assert!(!outer_ran.get());
            });
            inner_controller.run();
        });
        assert!(!outer_ran.get());
    });
    outer_controller.run();
    assert!(outer_ran.get() && !inner.has_tasks());
}

/// A loop that runs in a fiber, not on its main context, suspends only that fiber's own code. The
/// inner manager's fibers run above it.
#[test]
fn a_loop_runs_in_a_fiber_of_another_manager() {
    let _watch = watch::a_minute();
    let (outer, outer_controller) = simple();
    let result = outer.add_task_future(|| {
        let (inner, inner_controller) = simple();
        let future = inner.add_task_future(|| {
            sinew::sleep(MS);
            7
        });
        inner_controller.run();
        future.get().unwrap()
    });
    outer_controller.run();
    assert_eq!(result.get().unwrap(), 7);
}

#[test]
fn a_manager_lives_inside_a_fiber_of_a_runtime() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let neighbour = runtime.spawn(|| {
        for _ in 0..20 {
            sinew::yield_now();
        }
        8
    });
    let result = runtime.run(|| {
        let me = sinew::current();
        let (manager, controller) = simple();
        let future = manager.add_task_future(|| {
            sinew::sleep(MS);
            let baton = Rc::new(Baton::new());
            let posts = baton.clone();
            manager::add_task(move || posts.post());
            baton.wait();
            7
        });
        controller.run();
        assert_eq!(sinew::current(), me);
        assert!(ManagerHandle::current().is_none());
        assert!(RuntimeHandle::try_current().is_some(), "the runtime is back");
        future.get().unwrap()
    });
    assert_eq!(result, 7);
    assert_eq!(neighbour.join().unwrap(), 8);
}

#[test]
fn a_managers_fibers_wake_the_runtime_around_it() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let sum = runtime.run(|| {
        let (to_inside, inside) = channel::bounded::<u32>(1);
        let (to_outside, outside) = channel::bounded::<u32>(1);
        let echo = sinew::spawn(move || {
            for n in inside.iter() {
                to_outside.send(n + 1).unwrap();
            }
        });
        // On a separate thread, because the loop blocks the thread that runs it.
        let sum = sinew::blocking(move || {
            let (manager, controller) = simple();
            let future = manager.add_task_future(move || {
                (0..50)
                    .map(|n| {
                        to_inside.send(n).unwrap();
                        outside.recv().unwrap()
                    })
                    .sum::<u32>()
            });
            controller.run();
            future.get().unwrap()
        });
        echo.join().unwrap();
        sum
    });
    assert_eq!(sum, 1275);
}

#[test]
fn many_managers_on_one_thread_take_turns() {
    let _watch = watch::a_minute();
    let managers: Vec<_> = (0..50).map(|_| simple()).collect();
    let token = kept(Cell::new(0));
    let futures: Vec<_> = managers
        .iter()
        .enumerate()
        .map(|(n, (manager, _))| {
            manager.add_task_future(move || {
                for round in 0..10 {
                    while token.get() != round * 50 + n {
                        sinew::yield_now();
                    }
                    token.set(token.get() + 1);
                }
            })
        })
        .collect();
    while !futures.iter().all(|future| future.is_ready()) {
        managers.iter().for_each(|(manager, _)| manager.loop_until_no_ready());
    }
    assert_eq!(token.get(), 500);
}

#[test]
fn managers_end_in_any_order() {
    let _watch = watch::a_minute();
    for order in 0..2 {
        let (first, _) = simple();
        let (second, _) = simple();
        for manager in [&first, &second] {
            manager.add_task(sinew::park);
            manager.loop_until_no_ready();
        }
        if order == 0 {
            drop(first);
            second.add_task(|| ());
            second.loop_until_no_ready();
            drop(second);
        } else {
            drop(second);
            first.add_task(|| ());
            first.loop_until_no_ready();
            drop(first);
        }
    }
}

/// The first manager's fiber waits for the second manager, on one thread's stack.
#[test]
fn a_manager_that_has_called_another_runs_nothing_eagerly() {
    let _watch = watch::a_minute();
    let (first, controller) = simple();
    let (second, _) = simple();
    let (back, there) = (ManagerHandle::clone(&first), ManagerHandle::clone(&second));
    let refused = first.add_task_future(move || {
        let task = move || {
            let texts = [
                panic_of(|| back.add_task_eager(|| ())),
                panic_of(|| run_in_main_context(|| back.add_task_eager(|| ()))),
                panic_of(|| back.loop_until_no_ready()),
            ];
            back.add_task(|| ());
            texts
        };
        there.add_task_eager_future(task).get().unwrap()
    });
    controller.run();
    let [eager, on_main, a_loop] = refused.get().unwrap();
    for text in [eager, on_main] {
        assert!(text.contains("while another manager runs inside it"), "{text}");
    }
    assert!(a_loop.contains("run inside of itself"), "{a_loop}");
    assert!(!first.has_tasks() && !second.has_tasks());
}

#[test]
fn a_loop_is_not_entered_again_on_its_main_context() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let handle = ManagerHandle::clone(&manager);
    let inside = controller.clone();
    let ran = kept(Cell::new(0));
    let refused = manager.add_task_future(move || {
        handle.add_task(|| ran.set(ran.get() + 1));
        let refused = run_in_main_context(|| {
            handle.add_task_eager(|| ran.set(ran.get() + 10));
            [panic_of(|| handle.loop_until_no_ready()), panic_of(|| inside.run())]
        });
        assert_eq!(ran.get(), 10);
        refused
    });
    controller.run();
    for text in refused.get().unwrap() {
        assert!(text.contains("run inside of itself, on its main context"), "{text}");
    }
    assert_eq!(ran.get(), 11);
}

#[test]
fn a_manager_is_made_and_dropped_on_the_main_context_of_another() {
    let _watch = watch::a_minute();
    let (outer, controller) = simple();
    let sum = outer.add_task_future(|| {
        (0..5)
            .map(|n| {
                run_in_main_context(|| {
                    let controller = SimpleLoopController::new();
                    let manager =
                        FiberManager::new(controller.clone(), Options::default()).unwrap();
                    let future = manager.add_task_future(move || n);
                    manager.add_task(sinew::park);
                    manager.loop_until_no_ready();
                    future.get().unwrap()
                })
            })
            .sum::<u32>()
    });
    controller.run();
    assert_eq!(sum.get().unwrap(), 10);
}

#[test]
fn threads_have_managers_of_their_own() {
    let _watch = watch::a_minute();
    let threads: Vec<_> = (0..4)
        .map(|n| {
            std::thread::spawn(move || {
                let (manager, controller) = simple();
                let future = manager.add_task_future(move || {
                    sinew::sleep(Duration::from_micros(500));
                    n
                });
                controller.run();
                future.get().unwrap()
            })
        })
        .collect();
    let sum: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(sum, 6);
}
