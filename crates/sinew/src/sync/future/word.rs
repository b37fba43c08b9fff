//! The word of everything that is set once and waited for by one.
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
//! its wait; with `M` the wait is for several futures; with `C` it is no waiter but a notice, a
//! pointer to a box; with both it is a pointer to the head of a subscription, which its owner has pinned.
//!
//! Setting is two steps: who sets `B` has the right to, writes the value, and exchanges the word for
//! `S`. The exchange is the last access to the object; whoever was in the word is then woken or
//! called. A waiter enters by a compare-exchange from zero, and leaves by one to zero; if that fails,
//! it is being set.
//!
//! Where there is no value, *posting* is the exchange alone, and anybody may, more than once.
//!
//! Only a subscription is on a stack, and its page says how it leaves. A block is never unmapped, and its wake word says whether
//! the wait is still the one that was meant. One whose number agrees in the low bits, a multiple of
//! 2^18 waits later, would be woken for nothing, and every wait looks whether it is over.

use super::subscription::Head;
use crate::cancel::{self, masked};
use crate::carrier;
use crate::clock;
use crate::fiber::state::Outcome;
use crate::fiber::{Control, WaitKind};
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

/// Blocks are aligned to 64 bytes and have 48-bit addresses: 42 bits, above the three marks.
const BLOCK_BITS: u32 = 42;
const NUMBER_SHIFT: u32 = 3 + BLOCK_BITS;
const NUMBER_BITS: u32 = 18;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

/// What whoever sets it does, if nobody waits.
pub(crate) enum Notice {
    Call(Box<dyn FnOnce() + Send>),
    Wake(Waker),
}

impl Notice {
    pub(crate) fn give(self) {
        match self {
            Notice::Call(callback) => callback(),
            Notice::Wake(waker) => waker.wake(),
        }
    }
}

/// The word; see the page of this module. Only this crate can set one.
#[derive(Debug)]
pub struct Word(AtomicU64);

/// What came of entering a wait, or a notice.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    Waiting,
    Set,
    /// Somebody else waits.
    Taken(Holder),
}

/// Who stands in the word.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Holder(u64);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 & NOTICE != 0 {
            return f.write_str("a custom waiter");
        }
        // It may have left meanwhile: no more than the number of whoever has the block is told.
        #[cfg(not(sinew_loom))]
        {
            let control = block(self.0);
            let thread = control.flags().has(crate::fiber::Flags::PROXY);
            write!(f, "{} {}", if thread { "thread" } else { "fiber" }, control.id())
        }
        #[cfg(sinew_loom)]
        f.write_str("somebody")
    }
}

/// A wait as it stands in the word.
fn encode(waiter: Waiter, multiple: bool) -> u64 {
    let block = waiter.control().expose_provenance() as u64 >> 6;
    let number = waiter.epoch().number() & NUMBER;
    block << 3 | number << NUMBER_SHIFT | if multiple { MULTIPLE } else { 0 }
}

/// The block of who waits.
fn block(word: u64) -> &'static Control {
    let address = (word >> 3 & ((1 << BLOCK_BITS) - 1)) << 6;
    // SAFETY: a block, which is never unmapped.
    unsafe { &*core::ptr::with_exposed_provenance::<Control>(address as usize) }
}

/// Wakes or calls what stood in the word when it was set.
#[inline(never)]
fn tell(word: u64) {
    if word & PINNED == PINNED {
        // SAFETY: the head that `attach_head` put there, taken out once, by the exchange that has set the word.
        unsafe { Head::call(head_of(word)) };
    } else if word & NOTICE != 0 {
        // SAFETY: the box that `subscribe` put there, taken out once.
        unsafe { take_notice(word) }.give();
    } else {
        wake(word);
    }
}

/// Wakes the wait that stood in the word.
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
        // ORDERING: Acquire: the value; pairs with the Release in `set`.
        self.0.load(Ordering::Acquire) & SET != 0
    }

    /// Takes the right to set it; false if somebody has.
    pub(crate) fn begin_setting(&self) -> bool {
        // ORDERING: Relaxed: only the right to write is decided here.
        let old = self.0.fetch_or(BUSY, Ordering::Relaxed);
        if old & SET != 0 {
            // The mark means nothing any more; but the word shall say what it is.
            self.0.fetch_and(!BUSY, Ordering::Relaxed);
        }
        old & (BUSY | SET) == 0
    }

    /// Sets it, and wakes who waits for it or gives the notice. The word may be gone as soon as it
    /// is set: it is not touched after that.
    ///
    /// # Safety
    /// The caller has the right to.
    pub(crate) unsafe fn set(word: *const Word) {
        // SAFETY: not set yet, so that it is there.
        // ORDERING: AcqRel: Release publishes the value, pairs with the Acquire in `is_set`; Acquire
        // shows what the waiter or the subscriber wrote before it entered.
        let old = unsafe { (*word).0.swap(SET, Ordering::AcqRel) } & !BUSY;
        if old != 0 {
            tell(old);
        }
    }

    /// Sets it, if it is not, and wakes who waits for it or gives the notice; for what is set without
    /// a value. As after `set`, the word may be gone.
    #[inline(always)]
    pub(crate) fn post(&self) {
        // ORDERING: AcqRel: Release publishes what the caller wrote before, pairs with the Acquire in
        // `is_set`; Acquire as in `set`.
        let old = self.0.swap(SET, Ordering::AcqRel);
        if old > SET {
            tell(old);
        }
    }

    /// Waits until it is set, whatever it takes: neither unwinds nor gives up.
    pub(crate) fn wait_anyhow(&self, kind: WaitKind, address: usize) {
        let begin = || Wait::begin_anyhow(kind, address);
        if let Err(holder) = masked(|| self.wait_as(begin, clock::NEVER, false)) {
            second_waiter(self, &holder);
        }
    }

    /// Waits until it is set, or the deadline has passed.
    #[inline]
    #[track_caller]
    pub(crate) fn wait_till(&self, kind: WaitKind, address: usize, deadline: u64) {
        if let Err(holder) = self.wait_as(|| Wait::begin(kind, address), deadline, true) {
            second_waiter(self, &holder);
        }
    }

    /// Waits for the value at `self`, or until the deadline has passed.
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

    /// Enters a wait that has just begun, calls `entered`, and suspends. True if it is set or the
    /// deadline has passed, false if somebody woke the waiter for nothing.
    ///
    /// If it is set already, `entered` is called as well. It neither waits nor unwinds.
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
            cancel::settle(who, outcome);
        }
        Ok(outcome == Outcome::TimedOut && deadline <= clock::now())
    }

    /// Enters a wait.
    #[inline(always)]
    fn attach(&self, word: u64) -> Attached {
        loop {
            // ORDERING: AcqRel: Release publishes the wait; Acquire as in `is_set`.
            match self.0.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Attached::Waiting,
                Err(now) if now & SET != 0 => return Attached::Set,
                Err(now) if now == word => return Attached::Waiting,
                // It is being set: a moment.
                Err(now) if now & BUSY != 0 => pause(),
                Err(now) => return Attached::Taken(Holder(now)),
            }
        }
    }

    /// Leaves a wait, unless it is being set.
    fn detach(&self, word: u64) {
        // ORDERING: Acquire: as in `is_set`.
        let left = self.0.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Acquire);
        if left.is_err_and(|now| now == word | BUSY) {
            // It is there in a moment, and this may be the last chance to see it.
            while !self.is_set() {
                pause();
            }
        }
    }

    /// Enters a notice, to be given by whoever sets it; gives it back if nobody will.
    pub(crate) fn subscribe(&self, notice: Notice) -> Result<(), (Attached, Notice)> {
        let word = Box::into_raw(Box::new(notice)).expose_provenance() as u64 | NOTICE;
        match self.attach(word) {
            Attached::Waiting => Ok(()),
            // SAFETY: the box was not entered.
            other => Err((other, unsafe { take_notice(word) })),
        }
    }

    /// Enters a subscription, to be called by the setter.
    pub(super) fn attach_head(&self, head: *const Head) -> Attached {
        self.attach(word_of(head))
    }

    /// Takes a subscription out again. False if the setter has taken it, or is about to.
    pub(super) fn detach_head(&self, head: *const Head) -> bool {
        // ORDERING: Relaxed: what the subscription has is its owner's, who is the caller.
        self.0.compare_exchange(word_of(head), 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Makes it as new; true if it was set. Nothing can be waiting for it or setting it.
    pub(crate) fn reset(&mut self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(0, Ordering::Relaxed);
        // A subscription that is still there was leaked: it borrows the future.
        if word & PINNED == NOTICE {
            // SAFETY: the box that `subscribe` put there, taken out once.
            drop(unsafe { take_notice(word) });
        }
        word & SET != 0
    }
}

/// Waits until one of several is set, and returns the index of one that is; `None` if there are
/// none. The same may be there twice.
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
                // Somebody may have been faster: then this stops until it is dispatched.
                wait.withdraw();
                Outcome::Notified
            }
        };
        (0..attached).filter(|index| !is_set(index)).for_each(|index| word(index).detach(entered));
        if let Some(Attached::Taken(holder)) = stopped {
            second_waiter(word(attached), &holder);
        }
        if !(0..count).any(|index| is_set(&index)) {
            cancel::settle(who, outcome);
        }
    }
}

/// One of several waits of a `select!`.
#[derive(Debug)]
pub(crate) struct WordArm<'a> {
    word: &'a Word,
    /// The wait that was entered; zero if none is.
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
        // What was set stays: it is no loss if another arm was granted something.
        if self.word.is_set() { Left::Ready } else { Left::Nothing }
    }
}

/// A subscription as it stands in the word.
fn word_of(head: *const Head) -> u64 {
    head.expose_provenance() as u64 | PINNED
}

/// The head of the subscription that stands in the word.
fn head_of(word: u64) -> *const Head {
    core::ptr::with_exposed_provenance((word & !(BUSY | PINNED)) as usize)
}

/// # Safety
/// The word holds a box that nobody else takes.
#[cold]
unsafe fn take_notice(word: u64) -> Notice {
    let address = (word & !(BUSY | NOTICE)) as usize;
    // SAFETY: as the caller promised.
    *unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<Notice>(address)) }
}

#[cold]
#[track_caller]
pub(super) fn second_waiter(word: &Word, holder: &Holder) -> ! {
    panic!("the future at {word:p} has one waiter at a time, and {holder} already waits for it")
}

/// Whoever sets a future needs a few instructions more. It is on another thread, since nothing in
/// them waits, and may have lost its CPU.
#[cold]
pub(super) fn pause() {
    yield_thread();
}

#[cfg(all(test, sinew_loom))]
mod loom;
