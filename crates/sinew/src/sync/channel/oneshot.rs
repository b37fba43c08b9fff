//! A channel for one message.
//!
//! Both ends share a `Core` with room for one message. `send` consumes the sender, so it always
//! finds room and never waits.

use super::core::{Core, Failure};
use super::{RecvError, RecvTimeoutError, TryRecvError};
use crate::clock;
use crate::sync::moment;
use core::fmt;
use core::time::Duration;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// Creates a channel for one message: `send` never waits.
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

/// The sending end of a [`oneshot`] channel.
///
/// # Examples
/// ```
/// use sinew::sync::channel::{self, OneshotSender};
///
/// struct Request {
///     number: u32,
///     answer: OneshotSender<u32>,
/// }
///
/// let (requests, served) = channel::unbounded::<Request>();
/// sinew::spawn(move || {
///     for request in served {
///         let _ = request.answer.send(request.number * 2); // the asker may be gone
///     }
/// });
/// let (answer, receiver) = channel::oneshot();
/// requests.send(Request { number: 4, answer }).unwrap();
/// assert_eq!(receiver.recv(), Ok(8));
/// ```
pub struct OneshotSender<T> {
    core: Arc<Core<T>>,
}

/// The receiving end of a [`oneshot`] channel.
///
/// # Examples
/// ```
/// use sinew::sync::channel::{self, RecvError};
///
/// let (sender, receiver) = channel::oneshot();
/// sinew::spawn(move || sender.send("done").unwrap());
/// assert_eq!(receiver.recv(), Ok("done"));
///
/// let (sender, receiver) = channel::oneshot::<u32>();
/// drop(sender); // sends nothing
/// assert_eq!(receiver.recv(), Err(RecvError));
/// ```
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
    /// Returns the message if the receiver is gone.
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

    /// Returns whether the receiver is gone, so that the sender can skip making the message.
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
    /// Receives the message, waiting until it arrives.
    ///
    /// # Errors
    /// Fails if the sender was dropped without sending, or if the message was received before.
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

    /// Receives the message if it has arrived, without waiting.
    ///
    /// # Errors
    /// Fails if the message has not arrived. The error tells whether it still can.
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

    /// Receives the message, waiting at most `timeout`.
    ///
    /// # Errors
    /// Fails if `timeout` has passed, or if the message can no longer arrive.
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
