//! Ends tests that hang.

use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

/// Aborts the process if this value is not dropped in time. The report names the hanging test.
#[derive(Debug)]
pub struct Watchdog {
    /// Dropped with the guard; the watching thread notices.
    _alive: mpsc::Sender<()>,
}

/// Watches the running test for `limit`.
#[must_use]
pub fn watchdog(limit: Duration) -> Watchdog {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let (alive, dropped) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if dropped.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            // Do not print with a macro: the test harness would hold that output back until the end
            // of the test, which never comes.
            let _ = writeln!(std::io::stderr(), "{test} hangs: it did not end within {limit:?}");
            std::process::abort();
        }
    });
    Watchdog { _alive: alive }
}

/// Watches the running test for a minute, far longer than any test should take.
#[must_use]
pub fn a_minute() -> Watchdog {
    watchdog(Duration::from_secs(60))
}
