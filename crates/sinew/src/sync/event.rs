//! An event: a condition that is set and reset, with any number of waiters.
//!
//! Built on `Sequencer`, which has the waiters.

use super::sequencer::{Sequencer, SequencerTurn, SequencerWait};
use core::pin::Pin;
use core::time::Duration;

/// A condition that is set and reset, with any number of waiters. While the event is set, every
/// wait returns at once. While it is not set, callers wait until it is.
///
/// # Examples
/// ```
/// use sinew::sync::Event;
///
/// let ready = Event::new();
/// sinew::scope(|s| {
///     for _ in 0..3 {
///         s.spawn(|| ready.wait());
///     }
///     ready.set();
/// });
/// assert!(ready.is_set());
/// ready.reset();
/// ```
//
// The event is a sequencer. The counter is odd while the event is set. A waiter waits for the next
// odd value.
#[derive(Debug, Default)]
pub struct Event(Sequencer);

const _: () = assert!(crate::primitive::IS_MODEL || size_of::<Event>() <= 32);

impl Event {
    /// Creates an event that is not set.
    ///
    /// # Examples
    /// ```
    /// static READY: sinew::sync::Event = sinew::sync::Event::new();
    /// assert!(!READY.is_set());
    /// ```
    pub const fn new() -> Event {
        Event(Sequencer::new())
    }

    /// Returns whether the event is set.
    ///
    /// # Examples
    /// ```
    /// let event = sinew::sync::Event::new();
    /// event.set();
    /// assert!(event.is_set());
    /// ```
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.get() % 2 == 1
    }

    /// Sets the event and wakes all waiters. Has no effect if the event is already set.
    ///
    /// # Examples
    /// ```
    /// let event = sinew::sync::Event::new();
    /// event.set();
    /// event.wait(); // at once
    /// ```
    pub fn set(&self) {
        self.0.advance(self.0.get() | 1);
    }

    /// Resets the event: later callers of [`wait`](Self::wait) wait until it is set again. Has no
    /// effect if the event is not set.
    ///
    /// # Examples
    /// ```
    /// let event = sinew::sync::Event::new();
    /// event.set();
    /// event.reset();
    /// assert!(!event.is_set());
    /// ```
    pub fn reset(&self) {
        let now = self.0.get();
        if now % 2 == 1 {
            // If the exchange fails, another caller has reset the event.
            self.0.advance_from(now, now + 1);
        }
    }

    /// Waits until the event is set. A waiter is woken even if the event is reset right after it
    /// was set.
    ///
    /// # Examples
    /// ```
    /// let event = sinew::sync::Event::new();
    /// sinew::scope(|s| {
    ///     s.spawn(|| event.wait());
    ///     event.set();
    /// });
    /// ```
    #[track_caller]
    pub fn wait(&self) {
        self.0.wait(self.0.get() | 1);
    }

    /// Waits at most `timeout` until the event is set; returns false if it was not set in time.
    ///
    /// # Examples
    /// ```
    /// let event = sinew::sync::Event::new();
    /// assert!(!event.wait_timeout(std::time::Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.0.wait_timeout(self.0.get() | 1, timeout)
    }

    /// Enters `place` into the wait for the event, without waiting. The caller waits later, with
    /// the returned turn, and then does not miss an event that was set and reset in between.
    ///
    /// # Panics
    /// Panics if the place was entered before and its wait is not over.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Event, Reached, SequencerWait};
    /// use std::pin::pin;
    ///
    /// let event = Event::new();
    /// let place = pin!(SequencerWait::new());
    /// let turn = event.enter(place);
    /// event.set();
    /// event.reset();
    /// assert_eq!(turn.wait(), Reached::Yes);
    /// ```
    pub fn enter<'s: 'a, 'a>(
        &'s self,
        place: Pin<&'a mut SequencerWait<'s>>,
    ) -> SequencerTurn<'a, 's> {
        self.0.enter(self.0.get() | 1, place)
    }
}
