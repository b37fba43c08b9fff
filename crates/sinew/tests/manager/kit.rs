//! Helpers for the tests of managers.

use sinew::manager::{
    FiberManager, LoopController, Options, Runner, SimpleLoopController, TaskState, Until,
};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Makes a manager, and the loop that the test runs by hand.
pub(crate) fn simple() -> (FiberManager, SimpleLoopController) {
    with(Options::default())
}

/// Makes a manager with options, and the loop that the test runs by hand.
pub(crate) fn with(options: Options) -> (FiberManager, SimpleLoopController) {
    let controller = SimpleLoopController::new();
    let manager = FiberManager::new(controller.clone(), options).unwrap();
    (manager, controller)
}

/// Runs the loop until `done`, also while it has no tasks: other threads may add some.
pub(crate) fn run_until(
    manager: &FiberManager,
    controller: &SimpleLoopController,
    done: impl FnMut() -> bool,
) {
    // This task keeps the loop running and makes it call `done` again.
    let keeper = manager.add_task_future(|| {
        loop {
            sinew::sleep(MS);
        }
    });
    controller.run_until(done);
    keeper.cancel();
    controller.run_until(|| keeper.is_ready());
}

/// Leaks a value that the closures of a test share, so that they need not borrow from the test.
pub(crate) fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Returns the text of the panic of a closure.
#[track_caller]
pub(crate) fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => panic!("it should have panicked"),
        Err(payload) => text_of(&*payload),
    }
}

/// Returns the text of a panic's payload.
pub(crate) fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("not a text").to_owned()
}

/// Returns an address on the stack that the caller runs on.
#[inline(never)]
pub(crate) fn stack_address() -> usize {
    let here = 0_u8;
    std::hint::black_box(&raw const here).addr()
}

/// Returns the state of the running fiber.
pub(crate) fn own_state() -> TaskState {
    TaskState::of(&sinew::current())
}

/// A controller that counts its calls, and runs when the test calls `turn`.
#[derive(Clone, Default)]
pub(crate) struct Counting(Rc<Counts>);

#[derive(Default)]
struct Counts {
    runner: RefCell<Option<Runner>>,
    scheduled: Cell<usize>,
    remote: Arc<AtomicUsize>,
    untils: RefCell<Vec<Until>>,
    busy: RefCell<Vec<bool>>,
}

impl Counting {
    /// Runs the ready tasks.
    pub(crate) fn turn(&self) -> bool {
        let runner = self.runner();
        runner.run()
    }

    /// Returns the runner that the manager has attached.
    pub(crate) fn runner(&self) -> Runner {
        self.0.runner.borrow().clone().expect("a manager attaches its runner")
    }

    /// Returns how often the manager has requested a turn, from its own thread.
    pub(crate) fn scheduled(&self) -> usize {
        self.0.scheduled.get()
    }

    /// Returns how often other threads have requested a turn.
    pub(crate) fn scheduled_remotely(&self) -> usize {
        self.0.remote.load(Ordering::SeqCst)
    }

    /// Returns the untils that it was given since the last call.
    pub(crate) fn take_untils(&self) -> Vec<Until> {
        self.0.untils.take()
    }

    /// Returns the arguments of `keep_alive` since the last call.
    pub(crate) fn take_busy(&self) -> Vec<bool> {
        self.0.busy.take()
    }
}

impl LoopController for Counting {
    fn attach(&self, runner: Runner) {
        let before = self.0.runner.replace(Some(runner));
        assert!(before.is_none(), "attached twice");
    }

    fn schedule(&self) {
        self.0.scheduled.set(self.0.scheduled.get() + 1);
    }

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        let remote = self.0.remote.clone();
        Arc::new(move || {
            remote.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn idle(&self, until: Until) {
        self.0.untils.borrow_mut().push(until);
    }

    fn keep_alive(&self, busy: bool) {
        self.0.busy.borrow_mut().push(busy);
    }
}

/// Makes a manager with a counting controller.
pub(crate) fn counted() -> (FiberManager, Counting) {
    let controller = Counting::default();
    let manager = FiberManager::new(controller.clone(), Options::default()).unwrap();
    (manager, controller)
}
