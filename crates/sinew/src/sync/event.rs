//! Something that is the case, or is not.

use super::sequencer::{Sequencer, SequencerTurn, SequencerWait};
use core::pin::Pin;
use core::time::Duration;

/// An event: set, it lets everybody pass who waits for it, until it is reset.
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
// A sequencer whose counter is odd if the event is set: who waits, waits for the next odd value.
#[derive(Debug, Default)]
pub struct Event(Sequencer);

const _: () = assert!(cfg!(sinew_loom) || size_of::<Event>() <= 32);

impl Event {
    /// One that is not set.
    ///
    /// # Examples
    /// ```
    /// static READY: sinew::sync::Event = sinew::sync::Event::new();
    /// assert!(!READY.is_set());
    /// ```
    pub const fn new() -> Event {
        Event(Sequencer::new())
    }

    /// Whether it is set.
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

    /// Sets it: wakes all who wait. Nothing if it is set.
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

    /// Resets it: who comes now waits. Nothing if it is not set.
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
            // If somebody else was faster, it was reset.
            self.0.advance_from(now, now + 1);
        }
    }

    /// Waits until it is set. Who waits is let pass even if it is reset at once.
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

    /// Waits until it is set, at most for `timeout`; false if that was over before.
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

    /// Enters a place into the wait: enter now, wait later.
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
