//! The shutdown of a runtime.
//!
//! The shutdown cancels every fiber, and the carriers go on scheduling until no fiber is left or
//! the deadline passes. Fibers that are left then are leaked, with their stacks and threads, and
//! the error names them. Their frames may be borrowed from elsewhere, so they are never freed.

use super::Runtime;
use crate::cancel;
use crate::carrier::Crew;
use crate::carrier::crew::Phase;
use crate::carrier::current;
use crate::clock;
use crate::fiber::life::{CANCELLED, FINISHED};
use crate::fiber::{Control, FiberRef, slab};
use crate::fiber::{Fiber, describe};
use crate::park::can_yield;
use crate::primitive::Ordering;
use crate::report;
use core::time::Duration;
use std::fmt;

/// Fibers that did not end in time; see [`Runtime::shutdown_timeout`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let runtime = sinew::Runtime::builder().carriers(1).build()?;
/// let stubborn = sinew::FiberBuilder::new().name("stubborn").runtime(runtime.handle());
/// let fiber = stubborn.spawn(|| sinew::masked(sinew::park))?; // ignores cancellation
/// sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
/// let leftover = runtime.shutdown_timeout(Duration::from_millis(1)).unwrap_err();
/// assert!(leftover.to_string().contains("stubborn"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Leftover {
    fibers: Vec<Fiber>,
}

impl Leftover {
    /// Returns the fibers that did not end.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// let fiber = runtime.spawn(|| sinew::masked(sinew::park)); // ignores cancellation
    /// sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
    /// let leftover = runtime.shutdown_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(leftover.fibers(), [fiber.fiber()]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fibers(&self) -> &[Fiber] {
        &self.fibers
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.fibers.len() == 1 { "" } else { "s" };
        write!(f, "{} fiber{plural} did not end in time", self.fibers.len())?;
        for (index, fiber) in self.fibers.iter().take(10).enumerate() {
            let before = if index == 0 { ": " } else { ", " };
            write!(f, "{before}{}", describe(fiber.control()))?;
            match fiber.waits_for() {
                Some(kind) => write!(f, " (in {})", kind.operation())?,
                None => write!(f, " (running)")?,
            }
        }
        if self.fibers.len() > 10 {
            write!(f, " and {} more", self.fibers.len() - 10)?;
        }
        Ok(())
    }
}

impl std::error::Error for Leftover {}

impl Runtime {
    /// Cancels all fibers and waits until they have ended, at most for `timeout`.
    ///
    /// Fibers that have not started end without running. Fibers that end in time run their
    /// destructors. The other fibers are leaked, with their threads, and the error lists them.
    ///
    /// In a fiber of the same runtime, this cancels and does not wait, because the fiber would wait
    /// for itself.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::new()?;
    /// runtime.spawn(|| sinew::park());
    /// runtime.shutdown_timeout(Duration::from_secs(5)).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Result<(), Leftover> {
        self.shut_down = true;
        self.shut_down(timeout)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.shut_down
            && let Err(leftover) = self.shut_down(self.patience)
        {
            report::say(format_args!(
                "runtime \"{}\" was dropped, but {leftover}",
                self.handle.name()
            ));
        }
        self.watchers.iter().for_each(std::thread::Thread::unpark);
    }
}

/// How long the remaining fibers get between the first two rounds of cancelling. New fibers are
/// cancelled when they start; a round catches fibers that a scan missed.
const ROUND: Duration = Duration::from_millis(5);

impl Runtime {
    fn shut_down(&self, timeout: Duration) -> Result<(), Leftover> {
        let crew = self.handle.crew();
        let deadline = clock::after(clock::now(), timeout);
        crew.advance(Phase::Closing);
        cancel_all(crew);
        let inside =
            current::fiber().is_some_and(|(carrier, _)| core::ptr::eq(carrier.crew(), crew));
        if inside {
            return Ok(());
        }
        let mut round = ROUND;
        loop {
            let left = clock::until(clock::now(), deadline).unwrap_or(Duration::MAX);
            if self.wait_ended(left.min(round)) {
                return Ok(());
            }
            if left.is_zero() {
                break;
            }
            cancel_all(crew);
            round = (round * 2).min(Duration::from_secs(1));
        }
        crew.advance(Phase::Abandoned);
        // A carrier that a fiber keeps busy does not look at its events, and its neighbours have
        // stopped helping it. So fibers of other runtimes that rely on its driver must use another
        // one.
        crew.drivers.iter().for_each(|driver| driver.close());
        let mut fibers = Vec::new();
        for_each_fiber(crew, |control| fibers.push(Fiber::new(control)));
        if fibers.is_empty() {
            // All fibers have ended after all, and the threads are about to.
            return Ok(());
        }
        Err(Leftover { fibers })
    }

    /// Waits until all carriers have ended. Returns false if `timeout` passes first. A calling
    /// fiber of another runtime is suspended, because the ending fibers may need its carrier.
    fn wait_ended(&self, timeout: Duration) -> bool {
        if can_yield() {
            // Masked, because a runtime may be dropped by unwinding.
            cancel::masked(|| self.ended.wait_timeout(timeout))
        } else {
            self.handle.crew().wait_ended(Some(timeout))
        }
    }
}

pub(crate) fn cancel_all(crew: &Crew) {
    for_each_fiber(crew, |control| {
        if control.life.marks() & CANCELLED == 0 {
            cancel::request(control);
        }
    });
}

/// Calls `each` with every fiber of `crew` that has not ended.
pub(super) fn for_each_fiber(crew: &Crew, mut each: impl FnMut(&Control)) {
    slab::for_each(|control| {
        if control.crew.load(Ordering::Relaxed) != crew.number {
            return;
        }
        if !control.life.try_acquire() {
            return;
        }
        // SAFETY: `try_acquire` counted this reference.
        let fiber = unsafe { FiberRef::from_counted(control) };
        let ours = fiber.crew.load(Ordering::Relaxed) == crew.number;
        if ours && fiber.life.marks() & FINISHED == 0 {
            each(&fiber);
        }
    });
}
