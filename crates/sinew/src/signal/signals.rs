//! A stream of signals.

use super::Signal;
use crate::carrier::bell::Bell;
use crate::clock;
use crate::primitive::{AtomicBool, Ordering};
use crate::reactor::{Direction, Source};
use core::time::Duration;
use signal_hook_registry::SigId;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};

/// A stream of the signals that come after it is made.
///
/// If there are several streams, each stream gets each signal. Several fibers or threads may
/// receive from one stream; then one receiver gets each signal. Pending signals of one number are
/// received once. The [module](super) says what a subscription changes for the process.
///
/// # Examples
/// ```
/// use sinew::signal::{Signal, Signals};
///
/// sinew::run(|| {
///     let signals = Signals::new([Signal::HUP, Signal::USR1])?;
///     # // SAFETY: no preconditions.
///     # let raise = || unsafe { libc::raise(libc::SIGUSR1) };
///     sinew::spawn(move || raise());
///     match signals.recv() {
///         Signal::HUP => println!("reads the configuration again"),
///         other => assert_eq!(other, Signal::USR1),
///     }
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Signals {
    /// Declared first: it must be dropped before the bell, whose descriptor it watches.
    source: Source,
    shared: Arc<Shared>,
    registered: Vec<SigId>,
}

/// The part that the handler touches.
struct Shared {
    pending: Box<[Pending]>,
    bell: Bell,
}

/// Whether a signal came since it was last received.
struct Pending {
    signal: Signal,
    came: AtomicBool,
}

impl Shared {
    /// Notes a signal. Called in a handler, so it only touches atomics and makes calls that are
    /// allowed there.
    fn note(&self, index: usize) {
        // ORDERING: Release publishes the earlier writes of this thread, which may have raised the
        // signal; pairs with the Acquire in `take`. No ordering is needed for a woken receiver to
        // find the flag: the ring is a system call, and so is the clearing that sees it.
        self.pending[index].came.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Takes the first pending signal.
    fn take(&self) -> Option<Signal> {
        // Clear the bell before the look at the flags: a signal after the look rings again.
        self.bell.clear();
        // ORDERING: Acquire shows the earlier writes of the thread that ran the handler; pairs with
        // the Release in `note`.
        let first = self.pending.iter().position(|one| one.came.swap(false, Ordering::Acquire))?;
        // Another receiver may have gone to sleep after the clearing, and must see the rest.
        if self.pending[first + 1..].iter().any(|one| one.came.load(Ordering::Relaxed)) {
            self.bell.ring();
        }
        Some(self.pending[first].signal)
    }
}

impl Signals {
    /// Subscribes to signals, given as [`Signal`] or as numbers.
    ///
    /// If several signals are pending, they are received in the order of this list. A stream of no
    /// signals never receives one.
    ///
    /// # Errors
    /// If a number is not a signal, or is a signal that cannot be waited for: `SIGKILL`, `SIGSTOP`,
    /// and the faults `SIGSEGV`, `SIGBUS`, `SIGILL` and `SIGFPE`. Also if the process has no file
    /// descriptors left.
    ///
    /// # Examples
    /// ```
    /// use sinew::signal::{Signal, Signals};
    ///
    /// let signals = Signals::new([Signal::TERM, Signal::INT])?;
    /// let the_same = Signals::new([libc::SIGTERM, libc::SIGINT])?;
    ///
    /// let error = Signals::new([libc::SIGKILL]).unwrap_err();
    /// assert!(error.to_string().contains("SIGKILL"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new<I>(signals: I) -> io::Result<Signals>
    where
        I: IntoIterator,
        I::Item: Into<Signal>,
    {
        let mut wanted: Vec<Signal> = Vec::new();
        for signal in signals.into_iter().map(Into::into) {
            if let Some(reason) = signal.refusal() {
                return Err(cannot_wait(signal, io::ErrorKind::InvalidInput, &reason));
            }
            if !wanted.contains(&signal) {
                wanted.push(signal);
            }
        }
        let bell = Bell::new()?;
        let source = Source::new(bell.as_fd().as_raw_fd());
        let pending = |&signal: &Signal| Pending { signal, came: AtomicBool::new(false) };
        let shared = Arc::new(Shared { pending: wanted.iter().map(pending).collect(), bell });
        // Made first: if a later signal is refused, dropping this ends the subscriptions before it.
        let mut signals = Signals { source, shared, registered: Vec::new() };
        for (index, signal) in wanted.into_iter().enumerate() {
            let shared = signals.shared.clone();
            let registered = register(signal, move || shared.note(index))
                .map_err(|error| cannot_wait(signal, error.kind(), &error))?;
            signals.registered.push(registered);
        }
        Ok(signals)
    }

    /// Waits for the next signal.
    ///
    /// A cancelled fiber is unwound from this wait, and takes no signal.
    ///
    /// # Examples
    /// ```
    /// use sinew::signal::{Signal, Signals};
    ///
    /// let signals = Signals::new([Signal::USR1])?;
    /// // SAFETY: no preconditions.
    /// unsafe { libc::raise(libc::SIGUSR1) };
    /// assert_eq!(signals.recv(), Signal::USR1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&self) -> Signal {
        loop {
            if let Some(signal) = self.recv_until(clock::NEVER) {
                return signal;
            }
        }
    }

    /// Returns the next pending signal, if there is one. Does not wait.
    ///
    /// # Examples
    /// ```
    /// use sinew::signal::{Signal, Signals};
    ///
    /// let signals = Signals::new([Signal::USR2])?;
    /// assert_eq!(signals.try_recv(), None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_recv(&self) -> Option<Signal> {
        self.shared.take()
    }

    /// Waits for the next signal, at most for `timeout`. Returns `None` if the timeout passed
    /// first.
    ///
    /// A cancelled fiber is unwound from this wait, and takes no signal.
    ///
    /// # Examples
    /// ```
    /// use sinew::signal::{Signal, Signals};
    /// use std::time::Duration;
    ///
    /// let signals = Signals::new([Signal::USR2])?;
    /// assert_eq!(signals.recv_timeout(Duration::from_millis(1)), None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_timeout(&self, timeout: Duration) -> Option<Signal> {
        self.recv_until(clock::after(clock::now(), timeout))
    }

    /// Returns an iterator over the signals. Its `next` waits, and never returns `None`.
    ///
    /// # Examples
    /// ```
    /// use sinew::signal::{Signal, Signals};
    ///
    /// let signals = Signals::new([Signal::HUP, Signal::TERM])?;
    /// # // SAFETY: no preconditions.
    /// # unsafe { libc::raise(libc::SIGHUP); libc::raise(libc::SIGTERM) };
    /// for signal in signals.forever() {
    ///     match signal {
    ///         Signal::HUP => println!("reads the configuration again"),
    ///         _ => break,
    ///     }
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn forever(&self) -> Forever<'_> {
        Forever { signals: self }
    }

    fn recv_until(&self, deadline: u64) -> Option<Signal> {
        loop {
            let tick = self.source.slot().tick(Direction::Read);
            if let Some(signal) = self.shared.take() {
                return Some(signal);
            }
            match self.source.wait(Direction::Read, tick, deadline) {
                Ok(true) => {}
                Ok(false) => return self.shared.take(),
                // The kernel has no memory to watch one more descriptor. The handler still sets the
                // flags, so look at them now and then.
                Err(_) if clock::now() < deadline => crate::sleep(PAUSE),
                Err(_) => return None,
            }
        }
    }
}

/// How long a receiver sleeps between two looks at the flags, if the kernel cannot watch the bell.
const PAUSE: Duration = Duration::from_millis(10);

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            // This call returns only when no handler uses the action any more.
            signal_hook_registry::unregister(id);
        }
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signals = self.shared.pending.iter().map(|one| one.signal);
        f.debug_tuple("Signals").field(&signals.collect::<Vec<_>>()).finish()
    }
}

/// The iterator of [`Signals::forever`].
///
/// # Examples
/// ```
/// use sinew::signal::{Signal, Signals};
///
/// let signals = Signals::new([Signal::USR1, Signal::USR2])?;
/// # // SAFETY: no preconditions.
/// # unsafe { libc::raise(libc::SIGUSR1); libc::raise(libc::SIGUSR2) };
/// let first: Vec<Signal> = signals.forever().take(2).collect();
/// assert!(first.contains(&Signal::USR1) && first.contains(&Signal::USR2));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Forever<'a> {
    signals: &'a Signals,
}

impl Iterator for Forever<'_> {
    type Item = Signal;

    fn next(&mut self) -> Option<Signal> {
        Some(self.signals.recv())
    }
}

fn cannot_wait(signal: Signal, kind: io::ErrorKind, reason: &dyn fmt::Display) -> io::Error {
    let name = signal.name().map_or_else(String::new, |name| format!(" ({name})"));
    io::Error::new(kind, format!("cannot wait for signal {}{name}: {reason}", signal.as_raw()))
}

/// Makes the handler of a signal call `action`. The action may do only things that are allowed in a
/// handler.
pub(crate) fn register(
    signal: Signal,
    action: impl Fn() + Send + Sync + 'static,
) -> io::Result<SigId> {
    static CHANGES: Mutex<()> = Mutex::new(());
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the actions of both callers (`Signals::new` and `inspect/on_signal.rs`) only set an
    // atomic flag and write to a descriptor that they keep open. A handler may do both.
    let id = unsafe { signal_hook_registry::register(signal.as_raw(), action)? };
    if let Err(error) = use_alternate_stack(signal) {
        signal_hook_registry::unregister(id);
        return Err(error);
    }
    Ok(id)
}

/// Makes the handler of a signal run on the alternate stack of the interrupted thread, if that
/// thread has one. Carriers have one.
///
/// The registry installs the handler to run on the stack that is in use. That may be the stack of a
/// fiber, and the kernel's frame alone is larger than the smallest fiber stack.
///
/// A signal that comes after the registry has installed the handler and before this call still runs
/// its handler on the stack in use. This can happen only at the first subscription to the signal.
fn use_alternate_stack(signal: Signal) -> io::Result<()> {
    // SAFETY: an action of zeros is valid.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: the call only asks, and `action` is a valid place for the answer.
    if unsafe { libc::sigaction(signal.as_raw(), core::ptr::null(), &mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if action.sa_flags & libc::SA_ONSTACK != 0 {
        return Ok(());
    }
    action.sa_flags |= libc::SA_ONSTACK;
    // SAFETY: the handler is the same as before, and does not depend on the stack that it runs on.
    if unsafe { libc::sigaction(signal.as_raw(), &action, core::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
