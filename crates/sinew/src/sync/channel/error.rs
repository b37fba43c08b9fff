//! Errors of sending and receiving on a channel. A send error gives the message back.

use core::fmt;

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident: $text:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name<T>(pub T);

        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl<T> fmt::Display for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($text)
            }
        }

        impl<T> std::error::Error for $name<T> {}
    )*};
}

errors! {
    /// A message was not sent because all receivers are gone. Holds the message.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, SendError};
    ///
    /// let (sender, receiver) = channel::unbounded();
    /// drop(receiver);
    /// let SendError(message) = sender.send(String::from("kept")).unwrap_err();
    /// assert_eq!(message, "kept");
    /// ```
    SendError: "sending on a disconnected channel";
}

/// Why [`try_send`](super::Sender::try_send) failed. Holds the message.
///
/// # Examples
/// ```
/// use sinew::sync::channel::{self, TrySendError};
///
/// let (sender, receiver) = channel::bounded(1);
/// sender.send(1).unwrap();
/// assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
/// drop(receiver);
/// assert_eq!(sender.try_send(2), Err(TrySendError::Disconnected(2)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full; with capacity 0, no receiver waits.
    Full(T),
    /// All receivers are gone.
    Disconnected(T),
}

/// Why a send with a timeout or deadline failed. Holds the message.
///
/// # Examples
/// ```
/// use sinew::sync::channel::{self, SendTimeoutError};
/// use std::time::Duration;
///
/// let (sender, receiver) = channel::bounded(1);
/// sender.send(1).unwrap();
/// let soon = Duration::from_millis(1);
/// assert_eq!(sender.send_timeout(2, soon), Err(SendTimeoutError::Timeout(2)));
/// drop(receiver);
/// assert_eq!(sender.send_timeout(2, soon), Err(SendTimeoutError::Disconnected(2)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// The channel had no room in time; with capacity 0, no receiver took the message in time.
    Timeout(T),
    /// All receivers are gone.
    Disconnected(T),
}

/// No message can be received: all senders are gone, and the channel is empty.
///
/// # Examples
/// ```
/// use sinew::sync::channel::{self, RecvError};
///
/// let (sender, receiver) = channel::unbounded();
/// sender.send(7).unwrap();
/// drop(sender);
/// assert_eq!(receiver.recv(), Ok(7)); // messages that were sent before still arrive
/// assert_eq!(receiver.recv(), Err(RecvError));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvError;

/// Why `try_recv` returned no message.
///
/// # Examples
/// ```
/// use sinew::sync::channel::{self, TryRecvError};
///
/// let (sender, receiver) = channel::unbounded::<u32>();
/// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
/// drop(sender);
/// assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TryRecvError {
    /// The channel is empty.
    Empty,
    /// All senders are gone, and the channel is empty.
    Disconnected,
}

/// Why a receive with a timeout or deadline returned no message.
///
/// # Examples
/// ```
/// use sinew::sync::channel::{self, RecvTimeoutError};
/// use std::time::Duration;
///
/// let (sender, receiver) = channel::unbounded::<u32>();
/// let soon = Duration::from_millis(1);
/// assert_eq!(receiver.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
/// drop(sender);
/// assert_eq!(receiver.recv_timeout(soon), Err(RecvTimeoutError::Disconnected));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvTimeoutError {
    /// No message arrived in time.
    Timeout,
    /// All senders are gone, and the channel is empty.
    Disconnected,
}

impl<T> TrySendError<T> {
    /// Returns the message.
    ///
    /// # Examples
    /// ```
    /// let (sender, _receiver) = sinew::sync::channel::bounded(0);
    /// assert_eq!(sender.try_send(7).unwrap_err().into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        }
    }
}

impl<T> SendTimeoutError<T> {
    /// Returns the message.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let (sender, _receiver) = sinew::sync::channel::bounded(0);
    /// let error = sender.send_timeout(7, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.into_inner(), 7);
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::Timeout(message) | SendTimeoutError::Disconnected(message) => message,
        }
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "Timeout(..)",
            SendTimeoutError::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "sending on a full channel",
            TrySendError::Disconnected(_) => "sending on a disconnected channel",
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "timed out sending on a full channel",
            SendTimeoutError::Disconnected(_) => "sending on a disconnected channel",
        })
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("receiving on an empty and disconnected channel")
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryRecvError::Empty => "receiving on an empty channel",
            TryRecvError::Disconnected => "receiving on an empty and disconnected channel",
        })
    }
}

impl fmt::Display for RecvTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecvTimeoutError::Timeout => "timed out receiving on an empty channel",
            RecvTimeoutError::Disconnected => "receiving on an empty and disconnected channel",
        })
    }
}

impl<T> std::error::Error for TrySendError<T> {}
impl<T> std::error::Error for SendTimeoutError<T> {}
impl std::error::Error for RecvError {}
impl std::error::Error for TryRecvError {}
impl std::error::Error for RecvTimeoutError {}
