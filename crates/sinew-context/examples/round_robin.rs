//! A scheduler in fifty lines: tasks take turns, each suspended in `yield_now` until its next turn.
//!
//! Every task switches straight to the next one. The end of one task may start another, so
//! `FiberContext::with_entry` makes the tasks.

use sinew_context::stack::{StackCache, StackPool};
use sinew_context::{FiberContext, catch_panic};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;

/// The tasks that wait for their turn, and the fiber that waits until all of them are done.
#[derive(Default)]
struct Scheduler {
    ready: RefCell<VecDeque<FiberContext>>,
    main: Cell<Option<FiberContext>>,
}

impl Scheduler {
    fn spawn(self: &Rc<Self>, stacks: &StackCache, task: impl FnOnce(&Rc<Self>) + 'static) {
        let this = self.clone();
        let fiber = FiberContext::with_entry(stacks, move |_ended| {
            // A panic must not leave the fiber. It ends only this task.
            let _ = catch_panic(AssertUnwindSafe(|| task(&this)));
            this.next()
        });
        self.ready.borrow_mut().push_back(fiber.expect("there is memory for a stack"));
    }

    /// Returns the task that is next, or `main` when there is none.
    fn next(&self) -> FiberContext {
        let next = self.ready.borrow_mut().pop_front();
        next.or_else(|| self.main.take()).expect("main waits until all are done")
    }

    /// Lets the other tasks run first. The injected function puts the suspended caller in the
    /// queue.
    fn yield_now(self: &Rc<Self>) {
        if self.ready.borrow().is_empty() {
            return;
        }
        let this = self.clone();
        let next = self.next();
        let _ = next.resume_with(move |suspended| {
            this.ready.borrow_mut().push_back(suspended);
            None
        });
    }

    /// Runs all tasks to their end.
    fn run(self: &Rc<Self>) {
        let this = self.clone();
        let next = self.next();
        let _ = next.resume_with(move |main| {
            this.main.set(Some(main));
            None
        });
    }
}

#[expect(clippy::print_stdout, reason = "an example shows what happens")]
fn main() -> std::io::Result<()> {
    let pool = StackPool::new()?;
    let stacks = StackCache::new(&pool);
    let scheduler = Rc::new(Scheduler::default());
    for name in ["a", "b", "c"] {
        scheduler.spawn(&stacks, move |scheduler| {
            for step in 1..=3 {
                println!("{name}{step}");
                assert!((name, step) != ("b", 2), "b has had enough");
                scheduler.yield_now();
            }
        });
    }
    scheduler.run();
    println!("all done; {} stacks in use", pool.stats().in_use - stacks.len());
    Ok(())
}
