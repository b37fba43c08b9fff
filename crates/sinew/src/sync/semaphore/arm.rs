//! Permits as an arm of `select!`.

use super::{Permits, Semaphore};
use crate::park::table::Key;
use crate::sync::select::sealed::{self, Entered, Joint, Left};
use crate::sync::select::{Arm, Departure, KeyArm, done};
use core::fmt;

/// An arm of [`select!`](crate::select) that takes permits; see [`Semaphore::arm`].
///
/// If the arm was selected and [`take`](Self::take) was not called, dropping the arm gives the
/// permits back.
///
/// # Examples
/// ```
/// use sinew::sync::{Patience, Semaphore, select};
///
/// let semaphore = Semaphore::new(1);
/// let mut arm = semaphore.arm();
/// assert_eq!(select(&mut [&mut arm], Patience::None), Some(0));
/// assert_eq!(semaphore.available(), 0); // the arm holds the permit
/// drop(arm);
/// assert_eq!(semaphore.available(), 1);
/// ```
pub struct SemaphoreArm<'a> {
    semaphore: &'a Semaphore,
    count: usize,
    arm: KeyArm,
    /// Whether the arm holds the permits: `select` has taken them, and the caller has not.
    taken: bool,
}

impl Semaphore {
    /// Returns an arm that takes a permit, for [`select`](crate::sync::select).
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{CancellationToken, Semaphore};
    ///
    /// let (permits, stop) = (Semaphore::new(1), CancellationToken::new());
    /// let _permit = sinew::select! {
    ///     wait(permits) -> permit => permit,
    ///     wait(stop) -> () => unreachable!(),
    /// };
    /// assert_eq!(permits.available(), 0);
    /// ```
    pub fn arm(&self) -> SemaphoreArm<'_> {
        self.arm_many(1)
    }

    /// Returns an arm that takes `count` permits at once, for [`select`](crate::sync::select).
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Patience, Semaphore, select};
    ///
    /// let permits = Semaphore::new(2);
    /// let mut arm = permits.arm_many(3);
    /// assert_eq!(select(&mut [&mut arm], Patience::None), None);
    /// ```
    pub fn arm_many(&self, count: usize) -> SemaphoreArm<'_> {
        let arm = KeyArm::with_word(Key::of(self), count);
        SemaphoreArm { semaphore: self, count, arm, taken: false }
    }
}

impl<'a> SemaphoreArm<'a> {
    /// Returns the permits, after this arm was selected.
    ///
    /// # Panics
    /// Panics if this arm was not selected, or if `take` has already returned its permits.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Patience, Semaphore, select};
    ///
    /// let permits = Semaphore::new(2);
    /// let mut arm = permits.arm();
    /// select(&mut [&mut arm], Patience::Forever);
    /// let _permit = arm.take();
    /// assert_eq!(permits.available(), 1);
    /// ```
    #[track_caller]
    pub fn take(&mut self) -> Permits<'a> {
        assert!(self.taken, "the arm was not selected, or its permits were taken before");
        self.taken = false;
        Permits { semaphore: self.semaphore, count: self.count }
    }
}

impl Arm for SemaphoreArm<'_> {}

impl sealed::Arm for SemaphoreArm<'_> {
    fn attempt(&mut self) -> bool {
        self.taken = self.taken || self.semaphore.try_take(self.count);
        self.taken
    }

    fn seems_ready(&self) -> bool {
        self.taken || self.semaphore.available() >= self.count
    }

    fn enter(&mut self, wait: Joint<'_>) -> Entered {
        let (semaphore, count) = (self.semaphore, self.count);
        loop {
            if semaphore.try_take(count) {
                let entered = done(wait);
                match entered {
                    Entered::Done => self.taken = true,
                    // The wait had ended before: give the permits back.
                    _ => semaphore.add(count),
                }
                return entered;
            }
            if self.arm.link(wait, |bucket| semaphore.mark(bucket, count)) {
                return Entered::Linked;
            }
        }
    }

    fn leave(&mut self) -> Left {
        match self.arm.leave() {
            Departure::NotThere => Left::Nothing,
            Departure::InVain => {
                // The waiters behind this arm may be served now.
                self.semaphore.serve(0);
                Left::Nothing
            }
            Departure::Granted => {
                self.taken = true;
                Left::Granted
            }
        }
    }
}

impl Drop for SemaphoreArm<'_> {
    fn drop(&mut self) {
        if self.taken {
            self.semaphore.add(self.count);
        }
    }
}

impl fmt::Debug for SemaphoreArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphoreArm").field("count", &self.count).finish_non_exhaustive()
    }
}
