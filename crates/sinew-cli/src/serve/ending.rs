//! The signals that end `sinew serve`.
//!
//! A plain thread receives the signals, because no fiber runs while the carriers hang. The first
//! signal asks for an orderly shutdown. The second signal ends the process at once, whatever the
//! carriers do.

use sinew::signal::{Signal, Signals};
use sinew::sync::Event;
use std::io;
use std::sync::Arc;

/// Returns an event that the first ending signal sets.
pub(super) fn hear() -> io::Result<Arc<Event>> {
    let mut asks = vec![Signal::INT, Signal::TERM];
    // `nohup` makes the process ignore `SIGHUP`, so that it outlives its terminal.
    if !is_ignored(Signal::HUP) {
        asks.push(Signal::HUP);
    }
    let signals = Signals::new(asks)?;
    let asked = Arc::new(Event::new());
    let sets = asked.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        signals.recv();
        sets.set();
        end_now(128 + signals.recv().as_raw());
    })?;
    Ok(asked)
}

/// Ends the process without running destructors or exit handlers, which may hang.
fn end_now(status: i32) -> ! {
    // SAFETY: `_exit` may be called on any thread at any time; it runs no destructor and takes no
    // lock.
    unsafe { libc::_exit(status) }
}

fn is_ignored(signal: Signal) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null pointer for the new action changes nothing, and `action` has room for the
    // present action.
    let result = unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: an all-zero `sigaction` is valid, and so is the value that the kernel wrote.
    result == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;
    use sinew_testkit::child::child;
    use sinew_testkit::watch::a_minute;

    fn raise(signal: Signal) {
        // SAFETY: `raise` has no preconditions; `hear` has installed a handler for the signal.
        unsafe { libc::raise(signal.as_raw()) };
    }

    /// The only carrier hangs, and so does the main thread, which waits for a fiber on it.
    #[test]
    fn the_second_signal_ends_the_process_though_every_carrier_hangs() {
        let _watch = a_minute();
        let name =
            "serve::ending::tests::the_second_signal_ends_the_process_though_every_carrier_hangs";
        let ended = child(name, || {
            let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
            let asked = hear().unwrap();
            let (hangs, hung) = std::sync::mpsc::channel();
            runtime.spawn(move || {
                hangs.send(()).unwrap();
                loop {
                    std::thread::park();
                }
            });
            hung.recv().unwrap();
            raise(Signal::INT);
            asked.wait();
            raise(Signal::TERM);
            runtime.run(|| ());
        });
        assert_eq!(ended.status.code(), Some(128 + libc::SIGTERM), "{ended:#?}");
    }
}
