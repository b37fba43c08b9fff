//! The word of an object that is set once and has one waiter.
//!
//! # The word
//!
//! ```text
//!  63 62                               3 2 1 0
//! |B |  waiter, notice or subscription  |M|C|S|
//! ```
//!
//! `S`: the value is set. `B`: a setter is about to set the value. In a set word, `B` appears for a
//! moment while a second setter is refused.
//!
//! Without `S`, the other bits are zero or hold one waiter:
//!
//! - without `C`: the control block of a fiber or thread, and the low bits of the number of its
//!   wait. `M` means that the wait is for several objects.
//! - with `C` alone: a notice, as a pointer to a box.
//! - with `C` and `M`: a pointer to the head of a subscription, which its owner has pinned.
//!
//! Setting takes two steps. The first setter that sets `B` has the right to set: it writes the
//! value, and then exchanges the word for `S`. The exchange is its last access to the object. After
//! it, the setter wakes the waiter or calls its callback. A waiter enters by a compare-exchange
//! from zero, and leaves by a compare-exchange to zero. If the exchange to zero fails, a setter has
//! set the word or is about to set it.
//!
//! An object without a value needs the exchange alone: this is *posting*. Any fiber or thread may
//! post, and more than once.
//!
//! After the exchange the setter uses only its copy of the word. A subscription may be on a stack;
//! `subscription` describes how its owner takes it back. A block is never unmapped, and its wake
//! word tells whether the wait is still the one in the word. A wait of that block that comes a
//! multiple of 2^18 waits later has the same low bits, and would be woken for nothing. So each
//! waiter checks, when it is woken, whether its object is set.
//!
//! Uses `park` for the waits. Used by `FiberFuture`, `Baton`, `SequencerTurn` and
//! `FairMutexTicket`. Next: `subscription`.

use super::subscription::Head;
use crate::cancel::masked;
use crate::carrier;
use crate::clock;
use crate::fiber::state::Outcome;
use crate::fiber::{Control, WaitKind, number_of};
use crate::park::raise;
use crate::park::{Wait, Waiter};
use crate::primitive::{AtomicU64, Ordering, yield_thread};
use crate::sync::select::sealed::{Entered, Joint, Left};
use core::fmt;
use std::task::Waker;

const SET: u64 = 1;
const NOTICE: u64 = 1 << 1;
const MULTIPLE: u64 = 1 << 2;
const PINNED: u64 = NOTICE | MULTIPLE;
const BUSY: u64 = 1 << 63;

/// Blocks are aligned to 64 bytes and have 48-bit addresses, so 42 bits name a block. They lie
/// above the three marks.
const BLOCK_BITS: u32 = 42;
const NUMBER_SHIFT: u32 = 3 + BLOCK_BITS;
const NUMBER_BITS: u32 = 18;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// A callback or waker in the word. The setter calls or wakes it instead of waking a fiber or
/// thread.
pub(crate) enum Notice {
    Call(Box<dyn FnOnce() + Send>),
    Wake(Waker),
}

impl Notice {
    /// Calls the callback, or wakes the waker.
    pub(crate) fn give(self) {
        match self {
            Notice::Call(callback) => callback(),
            Notice::Wake(waker) => waker.wake(),
        }
    }
}

/// The word; see the page of this module. Only this crate can set a word.
#[doc(hidden)] // a sealed trait names it
#[derive(Debug)]
pub struct Word(AtomicU64);

/// The result of entering a wait or a notice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// The wait or notice is in the word.
    Waiting,
    /// The word is set already.
    Set,
    /// The word has another waiter.
    Taken(Holder),
}

/// The waiter in a word, for error messages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Holder(u64);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 & NOTICE != 0 {
            return f.write_str("a custom waiter");
        }
        // The waiter may have left by now, so the block may have another user. Print only the id of
        // that user.
        fmt::Display::fmt(&number_of(block(self.0)), f)
    }
}

/// Returns the bits that name a wait in the word. `multiple` tells whether the wait is for several
/// objects.
fn encode(waiter: Waiter, multiple: bool) -> u64 {
    let block = waiter.control().expose_provenance() as u64 >> 6;
    let number = waiter.epoch().number() & NUMBER;
    block << 3 | number << NUMBER_SHIFT | if multiple { MULTIPLE } else { 0 }
}

/// Returns the control block of the waiter in the word.
fn block(word: u64) -> &'static Control {
    let address = (word >> 3 & ((1 << BLOCK_BITS) - 1)) << 6;
    // SAFETY: the word holds the address of a block, and blocks are never unmapped.
    unsafe { &*core::ptr::with_exposed_provenance::<Control>(address as usize) }
}

/// Wakes or calls the waiter that was in the word when it was set.
#[inline(never)]
fn tell(word: u64) {
    if word & PINNED == PINNED {
        // SAFETY: `attach_head` put this head into the word. The exchange that set the word took it
        // out, so this is the only call.
        unsafe { Head::call(head_of(word)) };
    } else if word & NOTICE != 0 {
        // SAFETY: `subscribe` put this box into the word, and the exchange that set the word took
        // it out.
        unsafe { take_notice(word) }.give();
    } else {
        wake(word);
    }
}

/// Wakes the fiber or thread whose wait was in the word, if that wait is still under way.
fn wake(word: u64) {
    let control = block(word);
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

impl Word {
    pub(crate) const fn new() -> Word {
        Word(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        // ORDERING: Acquire shows the value; pairs with the Release in `set` and `post`.
        self.0.load(Ordering::Acquire) & SET != 0
    }

    /// Takes the right to set the word. Returns false if another setter has it, or if the word is
    /// set.
    pub(crate) fn begin_setting(&self) -> bool {
        // ORDERING: Relaxed: this decides only which setter may write.
        let old = self.0.fetch_or(BUSY, Ordering::Relaxed);
        if old & SET != 0 {
            // `B` has no meaning in a set word. Clear it, so that the word is `S` alone.
            self.0.fetch_and(!BUSY, Ordering::Relaxed);
        }
        old & (BUSY | SET) == 0
    }

    /// Sets the word, and wakes the waiter or gives the notice. The word may be freed as soon as it
    /// is set, so this function does not touch it after that.
    ///
    /// # Safety
    /// `begin_setting` has returned true to the caller, and the caller has written the value, if
    /// there is one. The word lives until it is set.
    pub(crate) unsafe fn set(word: *const Word) {
        // SAFETY: the caller promised that the word lives until it is set.
        // ORDERING: AcqRel: Release publishes the value, and pairs with the Acquire in `is_set`.
        // Acquire shows the writes of the waiter or subscriber before it entered, and pairs with
        // the Release in `attach`.
        let old = unsafe { (*word).0.swap(SET, Ordering::AcqRel) } & !BUSY;
        if old != 0 {
            tell(old);
        }
    }

    /// Sets a word without a value, if it is not set, and wakes the waiter or gives the notice. As
    /// in `set`, the word may be freed as soon as it is set.
    #[inline(always)]
    pub(crate) fn post(&self) {
        // ORDERING: AcqRel: Release publishes the caller's earlier writes, and pairs with the
        // Acquire in `is_set`. Acquire pairs with the Release in `attach`, as in `set`.
        let old = self.0.swap(SET, Ordering::AcqRel);
        if old > SET {
            tell(old);
        }
    }

    /// Waits until the word is set. Does not unwind, and has no deadline.
    pub(crate) fn wait_anyhow(&self, kind: WaitKind, address: usize) {
        let begin = || Wait::begin_anyhow(kind, address);
        if let Err(holder) = masked(|| self.wait_as(begin, clock::NEVER, false)) {
            second_waiter(self, &holder);
        }
    }

    /// Waits until the word is set or the deadline has passed.
    #[inline]
    #[track_caller]
    pub(crate) fn wait_till(&self, kind: WaitKind, address: usize, deadline: u64) {
        if let Err(holder) = self.wait_as(|| Wait::begin(kind, address), deadline, true) {
            second_waiter(self, &holder);
        }
    }

    /// Waits until the value of a future is set or the deadline has passed.
    #[inline]
    #[track_caller]
    pub(super) fn wait_for_value(&self, deadline: u64) {
        self.wait_till(WaitKind::Value, core::ptr::from_ref(self).addr(), deadline);
    }

    #[inline(always)]
    fn wait_as(
        &self,
        begin: impl Fn() -> Wait,
        deadline: u64,
        may_raise: bool,
    ) -> Result<(), Holder> {
        while !self.is_set() && !self.wait_once(begin(), deadline, may_raise, || ())? {}
        Ok(())
    }

    /// Enters a wait that has just begun, calls `entered`, and suspends. Returns true if the word
    /// is set or the deadline has passed, and false if the waiter was woken for nothing.
    ///
    /// It calls `entered` even if the word is already set, but not if the word has another waiter.
    /// `entered` must neither wait nor unwind.
    ///
    /// Returns an error with the other waiter if the word has one.
    #[inline(always)]
    pub(crate) fn wait_once(
        &self,
        wait: Wait,
        deadline: u64,
        may_raise: bool,
        entered: impl FnOnce(),
    ) -> Result<bool, Holder> {
        let word = encode(wait.waiter(), false);
        match self.attach(word) {
            Attached::Waiting => {}
            Attached::Set => {
                wait.abandon();
                entered();
                return Ok(true);
            }
            Attached::Taken(holder) => {
                wait.abandon();
                return Err(holder);
            }
        }
        let who = wait.who();
        entered();
        let outcome = wait.suspend(deadline);
        if self.is_set() {
            return Ok(true);
        }
        self.detach(word);
        if self.is_set() {
            return Ok(true);
        }
        if may_raise {
            raise::settle(who, outcome);
        }
        Ok(outcome == Outcome::TimedOut && deadline <= clock::now())
    }

    /// Enters a wait or a notice.
    #[inline(always)]
    fn attach(&self, word: u64) -> Attached {
        loop {
            // ORDERING: AcqRel: Release publishes the wait, and pairs with the Acquire in `set` and
            // `post`. Acquire pairs with their Release, as in `is_set`.
            match self.0.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Attached::Waiting,
                Err(now) if now & SET != 0 => return Attached::Set,
                Err(now) if now == word => return Attached::Waiting,
                // A setter is between its two steps, and needs only a few more instructions.
                Err(now) if now & BUSY != 0 => pause(),
                Err(now) => return Attached::Taken(Holder(now)),
            }
        }
    }

    /// Leaves a wait. If a setter is about to set the word, waits until the word is set.
    fn detach(&self, word: u64) {
        // ORDERING: Acquire pairs with the Release in `set` and `post`, as in `is_set`.
        let left = self.0.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Acquire);
        if left.is_err_and(|now| now == word | BUSY) {
            // The setter needs only a few more instructions. The caller may free the word after
            // this call, so wait for the setter's last access.
            while !self.is_set() {
                pause();
            }
        }
    }

    /// Enters a notice, which the setter gives. Returns the notice if the word is set or has
    /// another waiter.
    pub(crate) fn subscribe(&self, notice: Notice) -> Result<(), (Attached, Notice)> {
        let word = Box::into_raw(Box::new(notice)).expose_provenance() as u64 | NOTICE;
        match self.attach(word) {
            Attached::Waiting => Ok(()),
            // SAFETY: the box did not get into the word, so this caller still owns it.
            other => Err((other, unsafe { take_notice(word) })),
        }
    }

    /// Enters a subscription, which the setter calls.
    pub(super) fn attach_head(&self, head: *const Head) -> Attached {
        self.attach(word_of(head))
    }

    /// Takes a subscription out of the word. Returns false if the setter has taken it or is about
    /// to.
    pub(super) fn detach_head(&self, head: *const Head) -> bool {
        // ORDERING: Relaxed: if this succeeds, no setter has taken the subscription, and only the
        // caller, which owns it, reads it.
        self.0.compare_exchange(word_of(head), 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Clears the word; returns whether it was set. `&mut` excludes waiters and setters.
    pub(crate) fn reset(&mut self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(0, Ordering::Relaxed);
        // A subscription borrows the future, so one that is still in the word was leaked. Leave it
        // alone.
        if word & PINNED == NOTICE {
            // SAFETY: `subscribe` put this box into the word, and the word has been cleared.
            drop(unsafe { take_notice(word) });
        }
        word & SET != 0
    }
}

/// Waits until one of several words is set, and returns the index of a word that is set. Returns
/// `None` if `count` is 0. Two indices may name the same word.
#[track_caller]
pub(super) fn wait_for_one<'a>(count: usize, word: impl Fn(usize) -> &'a Word) -> Option<usize> {
    if count == 0 {
        return None;
    }
    let is_set = |index: &usize| word(*index).is_set();
    loop {
        if let Some(index) = (0..count).find(is_set) {
            return Some(index);
        }
        let wait = Wait::begin(WaitKind::Value, core::ptr::from_ref(word(0)).addr());
        let who = wait.who();
        let entered = encode(wait.waiter(), true);
        let mut attached = 0;
        let mut stopped = None;
        for index in 0..count {
            match word(index).attach(entered) {
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
                // A setter may have ended the wait already. Then this fiber is in a queue, and
                // `withdraw` suspends until it is dispatched from there.
                wait.withdraw();
                Outcome::Notified
            }
        };
        (0..attached).filter(|index| !is_set(index)).for_each(|index| word(index).detach(entered));
        if let Some(Attached::Taken(holder)) = stopped {
            second_waiter(word(attached), &holder);
        }
        if !(0..count).any(|index| is_set(&index)) {
            raise::settle(who, outcome);
        }
    }
}

/// The wait for a word as an arm of `select!`.
#[derive(Debug)]
pub(crate) struct WordArm<'a> {
    word: &'a Word,
    /// The bits that name the wait in the word; zero if the arm has not entered a wait.
    entered: u64,
}

impl<'a> WordArm<'a> {
    pub(crate) fn new(word: &'a Word) -> WordArm<'a> {
        WordArm { word, entered: 0 }
    }

    pub(crate) fn attempt(&self) -> bool {
        self.word.is_set()
    }

    pub(crate) fn enter(&mut self, Joint(wait): Joint<'_>) -> Entered {
        let entered = encode(wait.waiter(), true);
        match self.word.attach(entered) {
            Attached::Waiting => {
                self.entered = entered;
                Entered::Linked
            }
            Attached::Set if wait.claim_for_itself() => Entered::Done,
            Attached::Set => Entered::Lost,
            Attached::Taken(_) => Entered::Misused,
        }
    }

    pub(crate) fn leave(&mut self) -> Left {
        let entered = core::mem::take(&mut self.entered);
        if entered != 0 && !self.word.is_set() {
            self.word.detach(entered);
        }
        // A set word stays set, so nothing is lost if another arm is selected.
        if self.word.is_set() { Left::Ready } else { Left::Nothing }
    }
}

/// Returns the bits that name a subscription in the word.
fn word_of(head: *const Head) -> u64 {
    head.expose_provenance() as u64 | PINNED
}

/// Returns the head of the subscription in the word.
fn head_of(word: u64) -> *const Head {
    core::ptr::with_exposed_provenance((word & !(BUSY | PINNED)) as usize)
}

/// Takes the notice out of the box that the word points to.
///
/// # Safety
/// The word holds a box from `subscribe`, and no other caller takes this box.
#[cold]
unsafe fn take_notice(word: u64) -> Notice {
    let address = (word & !(BUSY | NOTICE)) as usize;
    // SAFETY: the caller promised that the word holds a box, and that it alone takes this box.
    *unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<Notice>(address)) }
}

/// Panics: the word already has a waiter.
#[cold]
#[track_caller]
pub(super) fn second_waiter(word: &Word, holder: &Holder) -> ! {
    panic!("the future at {word:p} has one waiter at a time, and {holder} already waits for it")
}

/// Yields the thread while a setter is between its two steps. The setter runs on another thread,
/// since it does not wait between the steps. Yielding lets that thread run if the kernel has taken
/// its CPU away.
#[cold]
pub(super) fn pause() {
    yield_thread();
}

#[cfg(all(test, sinew_loom))]
mod loom;
