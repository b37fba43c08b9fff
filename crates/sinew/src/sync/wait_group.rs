//! A group of parts of some work, and the wait until all parts are done.
//!
//! A count of the parts, and a `Futex` that the last part posts.

use super::futex::Futex;
use crate::primitive::{AtomicUsize, Ordering};
use core::time::Duration;
use std::sync::Arc;

/// Work in several parts. Each part holds a clone of the group, and the work is done when all
/// clones are dropped.
///
/// # Examples
/// ```
/// use sinew::sync::WaitGroup;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// let (group, done) = (WaitGroup::new(), Arc::new(AtomicU32::new(0)));
/// for _ in 0..10 {
///     let (part, done) = (group.clone(), done.clone());
///     sinew::spawn(move || {
///         done.fetch_add(1, Ordering::Relaxed);
///         drop(part);
///     });
/// }
/// group.wait();
/// assert_eq!(done.load(Ordering::Relaxed), 10);
/// ```
#[derive(Debug)]
pub struct WaitGroup(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    /// How many parts are not done.
    left: AtomicUsize,
    /// Posted once, when all parts are done.
    done: Futex,
}

impl WaitGroup {
    /// Creates a group with one part: the returned value.
    ///
    /// # Examples
    /// ```
    /// sinew::sync::WaitGroup::new().wait(); // this is the only part
    /// ```
    pub fn new() -> WaitGroup {
        WaitGroup(Arc::new(Parts { left: AtomicUsize::new(1), done: Futex::new() }))
    }

    /// Ends this part, and waits until all parts are done.
    ///
    /// # Examples
    /// ```
    /// let group = sinew::sync::WaitGroup::new();
    /// let part = group.clone();
    /// sinew::spawn(move || drop(part));
    /// group.wait();
    /// ```
    #[track_caller]
    pub fn wait(self) {
        let parts = self.0.clone();
        drop(self);
        parts.done.wait(1);
    }

    /// Ends this part, and waits at most `timeout` until all parts are done; returns whether they
    /// are.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let group = sinew::sync::WaitGroup::new();
    /// let _part = group.clone();
    /// assert!(!group.wait_timeout(Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_timeout(self, timeout: Duration) -> bool {
        let parts = self.0.clone();
        drop(self);
        parts.done.wait_timeout(1, timeout)
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        WaitGroup::new()
    }
}

impl Clone for WaitGroup {
    fn clone(&self) -> Self {
        self.0.left.fetch_add(1, Ordering::Relaxed);
        WaitGroup(self.0.clone())
    }
}

impl Drop for WaitGroup {
    fn drop(&mut self) {
        // ORDERING: AcqRel pairs with the `fetch_sub` of the other parts: the last part sees their
        // writes, and publishes them by the post.
        if self.0.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.done.post();
        }
    }
}
