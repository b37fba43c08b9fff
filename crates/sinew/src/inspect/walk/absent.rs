//! Substitute for platforms on which stacks cannot be walked.

use super::backtrace::Symbol;
use std::sync::Arc;

/// A copy of a stack, from the place where its context is suspended.
pub(super) struct StackCopy {
    pub(super) base: usize,
    pub(super) bytes: Vec<u8>,
}

impl StackCopy {
    pub(super) fn frames(&self, _limit: usize) -> Option<Vec<usize>> {
        let _ = (self.base, &self.bytes);
        None
    }
}

pub(super) fn symbols(_address: usize) -> Arc<[Symbol]> {
    Arc::new([])
}
