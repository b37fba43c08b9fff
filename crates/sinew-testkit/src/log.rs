//! Records events in order.

use std::fmt::Display;
use std::sync::{Arc, Mutex};

/// A list of lines that clones share.
#[derive(Clone, Default, Debug)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Makes an empty log.
    pub fn new() -> Log {
        Log::default()
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        // A panic elsewhere leaves the list of lines intact.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds a line.
    pub fn line(&self, text: impl Display) {
        self.lines().push(text.to_string());
    }

    /// Makes a value that adds a line when it is dropped.
    pub fn on_drop(&self, text: impl Display) -> Noisy {
        Noisy { log: self.clone(), text: text.to_string() }
    }

    /// Returns the lines so far, and empties the log.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines())
    }
}

/// Adds a line to a [`Log`] when it is dropped.
#[derive(Debug)]
pub struct Noisy {
    log: Log,
    text: String,
}

impl Drop for Noisy {
    fn drop(&mut self) {
        self.log.line(&self.text);
    }
}
