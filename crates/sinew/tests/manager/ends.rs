//! Handles and loops that remain after a manager or its loop has ended.

use crate::kit::MS;
use sinew::FiberId;
use sinew::manager::{
    EventLoop, FiberManager, LoopController, ManagerHandle, Observer, Options,
    ReactorLoopController, Runner, SimpleLoopController, Until,
};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};

/// A controller that ends its manager at the first call of `schedule`.
#[derive(Clone, Default)]
struct Ending(Rc<Ends>);

#[derive(Default)]
struct Ends {
    manager: RefCell<Option<FiberManager>>,
    handle: RefCell<Option<ManagerHandle>>,
    told_later: Cell<bool>,
}

impl LoopController for Ending {
    fn attach(&self, _: Runner) {}

    fn schedule(&self) {
        drop(self.0.manager.take());
        let handle = self.0.handle.take().expect("it is scheduled once");
        look_while_others_run(&handle);
        // The end itself calls `idle`; later calls are errors.
        self.0.told_later.set(false);
    }

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        Arc::new(|| ())
    }

    fn idle(&self, _: Until) {
        self.0.told_later.set(true);
    }

    fn keep_alive(&self, _: bool) {
        self.0.told_later.set(true);
    }
}

/// Checks that it is used only on the thread that made it.
struct AtHome(ThreadId);

impl Observer for AtHome {
    fn starting(&self, _: FiberId) {
        assert_eq!(self.0, thread::current().id(), "an observer was taken to another thread");
    }
}

/// Inspects a manager that has ended while another thread runs its own manager.
fn look_while_others_run(ended: &ManagerHandle) {
    let (to_us, from_them) = mpsc::channel();
    let (to_them, from_us) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let controller = SimpleLoopController::new();
        let observed = Options::new().observer(Rc::new(AtHome(thread::current().id())));
        let manager = FiberManager::new(controller.clone(), observed).unwrap();
        manager.add_task(move || {
            to_us.send(()).unwrap();
            from_us.recv().unwrap();
            sinew::yield_now();
        });
        controller.run();
    });
    from_them.recv().unwrap();
    assert!(ended.active_fiber().is_none());
    assert!(!ended.has_tasks() && !ended.has_active_fiber());
    assert_eq!((ended.fibers_pool_size(), ended.run_queue_size()), (0, 0));
    assert_eq!((ended.next_deadline(), ended.fd()), (None, None));
    ended.add_observer(Rc::new(AtHome(thread::current().id())));
    ended.loop_until_no_ready();
    to_them.send(()).unwrap();
    other.join().unwrap();
}

/// The caller of the controller has a reference to the inside of the manager, and another manager
/// may use its carrier by then.
#[test]
fn a_manager_ended_by_its_controller_is_not_used_again() {
    let _watch = watch::a_minute();
    for runs in [false, true] {
        let ending = Ending::default();
        let manager = FiberManager::new(ending.clone(), Options::new()).unwrap();
        let handle = manager.handle();
        *ending.0.manager.borrow_mut() = Some(manager);
        *ending.0.handle.borrow_mut() = Some(handle.clone());
        if runs {
            // The manager is scheduled for a fiber that has yielded, after the task has run.
            handle.add_task_eager(sinew::yield_now);
        } else {
            handle.add_task(|| ());
        }
        assert!(!ending.0.told_later.get(), "the controller was told of a manager that has ended");
        assert!(ending.0.manager.borrow().is_none());
    }
}

#[test]
fn a_second_loop_runs_the_tasks_of_an_ended_first_loop() {
    let _watch = watch::a_minute();
    for remote in [false, true] {
        let controller = ReactorLoopController::new();
        let manager = FiberManager::new(controller.clone(), Options::new()).unwrap();
        let first = EventLoop::new().unwrap();
        controller.attach_loop(&first);
        if remote {
            drop(first);
            let remote = manager.remote();
            thread::spawn(move || remote.add_task_remote(|| ())).join().unwrap();
        } else {
            manager.add_task(|| ());
            drop(first);
        }
        let second = EventLoop::new().unwrap();
        controller.attach_loop(&second);
        manager.add_task(|| ());
        second.run();
        assert!(!manager.has_tasks(), "remote: {remote}");
    }
}

#[test]
fn a_loop_does_not_wait_for_a_manager_that_was_abandoned() {
    let name = "ends::a_loop_does_not_wait_for_a_manager_that_was_abandoned";
    let outcome = child(name, || {
        let _watch = watch::a_minute();
        let event_loop = EventLoop::new().unwrap();
        let controller = ReactorLoopController::on(&event_loop);
        let manager = FiberManager::new(controller.clone(), Options::new()).unwrap();
        manager.add_task(|| sinew::masked(sinew::park));
        manager.loop_until_no_ready();
        assert_eq!(manager.shutdown_timeout(10 * MS), Err(1));
        event_loop.run();
        // The thread would not end, because a fiber may have lent its thread-locals.
        std::process::exit(0);
    });
    outcome.assert_success();
}
