//! Join handles: waiting for a fiber's result.

use crate::cancel;
use crate::carrier::placement::Parenthood;
use crate::carrier::{Owner, current};
use crate::clock;
use crate::fiber::Fiber;
use crate::fiber::life::{DETACHED, FINISHED, JOINING, POLLED, STARTED};
use crate::fiber::state::Outcome;
use crate::fiber::{Control, FiberRef, Flags, WaitKind, task};
use crate::park::Wait;
use crate::park::end::forbid_hopeless;
use crate::park::raise;
use crate::primitive::Ordering;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use std::thread::Result;

/// The right to take a fiber's result.
///
/// Dropping the handle detaches the fiber, which goes on. The handle is also a [`Future`], so that
/// an async runtime can await the fiber.
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
// SAFETY: a shared reference gives access to atomics only.
unsafe impl<T: Send> Sync for JoinHandle<T> {}
impl<T> Unpin for JoinHandle<T> {}
impl<T> std::panic::UnwindSafe for JoinHandle<T> {}
impl<T> std::panic::RefUnwindSafe for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// Wraps a control block in a handle.
    ///
    /// # Safety
    /// The caller owns the handle's reference to a fiber whose closure returns a `T`.
    #[inline(always)]
    pub(super) unsafe fn new(control: &'static Control) -> JoinHandle<T> {
        // SAFETY: the caller gives up one counted reference.
        JoinHandle { fiber: unsafe { FiberRef::from_counted(control) }, result: PhantomData }
    }

    /// Waits until the fiber has ended, and returns the closure's return value.
    ///
    /// A calling fiber is suspended; a calling thread blocks. If the fiber panicked, `Err` has the
    /// panic's payload. If it was cancelled, `Err` has a payload that
    /// [`is_cancel`](crate::is_cancel) recognises. If the caller itself is cancelled, this call
    /// unwinds it, and the joined fiber goes on, detached.
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
        // SAFETY: `wait_for_end` returns only when the fiber has finished.
        unsafe { self.take() }
    }

    /// Joins the fiber, or gives the handle back if `timeout` passes first; see
    /// [`join`](Self::join).
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

    /// Returns a handle that tells the fiber's id, name and state.
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

    /// Asks the fiber to end. Its current or next wait unwinds it.
    ///
    /// Destructors run. `join` then returns an `Err` that [`is_cancel`](crate::is_cancel)
    /// recognises, unless the fiber ended before it waited again. A fiber that has not begun never
    /// begins: its closure is dropped. With `panic = "abort"` nothing is unwound, and the fiber has
    /// to check [`is_cancelled`](crate::is_cancelled) itself.
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

    /// Waits until the fiber has ended, without taking its result.
    #[inline]
    #[track_caller]
    pub(crate) fn wait_for_end(&self) {
        if !self.fiber.life.is_finished() {
            self.wait(clock::NEVER);
        }
    }

    /// Waits for the end of the fiber. Returns false if the deadline passed first.
    #[inline]
    #[track_caller]
    fn wait(&self, deadline: u64) -> bool {
        let control = &*self.fiber;
        loop {
            // Looked up again in each round, because a migratable joiner may have moved.
            let fiber = current::fiber();
            forbid_hopeless(fiber, control, deadline);
            let address = self.fiber.as_ptr().expose_provenance();
            let wait = Wait::begin_of(fiber, WaitKind::Join, address);
            let who = wait.who();
            let waiter = wait.waiter();
            control.set_joiner(waiter.control(), waiter.epoch());
            let near = fiber.is_some_and(|(owner, me)| ends_here(owner, me, control));
            let marks = if near {
                // The fiber cannot have ended since we looked: it would have ended on this thread.
                control.set_flags(Flags::JOINED_HERE);
                control.life.marks()
            } else {
                control.life.register_joiner()
            };
            if marks & FINISHED != 0 {
                wait.withdraw();
                return true;
            }
            // The joiner of an unstarted fiber wants that fiber to run next, so the carrier takes
            // the newest unstarted fibers first for a while.
            let elsewhere = Flags(Flags::AFFINE.0 | Flags::RECURRING.0);
            let is_newest = marks & STARTED == 0 && !control.flags().has(elsewhere);
            let newest = is_newest.then_some(control);
            if let (Some(_), Some((owner, _))) = (newest, fiber) {
                owner.depth_first.set(true);
            }
            let parenthood = Parenthood::begin(fiber);
            let outcome = wait.suspend_for(deadline, newest);
            parenthood.end();
            if outcome == Outcome::Notified && control.life.is_finished() {
                raise::settle(who, outcome);
                return true;
            }
            // The wait ended for another reason, so take the registration back: the fiber's end
            // must not wake a later wait of the joiner.
            let marks = if near {
                control.clear_flags(Flags::JOINED_HERE);
                control.life.marks()
            } else {
                control.life.clear(JOINING)
            };
            raise::settle(who, outcome);
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

    /// Takes the result and keeps the handle.
    ///
    /// # Panics
    /// If the result was taken before.
    ///
    /// # Safety
    /// The fiber has finished.
    #[track_caller]
    pub(super) unsafe fn take_once(&mut self) -> Result<T> {
        // `DETACHED` records that the result was taken.
        if self.fiber.life.set(DETACHED) & DETACHED != 0 {
            result_is_gone();
        }
        // SAFETY: the fiber has finished, and the mark shows that the result was not taken before.
        let result = unsafe { task::take_result(&self.fiber) };
        if result.is_err() {
            may_be_raised_again();
        }
        result
    }

    /// Takes the result and consumes the handle.
    ///
    /// # Safety
    /// The fiber has finished, and its result was not taken.
    #[inline(always)]
    #[track_caller]
    unsafe fn take(self) -> Result<T> {
        if self.fiber.life.marks() & DETACHED != 0 {
            result_is_gone();
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the fiber has finished, and the handle, which is consumed, has the right to the
        // result. `this` is never dropped, so its reference is moved out once.
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

/// Notes that the caller has a panic payload, which it may raise again as a panic of its own.
#[cold]
fn may_be_raised_again() {
    if let Some((_, control)) = current::fiber() {
        control.set_flags(Flags::PANICKED);
    }
}

/// Panics, because the handle has given its result before. Only the holder of the handle sets
/// `DETACHED`, so the mark has no other meaning.
#[cold]
#[track_caller]
fn result_is_gone() -> ! {
    panic!("a join handle was used again after it had given its result")
}

/// Whether the whole join happens on the joiner's carrier, `owner`, so that no other thread takes
/// part in it. This is so if the joiner `me` can be suspended and stays on that carrier, and if
/// `control`, which has not finished, will end there.
#[inline(always)]
fn ends_here(owner: &Owner, me: &Control, control: &Control) -> bool {
    let bound = core::ptr::eq(control.carrier(), owner.shared());
    let alone = || {
        let crew = owner.crew();
        control.crew.load(Ordering::Relaxed) == crew.number && crew.carriers.len() == 1
    };
    !me.flags().has(Flags(Flags::ROAMING.0 | Flags::PINNED.0))
        && !control.flags().has(Flags(Flags::ROAMING.0 | Flags::RECURRING.0))
        && (bound || alone())
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        // If the mark was set before, the handle gave its result when it was polled or selected.
        if self.fiber.life.set(DETACHED) & (FINISHED | DETACHED) == FINISHED {
            // SAFETY: the fiber has finished, and this handle, which alone may take the result, has
            // not taken it.
            drop(unsafe { task::take_result::<T>(&self.fiber) });
        }
    }
}

/// Resolves to the result of [`join`](JoinHandle::join). A poll after it was ready panics.
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
            // The fiber ended meanwhile, and may not have seen the mark. Then only this call can
            // take the waker back.
            let waker = extra.waker.lock().take();
            drop(waker);
        }
        // SAFETY: the fiber has finished, by `is_finished` or by the marks.
        Poll::Ready(unsafe { this.take_once() })
    }
}

impl<T> core::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("JoinHandle").field("fiber", &self.fiber()).finish()
    }
}
