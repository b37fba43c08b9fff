//! Waiting for the end of a fiber, by any number of fibers and threads.
//!
//! The waiters are in the table, under the address of the block and the id of its fiber. Each
//! waiter sets the mark `WATCHED`. A fiber that ends and finds the mark calls [`announce`].

use super::list::{Ended, Terms, Wakes};
use super::table::{self, Bucket, Entry, Key};
use crate::carrier::{Carrier, Owner, current};
use crate::clock;
use crate::fiber::life::{FINISHED, Life, WATCHED};
use crate::fiber::{Control, Fiber, Flags, WaitKind, describe, on_end};
use crate::primitive::Ordering;
use core::time::Duration;
use std::time::Instant;

impl Fiber {
    /// Waits until the fiber has ended.
    ///
    /// Any number of fibers and threads may wait.
    ///
    /// # Panics
    /// If a fiber waits for itself.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::spawn(|| sinew::park());
    /// let handle = fiber.fiber();
    /// handle.unpark();
    /// handle.wait_finished();
    /// assert!(!handle.is_alive());
    /// ```
    #[track_caller]
    pub fn wait_finished(&self) {
        self.wait_ended(clock::NEVER);
    }

    /// Waits until the fiber has ended, at most for `timeout`. Returns whether the fiber has ended.
    ///
    /// # Panics
    /// If a fiber waits for itself.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let fiber = sinew::spawn(|| sinew::park());
    /// assert!(!fiber.fiber().wait_finished_timeout(Duration::from_millis(1)));
    /// fiber.fiber().unpark();
    /// assert!(fiber.fiber().wait_finished_timeout(Duration::from_secs(60)));
    /// ```
    #[track_caller]
    pub fn wait_finished_timeout(&self, timeout: Duration) -> bool {
        self.wait_ended(clock::after(clock::now(), timeout))
    }

    /// Waits until the fiber has ended, at most until `deadline`. Returns whether the fiber has
    /// ended.
    ///
    /// # Panics
    /// If a fiber waits for itself.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    ///
    /// let fiber = sinew::spawn(|| sinew::park());
    /// assert!(!fiber.fiber().wait_finished_deadline(Instant::now()));
    /// fiber.fiber().unpark();
    /// fiber.join().unwrap();
    /// ```
    #[track_caller]
    pub fn wait_finished_deadline(&self, deadline: Instant) -> bool {
        self.wait_ended(clock::at(deadline))
    }

    /// Waits until the fiber has ended or the deadline passes. Returns whether the fiber has ended.
    #[track_caller]
    pub(crate) fn wait_ended(&self, deadline: u64) -> bool {
        let control = self.control();
        if control.life.is_finished() {
            return true;
        }
        forbid_hopeless(current::fiber(), control, deadline);
        let address = core::ptr::from_ref(control).expose_provenance();
        let entry = Entry::new(Key::with_generation(address, control.id()), false, 0);
        let terms = Terms { kind: WaitKind::Join, address, deadline, must: false };
        // The mark is set under the table's lock, so that the ending fiber finds both the mark and
        // the entry.
        let alive = |_: &mut Bucket| watch(&control.life);
        let ended = table::wait(&entry, terms, alive, |_| Wakes::none());
        ended != Ended::TimedOut || control.life.is_finished()
    }
}

/// Marks a fiber as watched, so that it wakes the waiters in the table at its end. Returns false if
/// the fiber has ended. The caller holds the lock of the table.
pub(crate) fn watch(life: &Life) -> bool {
    on_end::announce_through(announce);
    life.set(WATCHED) & FINISHED == 0
}

/// Wakes all waiters for the end of a fiber.
fn announce(address: usize, id: u64) {
    table::release(Key::with_generation(address, id), usize::MAX);
}

/// Panics if a wait for the end of `control` could never return: a fiber waits for itself, or a
/// pinned fiber waits without a deadline for a fiber that needs the blocked carrier.
#[inline(always)]
#[track_caller]
pub(crate) fn forbid_hopeless(
    fiber: Option<(&'static Owner, &'static Control)>,
    control: &Control,
    deadline: u64,
) {
    if fiber.is_none() {
        forbid_hopeless_of_root(control, deadline);
    }
    if let Some((owner, me)) = fiber {
        assert!(!core::ptr::eq(me, control), "{} cannot wait for its own end", describe(control));
        if me.flags().has(Flags::PINNED) && deadline == clock::NEVER {
            assert!(
                !can_only_run_on(owner.shared(), control),
                "deadlock: {} is pinned and waits for {}, which can only run on the same carrier",
                describe(me),
                describe(control)
            );
        }
    }
}

/// Panics if code outside of fibers waits without a deadline for a fiber that only its own thread
/// can run.
///
/// Such code is a destructor of a fiber that could not begin, on the carrier's root, or any code on
/// a manager's thread outside of the manager's fibers.
#[cold]
#[inline(never)]
#[track_caller]
fn forbid_hopeless_of_root(control: &Control, deadline: u64) {
    if deadline != clock::NEVER {
        return;
    }
    // SAFETY: carriers are never freed.
    let theirs = unsafe { control.carrier().as_ref() };
    let hosted = theirs.is_some_and(|carrier| carrier.is_of_this_thread());
    let hopeless = match current::running() {
        Some((owner, _)) => can_only_run_on(owner.shared(), control),
        None => hosted && !control.life.is_finished(),
    };
    assert!(
        !hopeless || !hosted,
        "deadlock: the thread of a manager waits for {}, which only its loop can run; run the loop, or wait in a fiber",
        describe(control)
    );
    assert!(
        !hopeless,
        "deadlock: a destructor that runs on a carrier's own stack waits for {}, which can only run on the same carrier",
        describe(control)
    );
}

/// Whether an unfinished fiber cannot run while `carrier` is blocked: it has started there, it is
/// kept there, or the runtime has no other carrier.
#[cold]
fn can_only_run_on(carrier: &Carrier, control: &Control) -> bool {
    if control.life.is_finished() {
        return false;
    }
    let flags = control.flags();
    let rests = flags.has(Flags::RECURRING) && !flags.has(Flags::AFFINE);
    if flags.has(Flags::MIGRATABLE)
        || control.carrier().is_null()
        || rests && !control.is_bound_to(carrier)
    {
        let same = control.crew.load(Ordering::Relaxed) == carrier.crew().number;
        return same && carrier.crew().carriers.len() == 1;
    }
    core::ptr::eq(control.carrier(), carrier)
}
