//! Handles that tell a fiber's id, name and state.
//!
//! The methods that act on a fiber belong to the layers that do the work: `park` adds `unpark`,
//! `park::end` the waits for a fiber's end, and `cancel` adds `cancel`.

use super::life::STARTED;
use super::{Control, FiberRef, Flags, WaitKind};
use crate::carrier::current;
use crate::primitive::Ordering;
use std::fmt;

/// A fiber's number, never used twice in a process.
///
/// # Examples
/// ```
/// let fiber = sinew::spawn(|| sinew::current().id());
/// let id = fiber.fiber().id();
/// assert_ne!(id, sinew::current().id());
/// assert_eq!(fiber.join().unwrap(), id);
/// ```
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

/// How far a fiber has come in its life; see [`Fiber::state`].
///
/// # Examples
/// ```
/// use sinew::FiberState;
///
/// let fiber = sinew::FiberBuilder::new().build(sinew::park)?;
/// let handle = fiber.fiber();
/// assert_eq!(handle.state(), FiberState::Created);
/// let fiber = fiber.submit();
/// sinew::wait_until(|| handle.state() == FiberState::Suspended);
/// handle.unpark();
/// fiber.join().unwrap();
/// assert_eq!(handle.state(), FiberState::Dead);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum FiberState {
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
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let parent = sinew::current();
///     let child = sinew::spawn(move || parent.unpark());
///     sinew::park(); // until the child wakes this fiber
///     child.join().unwrap();
/// });
/// ```
#[derive(Clone)]
pub struct Fiber(FiberRef);

/// Returns a handle to the running fiber. On a plain thread the handle stands for the thread, so
/// that it can be unparked.
///
/// # Examples
/// ```
/// sinew::run(|| {
///     let me = sinew::current();
///     assert_eq!(me.state(), sinew::FiberState::Running);
/// });
/// ```
pub fn current() -> Fiber {
    Fiber(match current::fiber() {
        Some((_, control)) => FiberRef::new(control),
        None => current::proxy(),
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
    /// assert_eq!(handle.state(), sinew::FiberState::Dead);
    /// ```
    pub fn state(&self) -> FiberState {
        let control = &*self.0;
        if control.life.is_finished() {
            return FiberState::Dead;
        }
        if control.flags().has(Flags::PROXY) {
            return match control.wake.waiting() {
                Some(_) => FiberState::Suspended,
                None => FiberState::Running,
            };
        }
        if control.life.marks() & STARTED == 0 {
            let submitted =
                control.extra().is_none_or(|extra| !extra.held_back.load(Ordering::Relaxed));
            return match submitted {
                true if control.awaited_unstarted().is_some() => FiberState::Suspended,
                true => FiberState::Runnable,
                false => FiberState::Created,
            };
        }
        // A fiber that has begun to wait still counts as running until it has left its stack.
        if is_running(control) {
            FiberState::Running
        } else if control.flags().has(Flags::IMMEDIATE) {
            FiberState::Interrupted
        } else if control.flags().has(Flags::YIELDED) {
            FiberState::Yielded
        } else if control.wake.waiting().is_some() {
            FiberState::Suspended
        } else {
            FiberState::Runnable
        }
    }

    /// Returns the operation that the fiber waits in, if it waits.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::spawn(sinew::park);
    /// sinew::wait_until(|| fiber.fiber().waits_for() == Some(sinew::WaitKind::Park));
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
}

/// Whether a started fiber runs on its carrier at the moment of the call.
fn is_running(control: &Control) -> bool {
    let carrier = control.carrier();
    // SAFETY: carriers are never freed.
    let carrier = unsafe { carrier.as_ref() };
    carrier
        .is_some_and(|carrier| core::ptr::eq(carrier.current(), control) && !carrier.is_between())
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

/// Describes a fiber or thread without its name, for messages about a block that may have another
/// user by now: `fiber 7`.
pub(crate) fn number_of(control: &Control) -> impl fmt::Display + '_ {
    struct Number<'a>(&'a Control);
    impl fmt::Display for Number<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let thread = self.0.flags().has(Flags::PROXY);
            write!(f, "{} {}", if thread { "thread" } else { "fiber" }, self.0.id())
        }
    }
    Number(control)
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
