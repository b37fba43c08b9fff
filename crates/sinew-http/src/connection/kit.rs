//! Memory that a fiber needs to serve requests: for input, output and the head.
//!
//! A connection has a kit only while it is being served. Each thread keeps some kits for later
//! fibers.

use crate::context::Current;
use crate::message::case::Case;
use crate::wire::buffers::{Reader, Writer};
use core::cell::RefCell;
use std::sync::Arc;

/// How many kits a thread keeps.
const KEPT: usize = 64;

pub(super) struct Kit {
    /// `None` while a body has the reader.
    pub(super) reader: Option<Reader>,
    pub(super) writer: Writer,
    /// The case of the last answered request. The next request reuses its memory.
    pub(super) answered: Option<Arc<Case>>,
    /// Where code on the fiber finds the current request.
    pub(super) current: Current,
}

thread_local! {
    /// Unused kits. Their buffers are empty, and `answered` only lends its memory.
    #[expect(clippy::vec_box, reason = "a kit is taken and given back without being moved")]
    static KITS: RefCell<Vec<Box<Kit>>> = const { RefCell::new(Vec::new()) };
}

impl Kit {
    pub(super) fn take() -> Box<Kit> {
        KITS.with_borrow_mut(Vec::pop).unwrap_or_else(Kit::new)
    }

    #[cold]
    fn new() -> Box<Kit> {
        Box::new(Kit {
            reader: Some(Reader::new()),
            writer: Writer::new(),
            answered: None,
            current: Current::default(),
        })
    }

    pub(super) fn give_back(mut self: Box<Kit>) {
        // Drop the kit if a body has kept its reader, or if its buffers have grown.
        let Some(reader) = &mut self.reader else { return };
        if !(reader.renew() && self.writer.renew()) {
            return;
        }
        if self.answered.as_ref().is_some_and(|case| !case.is_small()) {
            self.answered = None;
        }
        // When a thread ends, its thread-locals may be destroyed before its fibers.
        let _ = KITS.try_with(|kits| {
            let mut kits = kits.borrow_mut();
            if kits.len() < KEPT {
                kits.push(self);
            }
        });
    }
}
