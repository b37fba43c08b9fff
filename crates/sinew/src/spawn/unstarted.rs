//! A fiber that was made and not yet submitted.

use super::{JoinHandle, birth};
use crate::fiber::Control;
use crate::fiber::{Fiber, task};
use crate::primitive::Ordering;
use crate::reactor::Source;
use crate::reactor::deferred::{self, Armed};
use crate::runtime::RuntimeHandle;
use std::mem::ManuallyDrop;

/// A fiber that was made and not yet submitted. Dropping it drops its closure.
///
/// # Examples
/// ```
/// use std::sync::mpsc;
///
/// let (sender, started) = mpsc::channel();
/// let fiber = sinew::FiberBuilder::new().name("first").build(move || sender.send(7).unwrap())?;
/// // Its name and id are known before it runs.
/// assert_eq!(fiber.fiber().name(), Some("first"));
/// assert!(started.try_recv().is_err());
/// fiber.submit().join().unwrap();
/// assert_eq!(started.recv(), Ok(7));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a fiber runs when it is submitted"]
pub struct Unstarted<T> {
    handle: JoinHandle<T>,
    control: &'static Control,
    runtime: RuntimeHandle,
}

impl<T> Unstarted<T> {
    /// Makes an unstarted fiber of `runtime` with default settings.
    pub(crate) fn new<F>(runtime: &RuntimeHandle, f: F) -> Unstarted<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: closure and result are `Send` and borrow nothing. The new fiber is in no queue.
        unsafe { Unstarted::of(birth::outside(runtime.crew(), task::of(f)), runtime.clone()) }
    }

    /// Wraps a control block that was filled and not submitted.
    ///
    /// # Safety
    /// The fiber belongs to `runtime`, its closure returns a `T`, and it was not submitted. The
    /// caller owns the references of the runtime and of the join handle.
    pub(super) unsafe fn of(control: &'static Control, runtime: RuntimeHandle) -> Unstarted<T> {
        // SAFETY: the caller owns the join handle's reference, and the closure returns a `T`.
        Unstarted { handle: unsafe { JoinHandle::new(control) }, control, runtime }
    }

    /// Starts the fiber.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::FiberBuilder::new().build(|| 7)?;
    /// assert_eq!(fiber.submit().join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn submit(self) -> JoinHandle<T> {
        self.submit_after(|handle| handle)
    }

    /// Calls `keep` with the fiber's handle, and then starts the fiber.
    pub(crate) fn submit_after<R>(self, keep: impl FnOnce(JoinHandle<T>) -> R) -> R {
        let (handle, runtime, control) = self.release();
        let kept = keep(handle);
        // SAFETY: the fiber was not submitted before, and `release` consumed the only value that
        // could submit it.
        unsafe { birth::submit(runtime.crew(), control) };
        kept
    }

    /// Starts the fiber as soon as `source` is readable.
    ///
    /// # Safety
    /// The fiber's closure owns `source` and `armed`, and keeps both in place until it runs or is
    /// dropped.
    pub(super) unsafe fn arm(self, source: *const Source, armed: *const Armed) -> JoinHandle<T> {
        let (handle, runtime, control) = self.release();
        // SAFETY: the fiber was not submitted before. Its closure keeps `source` and `armed` in
        // place, as the caller promised.
        unsafe {
            if birth::count(runtime.crew(), control) {
                deferred::arm(source, armed, control);
            }
        }
        handle
    }

    /// Takes the value apart. The caller must submit the fiber, once.
    pub(super) fn release(self) -> (JoinHandle<T>, RuntimeHandle, &'static Control) {
        let this = ManuallyDrop::new(self);
        if let Some(extra) = this.control.extra() {
            extra.held_back.store(false, Ordering::Relaxed);
        }
        // SAFETY: both fields are moved out once, and `this` is never dropped.
        unsafe { (std::ptr::read(&this.handle), std::ptr::read(&this.runtime), this.control) }
    }

    /// Returns a handle that tells the fiber's id, name and state.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::FiberBuilder::new().name("later").build(|| 7)?;
    /// assert_eq!(fiber.fiber().name(), Some("later"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fiber(&self) -> Fiber {
        self.handle.fiber()
    }
}

impl<T> Drop for Unstarted<T> {
    fn drop(&mut self) {
        // SAFETY: the fiber was never submitted, so this thread owns its closure and the runtime's
        // reference. `refuse` stores a result that means "never ran"; dropping the join handle
        // drops it.
        unsafe { birth::refuse(self.control) };
    }
}

// SAFETY: every function that hands out this type requires a `Send` closure.
unsafe impl<T: Send> Send for Unstarted<T> {}
// SAFETY: a shared reference gives access to the `Fiber` handle only, which is `Sync`.
unsafe impl<T: Send> Sync for Unstarted<T> {}

impl<T> std::fmt::Debug for Unstarted<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unstarted").field("fiber", &self.fiber()).finish_non_exhaustive()
    }
}
