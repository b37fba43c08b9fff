//! A value that some change and others watch.
//!
//! # Protocol
//!
//! The value is under a `RwLock`, and has a version that is changed with it, under the lock. A
//! receiver knows the version that it has seen. Who waits for another one reads the counter of a
//! futex, looks at the version, and waits for the next post; who has changed the version posts.

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

/// A channel that holds one value, the last: receivers look at it, and wait until it has changed.
///
/// # Examples
/// ```
/// use sinew::sync::channel;
///
/// let (level, mut watcher) = channel::watch("low");
/// sinew::spawn(move || level.send("high").unwrap());
/// watcher.changed().unwrap();
/// assert_eq!(*watcher.borrow(), "high");
/// assert!(watcher.changed().is_err()); // nobody is left to change it
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
    /// How often it was changed. Written under the lock.
    version: AtomicU64,
    /// Posted after every change that a receiver may wait for.
    changed: Futex,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

impl<T> Shared<T> {
    /// Whether there is something to see for who has seen that version.
    fn is_ready(&self, seen: u64) -> bool {
        self.version() != seen || self.is_disconnected()
    }

    /// Waits until there is a change, and marks it as seen; `None` if there is none by the deadline.
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

    /// Waits until there is a change, and marks it as seen.
    #[track_caller]
    fn wait(&self, seen: &mut u64) -> Result<(), RecvError> {
        loop {
            if let Some(changed) = self.wait_till(seen, clock::NEVER) {
                return changed;
            }
        }
    }

    /// Marks a change as seen, if there is one.
    fn look(&self, seen: &mut u64) -> Option<Result<(), RecvError>> {
        // First: what the last sender changed is seen before its end.
        let disconnected = self.is_disconnected();
        let version = self.version();
        if version != *seen {
            *seen = version;
            return Some(Ok(()));
        }
        disconnected.then_some(Err(RecvError))
    }

    fn version(&self) -> u64 {
        // ORDERING: Acquire: pairs with the Release in `send_if`.
        self.version.load(Ordering::Acquire)
    }

    fn is_disconnected(&self) -> bool {
        // ORDERING: Acquire: pairs with the AcqRel of the last sender: its changes are seen first.
        self.senders.load(Ordering::Acquire) == 0
    }
}

/// The end of a [`watch`] channel that changes the value.
pub struct WatchSender<T> {
    shared: Arc<Shared<T>>,
}

/// The end of a [`watch`] channel that watches the value. A clone has seen what this one has.
pub struct WatchReceiver<T> {
    shared: Arc<Shared<T>>,
    /// The version that it has seen.
    seen: u64,
}

impl<T> WatchSender<T> {
    /// Replaces the value, and wakes all who wait for a change.
    ///
    /// # Errors
    /// If there is no receiver: the value.
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

    /// Replaces the value, whether or not somebody watches it, and returns the one before.
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
        before.expect("the closure was called")
    }

    /// Changes the value in place, and wakes all who wait for a change. If `change` panics, they are
    /// not woken.
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

    /// Changes the value in place; those who wait are woken if `change` says so. Returns what it
    /// said.
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
            // ORDERING: Release: for those who look without the lock.
            self.shared.version.fetch_add(1, Ordering::Release);
        }
        drop(value);
        if changed {
            self.shared.changed.post();
        }
        changed
    }

    /// The value. It is not changed while the guard is kept.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(*sinew::sync::channel::watch(7).0.borrow(), 7);
    /// ```
    #[track_caller]
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.shared.value.read()
    }

    /// One more receiver, which has seen the value as it is.
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

    /// How many receivers there are.
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
        // ORDERING: AcqRel: what others have sent comes before the end.
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.changed.post();
        }
    }
}

impl<T> WatchReceiver<T> {
    /// Waits until the value has changed since this receiver last looked for changes, and marks that
    /// as seen.
    ///
    /// # Errors
    /// If it has not, and all senders are gone.
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

    /// Waits until the value has changed, at most for `timeout`; false if that was over before.
    ///
    /// # Errors
    /// As [`changed`](Self::changed).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let (_sender, mut receiver) = sinew::sync::channel::watch(1);
    /// assert_eq!(receiver.changed_for(Duration::from_millis(1)), Ok(false));
    /// ```
    #[track_caller]
    pub fn changed_for(&mut self, timeout: Duration) -> Result<bool, RecvError> {
        let waited = self.shared.wait_till(&mut self.seen, moment(timeout));
        waited.map_or(Ok(false), |changed| changed.map(|()| true))
    }

    /// Waits until `condition` is true of the value, and returns it.
    ///
    /// # Errors
    /// If it is not, and all senders are gone.
    ///
    /// # Examples
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::watch(1);
    /// sinew::spawn(move || (2..=5).for_each(|number| sender.send(number).unwrap()));
    /// assert_eq!(*receiver.wait_for(|number| *number == 5).unwrap(), 5);
    /// ```
    #[track_caller]
    pub fn wait_for(
        &mut self,
        mut condition: impl FnMut(&T) -> bool,
    ) -> Result<RwLockReadGuard<'_, T>, RecvError> {
        let WatchReceiver { shared, seen } = self;
        loop {
            let value = shared.value.read();
            // Not changed while the lock is held.
            *seen = shared.version();
            if condition(&value) {
                return Ok(value);
            }
            drop(value);
            shared.wait(seen)?;
        }
    }

    /// The value, whether or not it has changed. It is not changed while the guard is kept: a fiber
    /// that keeps it and sends waits for itself.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(*sinew::sync::channel::watch(7).1.borrow(), 7);
    /// ```
    #[track_caller]
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.shared.value.read()
    }

    /// The value, marked as seen.
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
        // Not changed while the lock is held.
        self.seen = self.shared.version();
        value
    }

    /// Whether the value has changed since this receiver last looked for changes.
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::sync::channel::watch(7).1.has_changed());
    /// ```
    pub fn has_changed(&self) -> bool {
        self.shared.version() != self.seen
    }

    /// Whether all senders are gone.
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

    /// Waiting for a change as one of several operations, for [`select`](crate::sync::select).
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

/// Waiting for a change as one of several operations; see [`WatchReceiver::arm`].
pub struct WatchArm<'a, T> {
    receiver: &'a mut WatchReceiver<T>,
    arm: SignalArm,
}

impl<T> WatchArm<'_, T> {
    /// What [`changed`](WatchReceiver::changed) returns, after this arm was selected.
    ///
    /// # Errors
    /// If all senders are gone, or this arm was not selected.
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
