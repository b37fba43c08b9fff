//! A channel that holds one value: senders change it, receivers watch it.
//!
//! # Protocol
//!
//! A `RwLock` guards the value. The value has a version, which senders change under the lock. Each
//! receiver remembers the last version that it has seen. A receiver that waits for a newer version
//! reads the counter of a futex, compares versions, and waits for the next post. A sender posts
//! after it has changed the version, so the receiver sees the change, or the post wakes it.

use super::{RecvError, SendError};
use crate::clock;
use crate::primitive::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::futex::Futex;
use crate::sync::moment;
use crate::sync::rwlock::{RwLock, RwLockReadGuard};
use crate::sync::select::sealed::{self, Entered, Joint, Left};
use crate::sync::select::{Arm, SignalArm};
use core::fmt;
use core::time::Duration;
use std::sync::Arc;

/// Creates a channel that holds the last value sent. Receivers look at the value, and wait for
/// changes.
///
/// # Examples
/// ```
/// use sinew::sync::channel;
///
/// let (level, mut watcher) = channel::watch("low");
/// sinew::spawn(move || level.send("high").unwrap());
/// watcher.changed().unwrap();
/// assert_eq!(*watcher.borrow(), "high");
/// assert!(watcher.changed().is_err()); // all senders are gone
/// ```
pub fn watch<T>(value: T) -> (WatchSender<T>, WatchReceiver<T>) {
    let shared = Arc::new(Shared {
        value: RwLock::new(value),
        version: AtomicU64::new(0),
        changed: Futex::new(),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
    });
    (WatchSender { shared: shared.clone() }, WatchReceiver { shared, seen: 0 })
}

struct Shared<T> {
    value: RwLock<T>,
    /// Counts the changes of the value. Written under the lock.
    version: AtomicU64,
    /// Posted after each change that a receiver may wait for.
    changed: Futex,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

impl<T> Shared<T> {
    /// Returns whether a receiver that has seen version `seen` need not wait.
    fn is_ready(&self, seen: u64) -> bool {
        self.version() != seen || self.is_disconnected()
    }

    /// Waits for a change, and marks it as seen. Returns `None` if the deadline passes first.
    #[track_caller]
    fn wait_till(&self, seen: &mut u64, deadline: u64) -> Option<Result<(), RecvError>> {
        loop {
            let token = self.changed.get();
            if let Some(changed) = self.look(seen) {
                return Some(changed);
            }
            if !self.changed.wait_till(token + 1, deadline) {
                return self.look(seen);
            }
        }
    }

    /// Waits for a change, and marks it as seen.
    #[track_caller]
    fn wait(&self, seen: &mut u64) -> Result<(), RecvError> {
        loop {
            if let Some(changed) = self.wait_till(seen, clock::NEVER) {
                return changed;
            }
        }
    }

    /// Marks a change as seen, if there is one. Returns `None` if a receiver has to wait.
    fn look(&self, seen: &mut u64) -> Option<Result<(), RecvError>> {
        // Load the number of senders before the version: a look that finds all senders gone then
        // also finds their last change.
        let disconnected = self.is_disconnected();
        let version = self.version();
        if version != *seen {
            *seen = version;
            return Some(Ok(()));
        }
        disconnected.then_some(Err(RecvError))
    }

    fn version(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `send_if`: a receiver that sees the version
        // sees the writes before it.
        self.version.load(Ordering::Acquire)
    }

    fn is_disconnected(&self) -> bool {
        // ORDERING: Acquire pairs with the AcqRel in `WatchSender::drop`: the last sender's changes
        // are visible to a receiver that finds all senders gone.
        self.senders.load(Ordering::Acquire) == 0
    }
}

/// The end of a [`watch`] channel that changes the value.
///
/// # Examples
/// ```
/// let (sender, receiver) = sinew::sync::channel::watch("starting");
/// sender.send("running").unwrap();
/// sender.send("stopping").unwrap();
/// assert_eq!(*receiver.borrow(), "stopping"); // the latest value only
/// ```
pub struct WatchSender<T> {
    shared: Arc<Shared<T>>,
}

/// The end of a [`watch`] channel that watches the value. A clone has seen the version that the
/// original has seen.
///
/// # Examples
/// ```
/// let (sender, mut receiver) = sinew::sync::channel::watch(0);
/// let fiber = sinew::spawn(move || {
///     receiver.changed().unwrap();
///     *receiver.borrow()
/// });
/// sender.send(7).unwrap();
/// assert_eq!(fiber.join().unwrap(), 7);
/// ```
pub struct WatchReceiver<T> {
    shared: Arc<Shared<T>>,
    /// The version that this receiver has seen.
    seen: u64,
}

impl<T> WatchSender<T> {
    /// Replaces the value, and wakes all receivers that wait for a change.
    ///
    /// # Errors
    /// Returns the value if there is no receiver.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::watch(1);
    /// sender.send(2).unwrap();
    /// assert_eq!(*receiver.borrow(), 2);
    /// drop(receiver);
    /// assert_eq!(sender.send(3).unwrap_err().0, 3);
    /// ```
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.receivers() == 0 {
            return Err(SendError(value));
        }
        drop(self.replace(value));
        Ok(())
    }

    /// Replaces the value, even if there is no receiver, and returns the old value.
    ///
    /// # Examples
    /// ```
    /// let (sender, _) = sinew::sync::channel::watch(1);
    /// assert_eq!(sender.replace(2), 1);
    /// assert_eq!(*sender.borrow(), 2);
    /// ```
    #[track_caller]
    pub fn replace(&self, value: T) -> T {
        let mut value = Some(value);
        let mut before = None;
        self.modify(|place| before = value.take().map(|value| core::mem::replace(place, value)));
        before.expect("`modify` has called the closure")
    }

    /// Changes the value in place, and wakes all receivers that wait for a change. If `change`
    /// panics, no receiver is woken.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::watch(vec![1]);
    /// sender.modify(|list| list.push(2));
    /// assert_eq!(*receiver.borrow(), [1, 2]);
    /// ```
    #[track_caller]
    pub fn modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if(|value| {
            change(value);
            true
        });
    }

    /// Changes the value in place, and wakes waiting receivers if `change` returns true. Returns
    /// the result of `change`.
    ///
    /// # Examples
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::watch(1);
    /// assert!(!sender.send_if(|value| *value != 1));
    /// assert!(!receiver.has_changed());
    /// ```
    #[track_caller]
    pub fn send_if(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let mut value = self.shared.value.write();
        let changed = change(&mut value);
        if changed {
            // ORDERING: Release pairs with the Acquire in `version`, for receivers that look
            // without the lock.
            self.shared.version.fetch_add(1, Ordering::Release);
        }
        drop(value);
        if changed {
            self.shared.changed.post();
        }
        changed
    }

    /// Borrows the value. Senders wait while the guard is kept, so a fiber that sends while it
    /// keeps the guard deadlocks.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(*sinew::sync::channel::watch(7).0.borrow(), 7);
    /// ```
    #[track_caller]
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.shared.value.read()
    }

    /// Creates another receiver, which has seen the current value.
    ///
    /// # Examples
    /// ```
    /// let (sender, _) = sinew::sync::channel::watch(1);
    /// let mut receiver = sender.subscribe();
    /// sender.send(2).unwrap();
    /// assert!(receiver.has_changed());
    /// ```
    pub fn subscribe(&self) -> WatchReceiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        WatchReceiver { shared: self.shared.clone(), seen: self.shared.version() }
    }

    /// Returns the number of receivers.
    ///
    /// # Examples
    /// ```
    /// let (sender, _receiver) = sinew::sync::channel::watch(1);
    /// assert_eq!(sender.receivers(), 1);
    /// ```
    pub fn receivers(&self) -> usize {
        self.shared.receivers.load(Ordering::Relaxed)
    }
}

impl<T> Clone for WatchSender<T> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        WatchSender { shared: self.shared.clone() }
    }
}

impl<T> Drop for WatchSender<T> {
    fn drop(&mut self) {
        // ORDERING: AcqRel pairs with the `fetch_sub` of the other senders, so their changes come
        // before the end, and with the Acquire in `is_disconnected`.
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.changed.post();
        }
    }
}

impl<T> WatchReceiver<T> {
    /// Waits for a change of the value that this receiver has not seen, and marks the change as
    /// seen.
    ///
    /// # Errors
    /// Fails if all senders are gone and this receiver has seen the last change.
    ///
    /// # Examples
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::watch(1);
    /// sender.send(2).unwrap();
    /// receiver.changed().unwrap();
    /// assert_eq!(*receiver.borrow(), 2);
    /// ```
    #[track_caller]
    pub fn changed(&mut self) -> Result<(), RecvError> {
        self.shared.wait(&mut self.seen)
    }

    /// Waits at most `timeout` for a change of the value, and marks the change as seen. Returns
    /// false if `timeout` has passed.
    ///
    /// # Errors
    /// Fails as [`changed`](Self::changed) does.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let (_sender, mut receiver) = sinew::sync::channel::watch(1);
    /// assert_eq!(receiver.changed_timeout(Duration::from_millis(1)), Ok(false));
    /// ```
    #[track_caller]
    pub fn changed_timeout(&mut self, timeout: Duration) -> Result<bool, RecvError> {
        let waited = self.shared.wait_till(&mut self.seen, moment(timeout));
        waited.map_or(Ok(false), |changed| changed.map(|()| true))
    }

    /// Waits until `condition` is true for the value, and borrows the value.
    ///
    /// # Errors
    /// Fails if the condition is false and all senders are gone.
    ///
    /// # Examples
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::watch(1);
    /// sinew::spawn(move || (2..=5).for_each(|number| sender.send(number).unwrap()));
    /// assert_eq!(*receiver.wait_until(|number| *number == 5).unwrap(), 5);
    /// ```
    #[track_caller]
    pub fn wait_until(
        &mut self,
        mut condition: impl FnMut(&T) -> bool,
    ) -> Result<RwLockReadGuard<'_, T>, RecvError> {
        let WatchReceiver { shared, seen } = self;
        loop {
            let value = shared.value.read();
            // The version cannot change while the lock is held.
            *seen = shared.version();
            if condition(&value) {
                return Ok(value);
            }
            drop(value);
            shared.wait(seen)?;
        }
    }

    /// Borrows the value, without marking it as seen. Senders wait while the guard is kept, so a
    /// fiber that sends while it keeps the guard deadlocks.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(*sinew::sync::channel::watch(7).1.borrow(), 7);
    /// ```
    #[track_caller]
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.shared.value.read()
    }

    /// Borrows the value, and marks it as seen.
    ///
    /// # Examples
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::watch(1);
    /// sender.send(2).unwrap();
    /// assert_eq!(*receiver.borrow_and_update(), 2);
    /// assert!(!receiver.has_changed());
    /// ```
    #[track_caller]
    pub fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        let value = self.shared.value.read();
        // The version cannot change while the lock is held.
        self.seen = self.shared.version();
        value
    }

    /// Returns whether the value has changed since this receiver last marked it as seen.
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::sync::channel::watch(7).1.has_changed());
    /// ```
    pub fn has_changed(&self) -> bool {
        self.shared.version() != self.seen
    }

    /// Returns whether all senders are gone.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::watch(7);
    /// drop(sender);
    /// assert!(receiver.is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        self.shared.is_disconnected()
    }

    /// Returns an arm that waits for a change, for [`select`](crate::sync::select).
    ///
    /// # Examples
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::watch(1);
    /// sender.send(2).unwrap();
    /// sinew::select! {
    ///     wait(receiver) -> changed => assert!(changed.is_ok()),
    /// }
    /// assert_eq!(*receiver.borrow(), 2);
    /// ```
    pub fn arm(&mut self) -> WatchArm<'_, T> {
        let arm = SignalArm::new(&self.shared.changed);
        WatchArm { receiver: self, arm }
    }
}

impl<T> Clone for WatchReceiver<T> {
    fn clone(&self) -> Self {
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        WatchReceiver { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T> Drop for WatchReceiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The wait for a change as an arm of [`select!`](crate::select); see [`WatchReceiver::arm`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let (sender, mut settings) = sinew::sync::channel::watch(1);
/// sender.send(2).unwrap();
/// sinew::select! {
///     wait(settings) -> changed => changed.unwrap(),
///     after(Duration::from_secs(60)) => panic!("no new settings"),
/// }
/// assert_eq!(*settings.borrow(), 2);
/// ```
pub struct WatchArm<'a, T> {
    receiver: &'a mut WatchReceiver<T>,
    arm: SignalArm,
}

impl<T> WatchArm<'_, T> {
    /// Marks the change as seen, after this arm was selected, as
    /// [`changed`](WatchReceiver::changed) does.
    ///
    /// # Errors
    /// Fails if the value has not changed: all senders are gone, or this arm was not selected.
    ///
    /// # Examples
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::watch(1);
    /// sender.send(2).unwrap();
    /// assert!(receiver.arm().take().is_ok());
    /// ```
    pub fn take(&mut self) -> Result<(), RecvError> {
        self.receiver.shared.look(&mut self.receiver.seen).unwrap_or(Err(RecvError))
    }
}

impl<T> Arm for WatchArm<'_, T> {}

impl<T> sealed::Arm for WatchArm<'_, T> {
    fn attempt(&mut self) -> bool {
        self.seems_ready()
    }

    fn seems_ready(&self) -> bool {
        self.receiver.shared.is_ready(self.receiver.seen)
    }

    fn enter(&mut self, wait: Joint<'_>) -> Entered {
        let WatchReceiver { shared, seen } = &*self.receiver;
        self.arm.enter(wait, &shared.changed, || shared.is_ready(*seen))
    }

    fn leave(&mut self) -> Left {
        self.arm.leave();
        if self.attempt() { Left::Ready } else { Left::Nothing }
    }
}

impl<T> fmt::Debug for WatchArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchArm").finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for WatchSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchSender").field(&self.shared.value).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for WatchReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchReceiver").field(&self.shared.value).finish()
    }
}
