//! Fiber-locals of tasks: separate, inherited, and dropped in time. Also context slots, which carry
//! the state of other libraries.

use crate::kit::{kept, simple};
use sinew::ContextSlot;
use sinew::manager::{self, ManagerHandle};
use sinew::sync::Baton;
use sinew_testkit::{Log, Noisy, watch};
use std::cell::{Cell, RefCell};
use std::sync::OnceLock;

/// The tests of an inherited local of one type.
macro_rules! inherited_tests {
    ($name:ident, $type:ty, $value:expr, $number:expr) => {
        #[test]
        fn $name() {
            let _watch = watch::a_minute();
            sinew::fiber_local!(inherit static DATA: $type = $value(42));
            fn number() -> u32 {
                DATA.with($number)
            }
            let (manager, controller) = simple();
            let checks = kept(Cell::new(0));
            let check = move |expected: u32| {
                assert_eq!(number(), expected);
                checks.set(checks.get() + 1);
            };
            // From task to task.
            manager.add_task(move || {
                check(42);
                DATA.set($value(43), || {
                    manager::add_task(move || {
                        check(43);
                        DATA.set($value(44), || manager::add_task(move || check(44)));
                        check(43);
                    });
                });
                check(42);
            });
            // To tasks of every kind.
            let remote = manager.remote();
            manager.add_task(move || {
                check(42);
                DATA.set($value(43), || {
                    remote.add_task_remote(|| assert_eq!(number(), 43));
                    manager::add_task_eager(move || check(43));
                    let handle = ManagerHandle::current().unwrap();
                    assert_eq!(handle.add_task_future(number).get().unwrap(), 43);
                    assert_eq!(handle.add_task_eager_future(number).get().unwrap(), 43);
                    handle.add_task_finally(number, |seen| assert_eq!(seen.unwrap(), 43));
                    assert_eq!(sinew::spawn(number).join().unwrap(), 43);
                    assert_eq!(sinew::spawn_local(number).join().unwrap(), 43);
                });
            });
            // A child's changes stay with the child.
            manager.add_task(move || {
                DATA.set($value(43), || {
                    let child = sinew::spawn_local(|| DATA.set($value(44), number));
                    assert_eq!(child.join().unwrap(), 44);
                    check(43);
                });
            });
            controller.run();
            assert_eq!(checks.get(), 8);
            assert!(!manager.has_tasks());
            assert_eq!(number(), 42);
        }
    };
}

inherited_tests!(tasks_inherit_small_values, u32, |n| n, |n: &u32| *n);

#[derive(Clone)]
struct Large(Box<[u8]>, u32);

inherited_tests!(
    tasks_inherit_large_values,
    Large,
    |n| Large(vec![0; 1 << 20].into(), n),
    |large: &Large| large.1 + u32::from(large.0[7])
);

#[test]
fn tasks_inherit_from_the_thread_that_adds_them() {
    let _watch = watch::a_minute();
    sinew::fiber_local! {
        inherit static REQUEST: u32 = 0;
        static OTHER: u32 = 0;
    }
    let (manager, controller) = simple();
    let seen = || (REQUEST.get(), OTHER.get());
    let local = REQUEST.set(1, || OTHER.set(1, || manager.add_task_future(seen)));
    let eager = REQUEST.set(2, || manager.add_task_eager_future(seen));
    let remote = manager.remote();
    let afar = std::thread::spawn(move || {
        REQUEST.set(3, || OTHER.set(3, || remote.add_task_remote_future(seen)))
    });
    let afar = afar.join().unwrap();
    let of_runtime = {
        let remote = manager.remote();
        sinew::run(move || REQUEST.set(4, || remote.add_task_remote_future(seen)))
    };
    // The thread on which the loop runs does not matter.
    REQUEST.set(9, || controller.run());
    assert_eq!(local.get().unwrap(), (1, 0));
    assert_eq!(eager.get().unwrap(), (2, 0));
    assert_eq!(afar.get().unwrap(), (3, 0));
    assert_eq!(of_runtime.get().unwrap(), (4, 0));
}

#[test]
fn a_value_stays_with_its_task_across_waits() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static NUMBER: Cell<u32> = Cell::new(0));
    let (manager, controller) = simple();
    let baton = kept(Baton::new());
    let ended = kept(Cell::new(0));
    for n in 1..=10 {
        manager.add_task(move || {
            NUMBER.with(|number| number.set(n));
            sinew::yield_now();
            assert_eq!(NUMBER.with(Cell::get), n);
            if n == 1 {
                baton.wait();
            }
            // The value also holds on the main context, where it is changed as well.
            manager::run_in_main_context(|| assert_eq!(NUMBER.with(|number| number.replace(n)), n));
            assert_eq!(NUMBER.with(Cell::get), n);
            ended.set(ended.get() + 1);
        });
    }
    manager.loop_until_no_ready();
    manager.loop_until_no_ready();
    baton.post();
    controller.run();
    assert_eq!(ended.get(), 10);
    assert_eq!(NUMBER.with(Cell::get), 0);
}

static LOG: OnceLock<Log> = OnceLock::new();

fn noisy() -> Noisy {
    LOG.get_or_init(Log::new).on_drop("local")
}

#[test]
fn values_are_dropped_when_the_task_ends() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(static NOISY: Noisy = noisy());
    let log = LOG.get_or_init(Log::new);
    let (manager, controller) = simple();
    let baton = kept(Baton::new());
    manager.add_task_finally(
        || {
            NOISY.with(|_| ());
            baton.wait();
            log.line("end");
        },
        |_| log.line("finally"),
    );
    manager.loop_until_no_ready();
    assert!(log.take().is_empty());
    baton.post();
    controller.run();
    let lines = log.take();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0], "end");
    assert!(lines.contains(&"local".to_owned()), "{lines:?}");
    // The next task on the same stack begins without the value.
    manager.add_task(|| log.line("next"));
    controller.run();
    assert_eq!(log.take(), ["next"]);
}

#[test]
fn destructors_of_locals_may_add_tasks_which_begin_with_new_locals() {
    let _watch = watch::a_minute();
    thread_local!(static RUNS: Cell<u32> = const { Cell::new(0) });
    struct Crazy(u32);
    impl Drop for Crazy {
        fn drop(&mut self) {
            if self.0 == 41 {
                manager::add_task(|| {
                    // The value is made anew.
                    CRAZY.with(|crazy| assert_eq!(crazy.borrow().0, 42));
                    RUNS.set(RUNS.get() + 1);
                });
            }
        }
    }
    sinew::fiber_local!(static CRAZY: RefCell<Crazy> = RefCell::new(Crazy(42)));
    let (manager, _) = simple();
    manager.add_task(|| CRAZY.with(|crazy| crazy.borrow_mut().0 = 41));
    manager.loop_until_no_ready();
    assert_eq!(RUNS.get(), 1);
    assert!(!manager.has_tasks());
}

/// A context that tasks inherit, like the context of a request. It is kept across waits and on the
/// main context, and not mixed up with the context of the thread that runs the loop.
#[test]
fn a_context_follows_its_task() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(inherit static CONTEXT: u32 = 0);
    let (manager, _) = simple();
    let batons: &[Baton; 4] = kept(std::array::from_fn(|_| Baton::new()));
    let ended = kept(Cell::new(0));
    let end = move || ended.set(ended.get() + 1);
    CONTEXT.set(1, || {
        manager.add_task(move || {
            assert_eq!(CONTEXT.get(), 1);
            batons[0].wait_with(|| assert_eq!(CONTEXT.get(), 1));
            assert_eq!(CONTEXT.get(), 1);
            manager::run_in_main_context(|| assert_eq!(CONTEXT.get(), 1));
            end();
        });
    });
    let remote_ended = kept(std::sync::atomic::AtomicBool::new(false));
    CONTEXT.set(2, || {
        manager.remote().add_task_remote(|| {
            assert_eq!(CONTEXT.get(), 2);
            batons[1].wait();
            assert_eq!(CONTEXT.get(), 2);
            remote_ended.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
    CONTEXT.set(3, || {
        manager.add_task_finally(
            || {
                assert_eq!(CONTEXT.get(), 3);
                batons[2].wait();
                CONTEXT.get()
            },
            move |seen| {
                assert_eq!(seen.unwrap(), 3);
                end();
            },
        );
    });
    CONTEXT.set(4, || {
        manager.add_task(move || {
            CONTEXT.set(5, || {
                batons[3].wait();
                assert_eq!(CONTEXT.get(), 5);
            });
            assert_eq!(CONTEXT.get(), 4);
            end();
        });
    });
    CONTEXT.set(9, || {
        manager.loop_until_no_ready();
        for baton in batons {
            assert_eq!(CONTEXT.get(), 9);
            baton.post();
            manager.loop_until_no_ready();
        }
        assert_eq!(CONTEXT.get(), 9);
    });
    assert_eq!(ended.get(), 3);
    assert!(remote_ended.load(std::sync::atomic::Ordering::Relaxed) && !manager.has_tasks());
}

thread_local!(static STATE: Cell<u32> = const { Cell::new(0) });

static SLOT: ContextSlot<u32> = ContextSlot::new(|value| *value = STATE.replace(*value));

#[inline(never)]
fn state() -> u32 {
    STATE.get()
}

/// FiberState that other code keeps in a thread-local follows its task through every kind of wait.
/// The thread sees its own state before, between and after.
#[test]
fn the_state_of_other_code_follows_its_task() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let batons: &[Baton; 4] = kept(std::array::from_fn(|_| Baton::new()));
    let ended = kept(Cell::new(0));
    let end = move || ended.set(ended.get() + 1);
    STATE.set(99);
    manager.add_task(move || {
        SLOT.enter(1, || {
            batons[0].wait_with(|| ());
            assert_eq!(state(), 1);
            sinew::yield_now();
            assert_eq!(state(), 1);
        });
        end();
    });
    let remote = manager.remote();
    remote.add_task_remote(|| {
        SLOT.enter(2, || {
            batons[1].wait();
            assert_eq!(state(), 2);
        });
    });
    manager.add_task_finally(
        || {
            SLOT.enter(3, || {
                batons[2].wait();
                state()
            })
        },
        move |result| {
            assert_eq!(result.unwrap(), (3, 3));
            assert_eq!(state(), 99);
            end();
        },
    );
    manager.add_task_eager(move || {
        SLOT.enter(4, || {
            SLOT.enter(5, || {
                batons[3].wait();
                assert_eq!(state(), 5);
            });
            assert_eq!(state(), 4);
        });
        end();
    });
    assert_eq!(state(), 99);
    manager.loop_until_no_ready();
    for baton in batons {
        assert_eq!(state(), 99);
        baton.post();
        manager.loop_until_no_ready();
    }
    manager.loop_until_no_ready();
    assert_eq!((state(), ended.get()), (99, 3));
    assert!(!manager.has_tasks());
    STATE.set(0);
}

#[test]
fn a_value_is_made_by_a_function_that_waits() {
    let _watch = watch::a_minute();
    fn slowly() -> u32 {
        sinew::sleep(crate::kit::MS);
        sinew::spawn(|| 7).join().unwrap()
    }
    sinew::fiber_local!(static SLOW: u32 = slowly());
    let (manager, controller) = simple();
    let futures: Vec<_> = (0..10).map(|_| manager.add_task_future(|| SLOW.get())).collect();
    controller.run();
    assert!(futures.into_iter().all(|future| future.get().unwrap() == 7));
}

#[test]
fn a_fiber_spawned_on_the_main_context_inherits_from_the_task() {
    let _watch = watch::a_minute();
    sinew::fiber_local!(inherit static NAME: u32 = 0);
    let (manager, controller) = simple();
    let inherited = manager.add_task_future(|| {
        NAME.set(7, || manager::run_in_main_context(|| (NAME.get(), sinew::spawn(|| NAME.get()))))
    });
    controller.run();
    let (on_root, child) = inherited.get().unwrap();
    assert_eq!((on_root, child.join().unwrap()), (7, 7));
}
