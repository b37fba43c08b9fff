//! A signal that is given once, to one.

use super::future::word::{Attached, Holder, Notice, Word};
use super::moment;
#[cfg(not(sinew_loom))]
use crate::cancel;
use crate::clock;
use crate::fiber::WaitKind;
#[cfg(not(sinew_loom))]
use crate::park::Parting;
use crate::park::Wait;
use core::fmt;
use core::ptr;
use core::time::Duration;
use std::task::Waker;
use std::time::Instant;

/// A signal for one: posted once, it lets the one pass who waits for it, or comes later, until it is
/// reset.
///
/// The cheapest there is: one word, one exchange to wait and one to post. Anybody may post it, from
/// any thread, more than once. Who waits may be a fiber or a thread, or a
/// [custom waiter](Self::set_waiter), and is alone: for many, there is [`Event`](super::Event). When a
/// wait has returned, whoever posted does not touch the baton any more, so that it may be on the stack
/// of the one who waits.
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
pub struct Baton(Word);

const _: () = assert!(cfg!(sinew_loom) || size_of::<Baton>() == 8);

impl Baton {
    /// One that is not posted.
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::sync::Baton::new().is_posted());
    /// ```
    pub const fn new() -> Baton {
        Baton(Word::new())
    }

    /// Lets the one pass who waits, or the next one. Nothing if it is posted.
    ///
    /// # Panics
    /// If the waker of a [custom waiter](Self::set_waiter) does: it is posted then.
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// baton.post();
    /// baton.wait(); // at once
    /// ```
    #[inline]
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
        self.0.is_set()
    }

    /// Does not wait: says whether it is posted, as [`is_posted`](Self::is_posted).
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// assert!(!baton.try_wait());
    /// baton.post();
    /// assert!(baton.try_wait());
    /// ```
    #[inline]
    pub fn try_wait(&self) -> bool {
        self.is_posted()
    }

    /// Waits until it is posted.
    ///
    /// A cancelled fiber is unwound from here, unless it was posted meanwhile.
    ///
    /// # Panics
    /// If somebody else waits, who is not disturbed by that.
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// sinew::scope(|s| {
    ///     s.spawn(|| baton.wait());
    ///     baton.post();
    /// });
    /// ```
    #[inline]
    #[track_caller]
    pub fn wait(&self) {
        if !self.is_posted() {
            self.wait_slow(clock::NEVER);
        }
    }

    /// Waits until it is posted, at most for `timeout`; false if that was over before.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// assert!(!baton.wait_for(std::time::Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_for(&self, timeout: Duration) -> bool {
        self.is_posted() || self.wait_slow(moment(timeout))
    }

    /// Waits until it is posted; false if `deadline` has passed before.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// assert!(!baton.wait_until(std::time::Instant::now()));
    /// ```
    #[track_caller]
    pub fn wait_until(&self, deadline: Instant) -> bool {
        self.is_posted() || self.wait_slow(clock::at(deadline))
    }

    #[inline(never)]
    #[track_caller]
    fn wait_slow(&self, deadline: u64) -> bool {
        // A wait that a function has returned would be kept in memory.
        match Wait::begin_plainly(WaitKind::Event, ptr::from_ref(self).addr()) {
            Some(wait) => self.wait_in(wait, deadline),
            None => self.wait_specially(deadline),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn wait_specially(&self, deadline: u64) -> bool {
        let wait = Wait::begin(WaitKind::Event, ptr::from_ref(self).addr());
        self.wait_in(wait, deadline)
    }

    #[inline(always)]
    #[track_caller]
    fn wait_in(&self, wait: Wait, deadline: u64) -> bool {
        match self.0.wait_once(wait, deadline, true, || ()) {
            Ok(true) => self.is_posted(),
            Ok(false) => self.wait_again(deadline),
            Err(holder) => second_waiter(&holder),
        }
    }

    /// Somebody has woken the waiter for nothing.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn wait_again(&self, deadline: u64) -> bool {
        loop {
            let wait = Wait::begin(WaitKind::Event, ptr::from_ref(self).addr());
            match self.0.wait_once(wait, deadline, true, || ()) {
                Ok(true) => return self.is_posted(),
                Ok(false) => {}
                Err(holder) => second_waiter(&holder),
            }
        }
    }

    /// Waits until it is posted, as [`wait`](Self::wait), and calls `f` once the fiber has stopped: on the main
    /// context of its [manager](crate::manager), before any other fiber runs.
    ///
    /// For what hands the baton to somebody who must find the fiber stopped, or needs a large stack. Anywhere
    /// but in a fiber of a manager, `f` is called before the wait. A panic of `f` ends the wait, and goes on in
    /// the caller. If the fiber is cancelled before it has stopped, `f` is dropped.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController, on_fiber};
    /// use sinew::sync::Baton;
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task(|| {
    ///     let baton = Baton::new();
    ///     baton.wait_with(|| {
    ///         assert!(!on_fiber());
    ///         baton.post();
    ///     });
    /// });
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(not(sinew_loom))]
    #[track_caller]
    pub fn wait_with(&self, f: impl FnOnce()) {
        self.wait_and_call(clock::NEVER, f);
    }

    /// The same, at most for `timeout`; false if that was over before it was posted.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// assert!(baton.wait_for_with(std::time::Duration::from_secs(1), || baton.post()));
    /// ```
    #[cfg(not(sinew_loom))]
    #[track_caller]
    pub fn wait_for_with(&self, timeout: Duration, f: impl FnOnce()) -> bool {
        self.wait_and_call(moment(timeout), f)
    }

    #[cfg(not(sinew_loom))]
    #[track_caller]
    fn wait_and_call(&self, deadline: u64, f: impl FnOnce()) -> bool {
        let mut parting = match Parting::new(f) {
            Ok(parting) => parting,
            Err(f) => {
                f();
                return self.is_posted() || self.wait_slow(deadline);
            }
        };
        let wait = Wait::begin(WaitKind::Event, ptr::from_ref(self).addr());
        let epoch = wait.waiter().epoch();
        // SAFETY: it stays here until it is dropped, and is used in the fiber that runs.
        let ended = self.0.wait_once(wait, deadline, true, || unsafe { parting.arm(epoch) });
        if let Err(holder) = &ended {
            second_waiter(holder);
        }
        if let Err(payload) = parting.finish() {
            cancel::pass_on(payload);
        }
        if ended == Ok(true) { self.is_posted() } else { self.wait_again(deadline) }
    }

    /// Has `waker` woken by whoever posts, once; at once if it is posted. If that never happens, it is
    /// dropped with the baton. This is the one way to wait for it that allocates.
    ///
    /// # Panics
    /// If somebody waits, or has set a waker before.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Baton, Event};
    /// use std::sync::Arc;
    /// use std::task::Wake;
    ///
    /// struct Woken(Event);
    ///
    /// impl Wake for Woken {
    ///     fn wake(self: Arc<Self>) {
    ///         self.0.set();
    ///     }
    /// }
    ///
    /// let (baton, woken) = (Baton::new(), Arc::new(Woken(Event::new())));
    /// baton.set_waiter(woken.clone().into());
    /// assert!(!woken.0.is_set());
    /// baton.post();
    /// assert!(woken.0.is_set());
    /// ```
    #[track_caller]
    pub fn set_waiter(&self, waker: Waker) {
        match self.0.subscribe(Notice::Wake(waker)) {
            Ok(()) | Err((Attached::Waiting, _)) => {}
            Err((Attached::Set, notice)) => notice.give(),
            Err((Attached::Taken(holder), notice)) => {
                drop(notice);
                second_waiter(&holder);
            }
        }
    }

    /// Makes it as new. Nobody can be waiting; a waker that was set is dropped.
    ///
    /// # Examples
    /// ```
    /// let mut baton = sinew::sync::Baton::new();
    /// baton.post();
    /// baton.reset();
    /// assert!(!baton.is_posted());
    /// ```
    pub fn reset(&mut self) {
        self.0.reset();
    }
}

impl Default for Baton {
    fn default() -> Self {
        Baton::new()
    }
}

impl fmt::Debug for Baton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Baton").field("posted", &self.is_posted()).finish()
    }
}

impl Drop for Baton {
    fn drop(&mut self) {
        self.0.reset();
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn second_waiter(holder: &Holder) -> ! {
    panic!("{holder} already waits on this Baton, which has one waiter at a time")
}

#[cfg(all(test, sinew_loom))]
mod loom;
