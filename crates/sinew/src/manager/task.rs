//! A closure becomes a task.

use super::core::Core;
use super::future::{Promised, TaskFuture};
use super::measure;
use super::options::TaskOptions;
use crate::carrier::{Crew, current};
use crate::fiber::local::Inherited;
use crate::fiber::state::Outcome;
use crate::fiber::{Control, FiberRef, Flags};
use crate::park::{self, slots};
use crate::spawn::managed::{self, Traits};
use crate::spawn::{Fiber, describe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Where a panic was, for the panic callback.
const IN_TASK: &str = "a task";
const IN_FINALLY: &str = "the final closure of a task";

/// How a task is added.
pub(super) struct Added {
    options: TaskOptions,
    eager: bool,
}

impl Added {
    pub(super) fn task(options: TaskOptions) -> Added {
        Added { options, eager: false }
    }

    pub(super) fn eager(options: TaskOptions) -> Added {
        Added { options, eager: true }
    }
}

/// What runs in the fiber of a task: what it panics with goes to the manager.
pub(super) fn contained(f: impl FnOnce()) -> impl FnOnce() {
    move || {
        let run = || {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
                panicked(payload, IN_TASK);
            }
        };
        measure::around(run);
    }
}

#[cold]
fn panicked(payload: Box<dyn core::any::Any + Send>, place: &str) {
    if let Some((_, control)) = current::fiber() {
        park::panic_ended(control, &*payload);
    }
    if let Some(core) = Core::current() {
        core.panicked(payload, place);
    }
}

/// Adds a task without settings.
#[inline]
pub(super) fn add_plain(core: &Rc<Core>, f: impl FnOnce() + 'static) {
    let inherited = managed::inherited_here();
    core.assert_open();
    // SAFETY: a core belongs to its thread, which is the carrier's as long as it is open. The closure borrows
    // nothing, and what it panics with is caught. The fiber is ours until it is in the queue.
    unsafe {
        let control = managed::make(core.carrier, inherited, None, 1, contained(f));
        core.carrier.ready.push(control);
    }
    core.schedule();
}

#[track_caller]
pub(super) fn add(core: &Rc<Core>, added: Added, f: impl FnOnce() + 'static) {
    submit(core, added, 1, contained(f));
}

#[track_caller]
pub(super) fn add_future<T: 'static>(
    core: &Rc<Core>,
    added: Added,
    f: impl FnOnce() -> T + 'static,
) -> TaskFuture<T> {
    let (promised, slot) = Promised::new(core.shared.clone());
    let control = make(core, &added, 2, promised.kept_by(f));
    // SAFETY: the second reference is ours.
    let fiber = Fiber::from_ref(unsafe { FiberRef::from_counted(control) });
    place(core, added.eager, control);
    TaskFuture::new(slot, fiber)
}

#[track_caller]
pub(super) fn add_finally<T: 'static>(
    core: &Rc<Core>,
    added: Added,
    f: impl FnOnce() -> T + 'static,
    finally: impl FnOnce(std::thread::Result<T>) + 'static,
) {
    let run = move || {
        let result = catch_unwind(AssertUnwindSafe(f));
        if let (Err(panic), Some((_, control))) = (&result, current::fiber()) {
            park::panic_ended(control, &**panic);
        }
        let ended = park::on_root(|| finally(result));
        if let Err(payload) = ended {
            panicked(payload, IN_FINALLY);
        }
    };
    submit(core, added, 1, || measure::around(run));
}

#[track_caller]
fn submit(core: &Rc<Core>, added: Added, references: u64, f: impl FnOnce() + 'static) {
    let control = make(core, &added, references, f);
    place(core, added.eager, control);
}

/// Makes the fiber of a task. The closure does not panic.
#[track_caller]
fn make(
    core: &Rc<Core>,
    added: &Added,
    references: u64,
    f: impl FnOnce() + 'static,
) -> &'static Control {
    let (inherited, traits) = prepare(core, added);
    // SAFETY: as in `add_plain`.
    unsafe { managed::make(core.carrier, inherited, traits, references, f) }
}

/// What a task gets from the one who adds it.
#[track_caller]
fn prepare(core: &Core, added: &Added) -> (Option<Vec<Inherited>>, Option<Traits>) {
    let traits = traits(&core.crew, &added.options);
    // What is inherited is copied by code of the user's, which may end the manager.
    let inherited = managed::inherited_here();
    core.assert_open();
    if added.eager {
        check_eager(core);
    }
    (inherited, traits)
}

/// What the options of a task ask for, if they ask for anything.
///
/// # Panics
/// If the stack size is out of range.
#[track_caller]
pub(super) fn traits(crew: &Crew, options: &TaskOptions) -> Option<Traits> {
    let TaskOptions { name, stack_size, log_running_time: timed } = options.clone();
    if let Some(size) = stack_size
        && let Err(error) = crew.pool_of(size)
    {
        panic!("a task cannot have a stack of {size} bytes: {error}");
    }
    let special = name.is_some() || stack_size.is_some() || timed;
    special.then_some(Traits { name, stack_size, timed })
}

fn place(core: &Rc<Core>, eager: bool, control: &'static Control) {
    if eager {
        return run_eagerly(core, control);
    }
    // SAFETY: this is the carrier's thread; the fiber is ours until it is in the queue.
    unsafe { core.carrier.ready.push(control) };
    core.schedule();
}

/// An eager task suspends the fiber that adds it.
#[track_caller]
fn check_eager(core: &Core) {
    if !core.carrier.is_entered() {
        return;
    }
    assert!(
        core.carrier.is_here() && !core.carrier.is_telling(),
        "an eager task was added to the manager \"{}\" in a hook, or by another manager that it runs in: nothing of \
         it can run there",
        core.crew.settings.name
    );
    let lender = core.carrier.lender();
    let me = if core.is_inside() || lender.is_null() { core.carrier.current() } else { lender };
    // SAFETY: what runs has a block, and so has who has something done on the main context.
    let me = unsafe { &*me };
    assert!(
        !me.flags().has(Flags(Flags::PINNED.0 | Flags::NO_WAIT.0)),
        "an eager task was added by {} while it is pinned or in a hook, where no other fiber may run",
        describe(me)
    );
}

fn run_eagerly(core: &Rc<Core>, control: &'static Control) {
    let carrier = core.carrier;
    if !core.is_inside() {
        // SAFETY: this is the carrier's thread, and the fiber is ours.
        park::on_large_stack(|| unsafe { carrier.run_now(control) });
        return core.settle(false);
    }
    // SAFETY: what runs has a block; it does not end before it goes on here.
    let me = unsafe { &*carrier.current() };
    let unwinding = park::is_unwinding(carrier, me);
    if unwinding {
        me.set_flags(Flags::UNWINDING);
        carrier.unwinding.set(carrier.unwinding.get() + 1);
    }
    let slots = me.flags().has(Flags::SLOTS);
    if slots {
        slots::swap_out(me);
    }
    // SAFETY: this is the carrier's thread, and the fiber is ours. No code of the user's runs in the middle of
    // a wait but hooks, which were refused.
    unsafe { carrier.run_now(control) };
    if unwinding {
        carrier.unwinding.set(carrier.unwinding.get() - 1);
        me.clear_flags(Flags::UNWINDING);
    }
    if slots {
        slots::swap_in(me);
        crate::cancel::settle(me, Outcome::Notified);
    }
}
