//! The argument of an idle hook.

use crate::carrier::Carrier;
use crate::carrier::driver::Driver;
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};

/// A carrier that has nothing to run, as its idle hook sees it.
///
/// The hook should return when the [`timeout`](Self::timeout) is over or the carrier
/// [was woken](Self::is_woken); [`wait`](Self::wait) sleeps until then. A hook that waits for
/// descriptors of its own should wait for the descriptor of this value as well. That descriptor
/// becomes readable when the carrier is woken, or when something happens to a descriptor that a
/// fiber waits for.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// let times = Arc::new(AtomicU32::new(0));
/// let count = times.clone();
/// let runtime = sinew::Runtime::builder()
///     .carriers(1)
///     .idle_hook(move |idle| {
///         count.fetch_add(1, Ordering::Relaxed);
///         idle.wait();
///     })
///     .build()?;
/// runtime.run(|| sinew::sleep(std::time::Duration::from_millis(1)));
/// assert!(times.load(Ordering::Relaxed) > 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Idle<'a> {
    carrier: &'a Carrier,
    timeout: Option<Duration>,
}

/// How often a hook should return if no descriptor tells it of events.
const LOOK: Duration = Duration::from_millis(10);

impl<'a> Idle<'a> {
    pub(super) fn new(carrier: &'a Carrier, timeout: Option<Duration>) -> Self {
        let idle = Idle { carrier, timeout };
        if idle.driver().as_fd().is_some() {
            return idle;
        }
        // No descriptor tells the hook of events, so it has to return and let the carrier look.
        Idle { timeout: Some(timeout.unwrap_or(LOOK).min(LOOK)), ..idle }
    }

    fn driver(&self) -> &dyn Driver {
        &*self.carrier.crew().drivers[self.carrier.index()]
    }

    /// Returns the number of the carrier, counted from zero.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder()
    ///     .carriers(1)
    ///     .idle_hook(|idle| {
    ///         assert_eq!(idle.carrier(), 0);
    ///         idle.wait();
    ///     })
    ///     .build()?;
    /// runtime.run(|| ());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn carrier(&self) -> usize {
        self.carrier.index()
    }

    /// Returns how long the hook may take: until the next deadline of a fiber, or until the carrier
    /// has other duties, such as to call a predicate. Returns `None` if there is no limit. If no
    /// descriptor reports events, as with the backend `poll`, the limit is 10 ms at most.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = sinew::Runtime::builder()
    ///     .carriers(1)
    ///     .idle_hook(|idle| {
    ///         match idle.timeout() {
    ///             Some(most) => std::thread::sleep(most.min(Duration::from_micros(100))),
    ///             None => idle.wait(),
    ///         }
    ///     })
    ///     .build()?;
    /// runtime.run(|| ());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Whether the carrier was woken, so that the hook should return.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder()
    ///     .carriers(1)
    ///     .idle_hook(|idle| {
    ///         while !idle.is_woken() {
    ///             std::thread::yield_now(); // or look at events of one's own
    ///         }
    ///     })
    ///     .build()?;
    /// runtime.run(|| ());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_woken(&self) -> bool {
        !self.carrier.inbox.is_parked()
    }

    /// Sleeps until the timeout is over or the carrier is woken.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder()
    ///     .carriers(1)
    ///     .idle_hook(|idle| {
    ///         // Nothing to run: time for something else.
    ///         idle.wait();
    ///     })
    ///     .build()?;
    /// runtime.run(|| ());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait(&self) {
        self.driver().wait(self.timeout);
    }

    /// Returns a waker that ends the wait of this carrier, from any thread.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder()
    ///     .carriers(1)
    ///     .idle_hook(|idle| {
    ///         let waker = idle.waker();
    ///         std::thread::spawn(move || waker.wake());
    ///         idle.wait();
    ///     })
    ///     .build()?;
    /// runtime.run(|| ());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn waker(&self) -> Waker {
        // SAFETY: carriers are never freed.
        Waker(unsafe { &*core::ptr::from_ref(self.carrier) })
    }
}

impl AsFd for Idle<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.driver().as_fd().unwrap_or(self.carrier.bell().as_fd())
    }
}

impl std::fmt::Debug for Idle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idle")
            .field("carrier", &self.carrier())
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// Ends the idle time of one carrier; see [`Idle::waker`].
///
/// # Examples
/// ```
/// use std::sync::mpsc;
///
/// let (sender, wakers) = mpsc::channel();
/// let runtime = sinew::Runtime::builder()
///     .carriers(1)
///     .idle_hook(move |idle| {
///         let _ = sender.send(idle.waker());
///         idle.wait();
///     })
///     .build()?;
/// wakers.recv().unwrap().wake(); // on the main thread
/// assert!(wakers.recv().is_ok()); // the carrier has looked for work, and is idle again
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Waker(&'static Carrier);

impl Waker {
    /// Wakes the carrier, so that it looks for work.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder()
    ///     .carriers(1)
    ///     .idle_hook(|idle| {
    ///         idle.waker().wake(); // ends the wait that follows
    ///         idle.wait();
    ///     })
    ///     .build()?;
    /// runtime.run(|| ());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wake(&self) {
        self.0.alert();
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waker").finish_non_exhaustive()
    }
}
