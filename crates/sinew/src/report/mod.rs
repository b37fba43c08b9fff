//! Reports of the runtime to people, and their destination.
//!
//! Reports go to the hook that the user has set, or to standard error through a [`LineLog`], which
//! never waits for a reader.

mod at_once;
mod line_log;

pub use line_log::LineLog;

use crate::carrier::current;
use crate::park::without_waiting;
use crate::primitive::SpinLock;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

type Hook = Arc<dyn Fn(&str) + Send + Sync>;

static HOOK: SpinLock<Option<Hook>> = SpinLock::new(None);

/// Sends sinew's reports to `hook` instead of standard error.
///
/// Without a hook, reports are lines of [`LineLog::stderr`](crate::io::LineLog::stderr). A reader
/// that does not read loses lines, and stops no fiber.
///
/// The hook gets whole lines without their ends: panics of fibers, warnings about pinned fibers
/// that wait, fibers that outlive a shutdown, hooks that panicked. If the runtime was
/// [built](crate::runtime::Builder) to look for them, it also gets stalls, deadlocks, fibers that
/// wait forever, and dumps, which may take several lines each.
///
/// Any thread may call the hook, and the hook must not wait. It should not panic either: if it
/// panics while a panic is announced, the process ends. [`reset_report_hook`] restores standard
/// error.
///
/// The report of a stack overflow is written by a signal handler, always to standard error.
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

/// Runs code of the user that may panic where nothing can be done about it. Returns `None` if it
/// did. The payload is not even dropped, since that may panic as well.
pub(crate) fn contain<R>(f: impl FnOnce() -> R) -> Option<R> {
    contained(f).map_err(std::mem::forget).ok()
}

/// Runs code of the user that must not unwind further: a destructor or a hook in the middle of
/// something.
///
/// # Errors
/// Returns the payload of a panic.
///
/// # Aborts
/// Aborts if a first-class fiber is unwound inside. That happens if a destructor that sinew runs on
/// the fiber's stack has switched away, and the fiber was dropped there. That unwinding may neither
/// go on here nor be lost.
pub(crate) fn contained<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    let result = catch_unwind(AssertUnwindSafe(f));
    if let Err(payload) = &result
        && sinew_context::is_unwind(&**payload)
    {
        say(format_args!(
            "a first-class fiber was dropped while a destructor or hook that sinew had called on it had switched away; \
             aborting, since it cannot be unwound from there"
        ));
        std::process::abort();
    }
    result
}

/// Sends a report.
#[cold]
pub(crate) fn say(message: fmt::Arguments<'_>) {
    let line = format!("sinew: {message}");
    let hook = HOOK.lock().clone();
    let said = hook.is_some_and(|hook| {
        // A report about a panic of the hook itself goes to standard error.
        !current::set_saying(true) && {
            // The hook may be called between two fibers, or during a wait that it must not disturb.
            let said = contain(|| without_waiting(|| hook(&line)));
            current::set_saying(false);
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

/// How long an abort waits for the reader of its report.
const LAST_WORDS: Duration = Duration::from_secs(1);
