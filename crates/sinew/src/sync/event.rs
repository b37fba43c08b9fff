//! An event: a condition that is set and reset, with any number of waiters.

use super::sequencer::{Sequencer, SequencerTurn, SequencerWait};
use core::pin::Pin;
use core::time::Duration;

/// An event. While it is set, all waits return at once; while it is not set, they wait.
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
// A sequencer with an odd counter while the event is set. A waiter waits for the next odd value.
#[derive(Debug, Default)]
pub struct Event(Sequencer);

const _: () = assert!(cfg!(sinew_loom) || size_of::<Event>() <= 32);

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

    /// Sets the event and wakes all waiters. Has no effect if the event is set.
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

    /// Resets the event, so that later waits wait. Has no effect if the event is not set.
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

    /// Waits until the event is set. A waiter is woken even if the event is reset at once.
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
    /// assert!(!event.wait_for(std::time::Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_for(&self, timeout: Duration) -> bool {
        self.0.wait_for(self.0.get() | 1, timeout)
    }

    /// Enters a place into the wait for the event: enter it now, and wait later.
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
