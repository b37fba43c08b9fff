//! Why nothing was sent or received. What was not sent is given back.

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
    /// All receivers are gone; the message.
    SendError: "sending on a disconnected channel";
}

/// Why a message was not sent at once; the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no room, or, if the channel has none, nobody waits for a message.
    Full(T),
    /// All receivers are gone.
    Disconnected(T),
}

/// Why a message was not sent in time; the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// There was no room all the time.
    Timeout(T),
    /// All receivers are gone.
    Disconnected(T),
}

/// All senders are gone, and all messages were received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvError;

/// Why no message was received at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TryRecvError {
    /// There is none.
    Empty,
    /// All senders are gone, and all messages were received.
    Disconnected,
}

/// Why no message was received in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvTimeoutError {
    /// None came.
    Timeout,
    /// All senders are gone, and all messages were received.
    Disconnected,
}

impl<T> TrySendError<T> {
    /// The message.
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
    /// The message.
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
