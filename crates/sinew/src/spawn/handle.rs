//! Handles that tell a fiber's id, name and state, and act on the fiber.

use crate::cancel;
use crate::carrier::{Carrier, current as here};
use crate::clock;
use crate::fiber::life::{FINISHED, STARTED, WATCHED};
use crate::fiber::{Control, FiberRef, Flags, WaitKind};
use crate::park;
use crate::park::list::{Ended, Terms, Wakes};
use crate::park::table::{self, Bucket, Entry, Key};
use crate::primitive::Ordering;
use core::time::Duration;
use std::fmt;

/// A fiber's number, never used twice in a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FiberId(u64);

impl FiberId {
    pub(crate) fn new(id: u64) -> FiberId {
        FiberId(id)
    }

    /// Returns the id as a plain number.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::current().id().as_u64() > 0);
    /// ```
    pub fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FiberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How far a fiber has come in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum State {
    /// Made, and not submitted yet.
    Created,
    /// Ready to run, waiting for its turn.
    Runnable,
    /// Running on its carrier.
    Running,
    /// Waiting on its stack; or without a stack, for an event that starts it or lets it go on.
    Suspended,
    /// In a [manager](crate::manager): has yielded, and becomes ready when every other fiber there
    /// has run.
    Yielded,
    /// In a [manager](crate::manager): has interrupted itself for work on the main context or for
    /// an eager task, and goes on right after that.
    Interrupted,
    /// Ended.
    Dead,
}

/// A handle to a fiber, or to a plain thread that uses sinew. Cloning it is cheap.
///
/// The handle neither keeps the fiber running nor gives access to its result;
/// [`JoinHandle`](crate::JoinHandle) does both.
#[derive(Clone)]
pub struct Fiber(FiberRef);

/// Returns a handle to the running fiber. On a plain thread the handle stands for the thread, for
/// `unpark`.
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let me = sinew::current();
///     assert_eq!(me.state(), sinew::State::Running);
/// });
/// ```
pub fn current() -> Fiber {
    Fiber(match here::fiber() {
        Some((_, control)) => FiberRef::new(control),
        None => here::proxy(),
    })
}

impl Fiber {
    pub(crate) fn new(control: &Control) -> Fiber {
        Fiber(FiberRef::new(control))
    }

    /// Takes over a counted reference.
    pub(crate) fn from_ref(fiber: FiberRef) -> Fiber {
        Fiber(fiber)
    }

    pub(crate) fn control(&self) -> &Control {
        &self.0
    }

    /// Returns the fiber's id.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::current().id(), sinew::current().id());
    /// ```
    pub fn id(&self) -> FiberId {
        FiberId(self.0.id())
    }

    /// Returns the name that the builder gave the fiber.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::spawn(sinew::current).join().unwrap().name(), None);
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.0.extra().and_then(|extra| extra.name()).map(|name| &**name)
    }

    /// Returns how far the fiber has come at the moment of the call.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::spawn(|| ());
    /// let handle = fiber.fiber();
    /// fiber.join().unwrap();
    /// assert_eq!(handle.state(), sinew::State::Dead);
    /// ```
    pub fn state(&self) -> State {
        let control = &*self.0;
        if control.life.is_finished() {
            return State::Dead;
        }
        if control.flags().has(Flags::PROXY) {
            return match control.wake.waiting() {
                Some(_) => State::Suspended,
                None => State::Running,
            };
        }
        if control.life.marks() & STARTED == 0 {
            let submitted =
                control.extra().is_none_or(|extra| !extra.held_back.load(Ordering::Relaxed));
            return match submitted {
                true if control.awaited_unstarted().is_some() => State::Suspended,
                true => State::Runnable,
                false => State::Created,
            };
        }
        // A fiber that has begun to wait still counts as running until it has left its stack.
        if is_running(control) {
            State::Running
        } else if control.flags().has(Flags::IMMEDIATE) {
            State::Interrupted
        } else if control.flags().has(Flags::YIELDED) {
            State::Yielded
        } else if control.wake.waiting().is_some() {
            State::Suspended
        } else {
            State::Runnable
        }
    }

    /// Returns the operation that the fiber waits in, if it waits.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::spawn(sinew::park);
    /// sinew::wait_until(|| fiber.fiber().waits_for() == Some(sinew::WaitKind::Park), None);
    /// fiber.fiber().unpark();
    /// fiber.join().unwrap();
    /// ```
    pub fn waits_for(&self) -> Option<WaitKind> {
        if let Some((kind, ..)) = self.0.awaited_unstarted() {
            return Some(kind);
        }
        self.0.wake.waiting()?;
        let stopped = self.0.flags().has(Flags::PROXY) || !is_running(&self.0);
        stopped.then(|| self.0.recorded_wait().0)
    }

    /// Whether the fiber has not ended.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::current().is_alive());
    /// ```
    pub fn is_alive(&self) -> bool {
        !self.0.life.is_finished()
    }

    /// Whether a panic ended the fiber, so that [`join`](crate::JoinHandle::join) returns or
    /// returned an error.
    ///
    /// False before the end. A cancellation is not a panic, nor is the lack of a stack for a fiber
    /// that could not begin. A panic of a destructor that runs because of either counts.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::spawn(|| panic!("in a fiber"));
    /// let handle = fiber.fiber();
    /// assert!(fiber.join().is_err());
    /// assert!(handle.panicked());
    ///
    /// let fiber = sinew::spawn(sinew::park);
    /// let handle = fiber.fiber();
    /// handle.cancel();
    /// assert!(fiber.join().is_err());
    /// assert!(!handle.panicked());
    /// ```
    #[doc(alias = "is_panic")]
    pub fn panicked(&self) -> bool {
        self.0.life.has_failed()
    }

    /// Lets the current or the next [`park`](crate::park) of this fiber return.
    ///
    /// May be called from any thread or fiber, also when the fiber has ended.
    ///
    /// # Examples
    /// ```
    /// sinew::current().unpark();
    /// sinew::park(); // returns at once
    /// ```
    pub fn unpark(&self) {
        park::unpark(&self.0);
    }

    /// Waits for a future, suspending this fiber or blocking this thread, like
    /// [`block_on`](crate::block_on).
    ///
    /// # Panics
    /// If this handle does not stand for the running fiber or thread: a fiber can wait only for
    /// itself.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::current().await_future(async { 5 }), 5);
    /// ```
    #[track_caller]
    pub fn await_future<F: Future>(&self, future: F) -> F::Output {
        let running = current();
        assert!(
            core::ptr::eq(self.control(), running.control()),
            "await_future of {} called by {}: a fiber waits for itself alone",
            describe(self.control()),
            describe(running.control()),
        );
        super::block_on(future)
    }

    /// Asks the fiber to end. Its current or next wait unwinds it.
    ///
    /// Does nothing to a plain thread, or to a fiber that has ended.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let fiber = sinew::spawn(|| sinew::park());
    ///     fiber.fiber().cancel();
    ///     assert!(fiber.join().is_err());
    /// });
    /// ```
    pub fn cancel(&self) {
        if !self.0.flags().has(Flags::PROXY) {
            cancel::request(&self.0);
        }
    }

    /// Waits until the fiber has ended, at most for `timeout`. Returns whether it has.
    ///
    /// Any number of fibers and threads may wait.
    ///
    /// # Panics
    /// If a fiber waits for itself.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let fiber = sinew::spawn(|| sinew::park());
    /// let handle = fiber.fiber();
    /// assert!(!handle.wait_finished(Some(Duration::from_millis(1))));
    /// handle.unpark();
    /// assert!(handle.wait_finished(None));
    /// ```
    #[track_caller]
    pub fn wait_finished(&self, timeout: Option<Duration>) -> bool {
        self.wait_ended(timeout.map_or(clock::NEVER, |timeout| clock::after(clock::now(), timeout)))
    }

    /// Waits until the fiber has ended or the deadline passes. Returns whether the fiber has ended.
    #[track_caller]
    pub(crate) fn wait_ended(&self, deadline: u64) -> bool {
        let control = &*self.0;
        if control.life.is_finished() {
            return true;
        }
        forbid_hopeless(here::fiber(), control, deadline);
        let address = self.0.as_ptr().expose_provenance();
        let entry = Entry::new(Key::with_generation(address, control.id()), false, 0);
        let terms = Terms { kind: WaitKind::Join, address, deadline, must: false };
        // The mark is set under the table's lock, so that the ending fiber finds both the mark and
        // the entry.
        let alive = |_: &mut Bucket| control.life.set(WATCHED) & FINISHED == 0;
        let ended = table::wait(&entry, terms, alive, |_| Wakes::none());
        ended != Ended::TimedOut || control.life.is_finished()
    }
}

/// Whether a started fiber runs on its carrier at the moment of the call.
fn is_running(control: &Control) -> bool {
    let carrier = control.carrier();
    // SAFETY: carriers are never freed.
    let carrier = unsafe { carrier.as_ref() };
    carrier
        .is_some_and(|carrier| core::ptr::eq(carrier.current(), control) && !carrier.is_between())
}

/// Panics if a wait for the end of `control` could never return: a fiber waits for itself, or a
/// pinned fiber waits without a deadline for a fiber that needs the blocked carrier.
#[inline(always)]
#[track_caller]
pub(super) fn forbid_hopeless(
    fiber: Option<(&'static Carrier, &'static Control)>,
    control: &Control,
    deadline: u64,
) {
    if fiber.is_none() {
        forbid_hopeless_of_root(control, deadline);
    }
    if let Some((carrier, me)) = fiber {
        assert!(!core::ptr::eq(me, control), "{} cannot wait for its own end", describe(control));
        if me.flags().has(Flags::PINNED) && deadline == clock::NEVER {
            assert!(
                !can_only_run_on(carrier, control),
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
/// Such code is a destructor of a fiber that could not begin, on the carrier's root, or anything on
/// a manager's thread that is not one of its fibers.
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
    let hopeless = match here::running() {
        Some((carrier, _)) => can_only_run_on(carrier, control),
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

/// Describes a fiber for reports: `fiber "name" (id 7)`. Unprintable characters in a name are
/// escaped, since a report is one line.
pub(crate) fn describe(control: &Control) -> impl fmt::Display + '_ {
    struct Description<'a>(&'a Control);
    impl fmt::Display for Description<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            if self.0.flags().has(Flags::PROXY) {
                return write!(f, "thread {}", self.0.id());
            }
            match self.0.extra().and_then(|extra| extra.name()) {
                Some(name) => write!(f, "fiber \"{}\" (id {})", name.escape_debug(), self.0.id()),
                None => write!(f, "fiber {}", self.0.id()),
            }
        }
    }
    Description(control)
}

impl PartialEq for Fiber {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Fiber {}

impl std::hash::Hash for Fiber {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl fmt::Debug for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fiber")
            .field("id", &self.id().0)
            .field("name", &self.name())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
