//! Memory for heads, which each thread keeps for the next ones.

use crate::parse::head::{Head, Outline};
use core::cell::RefCell;
use std::sync::Arc;

/// How many a thread keeps, and how large they may be.
const KEPT: usize = 64;
const LARGEST: usize = 2 * 1024;

thread_local! {
    /// Heads that nobody has, each of which is the only reference to its memory.
    static HEADS: RefCell<Vec<Arc<Head>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a head that was understood.
pub(super) fn store(outline: Outline, raw: &[u8]) -> Arc<Head> {
    if let Some(mut head) = HEADS.with_borrow_mut(Vec::pop)
        && let Some(place) = Arc::get_mut(&mut head)
    {
        place.replace(outline, raw);
        return head;
    }
    Arc::new(Head::new(outline, raw))
}

/// Takes a head back, if nobody else has it any more.
pub(super) fn give_back(mut head: Arc<Head>) {
    if Arc::get_mut(&mut head).is_none_or(|head| head.capacity() > LARGEST) {
        return;
    }
    // When a thread ends, its heads may have gone before its fibers.
    let _ = HEADS.try_with(|heads| {
        let mut heads = heads.borrow_mut();
        if heads.len() < KEPT {
            heads.push(head);
        }
    });
}
