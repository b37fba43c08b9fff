//! The threads that may block: as many as are needed at a time, up to a limit.
//!
//! A job goes to the thread that became idle last, with warm caches. If no thread is idle, the job
//! goes to a new one. If there are as many threads as the limit allows, the job waits in a queue
//! for the first thread that becomes free. A thread that has been idle for [`KEEP`] ends.

use crate::carrier::thread as owned;
use crate::primitive::SpinLock;
use crate::report;
use core::cell::Cell;
use core::ptr;
use core::time::Duration;
use sinew_context::stack::overflow;
use std::collections::VecDeque;
use std::io;
use std::sync::OnceLock;
use std::thread::{self, Thread};
use std::time::Instant;

/// A piece of work for a thread, done once. It lies in the frame of its waiter, or in a box.
#[repr(C)]
pub(super) struct Job {
    run: unsafe fn(*const Job),
}

impl Job {
    /// Makes a job. The thread that runs the job calls `run` once, with the address of the job.
    pub(super) const fn new(run: unsafe fn(*const Job)) -> Job {
        Job { run }
    }
}

/// A job that is on its way to a thread.
struct Lent(*const Job);

// SAFETY: the field is a pointer to a job. The submitter ensures that any thread may run the job,
// and that the job stays until it has run; see `submit`.
unsafe impl Send for Lent {}

/// A thread that waits for a job. This lies in the thread's own frame.
struct Idle {
    thread: Thread,
    job: Cell<*const Job>,
    /// Whether the thread has to end. Then it is neither counted nor in the list.
    dismissed: Cell<bool>,
}

struct Pool {
    /// The idle threads. The thread that became idle last is at the end. Each pointer leads to a
    /// frame of its thread, which the thread does not leave before the pointer is taken out.
    idle: Vec<*const Idle>,
    /// Jobs for which there was no thread. If there is one, a thread has started that will look
    /// here.
    queue: VecDeque<Lent>,
    /// Threads that have not ended, including `starting`.
    threads: usize,
    /// Threads that are counted, and that the system may still refuse.
    starting: usize,
    most: usize,
    /// How many threads there ever were, for their names.
    started: u64,
}

// SAFETY: `idle` has pointers to frames of other threads. They are used only under the lock of the
// pool, and a thread leaves its frame only after its pointer was taken out of the list, under that
// lock.
unsafe impl Send for Pool {}

static POOL: SpinLock<Pool> = SpinLock::new(Pool {
    idle: Vec::new(),
    queue: VecDeque::new(),
    threads: 0,
    starting: 0,
    most: 512,
    started: 0,
});

/// How long a thread waits for a job before it ends. Tests shorten it by setting
/// `SINEW_BLOCKING_KEEP`, in milliseconds.
const KEEP: Duration = Duration::from_secs(10);

fn keep() -> Duration {
    static SET: OnceLock<Option<u64>> = OnceLock::new();
    let read = || std::env::var("SINEW_BLOCKING_KEEP").ok().and_then(|text| text.parse().ok());
    SET.get_or_init(read).map_or(KEEP, Duration::from_millis)
}

/// Sets how many threads [`blocking`](crate::blocking()) uses at most, in the whole process. The
/// default is 512.
///
/// Work beyond the limit waits for its turn. Threads beyond the limit end when they become idle.
///
/// # Panics
/// Panics if `count` is zero, because nothing would ever run.
///
/// # Examples
/// ```
/// sinew::set_max_blocking_threads(64);
/// ```
#[track_caller]
pub fn set_max_blocking_threads(count: usize) {
    assert!(count > 0, "blocking work needs at least one thread, not 0");
    let dismissed = {
        let mut pool = POOL.lock();
        pool.most = count;
        pool.dismiss()
    };
    dismissed.iter().for_each(Thread::unpark);
    // Queued jobs may get threads after the change.
    while let Some(number) = more_threads() {
        if start(number, None).is_err() {
            return;
        }
    }
}

/// Counts a new thread for queued jobs, if the limit allows one more. Returns its number, with
/// which the caller starts it.
fn more_threads() -> Option<u64> {
    let mut pool = POOL.lock();
    let more = !pool.queue.is_empty() && pool.threads < pool.most;
    more.then(|| pool.count_thread())
}

impl Pool {
    /// Gives a job to the thread that became idle last. Returns the thread, which the caller has to
    /// unpark. Returns `None` if no thread is idle.
    fn give(&mut self, job: *const Job) -> Option<Thread> {
        let idle = self.idle.pop()?;
        // SAFETY: the thread waits in its frame until it is given a job, and looks for one only
        // under the lock, which the caller holds. The handle is a clone, because the frame may be
        // gone once the lock is released.
        unsafe {
            (*idle).job.set(job);
            Some((*idle).thread.clone())
        }
    }

    /// Takes out idle threads beyond the limit. The caller has to unpark them, and they end.
    fn dismiss(&mut self) -> Vec<Thread> {
        let too_many = self.threads.saturating_sub(self.most).min(self.idle.len());
        self.threads -= too_many;
        let dismiss = |idle: *const Idle| {
            // SAFETY: the thread waits in its frame until it is given a job or dismissed, and looks
            // for either only under the lock, which the caller holds. The handle is a clone,
            // because the frame may be gone once the lock is released.
            unsafe {
                (*idle).dismissed.set(true);
                (*idle).thread.clone()
            }
        };
        // The first threads in the list have been idle for longest.
        self.idle.drain(..too_many).map(dismiss).collect()
    }

    /// Counts a thread that the caller is about to start. Returns its number.
    fn count_thread(&mut self) -> u64 {
        self.threads += 1;
        self.starting += 1;
        self.started += 1;
        self.started
    }

    /// Returns the number of threads that have started and not ended, or less for a moment: a new
    /// thread may even have ended before its starter takes it out of `starting`.
    fn running(&self) -> usize {
        self.threads.saturating_sub(self.starting)
    }
}

/// Gives a job to a thread of the pool, or puts it into the queue. Returns false if the pool has no
/// thread and the system refuses a new one. Then no thread has the job.
///
/// # Safety
/// The job stays where it is until it has run, and any thread may run it. If this returns false,
/// the job still belongs to the caller.
pub(super) unsafe fn submit(job: *const Job) -> bool {
    let number = loop {
        let mut pool = POOL.lock();
        if let Some(thread) = pool.give(job) {
            drop(pool);
            thread.unpark();
            return true;
        }
        if pool.threads < pool.most {
            break pool.count_thread();
        }
        if pool.running() > 0 {
            pool.queue.push_back(Lent(job));
            return true;
        }
        // The system is about to start the only threads, or to refuse them, which takes some tens
        // of microseconds.
        drop(pool);
        thread::yield_now();
    };
    if start(number, Some(Lent(job))).is_ok() {
        return true;
    }
    let mut pool = POOL.lock();
    // A thread may have become idle meanwhile, and does not look at the queue any more.
    if let Some(thread) = pool.give(job) {
        drop(pool);
        thread.unpark();
        return true;
    }
    let others = pool.running() > 0;
    if others {
        pool.queue.push_back(Lent(job));
    }
    others
}

/// Reports that blocking work is about to run on the thread of its caller, and so may block a
/// carrier.
pub(super) fn report_no_thread() {
    report::say(format_args!(
        "no thread for blocking work, so it blocks its caller's thread; see `ulimit -u`"
    ));
}

/// Starts a thread that [`Pool::count_thread`] has counted. If the system refuses it, the thread is
/// no longer counted.
fn start(number: u64, first: Option<Lent>) -> io::Result<()> {
    let name = format!("sinew-blocking-{number}");
    let started = owned::start(name, move || work(first)).map(drop);
    let mut pool = POOL.lock();
    pool.starting -= 1;
    if started.is_err() {
        pool.threads -= 1;
    }
    started
}

/// Runs jobs until the thread has to end.
fn work(first: Option<Lent>) {
    overflow::arm();
    let mut next = first;
    while let Some(Lent(job)) = next.or_else(wait_for_job) {
        // SAFETY: the submitter keeps the job until it has run. It runs only here: a job is given
        // to one thread.
        unsafe { ((*job).run)(job) };
        next = None;
    }
}

/// Waits for the next job. Returns `None` if the thread has to end. By then the thread is no longer
/// counted.
fn wait_for_job() -> Option<Lent> {
    let idle = Idle {
        thread: thread::current(),
        job: Cell::new(ptr::null()),
        dismissed: Cell::new(false),
    };
    {
        let mut pool = POOL.lock();
        if pool.running() > pool.most {
            pool.threads -= 1;
            return None;
        }
        if let Some(job) = pool.queue.pop_front() {
            return Some(job);
        }
        pool.idle.push(&idle);
    }
    let end = Instant::now() + keep();
    loop {
        thread::park_timeout(end.saturating_duration_since(Instant::now()));
        let mut pool = POOL.lock();
        if !idle.job.get().is_null() {
            return Some(Lent(idle.job.get()));
        }
        if idle.dismissed.get() {
            return None;
        }
        if Instant::now() >= end {
            // The thread was given no job, so it is still in the list.
            pool.idle.retain(|other| !ptr::eq(*other, &raw const idle));
            pool.threads -= 1;
            return None;
        }
    }
}
