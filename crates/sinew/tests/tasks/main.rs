//! `sinew::tasks`: several tasks at once, and batches.

mod awaiting;
mod batches;
mod collecting;
mod failing;
mod iterating;
mod leaving;
mod managers;
mod settings;
mod tokens;

use sinew::Runtime;
use sinew::sync::FiberFuture;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

fn one_carrier() -> Runtime {
    Runtime::builder().carriers(1).build().unwrap()
}

/// Returns the payload of the panic of `f`.
fn payload_of<R>(f: impl FnOnce() -> R) -> Box<dyn Any + Send> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("it did not panic"),
        Err(payload) => payload,
    }
}

/// Returns the message of a payload.
fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}

/// Returns the message of the panic of `f`.
fn message_of<R>(f: impl FnOnce() -> R) -> String {
    text(&*payload_of(f)).to_owned()
}

/// Doors. At each of them one fiber waits until the door is opened.
#[derive(Clone)]
struct Doors(Rc<Vec<Door>>);

#[derive(Default)]
struct Door {
    opened: FiberFuture<()>,
    passed: Cell<bool>,
}

impl Doors {
    fn new(count: usize) -> Doors {
        Doors(Rc::new((0..count).map(|_| Door::default()).collect()))
    }

    /// Waits until the door was opened.
    fn pass(&self, index: usize) {
        self.0[index].opened.wait();
        self.0[index].passed.set(true);
    }

    fn open(&self, index: usize) {
        self.0[index].opened.set(()).unwrap();
    }

    /// Starts a fiber that opens doors one after the other, each when a fiber has passed the
    /// previous one.
    fn open_in_turn(&self, order: &'static [usize]) -> sinew::JoinHandle<()> {
        let doors = self.clone();
        sinew::spawn_local(move || {
            for &index in order {
                doors.open(index);
                sinew::wait_until(|| doors.0[index].passed.get());
            }
        })
    }
}

/// Lets all other fibers run until they only wait.
fn let_others_run() {
    for _ in 0..100 {
        sinew::yield_now();
    }
}
