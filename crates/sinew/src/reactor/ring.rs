//! Operations that the kernel performs and reports when they are done: `io_uring`.
//!
//! # Protocol
//!
//! An [`Operation`] lies in the frame of the fiber that waits for it, and so do the buffers that it
//! lends to the kernel. The fiber does not leave that frame before the completion of this very
//! operation was seen. A fiber that is cancelled meanwhile asks the kernel to cancel the operation,
//! and waits on for the completion. The completion comes in any case, and says whether the
//! operation was done after all.
//!
//! Entries are collected. The carrier submits them together when it looks at its poller: before it
//! sleeps, and every few tens of microseconds while it is busy. A thread takes completions out of
//! the queue under the lock `completions`. A fiber that begins another wait for its operation
//! stores the new waiter under this lock. So a completion ends the wait that the fiber is in.

use super::Reactor;
use crate::cancel;
use crate::carrier::current;
use crate::fiber::state::Outcome;
use crate::fiber::{Control, WaitKind};
use crate::park::raise;
use crate::park::{Wait, Waiter};
use crate::primitive::{AtomicU32, Ordering, SpinLock};
use crate::report::NeverUnwinds;
use core::cell::Cell;
use core::ptr;
use core::time::Duration;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A ring of the kernel. Any thread may use it; mostly its carrier does.
pub(crate) struct Ring {
    ring: IoUring,
    submissions: SpinLock<()>,
    completions: SpinLock<()>,
    /// Entries that were not submitted to the kernel yet.
    unsubmitted: AtomicU32,
    /// Operations that are not done.
    pending: AtomicU32,
}

/// Entries that fit before some have to be submitted.
const ENTRIES: u32 = 256;
/// The most completions that are taken at a time.
const BATCH: usize = 64;

/// How often `push` tries to add an entry. The kernel may refuse entries until the carrier has
/// taken completions out.
const ATTEMPTS: usize = 16;

/// The mark of an entry that no fiber waits for.
pub(super) const NOBODY: u64 = 0;

/// An operation that a fiber waits for. The lock of the completions guards it.
struct Operation {
    result: Cell<Option<i32>>,
    waiter: Cell<Waiter>,
}

/// A completion that was taken out of a ring.
enum Completion {
    Operation(Waiter),
    Other { mark: u64, result: i32, flags: u32 },
}

/// Opens a ring of the kernel.
///
/// When a ring is closed, the kernel interrupts every thread that has opened or entered it. A
/// carrier copes with that. On a thread of the user, system calls would fail with `EINTR`. So if
/// the caller is not a carrier, a new thread opens the ring.
fn open() -> io::Result<IoUring> {
    let open = || {
        IoUring::builder()
            .setup_clamp()
            .setup_submit_all()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES)
    };
    if !current::carrier().is_null() {
        return open();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sinew-ring".to_owned());
        thread.spawn_scoped(scope, open)?.join().expect("opening a ring does not panic")
    })
}

impl Ring {
    pub(super) fn new() -> io::Result<Ring> {
        let ring = open()?;
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_ext_arg() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring needs Linux 5.11"));
        }
        Ok(Ring {
            ring,
            submissions: SpinLock::new(()),
            completions: SpinLock::new(()),
            unsubmitted: AtomicU32::new(0),
            pending: AtomicU32::new(0),
        })
    }

    /// Whether a fiber waits for an operation.
    pub(super) fn is_active(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Whether there are entries that were not submitted.
    pub(super) fn has_unsubmitted(&self) -> bool {
        self.unsubmitted.load(Ordering::Relaxed) > 0
    }

    /// Whether there are entries that the kernel has not taken.
    #[cold]
    fn has_entries(&self) -> bool {
        let _lock = self.submissions.lock();
        // SAFETY: `submissions` is held.
        !unsafe { self.ring.submission_shared() }.is_empty()
    }

    /// Whether the kernel has nothing left to report.
    pub(super) fn is_quiet(&self) -> bool {
        let _lock = self.submissions.lock();
        // SAFETY: `submissions` is held.
        let queue = unsafe { self.ring.submission_shared() };
        !queue.taskrun() && !queue.cq_overflow()
    }

    /// Adds an entry, to be submitted soon.
    ///
    /// # Errors
    /// Fails with `EBUSY` if there is no room, and the kernel makes none.
    ///
    /// # Safety
    /// Everything that the entry points to stays valid until its completion was seen.
    pub(super) unsafe fn push(&self, entry: &squeue::Entry) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            {
                let _lock = self.submissions.lock();
                // SAFETY: `submissions` is held, and the caller keeps the entry's memory alive.
                if unsafe { self.ring.submission_shared().push(entry) }.is_ok() {
                    self.unsubmitted.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
            }
            self.submit()?;
        }
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Submits all entries.
    pub(super) fn submit(&self) -> io::Result<()> {
        self.enter(0, None)
    }

    /// Submits all entries, and waits until an operation is complete or `timeout` is over.
    pub(super) fn submit_and_wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.enter(1, timeout)
    }

    fn enter(&self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        let unsubmitted = self.unsubmitted.swap(0, Ordering::Relaxed);
        let timeout = timeout
            .map(|timeout| Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos()));
        let mut args = SubmitArgs::new();
        if let Some(timeout) = &timeout {
            args = args.timespec(timeout);
        }
        let result = match want {
            0 => self.ring.submit(),
            _ => self.ring.submitter().submit_with_args(want, &args),
        };
        match result {
            Ok(taken) => {
                // Either the kernel has stopped at an entry for which it has no memory at this
                // moment, or another thread has submitted the missing entries.
                if taken < unsubmitted as usize && self.has_entries() {
                    self.unsubmitted.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(()),
            Err(error) => {
                // The kernel may have taken some entries or none. A count that is too high only
                // leads to one more call.
                self.unsubmitted.fetch_add(unsubmitted, Ordering::Relaxed);
                match error.raw_os_error() {
                    // Completions have to be taken first, or there is no memory at this moment.
                    Some(libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                    _ => Err(error),
                }
            }
        }
    }

    /// Takes completions, `most` at most. Wakes the fibers that wait for operations, and calls
    /// `other` with the mark, result and flags of each other completion. Returns how many
    /// completions it took.
    pub(super) fn reap(&self, most: usize, other: &mut dyn FnMut(u64, i32, u32)) -> usize {
        let mut total = 0;
        let mut flushed = false;
        loop {
            let mut batch = [const { None }; BATCH];
            let wanted = BATCH.min(most - total);
            let count = self.take(&mut batch, wanted);
            for completion in batch.into_iter().take(count).flatten() {
                match completion {
                    Completion::Operation(waiter) => {
                        waiter.wake_in_turn();
                    }
                    Completion::Other { mark, result, flags } => other(mark, result, flags),
                }
            }
            total += count;
            if total == most {
                return total;
            }
            if count == wanted {
                continue;
            }
            // The kernel may hold completions that did not fit, and does not announce them again. A
            // thread that waits for the ring by edges would not hear of them. So submit, which
            // makes the kernel hand them over.
            let stuck = flushed && count == 0;
            if stuck || !self.has_overflowed() || self.submit().is_err() {
                return total;
            }
            flushed = true;
        }
    }

    /// Whether there are completions that did not fit.
    pub(super) fn has_overflowed(&self) -> bool {
        let _lock = self.submissions.lock();
        // SAFETY: `submissions` is held.
        unsafe { self.ring.submission_shared() }.cq_overflow()
    }

    fn take(&self, batch: &mut [Option<Completion>; BATCH], most: usize) -> usize {
        let _lock = self.completions.lock();
        // SAFETY: `completions` is held.
        let mut queue = unsafe { self.ring.completion_shared() };
        let mut count = 0;
        while count < most
            && let Some(entry) = queue.next()
        {
            batch[count] = Some(self.complete(&entry));
            count += 1;
        }
        count
    }

    fn complete(&self, entry: &cqueue::Entry) -> Completion {
        let (mark, result, flags) = (entry.user_data(), entry.result(), entry.flags());
        if mark == NOBODY || mark & super::sys::POLLED != 0 {
            return Completion::Other { mark, result, flags };
        }
        self.pending.fetch_sub(1, Ordering::Relaxed);
        let operation = ptr::with_exposed_provenance::<Operation>(mark as usize);
        // SAFETY: the mark of an operation is its address. The operation stays until its result is
        // set, and `completions` is held.
        unsafe {
            let waiter = (*operation).waiter.get();
            (*operation).result.set(Some(result));
            Completion::Operation(waiter)
        }
    }

    /// Performs an operation, and waits until it is done. Raises the cancellation if the fiber was
    /// cancelled and the operation was not done. Returns `None` if the ring does not take the
    /// entry.
    ///
    /// # Safety
    /// Everything that the entry points to stays valid until this call has returned or unwound.
    /// `wait` has just begun, on the carrier that submits the entries of this ring.
    unsafe fn perform(&self, entry: squeue::Entry, wait: Wait) -> Option<io::Result<u32>> {
        let who = wait.who();
        let operation = Operation { result: Cell::new(None), waiter: Cell::new(wait.waiter()) };
        // Publishes the operation: any thread that takes its completion acquires the lock after
        // this.
        drop(self.completions.lock());
        let mark = ptr::from_ref(&operation).expose_provenance() as u64;
        self.pending.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the entry's memory alive. The operation stays until its result
        // is set.
        if unsafe { self.push(&entry.user_data(mark)) }.is_err() {
            self.pending.fetch_sub(1, Ordering::Relaxed);
            wait.abandon();
            return None;
        }
        // The kernel has the operation, and the memory that its entry points to.
        let guard =
            NeverUnwinds("an operation of a ring panicked in the middle of a wait; aborting");
        let outcome = wait.suspend(crate::clock::NEVER);
        let (result, gave_up) = match self.result(&operation) {
            Some(result) => (result, false),
            None => (self.give_up(&operation, mark), true),
        };
        core::mem::forget(guard);
        if gave_up && result == -libc::ECANCELED {
            raise::settle(who, outcome);
        }
        if outcome == Outcome::Notified {
            raise::settle(who, outcome);
        }
        // The operation was not done, for example because the thread that submitted it has ended.
        // It can be tried again.
        let result = if result == -libc::ECANCELED { -libc::EINTR } else { result };
        Some(u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
    }

    fn result(&self, operation: &Operation) -> Option<i32> {
        let _lock = self.completions.lock();
        operation.result.get()
    }

    /// Asks the kernel to cancel an operation, and waits for its completion. Returns its result.
    #[cold]
    fn give_up(&self, operation: &Operation, mark: u64) -> i32 {
        cancel::masked(|| {
            let entry = opcode::AsyncCancel::new(mark).build().user_data(NOBODY);
            // SAFETY: the entry points to no memory. If the entry cannot be added, the loop below
            // waits until the operation itself completes.
            let _ = unsafe { self.push(&entry) };
            // Submit at once: the fiber may have moved, and the carrier of this ring may sleep
            // until the operation is done.
            let _ = self.submit();
            loop {
                let wait = Wait::begin_anyhow(WaitKind::Blocking, 0);
                let done = {
                    let _lock = self.completions.lock();
                    operation.waiter.set(wait.waiter());
                    operation.result.get()
                };
                if let Some(result) = done {
                    wait.withdraw();
                    return result;
                }
                wait.suspend(crate::clock::NEVER);
            }
        })
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns the descriptor and is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

/// Performs an operation on the ring of the running fiber's carrier, and waits for it. Returns
/// `None` if no ring takes the entry, or if the caller cannot wait in this way.
///
/// # Errors
/// Returns the error of the operation. Returns `Interrupted` if the operation was not done and may
/// be tried again.
///
/// # Safety
/// Everything that the entry points to stays valid until this call has returned or unwound.
pub(crate) unsafe fn perform(
    entry: squeue::Entry,
    kind: WaitKind,
    address: usize,
) -> Option<io::Result<u32>> {
    let (_, control) = current::fiber()?;
    if !may_wait(control) || Reactor::here()?.poller().ring().is_none() {
        return None;
    }
    let wait = Wait::begin(kind, address);
    // Looked up again, because a migratable fiber may have moved before its wait began.
    let Some(ring) = Reactor::here().and_then(|reactor| reactor.poller().ring()) else {
        wait.abandon();
        return None;
    };
    // SAFETY: the caller keeps the entry's memory alive. The wait has just begun, and the ring
    // belongs to the carrier that the fiber is on.
    unsafe { ring.perform(entry, wait) }
}

fn may_wait(control: &Control) -> bool {
    !control.flags().has(super::source::BLOCKS)
}
