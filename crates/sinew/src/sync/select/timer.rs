//! Timeouts and deadlines as arms of `select!`.

use super::Arm;
use super::sealed::{self, Entered, Joint, Left};
use crate::clock;
use core::time::Duration;
use std::time::Instant;

/// An arm of [`select`](super::select) that waits for a moment; see [`after`] and [`at`].
///
/// # Examples
/// ```
/// use sinew::sync::{Patience, after, channel, select};
/// use std::time::Duration;
///
/// let (_sender, receiver) = channel::unbounded::<u32>();
/// let mut limit = after(Duration::from_millis(1)); // counts from here
/// let ended = select(&mut [&mut receiver.arm(), &mut limit], Patience::Forever);
/// assert_eq!(ended, Some(1));
/// ```
#[derive(Clone, Debug)]
pub struct TimerArm {
    deadline: u64,
}

/// Returns an arm that becomes possible when `duration` has passed, counted from this call. In
/// [`select!`](crate::select), write `after(duration) => expression`.
///
/// # Examples
/// ```
/// use sinew::sync::{Patience, after, select};
/// use std::time::Duration;
///
/// let (mut soon, mut late) = (after(Duration::from_millis(1)), after(Duration::MAX));
/// assert_eq!(select(&mut [&mut late, &mut soon], Patience::Forever), Some(1));
/// ```
pub fn after(duration: Duration) -> TimerArm {
    TimerArm { deadline: clock::after(clock::now(), duration) }
}

/// Returns an arm that becomes possible at `instant`. In [`select!`](crate::select), write
/// `at(instant) => expression`.
///
/// # Examples
/// ```
/// let passed = sinew::select! {
///     at(std::time::Instant::now()) => true,
///     after(std::time::Duration::MAX) => false,
/// };
/// assert!(passed);
/// ```
pub fn at(instant: Instant) -> TimerArm {
    TimerArm { deadline: clock::at(instant) }
}

impl TimerArm {
    /// Does nothing: a timer has no result.
    ///
    /// # Examples
    /// ```
    /// sinew::sync::after(std::time::Duration::ZERO).take();
    /// ```
    pub fn take(&mut self) {}

    fn is_over(&self) -> bool {
        self.deadline <= clock::now()
    }
}

impl Arm for TimerArm {}

impl sealed::Arm for TimerArm {
    fn attempt(&mut self) -> bool {
        self.is_over()
    }

    fn seems_ready(&self) -> bool {
        self.is_over()
    }

    fn enter(&mut self, _wait: Joint<'_>) -> Entered {
        Entered::Until(self.deadline)
    }

    fn leave(&mut self) -> Left {
        if self.is_over() { Left::Ready } else { Left::Nothing }
    }
}
