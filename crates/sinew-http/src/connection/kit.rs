//! What a fiber needs to serve requests: memory for what comes in, what goes out, and what is asked for.
//!
//! A connection has such a kit only while it is being served. Each thread keeps some for the next fibers.

use super::wire::{Reader, Writer};
use crate::context::Current;
use crate::message::case::Case;
use core::cell::RefCell;
use std::sync::Arc;

/// How much is read at a time, and how much is gathered before it is sent.
pub(crate) const ROOM: usize = 8 * 1024;

/// How many a thread keeps.
const KEPT: usize = 64;

pub(super) struct Kit {
    /// Gone while a body has it.
    pub(super) reader: Option<Reader>,
    pub(super) writer: Writer,
    /// That of a request that was answered, for the next one.
    pub(super) answered: Option<Arc<Case>>,
    /// Where code that runs on the fiber finds the request.
    pub(super) current: Current,
}

thread_local! {
    /// Kits that nobody has, and in which there is nothing of a request.
    #[expect(clippy::vec_box, reason = "they are taken and given back without being moved")]
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
        // One whose reader a body has kept, or that grew for something unusual, is not kept.
        let Some(reader) = &mut self.reader else { return };
        if !(reader.renew() && self.writer.renew()) {
            return;
        }
        if self.answered.as_ref().is_some_and(|case| !case.is_small()) {
            self.answered = None;
        }
        // When a thread ends, its kits may have gone before its fibers.
        let _ = KITS.try_with(|kits| {
            let mut kits = kits.borrow_mut();
            if kits.len() < KEPT {
                kits.push(self);
            }
        });
    }
}
