//! Panics in every part of a manager: contained, reported to the callback, survived by other
//! fibers.

use crate::kit::{kept, simple, text_of, with};
use sinew::FiberId;
use sinew::manager::{self, ManagerHandle, Observer, Options};
use sinew::sync::Baton;
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The arguments of the panic callbacks: texts and places.
type Told = RefCell<Vec<(String, String)>>;

fn telling(manager: &ManagerHandle) -> &'static Told {
    let told: &'static Told = kept(RefCell::default());
    manager.set_panic_callback(|payload, place| {
        told.borrow_mut().push((text_of(payload), place.to_owned()));
    });
    told
}

fn texts(told: &Told) -> Vec<String> {
    told.take().into_iter().map(|(text, _)| text).collect()
}

#[test]
fn a_panic_of_a_task_reaches_the_callback_and_is_survived() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let told = telling(&manager);
    let next = kept(Cell::new(false));
    manager.add_task(|| panic!("at once"));
    manager.add_task(|| {
        sinew::yield_now();
        panic!("later");
    });
    manager.add_task(|| next.set(true));
    controller.run();
    assert!(next.get() && !manager.has_tasks());
    assert!(!std::thread::panicking());
    let told = told.take();
    assert_eq!(told.len(), 2);
    assert_eq!((&*told[0].0, &*told[1].0), ("at once", "later"));
    assert!(!told[0].1.is_empty());
}

#[test]
fn a_panic_of_a_finally_closure_reaches_the_callback_with_its_place() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let told = telling(&manager);
    manager.add_task_finally(|| (), |_| panic!("finally"));
    manager.add_task_finally_eager(|| (), |_| panic!("finally, eagerly"));
    manager.add_task(|| panic!("in a task"));
    let next = manager.add_task_future(|| 7);
    controller.run();
    assert_eq!(next.get().unwrap(), 7);
    let told = told.take();
    let all: Vec<_> = told.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(all, ["finally, eagerly", "finally", "in a task"]);
    assert_eq!(told[0].1, told[1].1);
    assert_ne!(told[1].1, told[2].1, "the two places differ");
}

#[test]
fn a_panic_of_an_eager_task_reaches_the_callback_and_its_adder_goes_on() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let told = telling(&manager);
    manager.add_task_eager(|| panic!("from outside"));
    assert_eq!(texts(told), ["from outside"]);
    let went_on = manager.add_task_future(|| {
        manager::add_task_eager(|| panic!("from a fiber"));
        manager::run_in_main_context(|| manager::add_task_eager(|| panic!("from there")));
        assert!(!std::thread::panicking());
        7
    });
    controller.run();
    assert_eq!(went_on.get().unwrap(), 7);
    assert_eq!(texts(told), ["from a fiber", "from there"]);
}

#[test]
fn a_panic_of_a_remote_task_reaches_the_callback_of_its_manager() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let told = telling(&manager);
    let remote = manager.remote();
    std::thread::spawn(move || remote.add_task_remote(|| panic!("from afar"))).join().unwrap();
    controller.run();
    assert_eq!(texts(told), ["from afar"]);
}

#[test]
fn a_panic_on_the_main_context_belongs_to_the_task() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let told = telling(&manager);
    manager.add_task(|| manager::run_in_main_context(|| panic!("over there")));
    manager.add_task(|| {
        Baton::new().wait_with(|| panic!("in a wait"));
    });
    controller.run();
    assert_eq!(texts(told), ["over there", "in a wait"]);
}

#[test]
fn a_panic_handed_to_a_future_or_finally_does_not_reach_the_callback() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let told = telling(&manager);
    let failed = manager.add_task_future(|| panic!("in a future"));
    manager
        .add_task_finally(|| panic!("handed on"), |result: std::thread::Result<()>| drop(result));
    let spawned = manager.add_task_future(|| sinew::spawn(|| panic!("joined")).join().is_err());
    controller.run();
    assert!(failed.get().is_err() && spawned.get().unwrap());
    assert!(told.borrow().is_empty(), "{told:?}");
}

#[test]
fn a_cancellation_is_no_panic() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let told = telling(&manager);
    let fiber = kept(Cell::new(None));
    manager.add_task(|| {
        fiber.set(Some(sinew::current()));
        sinew::park();
    });
    manager.loop_until_no_ready();
    fiber.take().unwrap().cancel();
    controller.run();
    manager.add_task(sinew::park);
    manager.loop_until_no_ready();
    drop(manager);
    assert!(told.borrow().is_empty(), "{told:?}");
}

#[test]
fn the_callback_of_the_options_is_called_until_another_is_set() {
    let _watch = watch::a_minute();
    let first = kept(Cell::new(0));
    let options = Options::default().panic_callback(|_, _| first.set(first.get() + 1));
    let (manager, controller) = with(options);
    manager.add_task(|| panic!("on purpose"));
    controller.run();
    assert_eq!(first.get(), 1);
    let told = telling(&manager);
    manager.add_task(|| panic!("again"));
    controller.run();
    assert_eq!((first.get(), texts(told)), (1, vec!["again".to_owned()]));
}

#[test]
fn a_callback_may_add_tasks_and_set_another_callback() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (handle, ran) = (ManagerHandle::clone(&manager), kept(Cell::new(0)));
    manager.set_panic_callback(move |_, _| {
        handle.add_task(|| ran.set(ran.get() + 1));
        let inner = handle.clone();
        handle.set_panic_callback(move |_, _| inner.add_task(|| ran.set(ran.get() + 10)));
    });
    for _ in 0..2 {
        manager.add_task(|| panic!("on purpose"));
        controller.run();
    }
    assert_eq!(ran.get(), 11);
}

#[test]
fn without_a_callback_a_panic_is_reported_and_survived() {
    let outcome = child("panics::without_a_callback_a_panic_is_reported_and_survived", || {
        let (manager, controller) = simple();
        manager.add_task(|| panic!("nobody asked"));
        let next = manager.add_task_future(|| 7);
        controller.run();
        assert_eq!(next.get().unwrap(), 7);
    });
    outcome.assert_success();
    assert!(outcome.stderr.contains("nobody asked"), "{outcome:#?}");
}

#[test]
fn a_callback_that_panics_is_survived() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let calls = kept(Cell::new(0));
    manager.set_panic_callback(|_, _| {
        calls.set(calls.get() + 1);
        panic!("a bad callback");
    });
    manager.add_task(|| panic!("on purpose"));
    manager.add_task_finally(|| (), |_| panic!("finally"));
    manager.add_task_eager(|| panic!("eager"));
    let next = manager.add_task_future(|| 7);
    controller.run();
    assert_eq!(next.get().unwrap(), 7);
    assert_eq!(calls.get(), 3);
}

struct Bad {
    starting: bool,
    runnable: bool,
    stopped: bool,
    calls: Cell<usize>,
}

impl Observer for Bad {
    fn starting(&self, _: FiberId) {
        self.calls.set(self.calls.get() + 1);
        assert!(!self.starting, "a bad observer");
    }

    fn runnable(&self, _: FiberId) {
        self.calls.set(self.calls.get() + 1);
        assert!(!self.runnable, "a bad observer");
    }

    fn stopped(&self, _: FiberId) {
        self.calls.set(self.calls.get() + 1);
        assert!(!self.stopped, "a bad observer");
    }
}

#[test]
fn an_observer_that_panics_is_survived() {
    let _watch = watch::a_minute();
    for which in 0..3 {
        let (manager, controller) = simple();
        let bad = Rc::new(Bad {
            starting: which == 0,
            runnable: which == 1,
            stopped: which == 2,
            calls: Cell::new(0),
        });
        manager.add_observer(bad.clone());
        let future = manager.add_task_future(|| {
            sinew::yield_now();
            manager::run_in_main_context(|| ());
            assert!(!Baton::new().wait_timeout(crate::kit::MS));
            7
        });
        let eager = manager.add_task_eager_future(|| 8);
        controller.run();
        assert_eq!((future.get().unwrap(), eager.get().unwrap()), (7, 8));
        assert!(bad.calls.get() >= 3);
        assert!(!std::thread::panicking());
    }
}

/// Panics when dropped.
struct BadDrop;

impl Drop for BadDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a bad destructor");
        }
    }
}

#[test]
fn destructors_that_panic_are_survived() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let told = telling(&manager);
    let bad = BadDrop;
    manager.add_task(move || {
        let _bad = bad;
    });
    // A result that is not taken, and a result that the finally closure drops.
    drop(manager.add_task_future(|| BadDrop));
    manager.add_task_finally(|| BadDrop, drop);
    controller.run();
    let next = manager.add_task_future(|| 7);
    controller.run();
    assert_eq!(next.get().unwrap(), 7);
    let told = texts(told);
    assert!(told.len() >= 2 && told.iter().all(|text| text == "a bad destructor"), "{told:?}");
}

#[test]
fn a_callback_that_is_subscribed_may_panic() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let future = manager.add_task_future(|| 7);
    future.subscribe(|| panic!("a bad subscriber"));
    let next = manager.add_task_future(|| 8);
    controller.run();
    assert_eq!((future.get().unwrap(), next.get().unwrap()), (7, 8));
}

#[test]
fn two_fibers_panic_at_the_same_time() {
    let _watch = watch::a_minute();
    struct Yields;
    impl Drop for Yields {
        fn drop(&mut self) {
            sinew::yield_now();
            sinew::sleep(crate::kit::MS);
        }
    }
    let (manager, controller) = simple();
    let told = telling(&manager);
    for _ in 0..20 {
        manager.add_task(|| {
            let _yields = Yields;
            panic!("all of them");
        });
    }
    controller.run();
    assert_eq!(texts(told), vec!["all of them"; 20]);
    assert!(!std::thread::panicking());
}
