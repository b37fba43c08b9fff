//! sinew's own contenders in the suite `manager`: a manager of the thread that measures.

use crate::load::{Progress, Remote, TASKS, counter};
use crate::measure::{Lap, Timed};
use sinew::manager::{FiberManager, Options, SimpleLoopController, run_in_main_context};
use sinew::sync::Baton;
use std::cell::Cell;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) const SETTINGS: &str = "SimpleLoopController, 256 KiB guarded stacks";
pub(crate) const EAGER: &str = "the same, add_task_eager: it runs before the next is added";

fn manager() -> (FiberManager, SimpleLoopController) {
    let controller = SimpleLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::new());
    (manager.expect("a manager can be made"), controller)
}

/// Adds so many empty tasks from the main context, lets the loop run them, and so on.
fn tasks(batch: u64) -> Timed {
    let ((manager, _), done) = (manager(), counter());
    Box::new(move |count| {
        let batches = count.div_ceil(batch);
        done.set(0);
        let lap = Lap::run(batches * batch, || {
            for _ in 0..batches {
                for _ in 0..batch {
                    manager.add_task(|| done.set(done.get() + 1));
                }
                manager.loop_until_no_ready();
            }
        });
        assert_eq!(done.get(), batches * batch);
        lap
    })
}

pub(crate) fn task() -> Timed {
    tasks(TASKS)
}

pub(crate) fn task_one() -> Timed {
    tasks(1)
}

pub(crate) fn task_eager() -> Timed {
    let ((manager, _), done) = (manager(), counter());
    Box::new(move |count| {
        done.set(0);
        let lap = Lap::run(count, || {
            for _ in 0..count {
                manager.add_task_eager(|| done.set(done.get() + 1));
            }
        });
        assert_eq!(done.get(), count);
        lap
    })
}

/// Where whoever is woken finds the baton of the one who waits.
struct Relay {
    waits: Cell<*const Baton>,
    passed: Cell<u64>,
}

impl Relay {
    /// Waits, with a new baton, for who comes next.
    fn wait(&self) {
        let mine = Baton::new();
        self.waits.set(&mine);
        mine.wait();
    }

    /// Wakes the one who waits, and waits for it in turn.
    fn pass(&self) {
        let mine = Baton::new();
        self.wake(self.waits.replace(&mine));
        mine.wait();
    }

    fn wake(&self, other: *const Baton) {
        self.passed.set(self.passed.get() + 1);
        // SAFETY: it is on the stack of a fiber that goes on when it is posted, and not before.
        unsafe { (*other).post() };
    }
}

/// Two fibers wake each other, each with a new baton on its stack.
pub(crate) fn baton() -> Timed {
    let (manager, _) = manager();
    Box::new(move |rounds| {
        let relay = Rc::new(Relay { waits: Cell::new(ptr::null()), passed: Cell::new(0) });
        let (ping, pong) = (relay.clone(), relay.clone());
        let lap = Lap::run(rounds, || {
            manager.add_task(move || {
                pong.wait();
                (1..rounds).for_each(|_| pong.pass());
                pong.wake(pong.waits.get());
            });
            manager.add_task(move || (0..rounds).for_each(|_| ping.pass()));
            manager.loop_until_no_ready();
        });
        assert!(!manager.has_tasks());
        assert_eq!(relay.passed.get(), 2 * rounds);
        lap
    })
}

/// Another thread adds tasks.
pub(crate) fn remote(outstanding: u64) -> Timed {
    let ((manager, controller), progress) = (manager(), Progress::new());
    Box::new(move |count| {
        let (handle, end) = (manager.remote(), Arc::new(Baton::new()));
        let (theirs, last) = (end.clone(), manager.remote());
        Remote { count, outstanding, progress }.run(
            move || handle.add_task_remote(move || progress.advance()),
            move || last.add_task_remote(move || theirs.post()),
            || {
                // While there is a task the loop goes on.
                manager.add_task(move || end.wait());
                controller.run();
            },
        )
    })
}

/// A fiber has the main context do something.
pub(crate) fn main_context() -> Timed {
    let ((manager, _), done) = (manager(), counter());
    Box::new(move |calls| {
        done.set(0);
        let lap = Lap::run(calls, || {
            manager.add_task(move || {
                for _ in 0..calls {
                    run_in_main_context(|| done.set(done.get() + 1));
                }
            });
            manager.loop_until_no_ready();
        });
        assert_eq!(done.get(), calls);
        lap
    })
}
