//! Waiting for a fiber's result.

use super::handle::{Fiber, forbid_hopeless};
use crate::cancel;
use crate::carrier::{Carrier, current as here};
use crate::clock;
use crate::fiber::life::{DETACHED, FINISHED, JOINING, POLLED, STARTED};
use crate::fiber::state::Outcome;
use crate::fiber::{Control, FiberRef, Flags, WaitKind, task};
use crate::park::Wait;
use crate::primitive::Ordering;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::thread::Result;

/// The right to a fiber's result.
///
/// Dropping it detaches the fiber, which goes on. It is also a [`Future`], for those who wait in an
/// async runtime.
///
/// # Examples
/// ```
/// let fiber = sinew::spawn(|| "done");
/// assert_eq!(fiber.join().unwrap(), "done");
/// ```
pub struct JoinHandle<T> {
    fiber: FiberRef,
    result: PhantomData<T>,
}

// SAFETY: the handle gives access to a `T` that another thread made, and to atomics.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: by reference it gives access to atomics only.
unsafe impl<T: Send> Sync for JoinHandle<T> {}
impl<T> Unpin for JoinHandle<T> {}
impl<T> std::panic::UnwindSafe for JoinHandle<T> {}
impl<T> std::panic::RefUnwindSafe for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// # Safety
    /// The caller owns the handle's reference to a fiber whose closure returns a `T`.
    #[inline(always)]
    pub(super) unsafe fn new(control: &'static Control) -> JoinHandle<T> {
        // SAFETY: as the caller promised.
        JoinHandle { fiber: unsafe { FiberRef::from_counted(control) }, result: PhantomData }
    }

    /// Waits until the fiber has ended, and returns what its closure returned.
    ///
    /// A fiber that waits is suspended, a plain thread blocks. If the fiber panicked, the payload
    /// is the `Err`; if it was cancelled, one that [`is_cancel`](crate::is_cancel) recognises. A
    /// caller that is cancelled itself is unwound from here; the other fiber goes on, detached.
    ///
    /// # Panics
    /// If a fiber joins itself.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::spawn(|| -> u32 { panic!("no luck") });
    /// let payload = fiber.join().unwrap_err();
    /// assert_eq!(payload.downcast_ref::<&str>(), Some(&"no luck"));
    /// ```
    #[inline]
    #[track_caller]
    pub fn join(self) -> Result<T> {
        self.wait_for_end();
        // SAFETY: the fiber has finished, or the wait would not have returned.
        unsafe { self.take() }
    }

    /// As [`join`](Self::join), but gives the handle back if `timeout` is over before.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let fiber = sinew::spawn(|| sinew::park());
    /// let fiber = fiber.join_timeout(Duration::from_millis(1)).unwrap_err();
    /// fiber.fiber().unpark();
    /// assert!(fiber.join_timeout(Duration::from_secs(60)).unwrap().is_ok());
    /// ```
    #[track_caller]
    pub fn join_timeout(self, timeout: Duration) -> std::result::Result<Result<T>, JoinHandle<T>> {
        let deadline = clock::after(clock::now(), timeout);
        if !self.fiber.life.is_finished() && !self.wait(deadline) {
            return Err(self);
        }
        // SAFETY: the fiber has finished.
        Ok(unsafe { self.take() })
    }

    /// Whether the fiber has ended, so that `join` returns at once.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::spawn(sinew::park);
    /// assert!(!fiber.is_finished());
    /// fiber.fiber().unpark();
    /// fiber.join().unwrap();
    /// ```
    pub fn is_finished(&self) -> bool {
        self.fiber.life.is_finished()
    }

    /// A handle that says who the fiber is and what it does.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::spawn(|| ());
    /// let handle = fiber.fiber();
    /// fiber.join().unwrap();
    /// assert!(!handle.is_alive());
    /// ```
    pub fn fiber(&self) -> Fiber {
        Fiber::new(&self.fiber)
    }

    /// Asks the fiber to end: its next wait unwinds it, or the one under way.
    ///
    /// Destructors run. The result of `join` is then an `Err` that [`is_cancel`](crate::is_cancel)
    /// recognises, unless the fiber ended before it waited again. One that has not begun never does:
    /// its closure is dropped. With `panic = "abort"` nothing is unwound, and the fiber has to look at
    /// [`is_cancelled`](crate::is_cancelled) itself.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::spawn(|| sinew::sleep(std::time::Duration::MAX));
    /// fiber.cancel();
    /// assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    /// ```
    pub fn cancel(&self) {
        cancel::request(&self.fiber);
    }

    /// Waits until the fiber has ended, for those who take the result later.
    #[inline]
    #[track_caller]
    pub(crate) fn wait_for_end(&self) {
        if !self.fiber.life.is_finished() {
            self.wait(clock::NEVER);
        }
    }

    /// Waits; false if the deadline passed before the end.
    #[inline]
    #[track_caller]
    fn wait(&self, deadline: u64) -> bool {
        let control = &*self.fiber;
        loop {
            // Looked up again in each round: a migratable fiber may have moved.
            let fiber = here::fiber();
            forbid_hopeless(fiber, control, deadline);
            let address = self.fiber.as_ptr().expose_provenance();
            let wait = Wait::begin_of(fiber, WaitKind::Join, address);
            let who = wait.who();
            let waiter = wait.waiter();
            control.set_joiner(waiter.control(), waiter.epoch());
            let near = ends_here(fiber, control);
            let marks = if near {
                // It cannot have ended since we looked: it would have done so on this thread.
                control.set_flags(Flags::JOINED_HERE);
                control.life.marks()
            } else {
                control.life.register_joiner()
            };
            if marks & FINISHED != 0 {
                wait.withdraw();
                return true;
            }
            // The joiner of an unstarted fiber would like it to run next: the newest come first for
            // a while.
            let elsewhere = Flags(Flags::AFFINE.0 | Flags::RECURRING.0);
            let newest = marks & STARTED == 0 && !control.flags().has(elsewhere);
            if let (true, Some((carrier, _))) = (newest, fiber) {
                carrier.depth_first.set(true);
            }
            let outcome = wait.suspend_for(deadline, newest.then_some(control));
            if outcome == Outcome::Notified && control.life.is_finished() {
                cancel::settle(who, outcome);
                return true;
            }
            // Left for another reason: the end must not wake a later wait.
            let marks = if near {
                control.clear_flags(Flags::JOINED_HERE);
                control.life.marks()
            } else {
                control.life.clear(JOINING)
            };
            cancel::settle(who, outcome);
            if marks & FINISHED != 0 {
                return true;
            }
            if deadline <= clock::now() {
                return false;
            }
        }
    }

    pub(crate) fn control(&self) -> &Control {
        &self.fiber
    }

    /// The result, from a handle that stays.
    ///
    /// # Panics
    /// If it was taken before.
    ///
    /// # Safety
    /// The fiber has finished.
    #[track_caller]
    pub(super) unsafe fn take_once(&mut self) -> Result<T> {
        // The mark says that the result was taken.
        if self.fiber.life.set(DETACHED) & DETACHED != 0 {
            result_is_gone();
        }
        // SAFETY: finished, and the result was not taken.
        let result = unsafe { task::take_result(&self.fiber) };
        if result.is_err() {
            may_be_raised_again();
        }
        result
    }

    /// # Safety
    /// The fiber has finished, and the result was not taken.
    #[inline(always)]
    #[track_caller]
    unsafe fn take(self) -> Result<T> {
        if self.fiber.life.marks() & DETACHED != 0 {
            result_is_gone();
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: finished; the handle has the right to the result, and is used up. Its reference
        // is moved out once.
        unsafe {
            let result = task::take_result(&this.fiber);
            drop(core::ptr::read(&this.fiber));
            if result.is_err() {
                may_be_raised_again();
            }
            result
        }
    }
}

/// The caller has a payload in hand, and may go on with it as a panic of its own.
#[cold]
fn may_be_raised_again() {
    if let Some((_, control)) = here::fiber() {
        control.set_flags(Flags::PANICKED);
    }
}

/// Only the holder of the handle sets the mark, so nobody else took the result.
#[cold]
#[track_caller]
fn result_is_gone() -> ! {
    panic!("a join handle was used again after it had given its result")
}

/// Whether `control`, which has not finished, will do so on the carrier of the running fiber, and
/// that fiber stays there as well and can be suspended. Then no other thread takes part in the join.
#[inline(always)]
fn ends_here(fiber: Option<(&'static Carrier, &'static Control)>, control: &Control) -> bool {
    let Some((carrier, me)) = fiber else { return false };
    let bound = core::ptr::eq(control.carrier(), carrier);
    let alone = || {
        control.crew.load(Ordering::Relaxed) == carrier.crew().number
            && carrier.crew().carriers.len() == 1
    };
    !me.flags().has(Flags(Flags::ROAMING.0 | Flags::PINNED.0))
        && !control.flags().has(Flags(Flags::ROAMING.0 | Flags::RECURRING.0))
        && (bound || alone())
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        // If the mark was set before, the result went with the future.
        if self.fiber.life.set(DETACHED) & (FINISHED | DETACHED) == FINISHED {
            // SAFETY: finished, and the handle has the right to the result, which nobody took.
            drop(unsafe { task::take_result::<T>(&self.fiber) });
        }
    }
}

/// The result as of [`join`](JoinHandle::join). Not to be polled again when it was ready.
impl<T> Future for JoinHandle<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let this = self.get_mut();
        let control = &*this.fiber;
        if !control.life.is_finished() {
            let extra = control.extra_or_new();
            let waker = context.waker().clone();
            let before = extra.waker.lock().replace(waker);
            drop(before);
            if control.life.set(POLLED) & FINISHED == 0 {
                return Poll::Pending;
            }
            // It ended meanwhile, and may not have seen the mark: nobody else takes the waker.
            let waker = extra.waker.lock().take();
            drop(waker);
        }
        // SAFETY: finished.
        Poll::Ready(unsafe { this.take_once() })
    }
}

impl<T> core::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("JoinHandle").field("fiber", &self.fiber()).finish()
    }
}
