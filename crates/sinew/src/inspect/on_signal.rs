//! Dumps all fibers whenever the process gets a signal.

use super::dump::dump;
use crate::carrier::bell::Bell;
use crate::report;
use crate::signal::{Signal, register};
use std::io;
use std::sync::{Mutex, PoisonError};

/// Arranges that all fibers are dumped to the report hook whenever the process gets `signal`.
///
/// A signal handler may do next to nothing, so it wakes a thread that writes the dump. That thread
/// is part of no runtime and works even if all carriers are stuck.
pub(crate) fn dump_on(signal: Signal) -> io::Result<()> {
    /// Signals that cause a dump.
    static SIGNALS: Mutex<Vec<Signal>> = Mutex::new(Vec::new());
    if let Some(reason) = signal.refusal() {
        let text = format!("cannot dump on signal {}: {reason}", signal.as_raw());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut signals = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    if signals.contains(&signal) {
        return Ok(());
    }
    // The handler stays as long as the process, and so must the bell that it rings.
    let bell: &'static Bell = Box::leak(Box::new(Bell::new()?));
    register(signal, || bell.ring())?;
    crate::carrier::thread::start("sinew-dump".to_owned(), || {
        loop {
            if bell.wait(None) {
                say();
            }
        }
    })?;
    signals.push(signal);
    Ok(())
}

/// Dumps all fibers to the report hook.
pub(crate) fn say() {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = dump(&mut text);
    for line in String::from_utf8_lossy(&text).lines() {
        report::say(format_args!("{line}"));
    }
}
