//! The end of a fiber as one arm of `select!`.

use super::join::JoinHandle;
use crate::cancel::is_cancel;
use crate::carrier::current;
use crate::fiber::Control;
use crate::park::end::{forbid_hopeless, watch};
use crate::park::table::Key;
use crate::primitive::{AtomicUsize, Ordering};
use crate::sync::Arm;
use crate::sync::select::KeyArm;
use crate::sync::select::sealed::{self, Entered, Joint, Left};
use core::fmt;
use std::thread::Result;

/// Joining a fiber as one of several operations; see [`JoinHandle::arm`].
///
/// # Examples
/// ```
/// use sinew::sync::{Patience, select};
///
/// let mut fibers = [sinew::spawn(sinew::park), sinew::spawn(|| ())];
/// let mut arms: Vec<sinew::JoinArm<'_, ()>> = fibers.iter_mut().map(|f| f.arm()).collect();
/// let mut borrowed: Vec<_> = arms.iter_mut().map(|arm| arm as _).collect();
/// assert_eq!(select(&mut borrowed, Patience::Forever), Some(1));
/// assert!(arms[1].take().is_ok());
/// drop(arms);
/// fibers[0].cancel();
/// ```
pub struct JoinArm<'a, T> {
    handle: &'a mut JoinHandle<T>,
    arm: KeyArm,
    /// The scope's count of panics that no caller has seen.
    unseen: Option<&'a AtomicUsize>,
}

impl<T> JoinHandle<T> {
    /// Returns an arm of [`select`](crate::sync::select) that waits for the end of the fiber.
    ///
    /// Once `select` has chosen this arm and the result was taken from it, the handle must not be
    /// joined again.
    ///
    /// # Panics
    /// If a fiber would wait for its own end.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let (mut slow, mut quick) = (sinew::spawn(sinew::park), sinew::spawn(|| 7));
    /// let result = sinew::select! {
    ///     join(slow) -> _ => unreachable!(),
    ///     join(quick) -> result => result.unwrap(),
    ///     after(Duration::from_secs(60)) => panic!("late"),
    /// };
    /// assert_eq!(result, 7);
    /// slow.cancel();
    /// ```
    #[track_caller]
    pub fn arm(&mut self) -> JoinArm<'_, T> {
        JoinArm::new(self, None)
    }
}

impl<'a, T> JoinArm<'a, T> {
    #[track_caller]
    pub(super) fn new(
        handle: &'a mut JoinHandle<T>,
        unseen: Option<&'a AtomicUsize>,
    ) -> JoinArm<'a, T> {
        let control = handle.control();
        // Another arm may end the wait, so only a wait for one's own end is hopeless for sure.
        forbid_hopeless(current::fiber(), control, 0);
        let address = core::ptr::from_ref(control).expose_provenance();
        let arm = KeyArm::new(Key::with_generation(address, control.id()));
        JoinArm { handle, arm, unseen }
    }

    /// Returns the fiber's result, after `select` has chosen this arm.
    ///
    /// # Errors
    /// As for [`join`](JoinHandle::join).
    ///
    /// # Panics
    /// If the fiber has not ended, or the result was taken before.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Patience, select};
    ///
    /// let mut fiber = sinew::spawn(|| 7);
    /// let mut arm = fiber.arm();
    /// select(&mut [&mut arm], Patience::Forever);
    /// assert_eq!(arm.take().unwrap(), 7);
    /// ```
    #[track_caller]
    pub fn take(&mut self) -> Result<T> {
        assert!(self.handle.is_finished(), "the arm was not selected");
        // SAFETY: `is_finished` returned true.
        let result = unsafe { self.handle.take_once() };
        if let (Err(payload), Some(unseen)) = (&result, self.unseen)
            && !is_cancel(&**payload)
        {
            unseen.fetch_sub(1, Ordering::Relaxed);
        }
        result
    }

    fn control(&self) -> &Control {
        self.handle.control()
    }
}

impl<T> Arm for JoinArm<'_, T> {}

impl<T> sealed::Arm for JoinArm<'_, T> {
    fn attempt(&mut self) -> bool {
        self.control().life.is_finished()
    }

    fn seems_ready(&self) -> bool {
        self.control().life.is_finished()
    }

    fn enter(&mut self, wait: Joint<'_>) -> Entered {
        let life = &self.handle.control().life;
        // The mark is set under the table's lock, so that the ending fiber finds both the mark and
        // the entry.
        self.arm.enter(wait, |_| watch(life))
    }

    fn leave(&mut self) -> Left {
        self.arm.leave();
        if self.control().life.is_finished() { Left::Ready } else { Left::Nothing }
    }
}

impl<T> fmt::Debug for JoinArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinArm").field(&self.handle).finish()
    }
}
