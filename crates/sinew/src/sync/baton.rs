//! A signal for one waiter, which stays given until it is reset.
//!
//! A baton is the word of `future::word`, without a value. Next: `future::word`.

use super::future::word::{Attached, Holder, Notice, Word};
use super::moment;
use crate::carrier::embed::on_root::Parting;
use crate::clock;
use crate::fiber::WaitKind;
use crate::park::{Wait, raise};
use core::fmt;
use core::ptr;
use core::time::Duration;
use std::task::Waker;
use std::time::Instant;

/// A signal for one waiter. After a post, the current wait returns, and later waits return at once,
/// until the baton is reset.
///
/// This is the cheapest signal of this module: it is one word, and a wait and a post take one
/// exchange each. Any fiber or thread may post it, more than once. The waiter is one fiber, one
/// thread, or one [custom waiter](Self::set_waiter); for many waiters, use [`Event`](super::Event).
/// When a wait has returned, the poster does not touch the baton again, so the baton may be on the
/// waiter's stack.
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

const _: () = assert!(crate::primitive::IS_MODEL || size_of::<Baton>() == 8);

impl Baton {
    /// Creates a baton that is not posted.
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::sync::Baton::new().is_posted());
    /// ```
    pub const fn new() -> Baton {
        Baton(Word::new())
    }

    /// Posts the baton: wakes the waiter, or lets a later wait return at once. Has no effect if the
    /// baton is already posted.
    ///
    /// # Panics
    /// Panics if the waker of a [custom waiter](Self::set_waiter) panics. The baton is posted in
    /// that case too.
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

    /// Returns whether the baton is posted.
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

    /// Returns whether the baton is posted, without waiting. Another name for
    /// [`is_posted`](Self::is_posted).
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

    /// Waits until the baton is posted.
    ///
    /// A cancelled fiber is unwound from this wait, unless the baton was posted in the meantime.
    ///
    /// # Panics
    /// Panics if another fiber, another thread or a [custom waiter](Self::set_waiter) already
    /// waits. That waiter keeps waiting.
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

    /// Waits at most `timeout` until the baton is posted; returns whether it is.
    ///
    /// # Panics
    /// Panics as [`wait`](Self::wait) does.
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// assert!(!baton.wait_timeout(std::time::Duration::from_millis(1)));
    /// ```
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.is_posted() || self.wait_slow(moment(timeout))
    }

    /// Waits until the baton is posted, or until `deadline`; returns whether it is posted.
    ///
    /// # Panics
    /// Panics as [`wait`](Self::wait) does.
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// assert!(!baton.wait_deadline(std::time::Instant::now()));
    /// ```
    #[track_caller]
    pub fn wait_deadline(&self, deadline: Instant) -> bool {
        self.is_posted() || self.wait_slow(clock::at(deadline))
    }

    #[inline(never)]
    #[track_caller]
    fn wait_slow(&self, deadline: u64) -> bool {
        // Branch here instead of in a function that returns a `Wait`: the compiler would keep a
        // returned `Wait` in memory instead of in registers.
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

    /// Waits again after the waiter was woken for nothing.
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

    /// Waits until the baton is posted, and calls `f` once the fiber has stopped. `f` runs on the
    /// main context of the fiber's [manager](crate::manager), before any other fiber runs.
    ///
    /// Use it if `f` hands the baton to code that must find the fiber stopped, or if `f` needs a
    /// large stack. If the caller is not a fiber of a manager, or is pinned, it calls `f` before
    /// the wait. A panic of `f` ends the wait and continues in the caller. If the fiber is
    /// cancelled before it has stopped, `f` is dropped without a call.
    ///
    /// # Panics
    /// Panics as [`wait`](Self::wait) does.
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
    #[track_caller]
    pub fn wait_with(&self, f: impl FnOnce()) {
        self.wait_and_call(clock::NEVER, f);
    }

    /// Waits at most `timeout` until the baton is posted, and calls `f` once the fiber has stopped,
    /// as [`wait_with`](Self::wait_with) does. Returns whether the baton is posted.
    ///
    /// # Panics
    /// Panics as [`wait`](Self::wait) does.
    ///
    /// # Examples
    /// ```
    /// let baton = sinew::sync::Baton::new();
    /// assert!(baton.wait_timeout_with(std::time::Duration::from_secs(1), || baton.post()));
    /// ```
    #[track_caller]
    pub fn wait_timeout_with(&self, timeout: Duration, f: impl FnOnce()) -> bool {
        self.wait_and_call(moment(timeout), f)
    }

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
        // SAFETY: `parting` stays in this frame until it is dropped, and the running fiber has made
        // it.
        let ended = self.0.wait_once(wait, deadline, true, || unsafe { parting.arm(epoch) });
        if let Err(holder) = &ended {
            second_waiter(holder);
        }
        if let Err(payload) = parting.finish() {
            raise::pass_on(payload);
        }
        if ended == Ok(true) { self.is_posted() } else { self.wait_again(deadline) }
    }

    /// Registers `waker` as the waiter: the poster wakes it, once. If the baton is already posted,
    /// this call wakes it. A waker that is not woken is dropped with the baton. This is the only
    /// kind of wait for a baton that allocates.
    ///
    /// # Panics
    /// Panics if the baton already has a waiter, or a waker that was not woken.
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

    /// Resets the baton to its initial state. Drops a waker that was set.
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
