//! What happened, in order.

use std::cell::RefCell;
use std::fmt::Display;
use std::rc::Rc;

/// A list of lines that clones share.
#[derive(Clone, Default, Debug)]
pub struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    /// An empty log.
    pub fn new() -> Log {
        Log::default()
    }

    /// Adds a line.
    pub fn line(&self, text: impl Display) {
        self.0.borrow_mut().push(text.to_string());
    }

    /// A value that adds a line when it is dropped.
    pub fn on_drop(&self, text: impl Display) -> Noisy {
        Noisy { log: self.clone(), text: text.to_string() }
    }

    /// What was added so far; empties the log.
    pub fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

/// Tells a [`Log`] that it was dropped.
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
