//! The managers of an event loop, which `manager_for` caches.

use crate::kit::{MS, kept};
use sinew::manager::{
    self, EventLoop, ManagerHandle, Options, RemoteHandle, manager_for, manager_for_local,
    manager_for_with, remote_for,
};
use sinew_testkit::{Log, watch};
use std::cell::Cell;
use std::sync::mpsc;

/// Whether two handles belong to one manager: a task added to one is seen by the other.
fn same(one: &ManagerHandle, other: &ManagerHandle) -> bool {
    let before = (one.active_tasks(), other.active_tasks());
    one.add_task(|| ());
    let same = other.active_tasks() == before.1 + 1;
    assert_eq!(one.active_tasks(), before.0 + 1);
    same
}

#[test]
fn a_loop_has_one_manager_for_each_set_of_options() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let plain = manager_for(&events);
    assert!(same(&plain, &manager_for(&events)));
    let small = Options::default().stack_size(96 * 1024);
    let first = manager_for_with(&events, small.clone());
    assert!(!same(&plain, &first));
    assert!(same(&first, &manager_for_with(&events, small)));
    assert!(same(&first, &manager_for_with(&events, Options::default().stack_size(96 * 1024))));
    let other = manager_for_with(&events, Options::default().stack_size(64 * 1024));
    assert!(!same(&other, &first) && !same(&other, &plain));
    events.run();
}

#[test]
fn loops_have_managers_of_their_own() {
    let _watch = watch::a_minute();
    let (first, second) = (EventLoop::new().unwrap(), EventLoop::new().unwrap());
    assert!(!same(&manager_for(&first), &manager_for(&second)));
    first.run();
    second.run();
}

#[test]
fn managers_are_told_apart_by_type() {
    let _watch = watch::a_minute();
    struct One;
    struct Other;
    let events = EventLoop::new().unwrap();
    let one = manager_for_local::<One, _>(&events, Options::default());
    assert!(same(&one, &manager_for_local::<One, _>(&events, Options::default())));
    assert!(!same(&one, &manager_for_local::<Other, _>(&events, Options::default())));
    assert!(!same(&one, &manager_for(&events)));
    events.run();
}

#[test]
fn tasks_of_one_manager_wait_for_tasks_of_another() {
    let _watch = watch::a_minute();
    let events = kept(EventLoop::new().unwrap());
    let outer = manager_for(events);
    let found = outer.add_task_future(move || {
        let here = ManagerHandle::current().unwrap();
        assert!(same(&here, &manager_for(events)));
        let options = Options::default().stack_size(128 * 1024);
        let other = manager_for_with(events, options.clone());
        let nested = other.add_task_future(move || {
            same(&ManagerHandle::current().unwrap(), &manager_for_with(events, options))
        });
        nested.get().unwrap()
    });
    events.run();
    assert!(found.get().unwrap());
}

#[test]
fn the_managers_end_with_their_loop() {
    let _watch = watch::a_minute();
    let log = Log::new();
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let theirs = log.clone();
    let future = manager.add_task_future(move || {
        let _dropped = theirs.on_drop("unwound");
        sinew::park();
    });
    manager.loop_until_no_ready();
    let told = log.clone();
    events.on_destruction(move || told.line("loop"));
    drop(events);
    let mut lines = log.take();
    lines.sort();
    assert_eq!(lines, ["loop", "unwound"]);
    assert!(sinew::is_cancel(&*future.get().unwrap_err()));
    assert!(crate::kit::panic_of(|| manager.add_task(|| ())).contains("manager"));
    // Another loop, perhaps at the same address, has a new manager.
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let next = manager.add_task_future(|| 7);
    events.run();
    assert_eq!(next.get().unwrap(), 7);
}

#[test]
fn a_thread_that_ends_takes_its_managers_along() {
    let _watch = watch::a_minute();
    let (send, receive) = mpsc::channel::<RemoteHandle>();
    let ran = std::thread::spawn(move || {
        let events = EventLoop::new().unwrap();
        let manager = manager_for(&events);
        send.send(manager.remote()).unwrap();
        let future = manager.add_task_future(|| {
            sinew::sleep(MS);
            7
        });
        events.run();
        future.get().unwrap()
    });
    assert_eq!(ran.join().unwrap(), 7);
    let remote = receive.recv().unwrap();
    assert!(!remote.is_alive());
    let late = remote.add_task_remote_future(|| ());
    assert!(sinew::is_cancel(&*late.get().unwrap_err()));
}

#[test]
fn a_manager_is_found_from_another_thread() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let far = events.remote();
    assert!(remote_for(&far).is_none(), "it has none yet");
    let manager = manager_for(&events);
    let stay = events.keep_alive();
    let remote = events.remote();
    let here = std::thread::current().id();
    let thread = std::thread::spawn(move || {
        let manager = remote_for(&remote).unwrap();
        let id = manager.add_task_remote_future(|| std::thread::current().id()).get().unwrap();
        remote.terminate();
        id
    });
    events.run();
    assert_eq!(thread.join().unwrap(), here);
    drop(stay);
    assert!(manager.remote().is_alive());
    drop(events);
    assert!(remote_for(&far).is_none_or(|remote| !remote.is_alive()));
}

/// Two managers share a loop. One ends its tasks while the other still waits.
#[test]
fn managers_of_one_loop_end_their_tasks_each_in_its_time() {
    let _watch = watch::a_minute();
    struct Second;
    let events = EventLoop::new().unwrap();
    let log = Log::new();
    let (first, second) =
        (manager_for(&events), manager_for_local::<Second, _>(&events, Options::default()));
    for (manager, delay, text) in [(&first, 10, "first"), (&second, 20, "second")] {
        let log = log.clone();
        manager.remote().add_task_remote(move || {
            assert!(!sinew::sync::Baton::new().wait_timeout(delay * MS));
            log.line(text);
        });
    }
    assert!(log.take().is_empty());
    events.run();
    assert_eq!(log.take(), ["first", "second"]);
}

#[test]
fn options_of_a_cached_manager_are_used() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let calls = kept(Cell::new(0));
    let options = Options::default().stack_size(2 << 20).name("large");
    let manager = manager_for_with(&events, options);
    manager.set_panic_callback(|_, _| calls.set(calls.get() + 1));
    manager.add_task(|| {
        if !cfg!(sinew_asan) {
            sinew_testkit::stack::burn(1 << 20);
        }
        manager::run_in_main_context(|| ());
        panic!("on purpose");
    });
    events.run();
    assert_eq!(calls.get(), 1);
}
