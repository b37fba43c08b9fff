//! Timeouts and deadlines as arms of `select!`.

use super::Arm;
use super::sealed::{self, Entered, Joint, Left};
use crate::clock;
use core::time::Duration;
use std::time::Instant;

/// An arm of [`select`](super::select) that waits for a moment; see [`after`] and [`at`].
#[derive(Clone, Debug)]
pub struct TimerArm {
    deadline: u64,
}

/// Returns an arm that is possible once `duration` has passed from now. In
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

/// Returns an arm that is possible from `instant` on. In [`select!`](crate::select), write
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
    /// Returns nothing: a timer has no result.
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
