//! All primitives of `sinew::sync` between fibers of managers, fibers of a runtime and plain
//! threads.

mod channels;
mod fibers;
mod locks;
mod permits;
mod signals;

use crate::kit::{run_until, simple};
use sinew::Runtime;
use sinew::manager::{RemoteHandle, TaskFuture};
use sinew_testkit::watch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

/// The kind of a test's participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    /// A fiber of a manager.
    Manager,
    /// A fiber of a manager on another thread.
    OtherManager,
    /// A fiber of a runtime.
    Runtime,
    Thread,
}

const SIDES: [Side; 4] = [Side::Manager, Side::OtherManager, Side::Runtime, Side::Thread];

/// A manager that runs on its own thread.
struct Hosted {
    remote: RemoteHandle,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Hosted {
    fn new() -> Hosted {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, receive) = mpsc::channel();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (manager, controller) = simple();
            send.send(manager.remote()).unwrap();
            run_until(&manager, &controller, || stopped.load(Ordering::SeqCst));
            assert!(!manager.has_tasks(), "all members were waited for");
        });
        Hosted { remote: receive.recv().unwrap(), stop, thread: Some(thread) }
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        let stop = self.stop.clone();
        self.remote.add_task_remote(move || stop.store(true, Ordering::SeqCst));
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

struct Stage {
    managers: [Hosted; 2],
    runtime: Runtime,
}

enum Member<T> {
    Task(TaskFuture<T>),
    Fiber(sinew::JoinHandle<T>),
    Thread(std::thread::JoinHandle<T>),
}

impl<T> Member<T> {
    #[track_caller]
    fn end(self) -> T {
        let result = match self {
            Member::Task(future) => future.get(),
            Member::Fiber(fiber) => fiber.join(),
            Member::Thread(thread) => thread.join(),
        };
        result.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }
}

impl Stage {
    fn new() -> Stage {
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        Stage { managers: [Hosted::new(), Hosted::new()], runtime }
    }

    fn start<T: Send + 'static>(
        &self,
        side: Side,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Member<T> {
        match side {
            Side::Manager => Member::Task(self.managers[0].remote.add_task_remote_future(work)),
            Side::OtherManager => {
                Member::Task(self.managers[1].remote.add_task_remote_future(work))
            }
            Side::Runtime => Member::Fiber(self.runtime.spawn(work)),
            Side::Thread => Member::Thread(std::thread::spawn(work)),
        }
    }
}

/// Runs the test once for each pair of sides.
fn in_every_pairing(test: impl Fn(&Stage, Side, Side)) {
    let _watch = watch::a_minute();
    let stage = Stage::new();
    for first in SIDES {
        for second in SIDES {
            test(&stage, first, second);
        }
    }
}

/// Lets other fibers run, as far as that is possible.
fn pause(n: usize) {
    if n.is_multiple_of(8) {
        sinew::yield_now();
    }
}

const ROUNDS: usize = 200;
