//! Waiting until a runtime has no fiber left.
//!
//! The waiter collects the live fibers, waits for the end of each, and collects again, because they
//! may have started others meanwhile. A scan of all blocks may miss a fiber that starts in a block
//! that the scan has passed, so [`Crew::is_empty`] decides in the end. The waiter does all the
//! work, so the end of a fiber costs nothing extra while no waiter exists.

use super::RuntimeHandle;
use super::shutdown::for_each_fiber;
use crate::carrier::current;
use crate::carrier::{Crew, crew::Phase};
use crate::clock;
use crate::fiber::extra::Extra;
use crate::fiber::{Fiber, describe};
use crate::park;
use crate::primitive::{Ordering, yield_thread};
use core::time::Duration;
use std::time::Instant;

impl RuntimeHandle {
    /// Waits until the runtime has no fiber left: all fibers have ended, including those that they
    /// started.
    ///
    /// At some moment during the call nothing was left. Other threads may start fibers right after
    /// it. A runtime that was shut down has nothing left. A caller that is cancelled is unwound
    /// from this call.
    ///
    /// # Panics
    /// If a fiber of the same runtime calls it: the fiber would wait for itself.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let runtime = sinew::Runtime::builder().carriers(2).build()?;
    /// let count = Arc::new(AtomicU32::new(0));
    /// let theirs = count.clone();
    /// runtime.spawn(move || {
    ///     for _ in 0..10 {
    ///         let count = theirs.clone();
    ///         sinew::spawn(move || count.fetch_add(1, Ordering::Relaxed)); // detached
    ///     }
    /// });
    /// runtime.handle().wait_empty();
    /// assert_eq!(count.load(Ordering::Relaxed), 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn wait_empty(&self) {
        self.wait_empty_by(clock::NEVER);
    }

    /// Waits until the runtime has no fiber left, at most for `timeout`. Returns whether nothing
    /// was left; see [`wait_empty`](Self::wait_empty).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// let fiber = runtime.spawn(sinew::park);
    /// assert!(!runtime.handle().wait_empty_timeout(Duration::from_millis(1)));
    /// fiber.fiber().unpark();
    /// assert!(runtime.handle().wait_empty_timeout(Duration::from_secs(60)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn wait_empty_timeout(&self, timeout: Duration) -> bool {
        self.wait_empty_by(clock::after(clock::now(), timeout))
    }

    /// Waits until the runtime has no fiber left, at most until `deadline`. Returns whether nothing
    /// was left; see [`wait_empty`](Self::wait_empty).
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// assert!(runtime.handle().wait_empty_deadline(Instant::now()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn wait_empty_deadline(&self, deadline: Instant) -> bool {
        self.wait_empty_by(clock::at(deadline))
    }

    #[track_caller]
    fn wait_empty_by(&self, deadline: u64) -> bool {
        let crew = self.crew();
        if let Some((carrier, me)) = current::fiber()
            && core::ptr::eq(carrier.crew(), crew)
        {
            panic!("{} cannot wait for the end of all fibers of its own runtime", describe(me));
        }
        loop {
            // The carriers of a closed runtime may serve another one, so their counts do not belong
            // to it any more.
            if crew.phase() == Phase::Closed || crew.is_empty() {
                return true;
            }
            let left = fibers(crew);
            if left.is_empty() {
                // The counts are about to change: a thread is starting a fiber, or a carrier is
                // ending one.
                if clock::now() >= deadline {
                    return false;
                }
                if park::can_yield() { crate::yield_now() } else { yield_thread() }
            }
            for fiber in left {
                if !fiber.wait_ended(deadline) {
                    return false;
                }
            }
        }
    }
}

/// Returns the fibers of `crew` that were submitted and have not ended, at the moment of the scan.
fn fibers(crew: &Crew) -> Vec<Fiber> {
    let mut fibers = Vec::new();
    for_each_fiber(crew, |control| {
        let held_back = |extra: &Extra| extra.held_back.load(Ordering::Relaxed);
        if !control.extra().is_some_and(held_back) {
            fibers.push(Fiber::new(control));
        }
    });
    fibers
}
