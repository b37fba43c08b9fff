//! A channel for one message.

use super::core::{Core, Failure};
use super::{RecvError, RecvTimeoutError, TryRecvError};
use crate::clock;
use crate::sync::moment;
use core::fmt;
use core::time::Duration;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// A channel for one message: `send` never waits.
///
/// # Examples
/// ```
/// let (sender, receiver) = sinew::sync::channel::oneshot();
/// sinew::spawn(move || sender.send(7).unwrap());
/// assert_eq!(receiver.recv(), Ok(7));
/// ```
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let core = Arc::new(Core::new(1));
    (OneshotSender { core: core.clone() }, OneshotReceiver { core })
}

/// The end of a [`oneshot`] channel that the message goes into.
pub struct OneshotSender<T> {
    core: Arc<Core<T>>,
}

/// The end of a [`oneshot`] channel that the message comes out of.
pub struct OneshotReceiver<T> {
    core: Arc<Core<T>>,
}

impl<T> UnwindSafe for OneshotSender<T> {}
impl<T> RefUnwindSafe for OneshotSender<T> {}
impl<T> UnwindSafe for OneshotReceiver<T> {}
impl<T> RefUnwindSafe for OneshotReceiver<T> {}

impl<T> OneshotSender<T> {
    /// Sends the message.
    ///
    /// # Errors
    /// If the receiver is gone: the message.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::oneshot();
    /// drop(receiver);
    /// assert_eq!(sender.send(7), Err(7));
    /// ```
    pub fn send(self, message: T) -> Result<(), T> {
        self.core.send(message, None).map_err(|(_, message)| message)
    }

    /// Whether the receiver is gone, so that the message need not be made.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::oneshot::<u32>();
    /// drop(receiver);
    /// assert!(sender.is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        self.core.is_disconnected()
    }
}

impl<T> OneshotReceiver<T> {
    /// Waits for the message.
    ///
    /// # Errors
    /// If the sender is gone without one.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::oneshot::<u32>();
    /// drop(sender);
    /// assert!(receiver.recv().is_err());
    /// ```
    #[track_caller]
    pub fn recv(self) -> Result<T, RecvError> {
        self.core.receive(Some(clock::NEVER)).map_err(|_| RecvError)
    }

    /// The message, if it is there.
    ///
    /// # Errors
    /// If it is not, or will never be.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, TryRecvError};
    ///
    /// let (sender, mut receiver) = channel::oneshot();
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    /// sender.send(7).unwrap();
    /// assert_eq!(receiver.try_recv(), Ok(7));
    /// ```
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.core.receive(None).map_err(|failure| match failure {
            Failure::Disconnected => TryRecvError::Disconnected,
            _ => TryRecvError::Empty,
        })
    }

    /// Waits for the message, at most for `timeout`.
    ///
    /// # Errors
    /// If that was over, or there will never be one.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let (_sender, mut receiver) = sinew::sync::channel::oneshot::<u32>();
    /// assert!(receiver.recv_timeout(Duration::from_millis(1)).is_err());
    /// ```
    #[track_caller]
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.core.receive(Some(moment(timeout))).map_err(|failure| match failure {
            Failure::Disconnected => RecvTimeoutError::Disconnected,
            _ => RecvTimeoutError::Timeout,
        })
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        self.core.remove_sender();
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        self.core.remove_receiver();
    }
}

impl<T> fmt::Debug for OneshotSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneshotSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for OneshotReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneshotReceiver").finish_non_exhaustive()
    }
}
