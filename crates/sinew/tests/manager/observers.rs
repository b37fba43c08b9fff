//! Observers of the fibers of a manager.

use crate::kit::{kept, simple, with};
use sinew::FiberId;
use sinew::manager::{self, ManagerHandle, Observer, Options};
use sinew::sync::Baton;
use sinew_testkit::watch;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[derive(Default)]
struct Notes(RefCell<Vec<(&'static str, FiberId)>>);

impl Notes {
    fn of(&self, fiber: FiberId) -> Vec<&'static str> {
        self.0.borrow().iter().filter(|(_, id)| *id == fiber).map(|(what, _)| *what).collect()
    }
}

impl Observer for Notes {
    fn starting(&self, fiber: FiberId) {
        self.0.borrow_mut().push(("starting", fiber));
    }

    fn runnable(&self, fiber: FiberId) {
        self.0.borrow_mut().push(("runnable", fiber));
    }

    fn stopped(&self, fiber: FiberId) {
        self.0.borrow_mut().push(("stopped", fiber));
    }
}

#[test]
fn every_stretch_has_a_beginning_and_an_end() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let notes = Rc::new(Notes::default());
    manager.add_observer(notes.clone());
    let baton = kept(Baton::new());
    let future = manager.add_task_future(|| {
        sinew::yield_now();
        baton.wait();
    });
    let id = future.fiber().id();
    manager.loop_until_no_ready();
    manager.loop_until_no_ready();
    baton.post();
    controller.run();
    let seen: Vec<_> = notes.of(id).into_iter().filter(|what| *what != "runnable").collect();
    assert_eq!(seen, ["starting", "stopped", "starting", "stopped", "starting", "stopped"]);
}

#[test]
fn a_woken_fiber_is_runnable_before_it_starts() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let notes = Rc::new(Notes::default());
    manager.add_observer(notes.clone());
    let baton = kept(Baton::new());
    let future = manager.add_task_future(|| baton.wait());
    let id = future.fiber().id();
    manager.loop_until_no_ready();
    notes.0.borrow_mut().clear();
    baton.post();
    controller.run();
    assert_eq!(notes.of(id), ["runnable", "starting", "stopped"]);
}

#[test]
fn stretches_of_neighbours_do_not_overlap() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let notes = Rc::new(Notes::default());
    manager.add_observer(notes.clone());
    for _ in 0..5 {
        manager.add_task(|| {
            sinew::yield_now();
            sinew::sleep(crate::kit::MS);
        });
    }
    controller.run();
    let mut running = None;
    for (what, id) in notes.0.borrow().iter() {
        match *what {
            "starting" => assert_eq!(running.replace(*id), None),
            "stopped" => assert_eq!(running.take(), Some(*id)),
            _ => {}
        }
    }
    assert_eq!(running, None);
}

#[test]
fn a_call_of_the_main_context_is_part_of_a_stretch() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let notes = Rc::new(Notes::default());
    manager.add_observer(notes.clone());
    let seen = kept(RefCell::new(Vec::new()));
    let inside = notes.clone();
    let future = manager.add_task_future(move || {
        let id = sinew::current().id();
        manager::run_in_main_context(|| *seen.borrow_mut() = inside.of(id));
    });
    let id = future.fiber().id();
    controller.run();
    let without = |all: Vec<&'static str>| -> Vec<_> {
        all.into_iter().filter(|what| *what != "runnable").collect()
    };
    assert_eq!(without(seen.take()), ["starting"]);
    assert_eq!(without(notes.of(id)), ["starting", "stopped"]);
}

#[test]
fn tasks_of_every_kind_are_seen() {
    let _watch = watch::a_minute();
    let notes = Rc::new(Notes::default());
    let (manager, controller) = with(Options::default().observer(notes.clone()));
    let mut ids = vec![manager.add_task_eager_future(|| sinew::current().id()).get().unwrap()];
    let remote = manager.remote().add_task_remote_future(|| sinew::current().id());
    let spawned =
        manager.add_task_future(|| sinew::spawn(|| sinew::current().id()).join().unwrap());
    let seen = kept(Cell::new(None));
    manager.add_task_finally(|| sinew::current().id(), |id| seen.set(Some(id.unwrap())));
    controller.run();
    ids.extend([remote.get().unwrap(), spawned.get().unwrap(), seen.get().unwrap()]);
    for id in ids {
        let notes = notes.of(id);
        assert!(notes.contains(&"starting") && notes.last() == Some(&"stopped"), "{notes:?}");
    }
}

#[test]
fn several_observers_are_told_until_they_are_removed() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let (first, second) = (Rc::new(Notes::default()), Rc::new(Notes::default()));
    let as_observer: Rc<dyn Observer> = first.clone();
    manager.add_observer(as_observer.clone());
    manager.add_observer(second.clone());
    manager.add_task(|| ());
    controller.run();
    let told = first.0.borrow().len();
    assert!(told >= 2 && second.0.borrow().len() == told);
    manager.remove_observer(&as_observer);
    manager.add_task(|| ());
    controller.run();
    assert_eq!(first.0.borrow().len(), told);
    assert_eq!(second.0.borrow().len(), 2 * told);
    // Removing an observer that is not there does nothing.
    manager.remove_observer(&as_observer);
}

/// At the first start, removes itself, and adds another observer and a task.
struct Meddles(ManagerHandle, RefCell<Option<Rc<dyn Observer>>>, Cell<usize>);

impl Observer for Meddles {
    fn starting(&self, _: FiberId) {
        self.2.set(self.2.get() + 1);
        if let Some(me) = self.1.take() {
            self.0.remove_observer(&me);
            self.0.add_observer(Rc::new(Notes::default()));
            self.0.add_task(|| ());
        }
    }
}

#[test]
fn an_observer_may_change_its_manager() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let meddles =
        Rc::new(Meddles(ManagerHandle::clone(&manager), RefCell::default(), Cell::new(0)));
    *meddles.1.borrow_mut() = Some(meddles.clone());
    manager.add_observer(meddles.clone());
    let ended = manager.add_task_future(|| 7);
    controller.run();
    assert_eq!(ended.get().unwrap(), 7);
    assert_eq!(meddles.2.get(), 1);
    assert!(!manager.has_tasks());
}

#[test]
fn observers_are_dropped_with_their_manager() {
    let _watch = watch::a_minute();
    let notes = Rc::new(Notes::default());
    let (manager, _) = simple();
    manager.add_observer(notes.clone());
    assert_eq!(Rc::strong_count(&notes), 2);
    drop(manager);
    assert_eq!(Rc::strong_count(&notes), 1);
}
