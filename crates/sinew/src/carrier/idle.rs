//! How carriers that have nothing to do are counted; see README.md of this folder.

use crate::primitive::{AtomicUsize, Ordering, fence};

const SEARCHER: usize = 1;
const SLEEPER: usize = 1 << (usize::BITS / 2);
const SEARCHERS: usize = SLEEPER - 1;

/// Carriers that search and carriers that sleep, in one word.
#[derive(Debug)]
pub(crate) struct Idle(AtomicUsize);

impl Idle {
    pub(crate) fn new() -> Idle {
        Idle(AtomicUsize::new(0))
    }

    /// Whether work that was just published needs somebody to be woken: someone sleeps, and nobody
    /// searches.
    #[inline(always)]
    pub(crate) fn wants_wake(&self) -> bool {
        // ORDERING: SeqCst fence; pairs with the changes of the word in `sleep` and `found`, which
        // are SeqCst and followed by a look at every queue. Either we see the sleeper, or its last
        // look sees what was published before this.
        fence(Ordering::SeqCst);
        self.would_wake()
    }

    /// The same without the fence: a hint.
    #[inline(always)]
    pub(crate) fn would_wake(&self) -> bool {
        let word = self.0.load(Ordering::SeqCst);
        word >= SLEEPER && word & SEARCHERS == 0
    }

    /// A carrier begins to search.
    pub(crate) fn search(&self) {
        self.0.fetch_add(SEARCHER, Ordering::SeqCst);
    }

    /// A searcher has found something. True if it was the last one, so that it must see to it that
    /// another searches if there is more.
    #[must_use]
    pub(crate) fn found(&self) -> bool {
        let last = self.0.fetch_sub(SEARCHER, Ordering::SeqCst) & SEARCHERS == SEARCHER;
        // ORDERING: SeqCst fence; pairs with the one in `wants_wake`: who published before and saw
        // us search relies on the look that follows.
        fence(Ordering::SeqCst);
        last
    }

    /// A searcher goes to sleep. It must look at every queue once more after this.
    pub(crate) fn sleep(&self) {
        self.0.fetch_add(SLEEPER.wrapping_sub(SEARCHER), Ordering::SeqCst);
        // ORDERING: SeqCst fence; pairs with the one in `wants_wake`.
        fence(Ordering::SeqCst);
    }

    /// A sleeper searches again: called by itself, or by who woke it, on its behalf.
    pub(crate) fn wake(&self) {
        self.0.fetch_sub(SLEEPER - SEARCHER, Ordering::SeqCst);
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
