//! Controllers of a user's own loop.

use crate::kit::{Counting, LONG, MS, counted, kept, panic_of};
use sinew::manager::{FiberManager, LoopController, Options, Runner, SimpleLoopController, Until};
use sinew::sync::Baton;
use sinew_testkit::watch;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

#[test]
fn a_controller_is_scheduled_once_per_turn() {
    let _watch = watch::a_minute();
    let (manager, controller) = counted();
    assert_eq!(controller.scheduled(), 0);
    assert!(!controller.runner().is_gone());
    manager.add_task(|| ());
    manager.add_task(|| ());
    assert_eq!(controller.scheduled(), 1, "once until it has run");
    assert_eq!(controller.take_busy(), [true]);
    controller.turn();
    assert_eq!(controller.take_busy(), [false]);
    // Work that becomes ready during a turn is requested for the next turn.
    manager.add_task(sinew::yield_now);
    assert_eq!(controller.scheduled(), 2);
    controller.turn();
    assert_eq!(controller.scheduled(), 3);
    controller.turn();
    assert_eq!(controller.scheduled(), 3);
    assert_eq!(controller.take_busy(), [true, false]);
    drop(manager);
    assert!(controller.runner().is_gone());
}

#[test]
fn a_controller_is_told_of_deadlines() {
    let _watch = watch::a_minute();
    let (manager, controller) = counted();
    let start = Instant::now();
    let baton = kept(Baton::new());
    manager.add_task(|| assert!(baton.wait_timeout(LONG)));
    controller.turn();
    let told = || controller.take_untils().last().expect("it is told").deadline;
    let far = told().expect("a deadline");
    assert!(far >= start + LONG && far < start + 2 * LONG);
    assert_eq!(manager.next_deadline(), Some(far));
    manager.add_task(|| sinew::sleep(5 * MS));
    controller.turn();
    let near = told().unwrap();
    assert!(near >= start + 5 * MS && near < far);
    std::thread::sleep(near.saturating_duration_since(Instant::now()) + MS);
    controller.turn();
    assert_eq!(told(), Some(far), "it replaces the other");
    baton.post();
    controller.turn();
    assert_eq!(told(), None);
}

#[test]
fn a_foreign_loop_knows_by_a_descriptor_when_to_run() {
    let _watch = watch::a_minute();
    let (manager, controller) = counted();
    let Some(descriptor) = manager.fd() else { return };
    let readable = |timeout: i32| {
        let mut poll = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is ours.
        unsafe { libc::poll(&raw mut poll, 1, timeout) == 1 }
    };
    let (mut sender, receiver) = std::os::unix::net::UnixStream::pair().unwrap();
    let receiver = sinew::os::unix::net::UnixStream::from(receiver);
    let read = manager.add_task_future(move || {
        let mut byte = [0];
        std::io::Read::read_exact(&mut &receiver, &mut byte).unwrap();
        byte[0]
    });
    // The socket becoming writable is an event that no fiber waits for.
    while read.fiber().waits_for().is_none() || readable(0) {
        controller.turn();
    }
    assert_eq!(controller.take_untils().last().unwrap().fd, Some(descriptor));
    std::io::Write::write_all(&mut sender, &[7]).unwrap();
    assert!(readable(10_000), "data for a fiber");
    while !read.is_ready() {
        controller.turn();
    }
    assert_eq!(read.get().unwrap(), 7);
    // The fiber was served; ending the watch may cause one more event.
    while readable(0) {
        controller.turn();
    }
}

#[test]
fn a_runner_that_outlives_its_manager_does_nothing() {
    let _watch = watch::a_minute();
    let (manager, controller) = counted();
    let runner = controller.runner();
    let ran = kept(Cell::new(false));
    manager.add_task(|| ran.set(true));
    drop(manager);
    assert!(runner.is_gone());
    assert!(!runner.run());
    assert!(!ran.get());
    assert!(runner.manager().is_none());
}

/// A controller that forwards its calls, unless it is set to panic.
struct Panics(Counting, Rc<Cell<&'static str>>);

impl Panics {
    fn check(&self, call: &str) {
        assert!(self.1.get() != call, "in {call}, on purpose");
    }
}

impl LoopController for Panics {
    fn attach(&self, runner: Runner) {
        self.0.attach(runner);
        self.check("attach");
    }

    fn schedule(&self) {
        self.check("schedule");
    }

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.check("remote");
        self.0.remote()
    }

    fn idle(&self, _: Until) {
        self.check("idle");
    }

    fn keep_alive(&self, _: bool) {
        self.check("keep_alive");
    }
}

#[test]
fn a_panic_of_a_controller_goes_to_the_caller_and_no_further() {
    let _watch = watch::a_minute();
    for call in ["attach", "remote", "schedule", "idle", "keep_alive"] {
        let (counting, when) = (Counting::default(), Rc::new(Cell::new(call)));
        let controller = Panics(counting.clone(), when.clone());
        let make = || FiberManager::new(controller, Options::default()).unwrap();
        if matches!(call, "attach" | "remote") {
            assert!(panic_of(make).contains(call));
            assert!(!counting.turn());
            continue;
        }
        let manager = make();
        let told = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).is_ok();
        let tells =
            [told(&|| manager.add_task(|| sinew::sleep(LONG))), told(&|| _ = counting.turn())];
        assert!(tells.contains(&false), "{call}");
        // The task was added, and the manager still ends.
        assert_eq!(manager.active_tasks(), 1);
        let remote = manager.remote();
        drop(manager);
        assert!(!remote.is_alive() && !counting.turn());
        when.set("");
    }
}

#[test]
fn a_controller_may_add_tasks_when_it_is_attached() {
    struct Adds(SimpleLoopController, Rc<Cell<u32>>);
    impl LoopController for Adds {
        fn attach(&self, runner: Runner) {
            self.0.attach(runner.clone());
            let manager = runner.manager().unwrap();
            let (first, second) = (self.1.clone(), Arc::new(()));
            manager.add_task(move || first.set(first.get() + 1));
            runner.run();
            let again = self.1.clone();
            manager.add_task(move || again.set(again.get() + 10));
            let remote = manager.remote();
            std::thread::spawn(move || remote.add_task_remote(move || drop(second)))
                .join()
                .unwrap();
        }

        fn schedule(&self) {
            self.0.schedule();
        }

        fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
            self.0.remote()
        }

        fn idle(&self, until: Until) {
            self.0.idle(until);
        }
    }
    let _watch = watch::a_minute();
    let (controller, ran) = (SimpleLoopController::new(), Rc::new(Cell::new(0)));
    let manager =
        FiberManager::new(Adds(controller.clone(), ran.clone()), Options::default()).unwrap();
    assert!(controller.is_scheduled());
    controller.run();
    assert!(!manager.has_tasks());
    assert_eq!(ran.get(), 11);
}
