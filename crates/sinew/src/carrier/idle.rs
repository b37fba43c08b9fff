//! Counts carriers that have nothing to do; see README.md of this folder.

use crate::primitive::{AtomicUsize, Ordering, fence};

const SEARCHER: usize = 1;
const SLEEPER: usize = 1 << (usize::BITS / 2);
const SEARCHERS: usize = SLEEPER - 1;

/// The number of searching carriers and of sleeping carriers, in one word.
#[derive(Debug)]
pub(crate) struct Idle(AtomicUsize);

impl Idle {
    pub(crate) fn new() -> Idle {
        Idle(AtomicUsize::new(0))
    }

    /// Whether the publisher of new work has to wake a carrier: some carrier sleeps and none
    /// searches.
    #[inline(always)]
    pub(crate) fn wants_wake(&self) -> bool {
        // ORDERING: SeqCst fence; pairs with the fences in `sleep` and `found`, each of which
        // stands between a change of the word and a look at every queue. Either we see the change,
        // or that look sees the work that was published before this.
        fence(Ordering::SeqCst);
        self.would_wake()
    }

    /// Whether some carrier sleeps and none searches. The answer is only a hint, because this
    /// function does not have the fence of `wants_wake`.
    #[inline(always)]
    pub(crate) fn would_wake(&self) -> bool {
        // ORDERING: SeqCst; after the fence in `wants_wake`, pairs with the exchanges in `sleep`
        // and `found`. It publishes and acquires nothing else.
        let word = self.0.load(Ordering::SeqCst);
        word >= SLEEPER && word & SEARCHERS == 0
    }

    /// Counts a carrier that begins to search.
    pub(crate) fn search(&self) {
        // ORDERING: SeqCst; pairs with the load in `would_wake`. A publisher that sees us counted
        // relies on our look after the fence in `found` or `sleep`, one of which we call later.
        self.0.fetch_add(SEARCHER, Ordering::SeqCst);
    }

    /// Uncounts a searcher that has found work. Returns true for the last searcher, which must make
    /// sure that another carrier searches if there is more work.
    #[must_use]
    pub(crate) fn found(&self) -> bool {
        // ORDERING: SeqCst; pairs with the load in `would_wake`. Of several searchers, the exchange
        // decides which one is the last.
        let last = self.0.fetch_sub(SEARCHER, Ordering::SeqCst) & SEARCHERS == SEARCHER;
        // ORDERING: SeqCst fence; pairs with the one in `wants_wake`. A publisher that saw us
        // search relies on the look that follows.
        fence(Ordering::SeqCst);
        last
    }

    /// Counts a searcher as a sleeper. The caller must look at every queue once more after this.
    pub(crate) fn sleep(&self) {
        // ORDERING: SeqCst; pairs with the load in `would_wake`.
        self.0.fetch_add(SLEEPER.wrapping_sub(SEARCHER), Ordering::SeqCst);
        // ORDERING: SeqCst fence; pairs with the one in `wants_wake`. Either the publisher sees the
        // sleeper that was just counted, or the caller's look sees the publisher's work.
        fence(Ordering::SeqCst);
    }

    /// Counts a sleeper as a searcher again. Called by the sleeper itself.
    pub(crate) fn wake(&self) {
        // ORDERING: SeqCst; as in `search`: the fence in `found` follows.
        self.0.fetch_sub(SLEEPER - SEARCHER, Ordering::SeqCst);
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
