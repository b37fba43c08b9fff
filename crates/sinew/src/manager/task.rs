//! Makes a task of a closure: a fiber of the manager, in a queue or run at once.

use super::core::Core;
use super::future::{Promised, TaskFuture};
use super::measure;
use super::options::TaskOptions;
use crate::carrier::embed::on_root::{on_large_stack, on_root};
use crate::carrier::{Crew, current};
use crate::fiber::local::Inherited;
use crate::fiber::state::Outcome;
use crate::fiber::task::detached;
use crate::fiber::{Control, Fiber, FiberRef, Flags, describe, panic_ended};
use crate::park::{raise, yielding};
use crate::spawn::birth::{self, Traits};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// The places of panics, for the panic callback.
const IN_TASK: &str = "a task";
const IN_FINALLY: &str = "the final closure of a task";

/// The options of a new task, and whether it is eager.
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

/// Returns the closure for the task's fiber: it calls `f`, and hands its panic to the manager.
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
        panic_ended(control, &*payload);
    }
    if let Some(core) = Core::current() {
        core.panicked(payload, place);
    }
}

/// Adds a task without options.
#[inline]
pub(super) fn add_plain(core: &Rc<Core>, f: impl FnOnce() + 'static) {
    let inherited = birth::inherited_here();
    core.assert_open();
    // SAFETY: a core stays on its thread, which is the carrier's while the manager is open. The
    // closure is `'static`, and `contained` catches its panic. The fiber is in no queue before the
    // push.
    unsafe {
        let control = birth::on_carrier(core.carrier, inherited, None, 1, detached(contained(f)));
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
    let (promised, awaited) = Promised::new(core.shared.clone());
    let control = make(core, &added, 2, promised.kept_by(f));
    // SAFETY: `make` counted two references. The fiber has one, and this takes the other.
    let fiber = Fiber::from_ref(unsafe { FiberRef::from_counted(control) });
    place(core, added.eager, control);
    TaskFuture::new(awaited, fiber)
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
            panic_ended(control, &**panic);
        }
        let ended = on_root(|| finally(result));
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

/// Makes the fiber of a task. `f` must not panic.
#[track_caller]
fn make(
    core: &Rc<Core>,
    added: &Added,
    references: u64,
    f: impl FnOnce() + 'static,
) -> &'static Control {
    let (inherited, traits) = prepare(core, added);
    // SAFETY: a core stays on its thread, which is the carrier's while the manager is open;
    // `prepare` has checked that. The closure is `'static` and does not panic.
    unsafe { birth::on_carrier(core.carrier, inherited, traits, references, detached(f)) }
}

/// Returns the fiber-locals that a task inherits, and its traits. Panics if the task cannot be
/// added.
#[track_caller]
fn prepare(core: &Core, added: &Added) -> (Option<Vec<Inherited>>, Option<Traits>) {
    let traits = traits(&core.crew, &added.options);
    // The user's code copies inherited fiber-locals, and may end the manager. So `assert_open`
    // comes after it.
    let inherited = birth::inherited_here();
    core.assert_open();
    if added.eager {
        check_eager(core);
    }
    (inherited, traits)
}

/// Returns the traits that the options of a task ask for; `None` if they ask for none.
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
    // SAFETY: the new fiber is in no queue, so its link is free.
    unsafe { core.carrier.ready.push(control) };
    core.schedule();
}

/// Panics if an eager task cannot run here, because the fiber that adds it cannot be suspended.
#[track_caller]
fn check_eager(core: &Core) {
    if !core.carrier.is_entered() {
        return;
    }
    assert!(
        core.carrier.shared().is_here() && !core.carrier.is_telling(),
        "cannot run an eager task of the manager \"{}\" in a hook, or while another manager runs inside it; \
         add an ordinary task there",
        core.crew.settings.name
    );
    let lender = core.carrier.lender();
    let me = if core.is_inside() || lender.is_null() { core.carrier.current() } else { lender };
    // SAFETY: the running fiber or root has a control block, and so has a fiber for which the main
    // context runs a call. Blocks are never unmapped.
    let me = unsafe { &*me };
    assert!(
        !me.flags().has(Flags(Flags::PINNED.0 | Flags::NO_WAIT.0)),
        "{} cannot add an eager task while it is pinned or in a hook, where no other fiber may run",
        describe(me)
    );
}

fn run_eagerly(core: &Rc<Core>, control: &'static Control) {
    let carrier = &core.carrier;
    if !core.is_inside() {
        // SAFETY: the new fiber is in no queue. No fiber of the carrier runs, so none is in the
        // middle of a wait.
        on_large_stack(|| unsafe { carrier.run_now(control) });
        return core.settle(false);
    }
    // SAFETY: the running fiber has a control block, and does not end before it goes on here.
    let me = unsafe { &*carrier.current() };
    let slots = me.flags().has(Flags::SLOTS);
    // SAFETY: the new fiber is in no queue. The running fiber is in no wait: in the middle of a
    // wait only hooks run the user's code, and `check_eager` refused those.
    yielding::leave(carrier, me, || unsafe { carrier.run_now(control) });
    if slots {
        raise::settle(me, Outcome::Notified);
    }
}
