//! The states of a task, arrow by arrow, seen by other tasks, the main context and observers.
//!
//! ```text
//!                          1                2
//!               Invalid ------> NotStarted ------> Running
//!                  ^                              | |  | | ^
//!                  |               3              | |  | | | 10
//!                  +------------------------------+ |  | | |
//!                                     4             |  | | |
//!                      Yielded  <-------------------+  | | |
//!                      Awaiting <----------------------+ | |      5
//!             AwaitingImmediate <------------------------+ |      6
//!                  7, 8, 9 |                               |
//!                          +----------> Ready -------------+
//! ```

use crate::kit::{kept, own_state, simple};
use sinew::manager::{self, ManagerHandle, Observer, TaskState, run_in_main_context};
use sinew::sync::Baton;
use sinew::{Fiber, FiberId};
use sinew_testkit::watch;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Records the state of one fiber at each call of the observer.
struct Watches {
    fiber: RefCell<Option<Fiber>>,
    seen: RefCell<Vec<(&'static str, TaskState)>>,
}

impl Watches {
    fn note(&self, what: &'static str, id: FiberId) {
        if let Some(fiber) = &*self.fiber.borrow()
            && fiber.id() == id
        {
            self.seen.borrow_mut().push((what, TaskState::of(fiber)));
        }
    }
}

impl Observer for Watches {
    fn starting(&self, fiber: FiberId) {
        self.note("starting", fiber);
    }

    fn runnable(&self, fiber: FiberId) {
        self.note("runnable", fiber);
    }

    fn stopped(&self, fiber: FiberId) {
        self.note("stopped", fiber);
    }
}

fn watched(manager: &ManagerHandle) -> Rc<Watches> {
    let watches = Rc::new(Watches { fiber: RefCell::default(), seen: RefCell::default() });
    manager.add_observer(watches.clone());
    watches
}

#[test]
fn arrow_1_an_added_task_has_not_started() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let ended = manager.add_task_future(|| ());
    let old = ended.fiber();
    controller.run();
    assert_eq!(TaskState::of(&old), TaskState::Invalid);
    // The stack of the ended task is used again; its handle still stands for the old task.
    let added = manager.add_task_future(|| ());
    assert_eq!(TaskState::of(&added.fiber()), TaskState::NotStarted);
    assert_eq!(TaskState::of(&old), TaskState::Invalid);
    controller.run();
}

#[test]
fn arrow_2_a_task_that_has_begun_runs() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let watches = watched(&manager);
    let state = manager.add_task_future(own_state);
    *watches.fiber.borrow_mut() = Some(state.fiber());
    controller.run();
    assert_eq!(state.get().unwrap(), TaskState::Running);
    assert_eq!(watches.seen.borrow()[0], ("starting", TaskState::NotStarted));
}

#[test]
fn arrow_3_an_ended_task_is_invalid() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let watches = watched(&manager);
    let future = manager.add_task_future(|| ());
    let fiber = future.fiber();
    *watches.fiber.borrow_mut() = Some(fiber.clone());
    manager.loop_until_no_ready();
    assert_eq!(TaskState::of(&fiber), TaskState::Invalid);
    let last = *watches.seen.borrow().last().unwrap();
    assert_eq!(last, ("stopped", TaskState::Invalid));
    let panicked = manager.add_task_future(|| panic!("on purpose"));
    let fiber = panicked.fiber();
    manager.loop_until_no_ready();
    assert_eq!(TaskState::of(&fiber), TaskState::Invalid);
    assert!(panicked.get().is_err());
}

#[test]
fn arrow_4_a_task_that_yields_has_yielded() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let watches = watched(&manager);
    let future = manager.add_task_future(sinew::yield_now);
    let fiber = future.fiber();
    *watches.fiber.borrow_mut() = Some(fiber.clone());
    let seen = manager.add_task_future(move || TaskState::of(&fiber));
    controller.run();
    assert_eq!(seen.get().unwrap(), TaskState::Yielded);
    assert!(watches.seen.borrow().contains(&("stopped", TaskState::Yielded)));
}

#[test]
fn arrow_5_a_task_that_waits_is_awaiting() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let watches = watched(&manager);
    let baton = kept(Baton::new());
    let future = manager.add_task_future(|| baton.wait());
    let fiber = future.fiber();
    *watches.fiber.borrow_mut() = Some(fiber.clone());
    let copy = fiber.clone();
    let seen = manager.add_task_future(move || TaskState::of(&copy));
    manager.loop_until_no_ready();
    assert_eq!(seen.get().unwrap(), TaskState::Awaiting);
    assert_eq!(TaskState::of(&fiber), TaskState::Awaiting);
    assert!(watches.seen.borrow().contains(&("stopped", TaskState::Awaiting)));
    baton.post();
    controller.run();
}

#[test]
fn arrow_6_a_task_waits_for_its_call_of_the_main_context() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let seen = manager.add_task_future(|| {
        let me = sinew::current();
        let before = own_state();
        let there = run_in_main_context(|| TaskState::of(&me));
        // Other tasks run there as well, if the call adds an eager task.
        let eager = run_in_main_context(|| {
            let me = me.clone();
            let handle = ManagerHandle::current().unwrap();
            handle.add_task_eager_future(move || TaskState::of(&me)).get().unwrap()
        });
        [before, there, eager, own_state()]
    });
    controller.run();
    use TaskState::{AwaitingImmediate, Running};
    assert_eq!(seen.get().unwrap(), [Running, AwaitingImmediate, AwaitingImmediate, Running]);
}

#[test]
fn arrow_7_a_task_that_yielded_is_ready_after_the_turn() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let future = manager.add_task_future(sinew::yield_now);
    let fiber = future.fiber();
    let copy = fiber.clone();
    let neighbour = manager.add_task_future(move || TaskState::of(&copy));
    manager.loop_until_no_ready();
    assert_eq!(neighbour.get().unwrap(), TaskState::Yielded);
    assert_eq!(TaskState::of(&fiber), TaskState::Ready);
    assert!(!future.is_ready());
    controller.run();
    assert!(future.is_ready());
}

#[test]
fn arrow_8_a_woken_task_is_ready() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let watches = watched(&manager);
    let baton = kept(Baton::new());
    let future = manager.add_task_future(|| baton.wait());
    let fiber = future.fiber();
    *watches.fiber.borrow_mut() = Some(fiber.clone());
    manager.loop_until_no_ready();
    let copy = fiber.clone();
    let woken = manager.add_task_future(move || {
        let before = TaskState::of(&copy);
        baton.post();
        (before, TaskState::of(&copy))
    });
    controller.run();
    assert_eq!(woken.get().unwrap(), (TaskState::Awaiting, TaskState::Ready));
    assert!(watches.seen.borrow().contains(&("runnable", TaskState::Ready)));
}

#[test]
fn arrow_8_a_task_woken_by_a_thread_is_ready() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let baton = kept(Baton::new());
    let future = manager.add_task_future(|| baton.wait());
    let fiber = future.fiber();
    manager.loop_until_no_ready();
    std::thread::spawn(|| baton.post()).join().unwrap();
    assert_eq!(TaskState::of(&fiber), TaskState::Ready);
    controller.run();
    assert_eq!(TaskState::of(&fiber), TaskState::Invalid);
}

#[test]
fn arrow_9_a_task_continues_after_its_call_of_the_main_context() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let ran = kept(Cell::new(false));
    let states = manager.add_task_future(|| {
        manager::add_task(|| ran.set(true));
        let me = sinew::current();
        let there = run_in_main_context(|| TaskState::of(&me));
        // The task was ready only on its way back: no other task ran in between.
        (there, ran.get(), own_state())
    });
    manager.loop_until_no_ready();
    let expected = (TaskState::AwaitingImmediate, false, TaskState::Running);
    assert_eq!(states.get().unwrap(), expected);
    assert!(ran.get());
}

#[test]
fn arrow_9_a_task_continues_after_a_panic_on_the_main_context() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let state = manager.add_task_future(|| {
        crate::kit::panic_of(|| run_in_main_context(|| panic!("on purpose")));
        own_state()
    });
    manager.loop_until_no_ready();
    assert_eq!(state.get().unwrap(), TaskState::Running);
}

#[test]
fn arrow_10_a_ready_task_runs() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let watches = watched(&manager);
    let future = manager.add_task_future(|| {
        let mut states = vec![own_state()];
        sinew::yield_now();
        states.push(own_state());
        let mut baton = Baton::new();
        assert!(!baton.wait_timeout(crate::kit::MS));
        states.push(own_state());
        baton.post();
        baton.wait();
        baton.reset();
        states.push(own_state());
        states
    });
    *watches.fiber.borrow_mut() = Some(future.fiber());
    controller.run();
    assert_eq!(future.get().unwrap(), [TaskState::Running; 4]);
    let seen = watches.seen.borrow();
    let starts: Vec<_> = seen.iter().filter(|(what, _)| *what == "starting").collect();
    assert_eq!(starts.len(), 3, "{seen:?}");
    assert!(starts[1..].iter().all(|(_, state)| *state == TaskState::Ready), "{seen:?}");
}

/// An eager task goes from not started to running without being ready in between.
#[test]
fn an_eager_task_runs_at_once() {
    let _watch = watch::a_minute();
    let (manager, _) = simple();
    let state = manager.add_task_eager_future(own_state);
    assert_eq!(state.get().unwrap(), TaskState::Running);
    let baton = kept(Baton::new());
    let waits = manager.add_task_eager_future(|| baton.wait());
    let fiber = waits.fiber();
    assert_eq!(TaskState::of(&fiber), TaskState::Awaiting);
    baton.post();
    assert_eq!(TaskState::of(&fiber), TaskState::Ready);
    manager.loop_until_no_ready();
    assert_eq!(TaskState::of(&fiber), TaskState::Invalid);
    let yields = manager.add_task_eager_future(sinew::yield_now);
    let fiber = yields.fiber();
    assert_eq!(TaskState::of(&fiber), TaskState::Ready, "that turn was its own");
    manager.loop_until_no_ready();
}

#[test]
fn the_adder_of_an_eager_task_waits_for_it() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let state = manager.add_task_future(|| {
        let me = sinew::current();
        let eager = ManagerHandle::current().unwrap();
        eager.add_task_eager_future(move || TaskState::of(&me)).get().unwrap()
    });
    controller.run();
    assert_eq!(state.get().unwrap(), TaskState::AwaitingImmediate);
}
