//! Stints: the dispatches between two looks up from the work.
//!
//! The usual path of a dispatch counts down, and looks at nothing else but its queues. When the
//! count reaches zero, the stint is over, and the path leads here. So everything that happens
//! seldom is behind this one check:
//!
//! - the duties of the carrier (`tend`) whose time has come;
//! - the turn of an unstarted fiber while started ones are ready;
//! - observers: while there are any, a stint is one dispatch long, so each dispatch comes here;
//! - a foreign loop: a call for the root, or a fiber that has interrupted itself, decides which
//!   context runs next. The call or the interruption ends the stint, so the next dispatch comes
//!   here.
//!
//! Next: `tend`, the duties.

use super::Owner;
use crate::fiber::Control;
use crate::metrics;

/// The maximum number of dispatches between two looks into the inbox.
const GLANCE: u32 = 64;

impl Owner {
    /// Returns the fiber that runs next, when the stint is over.
    #[cold]
    #[inline(never)]
    pub(super) fn next_after_stint(&self) -> *const Control {
        if self.is_decided() {
            return self.next_as_decided();
        }
        if !self.observed.is_on() {
            let next = self.next_after_tending();
            self.note_start(next);
            return next;
        }
        self.note_stop();
        let next = if self.observed.goes_on() {
            let since = &self.duties.since;
            since.set(since.get() + 1);
            metrics::set(&self.shared().counters.begun, since.get().into());
            self.stint_left.set(1);
            self.next_ready()
        } else {
            self.next_after_tending()
        };
        self.note_start(next);
        next
    }

    /// Returns the next fiber when it is already decided: the root has work, or a fiber has
    /// interrupted itself. The duties have to wait.
    fn next_as_decided(&self) -> *const Control {
        self.note_stop();
        let duties = &self.duties;
        duties.since.set(duties.since.get() + duties.stint.get());
        self.begin_stint(1);
        let next = self.decided();
        self.note_start(next);
        next
    }

    /// Tends the duties that are due, begins the next stint, and returns the fiber that runs next.
    fn next_after_tending(&self) -> *const Control {
        let duties = &self.duties;
        // The stint is over, and no other has begun.
        let since = duties.since.get() + duties.stint.replace(0);
        duties.since.set(since);
        let window = duties.window.get();
        if since >= window {
            self.tend();
        } else if !self.shared().inbox.is_empty() {
            self.take_inbox();
        }
        if self.can_refuse() || duties.look.get() {
            // The remaining duties are due when the root asks for the next fiber.
            self.begin_stint(1);
            return &self.root;
        }
        self.take_offers(self.shared());
        if let Some(injected) = self.take_injected() {
            self.deque().push(injected);
        }
        self.deal_if_due();
        // Unstarted fibers get turns in proportion to their number, but leave half of the turns to
        // started ones. While the newest unstarted fibers come first, the oldest gets a turn now
        // and then.
        let (unstarted, ready) = (self.shared().deque.len(), self.ready.len());
        let length = match (unstarted, ready) {
            (0, _) | (_, 0) => duties.window.get(),
            _ => ((unstarted + ready) / unstarted).clamp(2, window as usize) as u32,
        };
        self.begin_stint(length);
        if unstarted > 0
            && self.takes_oldest_in_turn()
            && let Some(oldest) = self.oldest_shared()
            && let Some(oldest) = self.resumable(oldest)
        {
            return oldest;
        }
        self.next_ready()
    }

    /// Begins a stint of at most `length` dispatches. While the carrier is observed, a stint is one
    /// dispatch long.
    fn begin_stint(&self, length: u32) {
        self.heed_observers();
        let length = self.observed.begin_stint(length.min(GLANCE));
        self.duties.stint.set(length);
        self.stint_left.set(length);
    }

    /// Makes the current stint end with the next dispatch.
    pub(super) fn end_stint(&self) {
        let (duties, left) = (&self.duties, self.stint_left.replace(1));
        // Count the dispatches of the stint that have passed.
        duties.since.set(duties.since.get() + duties.stint.replace(1) - left);
    }

    /// Ends the current stint with the next dispatch, if an observer was added since this carrier
    /// last looked.
    pub(super) fn end_stint_if_observed(&self) {
        let before = self.observed.is_on();
        self.heed_observers();
        if self.observed.is_on() && !before {
            let left = self.stint_left.get();
            self.end_stint();
            self.observed.begin_stint(left);
        }
    }
}
