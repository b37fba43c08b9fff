//! A dump whenever the process gets a signal.

use super::dump::dump;
use crate::carrier::bell::Bell;
use crate::report;
use crate::signal::{Signal, register};
use std::io;
use std::sync::{Mutex, PoisonError};

/// Has all fibers dumped to the report hook whenever the process gets `signal`, from now on.
///
/// A handler may do next to nothing. It tells a thread, which does the rest, and which is part of no
/// runtime: it works also if all carriers are stuck.
pub(crate) fn dump_on(signal: Signal) -> io::Result<()> {
    /// Signals that lead to a dump.
    static SIGNALS: Mutex<Vec<Signal>> = Mutex::new(Vec::new());
    if let Some(reason) = signal.refusal() {
        let text = format!("cannot dump on signal {}: {reason}", signal.as_raw());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut signals = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    if signals.contains(&signal) {
        return Ok(());
    }
    // The handler stays as long as the process, and so does what it rings.
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
    // Memory takes everything.
    let _ = dump(&mut text);
    for line in String::from_utf8_lossy(&text).lines() {
        report::say(format_args!("{line}"));
    }
}
