//! Options of single tasks, in all forms of tasks.

use crate::kit::{panic_of, simple};
use sinew::manager::{TaskOptions, current_task_running_time};
use sinew_testkit::watch;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

const STACK: usize = 64 * 1024;

fn options(name: &'static str) -> TaskOptions {
    TaskOptions::new().name(name).stack_size(STACK).log_running_time(true)
}

/// Returns the name of the running task, and checks that the task has its options.
fn seen() -> String {
    assert!(sinew::stack_remaining().unwrap() < STACK);
    assert!(current_task_running_time().is_some());
    sinew::current().name().unwrap().to_owned()
}

#[test]
fn every_form_of_a_task_takes_options() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let names = Rc::new(RefCell::new(Vec::new()));
    let note = || {
        let names = names.clone();
        move || names.borrow_mut().push(seen())
    };
    let last = || {
        let names = names.clone();
        move |name: std::thread::Result<String>| names.borrow_mut().push(name.unwrap())
    };
    manager.add_task_eager_with(options("eager"), note());
    assert_eq!(
        manager.add_task_eager_future_with(options("eager future"), seen).get().unwrap(),
        "eager future"
    );
    manager.add_task_finally_eager_with(options("finally eager"), seen, last());
    assert_eq!(*names.borrow(), ["eager", "finally eager"]);
    manager.add_task_with(options("plain"), note());
    let future = manager.add_task_future_with(options("future"), seen);
    manager.add_task_finally_with(options("finally"), seen, last());
    let remote = manager.remote();
    let afar = Arc::new(Mutex::new(String::new()));
    let theirs = afar.clone();
    let remote_future = std::thread::spawn(move || {
        remote.add_task_remote_with(options("remote"), move || *theirs.lock().unwrap() = seen());
        remote.add_task_remote_future_with(options("remote future"), seen)
    });
    let remote_future = remote_future.join().unwrap();
    controller.run();
    assert_eq!(*names.borrow(), ["eager", "finally eager", "plain", "finally"]);
    assert_eq!(future.get().unwrap(), "future");
    assert_eq!(*afar.lock().unwrap(), "remote");
    assert_eq!(remote_future.get().unwrap(), "remote future");
}

#[test]
fn an_impossible_stack_size_is_refused_in_every_form() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let bad = || TaskOptions::new().stack_size(1);
    let remote = manager.remote();
    let forms: [&dyn Fn(); 7] = [
        &|| manager.add_task_with(bad(), || ()),
        &|| drop(manager.add_task_future_with(bad(), || ())),
        &|| manager.add_task_eager_with(bad(), || ()),
        &|| drop(manager.add_task_eager_future_with(bad(), || ())),
        &|| manager.add_task_finally_with(bad(), || (), drop),
        &|| remote.add_task_remote_with(bad(), || ()),
        &|| drop(remote.add_task_remote_future_with(bad(), || ())),
    ];
    for form in forms {
        let message = panic_of(form);
        assert!(message.contains("a task cannot have a stack of 1 bytes"), "{message}");
    }
    assert!(!manager.has_tasks());
    controller.run();
}
