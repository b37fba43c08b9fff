//! A value that one side makes and the other waits for.
//!
//! # The word
//!
//! ```text
//!  63 62                               3 2 1 0
//! |B |  who waits, or what to call      |M|C|S|
//! ```
//!
//! `S`: set; the value is there. `B`: somebody is about to set it, or tries in vain.
//! Otherwise zero, or one who waits: the block of a fiber or thread and the low bits of the number of
//! its wait; with `M` the wait is for several futures; with `C` it is no waiter but a callback, a
//! pointer to a box.
//!
//! Setting is two steps: who sets `B` has the right to, writes the value, and exchanges the word for
//! `S`. The exchange is the last access to the future; whoever was in the word is then woken or
//! called. A waiter enters by a compare-exchange from zero, and leaves by one to zero; if that fails,
//! the future is being set.
//!
//! Nothing in the word points to a stack: a block is never unmapped, and its wake word says whether
//! the wait is still the one that was meant. One whose number agrees in the low bits, a multiple of
//! 2^18 waits later, would be woken for nothing, and every wait looks whether it is over.

use super::after;
use super::select::Arm;
use super::select::sealed::{self, Entered, Joint, Left};
use crate::cancel::{self, masked};
use crate::carrier;
use crate::clock;
use crate::fiber::state::Outcome;
use crate::fiber::{Control, WaitKind};
use crate::park::{Wait, Waiter};
use crate::primitive::{AtomicU64, Ordering};
use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::time::Duration;
use std::panic::{RefUnwindSafe, UnwindSafe};

const SET: u64 = 1;
const CALLBACK: u64 = 1 << 1;
const MULTIPLE: u64 = 1 << 2;
const BUSY: u64 = 1 << 63;

/// Blocks are aligned to 64 bytes and have 48-bit addresses: 42 bits, above the three marks.
const BLOCK_BITS: u32 = 42;
const NUMBER_SHIFT: u32 = 3 + BLOCK_BITS;
const NUMBER_BITS: u32 = 18;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

type Callback = Box<dyn FnOnce() + Send>;

/// A value that one side sets, once, and the other waits for: on a stack, in a struct, in an `Arc`,
/// without memory of its own.
///
/// One waiter at a time, and one callback instead of it. With an error code it is 16 bytes.
///
/// # Examples
/// ```
/// use sinew::sync::FiberFuture;
///
/// let answer = FiberFuture::new();
/// sinew::scope(|s| {
///     s.spawn(|| answer.set(42).unwrap());
///     assert_eq!(*answer.wait(), 42);
/// });
/// ```
pub struct FiberFuture<T> {
    word: AtomicU64,
    value: UnsafeCell<MaybeUninit<T>>,
}

const _: () = assert!(size_of::<FiberFuture<i32>>() == 16);

// SAFETY: a value crosses from who sets it, and is shared by reference after that.
unsafe impl<T: Send + Sync> Sync for FiberFuture<T> {}
// SAFETY: the value goes along.
unsafe impl<T: Send> Send for FiberFuture<T> {}
impl<T: UnwindSafe> UnwindSafe for FiberFuture<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for FiberFuture<T> {}

/// A wait as it stands in the word.
fn encode(waiter: Waiter, multiple: bool) -> u64 {
    let block = waiter.control().expose_provenance() as u64 >> 6;
    let number = waiter.epoch().number() & NUMBER;
    block << 3 | number << NUMBER_SHIFT | if multiple { MULTIPLE } else { 0 }
}

/// Wakes the wait that stood in the word.
fn wake(word: u64) {
    let address = (word >> 3 & ((1 << BLOCK_BITS) - 1)) << 6;
    // SAFETY: a block, which is never unmapped.
    let control = unsafe { &*core::ptr::with_exposed_provenance::<Control>(address as usize) };
    let Some(epoch) = control.wake.waiting() else { return };
    if epoch.number() & NUMBER != word >> NUMBER_SHIFT & NUMBER {
        return;
    }
    if word & MULTIPLE != 0 {
        carrier::wake(control, epoch, Outcome::Notified);
    } else {
        carrier::wake_alone(control, epoch, Outcome::Notified);
    }
}

impl<T> FiberFuture<T> {
    /// One that is not set.
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::sync::FiberFuture::<u32>::new().is_set());
    /// ```
    pub const fn new() -> FiberFuture<T> {
        FiberFuture { word: AtomicU64::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Sets the value, and wakes who waits for it or calls the callback.
    ///
    /// # Errors
    /// If it was set before: the value.
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::new();
    /// assert_eq!(future.set(1), Ok(()));
    /// assert_eq!(future.set(2), Err(2));
    /// assert_eq!(*future.wait(), 1);
    /// ```
    pub fn set(&self, value: T) -> Result<(), T> {
        // ORDERING: Relaxed: only the right to write is decided here.
        let old = self.word.fetch_or(BUSY, Ordering::Relaxed);
        if old & (BUSY | SET) != 0 {
            if old & SET != 0 {
                // The mark means nothing any more; but the word shall say what it is.
                self.word.fetch_and(!BUSY, Ordering::Relaxed);
            }
            return Err(value);
        }
        // SAFETY: one has the right, and nobody reads before the exchange.
        unsafe { (*self.value.get()).write(value) };
        // ORDERING: AcqRel: Release publishes the value, pairs with the Acquire in `get`; Acquire
        // shows what the waiter or the subscriber wrote before it entered.
        let old = self.word.swap(SET, Ordering::AcqRel) & !BUSY;
        if old & CALLBACK != 0 {
            // SAFETY: the box that `subscribe` put there, taken out once.
            unsafe { take_callback(old)() };
        } else if old != 0 {
            wake(old);
        }
        Ok(())
    }

    /// Whether it is set.
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::new();
    /// future.set(()).unwrap();
    /// assert!(future.is_set());
    /// ```
    #[inline]
    pub fn is_set(&self) -> bool {
        // ORDERING: Acquire: the value; pairs with the Release in `set`.
        self.word.load(Ordering::Acquire) & SET != 0
    }

    /// The value, if it is set.
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::new();
    /// assert_eq!(future.get(), None);
    /// future.set(7).unwrap();
    /// assert_eq!(future.get(), Some(&7));
    /// ```
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: written before it was set, and not changed after.
        self.is_set().then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Waits until it is set.
    ///
    /// # Panics
    /// If somebody else waits for it, or a callback was subscribed.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::FiberFuture;
    /// use std::sync::Arc;
    ///
    /// let future = Arc::new(FiberFuture::new());
    /// let theirs = future.clone();
    /// sinew::spawn(move || theirs.set("done").unwrap());
    /// assert_eq!(*future.wait(), "done");
    /// ```
    #[inline]
    #[track_caller]
    pub fn wait(&self) -> &T {
        self.wait_till(clock::NEVER);
        self.get().expect("it was waited for")
    }

    /// Waits until it is set, at most for `timeout`.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::<u32>::new();
    /// assert_eq!(future.wait_with_timeout(std::time::Duration::from_millis(1)), None);
    /// ```
    #[track_caller]
    pub fn wait_with_timeout(&self, timeout: Duration) -> Option<&T> {
        self.wait_till(after(timeout));
        self.get()
    }

    /// Waits until it is set, whatever it takes: neither unwinds nor gives up.
    pub(super) fn wait_anyhow(&self) {
        masked(|| self.wait_as(Wait::begin_anyhow, clock::NEVER));
    }

    #[track_caller]
    fn wait_till(&self, deadline: u64) {
        self.wait_as(Wait::begin, deadline);
    }

    #[inline(always)]
    #[track_caller]
    fn wait_as(&self, begin: impl Fn(WaitKind, usize) -> Wait, deadline: u64) {
        while !self.is_set() {
            let wait = begin(WaitKind::Value, core::ptr::from_ref(self).addr());
            let who = wait.who();
            let word = encode(wait.waiter(), false);
            match self.attach(word) {
                Attached::Set => return wait.abandon(),
                Attached::Taken => {
                    wait.abandon();
                    second_waiter(self);
                }
                Attached::Waiting => {}
            }
            let outcome = wait.suspend(deadline);
            self.detach(word);
            if !self.is_set() {
                cancel::settle(who, outcome);
                if outcome == Outcome::TimedOut && deadline <= clock::now() {
                    return;
                }
            }
        }
    }

    /// Waits until one of several is set, and returns the index of one that is; `None` if there are
    /// none. The same future may be there twice.
    ///
    /// # Panics
    /// If somebody else waits for one of them, or a callback was subscribed to it.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::FiberFuture;
    ///
    /// let futures = [FiberFuture::new(), FiberFuture::new()];
    /// sinew::scope(|s| {
    ///     s.spawn(|| futures[1].set(7).unwrap());
    ///     let both: Vec<_> = futures.iter().collect();
    ///     assert_eq!(FiberFuture::wait_for_multiple(&both), Some(1));
    /// });
    /// assert_eq!(FiberFuture::<u32>::wait_for_multiple(&[]), None);
    /// ```
    #[track_caller]
    pub fn wait_for_multiple(futures: &[&FiberFuture<T>]) -> Option<usize> {
        if futures.is_empty() {
            return None;
        }
        loop {
            if let Some(index) = futures.iter().position(|future| future.is_set()) {
                return Some(index);
            }
            let wait = Wait::begin(WaitKind::Value, core::ptr::from_ref(futures).addr());
            let who = wait.who();
            let word = encode(wait.waiter(), true);
            let mut attached = 0;
            let mut stopped = None;
            for future in futures {
                match future.attach(word) {
                    Attached::Waiting => attached += 1,
                    other => {
                        stopped = Some(other);
                        break;
                    }
                }
            }
            let outcome = match stopped {
                None => wait.suspend(clock::NEVER),
                Some(_) => {
                    // Somebody may have been faster: then this stops until it is dispatched.
                    wait.withdraw();
                    Outcome::Notified
                }
            };
            futures[..attached].iter().for_each(|future| future.detach(word));
            if let Some(Attached::Taken) = stopped {
                second_waiter(futures[attached]);
            }
            if !futures.iter().any(|future| future.is_set()) {
                cancel::settle(who, outcome);
            }
        }
    }

    /// Enters a wait.
    fn attach(&self, word: u64) -> Attached {
        loop {
            // ORDERING: AcqRel: Release publishes the wait; Acquire as in `is_set`.
            match self.word.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Attached::Waiting,
                Err(now) if now & SET != 0 => return Attached::Set,
                Err(now) if now == word => return Attached::Waiting,
                // It is being set: a moment.
                Err(now) if now & BUSY != 0 => pause(),
                Err(_) => return Attached::Taken,
            }
        }
    }

    /// Leaves a wait, unless the future is being set.
    fn detach(&self, word: u64) {
        // ORDERING: Acquire: as in `is_set`.
        let left = self.word.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Acquire);
        if left.is_err_and(|now| now == word | BUSY) {
            // It is there in a moment, and this may be the last chance to see it.
            while !self.is_set() {
                pause();
            }
        }
    }

    /// Has `callback` called by whoever sets the value, at once if it is set.
    ///
    /// # Panics
    /// If somebody waits for it, or a callback was subscribed.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{Baton, FiberFuture};
    /// use std::sync::Arc;
    ///
    /// let (future, called) = (FiberFuture::new(), Arc::new(Baton::new()));
    /// let theirs = called.clone();
    /// future.subscribe(move || theirs.post());
    /// future.set(7).unwrap();
    /// assert!(called.is_posted());
    /// ```
    #[track_caller]
    pub fn subscribe(&self, callback: impl FnOnce() + Send + 'static) {
        let callback: Box<Callback> = Box::new(Box::new(callback));
        let word = Box::into_raw(callback).expose_provenance() as u64 | CALLBACK;
        match self.attach(word) {
            Attached::Waiting => {}
            // SAFETY: the box was not entered.
            Attached::Set => unsafe { take_callback(word)() },
            Attached::Taken => {
                // SAFETY: the same.
                drop(unsafe { take_callback(word) });
                second_waiter(self);
            }
        }
    }

    /// Makes it as new, and returns the value if it was set. Nobody can be waiting or setting it.
    ///
    /// # Examples
    /// ```
    /// let mut future = sinew::sync::FiberFuture::new();
    /// future.set(7).unwrap();
    /// assert_eq!(future.reset(), Some(7));
    /// assert_eq!(future.reset(), None);
    /// future.set(8).unwrap();
    /// ```
    pub fn reset(&mut self) -> Option<T> {
        let word = self.word.swap(0, Ordering::Relaxed);
        if word & CALLBACK != 0 {
            // SAFETY: the box that `subscribe` put there, taken out once.
            drop(unsafe { take_callback(word) });
        }
        // SAFETY: set, and taken out once: the mark is gone.
        (word & SET != 0).then(|| unsafe { self.value.get_mut().assume_init_read() })
    }

    /// Waiting for the value as one of several operations, for [`select`](crate::sync::select).
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{FiberFuture, Patience, select};
    ///
    /// let future = FiberFuture::new();
    /// future.set(7).unwrap();
    /// let mut arm = future.arm();
    /// assert_eq!(select(&mut [&mut arm], Patience::Forever), Some(0));
    /// assert_eq!(*arm.take(), 7);
    /// ```
    pub fn arm(&self) -> FutureArm<'_, T> {
        FutureArm { future: self, word: 0 }
    }
}

enum Attached {
    Waiting,
    Set,
    /// Somebody else waits.
    Taken,
}

/// # Safety
/// The word holds a box that nobody else takes.
unsafe fn take_callback(word: u64) -> Callback {
    let address = (word & !(BUSY | CALLBACK)) as usize;
    // SAFETY: as the caller promised.
    *unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<Callback>(address)) }
}

#[cold]
#[track_caller]
fn second_waiter<T>(future: &FiberFuture<T>) -> ! {
    panic!("the future at {future:p} has somebody who waits for it already")
}

/// Whoever sets a future needs a few instructions more. It is on another thread, since nothing in
/// them waits, and may have lost its CPU.
#[cold]
fn pause() {
    std::thread::yield_now();
}

impl<T> Default for FiberFuture<T> {
    fn default() -> Self {
        FiberFuture::new()
    }
}

impl<T> Drop for FiberFuture<T> {
    fn drop(&mut self) {
        drop(self.reset());
    }
}

impl<T: fmt::Debug> fmt::Debug for FiberFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FiberFuture").field(&self.get()).finish()
    }
}

/// Waiting for a value as one of several operations; see [`FiberFuture::arm`].
#[derive(Debug)]
pub struct FutureArm<'a, T> {
    future: &'a FiberFuture<T>,
    /// The wait that was entered; zero if none is.
    word: u64,
}

impl<'a, T> FutureArm<'a, T> {
    /// The value, after this arm was selected.
    ///
    /// # Panics
    /// If it is not set.
    ///
    /// # Examples
    /// ```
    /// let future = sinew::sync::FiberFuture::new();
    /// future.set(7).unwrap();
    /// assert_eq!(*future.arm().take(), 7);
    /// ```
    #[track_caller]
    pub fn take(&mut self) -> &'a T {
        self.future.get().expect("the arm was not selected")
    }
}

impl<T> Arm for FutureArm<'_, T> {}

impl<T> sealed::Arm for FutureArm<'_, T> {
    fn attempt(&mut self) -> bool {
        self.future.is_set()
    }

    fn enter(&mut self, Joint(wait): Joint<'_>) -> Entered {
        let word = encode(wait.waiter(), true);
        match self.future.attach(word) {
            Attached::Waiting => {
                self.word = word;
                Entered::Linked
            }
            Attached::Set if wait.claim_for_itself() => Entered::Done,
            Attached::Set => Entered::Lost,
            Attached::Taken => Entered::Misused,
        }
    }

    fn leave(&mut self) -> Left {
        if self.word != 0 {
            self.future.detach(core::mem::take(&mut self.word));
        }
        // The value stays: it is no loss if another arm was granted something.
        if self.future.is_set() { Left::Ready } else { Left::Nothing }
    }
}
