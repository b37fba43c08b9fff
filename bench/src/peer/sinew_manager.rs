//! sinew's contenders in the suite `manager`: a manager on the thread that measures.

use crate::load::{Progress, Remote, TASKS, counter};
use crate::measure::{Lap, Timed};
use sinew::manager::{FiberManager, Options, SimpleLoopController, run_in_main_context};
use sinew::sync::Baton;
use std::cell::Cell;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

pub(crate) const SETTINGS: &str = "SimpleLoopController, 256 KiB guarded stacks";
pub(crate) const EAGER: &str = "SimpleLoopController, add_task_eager: a task runs at once";

fn manager() -> (FiberManager, SimpleLoopController) {
    let controller = SimpleLoopController::new();
    let manager = FiberManager::new(controller.clone(), Options::new());
    (manager.expect("a manager can be made"), controller)
}

/// Adds `batch` empty tasks from the main context, lets the loop run them, and repeats that.
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

/// The place where a woken fiber finds the baton of the waiting fiber.
struct Relay {
    waits: Cell<*const Baton>,
    passed: Cell<u64>,
}

impl Relay {
    /// Waits on a new baton for the other fiber.
    fn wait(&self) {
        let mine = Baton::new();
        self.waits.set(&mine);
        mine.wait();
    }

    /// Wakes the waiting fiber, and waits for it in turn.
    fn pass(&self) {
        let mine = Baton::new();
        self.wake(self.waits.replace(&mine));
        mine.wait();
    }

    fn wake(&self, other: *const Baton) {
        self.passed.set(self.passed.get() + 1);
        // SAFETY: the baton is on the stack of a fiber that waits for it and continues only after
        // the post.
        unsafe { (*other).post() };
    }
}

/// Lets two fibers wake each other, each with a new baton on its stack for each wait.
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

/// Lets another thread add tasks.
pub(crate) fn remote(outstanding: u64) -> Timed {
    let ((manager, controller), progress) = (manager(), Progress::new());
    Box::new(move |count| {
        let (handle, end) = (manager.remote(), Arc::new(Baton::new()));
        let (theirs, last) = (end.clone(), manager.remote());
        Remote { count, outstanding, progress }.run(
            move || handle.add_task_remote(move || progress.advance()),
            move || last.add_task_remote(move || theirs.post()),
            || {
                // This task keeps the loop running until the last task has come.
                manager.add_task(move || end.wait());
                controller.run();
            },
        )
    })
}

/// Lets a fiber run closures in the main context.
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
