//! Reports that the runtime makes to people, and their destination.
//!
//! Reports go to the hook that the user has set, or to standard error through a [`LineLog`], which
//! never waits for a reader. Every layer may report, so this module uses `primitive` and `threads`
//! alone. A layer above tells it in which [region](call_hooks_in) the user's hook runs.

mod at_once;
mod line_log;

pub use line_log::LineLog;

use crate::primitive::SpinLock;
use core::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

type Hook = Arc<dyn Fn(&str) + Send + Sync>;

static HOOK: SpinLock<Option<Hook>> = SpinLock::new(None);

/// Sends sinew's reports to `hook` instead of standard error.
///
/// Without a hook, reports are lines of [`LineLog::stderr`](crate::io::LineLog::stderr). A reader
/// that does not read loses lines, and stops no fiber.
///
/// The hook gets whole lines, without the line feed: panics of fibers, warnings about pinned fibers
/// that wait, fibers that outlive a shutdown, hooks that panicked. If the runtime was
/// [built](crate::runtime::Builder) to look for them, it also gets stalls, deadlocks, fibers that
/// wait forever, and dumps, which may take several lines each.
///
/// Sinew may call the hook on any thread, and the hook must not wait. It should not panic either:
/// if it panics while sinew reports a panic, the process ends. [`reset_report_hook`] restores
/// standard error.
///
/// A signal handler writes the report of a stack overflow, and always writes it to standard error.
///
/// # Examples
/// ```
/// sinew::set_report_hook(|line| eprintln!("[log] {line}"));
/// ```
pub fn set_report_hook(hook: impl Fn(&str) + Send + Sync + 'static) {
    replace(Some(Arc::new(hook)));
}

/// Sends sinew's reports to standard error again; see [`set_report_hook`].
///
/// # Examples
/// ```
/// sinew::set_report_hook(|_| {});
/// sinew::reset_report_hook();
/// ```
pub fn reset_report_hook() {
    replace(None);
}

fn replace(hook: Option<Hook>) {
    let before = std::mem::replace(&mut *HOOK.lock(), hook);
    drop(before);
}

/// Runs code of the user at a place where a panic cannot be passed on. Returns `None` if the code
/// panics. The payload of the panic is leaked, because dropping it may panic as well.
pub(crate) fn contain<R>(f: impl FnOnce() -> R) -> Option<R> {
    contained(f).map_err(std::mem::forget).ok()
}

/// Runs code of the user and catches its panic. The code is a destructor or a hook that the runtime
/// calls in the middle of an operation.
///
/// # Errors
/// Returns the payload of a panic.
///
/// # Aborts
/// Aborts if `f` is unwound because a first-class fiber was dropped. That happens if sinew runs a
/// destructor or hook on the stack of a first-class fiber, the destructor switches to another
/// fiber, and that fiber drops the first one. Such an unwinding must not end here, and cannot go on
/// through sinew's frames.
pub(crate) fn contained<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    let result = catch_unwind(AssertUnwindSafe(f));
    if let Err(payload) = &result
        && sinew_context::is_unwind(&**payload)
    {
        say(format_args!(
            "a first-class fiber was dropped while it was suspended in a destructor or hook that sinew had called; \
             aborting, because the fiber cannot be unwound from there"
        ));
        std::process::abort();
    }
    result
}

/// A function that calls its argument, and lets no code in the argument wait. `park` has such a
/// function for fibers.
type Region = fn(&mut dyn FnMut());

/// The region in which the user's hook runs. Set before the first fiber exists.
static REGION: OnceLock<Region> = OnceLock::new();

/// Makes the user's hook run inside `region` from now on, in which it cannot wait.
pub(crate) fn call_hooks_in(region: Region) {
    REGION.get_or_init(|| region);
}

/// Calls the user's hook. Without a region there is no fiber yet that could be suspended.
fn without_waiting(hook: &mut dyn FnMut()) {
    match REGION.get() {
        Some(region) => region(hook),
        None => hook(),
    }
}

/// Records whether this thread is in the user's hook. Returns the previous state.
//
// Never inlined, as all functions that read a `thread_local!`; `carrier::current` says why.
#[inline(never)]
fn set_saying(saying: bool) -> bool {
    thread_local! {
        static SAYING: Cell<bool> = const { Cell::new(false) };
    }
    SAYING.replace(saying)
}

/// Sends a report.
#[cold]
pub(crate) fn say(message: fmt::Arguments<'_>) {
    let line = format!("sinew: {message}");
    let hook = HOOK.lock().clone();
    let said = hook.is_some_and(|hook| {
        // A report about a panic of the hook itself goes to standard error.
        !set_saying(true) && {
            // The hook may be called between two fibers, or during a wait that it must not disturb.
            let said = contain(|| without_waiting(&mut || hook(&line)));
            set_saying(false);
            said.is_some()
        }
    });
    if !said {
        LineLog::stderr().write_line(line);
    }
}

/// Reports why the process cannot go on, and aborts it.
#[cold]
pub(crate) fn abort(message: fmt::Arguments<'_>) -> ! {
    say(message);
    LineLog::stderr().flush_timeout(LAST_WORDS);
    std::process::abort();
}

/// A guard in a frame that must not be unwound, because other threads may have a pointer to the
/// frame, or fibers need it. If an unwinding drops the guard, the process aborts with this message.
/// When the danger is over, the frame forgets the guard.
pub(crate) struct NeverUnwinds(pub(crate) &'static str);

impl Drop for NeverUnwinds {
    fn drop(&mut self) {
        abort(format_args!("{}", self.0));
    }
}

/// How long an abort waits for the reader of its report.
const LAST_WORDS: Duration = Duration::from_secs(1);
