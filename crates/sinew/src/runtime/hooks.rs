//! Hooks that tell the process about fibers: which fiber panics, which fiber's stack overflows, and
//! which fiber a first-class fiber belongs to.

use crate::carrier::current;
use crate::fiber::Flags;
use crate::fiber::describe;
use crate::park::without_waiting;
use crate::report;
use crate::room::with_room;
use std::fmt;
use std::ops::Range;
use std::sync::Once;

/// Installs the hooks, once in a process.
pub(super) fn install(panics: bool) {
    static CONTEXT: Once = Once::new();
    static PANICS: Once = Once::new();
    CONTEXT.call_once(|| {
        report::call_hooks_in(|hook| without_waiting(hook));
        // SAFETY: the hook returns the id of the running fiber, which is never used twice. It
        // neither switches nor unwinds.
        let host = unsafe { sinew_context::hook::set_host_hook(current::host) };
        // SAFETY: the hook only reads, and allocates nothing.
        let describe = unsafe { sinew_context::hook::set_describe_hook(describe_stack) };
        // SAFETY: the hook only counts.
        let unwind = unsafe { sinew_context::hook::set_unwind_hook(count_unwinding) };
        if host.is_err() || describe.is_err() || unwind.is_err() {
            report::say(format_args!(
                "another runtime has set the hooks of sinew-context; first-class fibers and \
                 overflow reports do not know the fibers of this one"
            ));
        }
    });
    // A panic hook cannot be set while the thread panics. The next runtime installs it then.
    if panics && !std::thread::panicking() {
        PANICS.call_once(install_panic_hook);
    }
}

/// Stack space in bytes that the standard library's hook needs. It may read tables to name
/// functions, which takes more than the smallest stacks have.
const ROOM_FOR_HOOKS: usize = 48 * 1024;

/// Whether the user has asked for backtraces, by the rule of the standard library.
fn wants_backtrace() -> bool {
    std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0")
}

fn say_backtrace(place: usize) {
    if let Ok(backtrace) = crate::inspect::suspended_at(place) {
        report::say(format_args!("the stack of the fiber:"));
        backtrace.to_string().lines().for_each(|line| report::say(format_args!("{line}")));
    }
}

fn install_panic_hook() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let Some((carrier, control)) = current::fiber() else {
            return before(info);
        };
        control.set_flags(Flags::PANICKED);
        // If this hook were suspended and another fiber of the carrier panicked meanwhile, the
        // process would abort.
        without_waiting(|| {
            report::say(format_args!(
                "{} panics on carrier {}:",
                describe(control),
                carrier.index()
            ));
            with_room(ROOM_FOR_HOOKS, |place| {
                before(info);
                // The hook ran on another stack, so its backtrace, if any, does not show the
                // fiber's frames.
                if let Some(place) = place.filter(|_| wants_backtrace()) {
                    say_backtrace(place);
                }
            });
            if carrier.crew().settings.dump_on_panic {
                crate::inspect::say_dump();
            }
        });
    }));
}

/// Counts the running fiber's first-class fibers that are being unwound. No panic hook sees these
/// unwindings.
fn count_unwinding(begins: bool) {
    if let Some((_, control)) = current::fiber() {
        let count = &control.extra_or_new().unwindings;
        // An unwinding that began in another fiber cannot end here. Saturate even so, rather than
        // underflow.
        count.set(if begins { count.get() + 1 } else { count.get().saturating_sub(1) });
    }
}

/// Names the fiber with the overflowed stack. Called in a signal handler, on the thread that
/// overflowed.
fn describe_stack(_stack: Range<usize>, out: &mut dyn fmt::Write) -> fmt::Result {
    match current::fiber() {
        Some((_, control)) => write!(out, "{}", describe(control)),
        None => out.write_str("a fiber outside of the runtime"),
    }
}
