//! A signal that is given once.

use super::futex::Futex;
use core::time::Duration;

/// A signal: posted once, it lets everybody pass who waits for it, until it is reset.
///
/// # Examples
/// ```
/// use sinew::sync::Baton;
///
/// let done = Baton::new();
/// sinew::scope(|s| {
///     s.spawn(|| done.post());
///     done.wait();
/// });
/// assert!(done.is_posted());
/// ```
#[derive(Debug, Default)]
pub struct Baton(Futex);

impl Baton {
    /// One that is not posted.
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::sync::Baton::new().is_posted());
    /// ```
    pub const fn new() -> Baton {
        Baton(Futex::new())
    }

    /// Lets everybody pass.
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// baton.post();
    /// baton.wait(); // at once
    /// ```
    pub fn post(&self) {
        self.0.post();
    }

    /// Whether it is posted.
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// baton.post();
    /// assert!(baton.is_posted());
    /// ```
    #[inline]
    pub fn is_posted(&self) -> bool {
        self.0.get() > 0
    }

    /// Waits until it is posted.
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// sinew::scope(|s| {
    ///     s.spawn(|| baton.wait());
    ///     baton.post();
    /// });
    /// ```
    #[track_caller]
    pub fn wait(&self) {
        self.0.wait(1);
    }

    /// Waits until it is posted, at most for `timeout`; false if that was over before.
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// assert!(!baton.wait_for(std::time::Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_for(&self, timeout: Duration) -> bool {
        self.0.wait_for(1, timeout)
    }

    /// Makes it as new. Nobody can be waiting.
    ///
    /// # Examples
    /// ```
    /// let mut baton = sinew::sync::Baton::new();
    /// baton.post();
    /// baton.reset();
    /// assert!(!baton.is_posted());
    /// ```
    pub fn reset(&mut self) {
        self.0 = Futex::new();
    }
}
