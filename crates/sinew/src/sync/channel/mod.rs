//! Channels: messages between fibers and threads.
//!
//! | channel | holds |
//! | --- | --- |
//! | [`bounded`] | at most `capacity` messages; with capacity 0, sender and receiver meet |
//! | [`unbounded`] | any number of messages |
//! | [`oneshot`] | one message, sent once |
//! | [`broadcast`] | the last `capacity` messages, each for every receiver |
//! | [`watch`] | the last value, for every receiver |
//!
//! A [`oneshot`] has one sender and one receiver. The other channels have any number of both. Each
//! message of a [`bounded`], [`unbounded`] or [`oneshot`] channel is received once, in the order of
//! sending.
//!
//! When all senders are gone, receivers get the remaining messages and then an error. When all
//! receivers are gone, `send` returns its message in an error. A fiber that is cancelled while it
//! waits has neither sent nor received.
//!
//! For readers of the source: `channel/core.rs` has the protocol of `bounded`, `unbounded` and
//! `oneshot` channels, on the waiter lists of `park::list`. `channel/broadcast.rs` and
//! `channel/watch.rs` have protocols of their own, on a [`Futex`](super::Futex). `channel/arm.rs`
//! has the arms for [`select!`](crate::select).

mod arm;
mod broadcast;
mod core;
mod error;
mod oneshot;
mod watch;

pub use arm::{RecvArm, SendArm};
pub use broadcast::{
    BroadcastArm, BroadcastReceiver, BroadcastRecvError, BroadcastSender, broadcast,
};
pub use error::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
pub use oneshot::{OneshotReceiver, OneshotSender, oneshot};
pub use watch::{WatchArm, WatchReceiver, WatchSender, watch};

/// Size in bytes of the state that both ends of a channel share, without the messages.
pub(crate) const CORE_SIZE: usize = size_of::<Core<()>>();

use self::core::{Core, Failure, UNBOUNDED};
use super::moment;
use crate::clock;
use ::core::fmt;
use ::core::time::Duration;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Instant;

/// Creates a channel that holds up to `capacity` messages.
///
/// With a capacity of 0, the sender hands each message to a receiver: `send` waits until the
/// message is received.
///
/// # Examples
/// ```
/// use sinew::sync::channel;
///
/// let (sender, receiver) = channel::bounded(2);
/// sinew::spawn(move || {
///     for number in 0..10 {
///         sender.send(number).unwrap(); // waits while the channel holds two messages
///     }
/// });
/// assert_eq!(receiver.iter().sum::<u32>(), 45);
/// ```
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    // The capacity `UNBOUNDED` stands for no limit, so a bounded channel has a smaller one. No
    // memory could hold that many messages anyway.
    ends(Core::new(capacity.min(UNBOUNDED - 1)))
}

/// Creates a channel that holds any number of messages: `send` never waits.
///
/// # Examples
/// ```
/// let (sender, receiver) = sinew::sync::channel::unbounded();
/// for number in 0..1000 {
///     sender.send(number).unwrap();
/// }
/// drop(sender);
/// assert_eq!(receiver.iter().count(), 1000);
/// ```
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    ends(Core::new(UNBOUNDED))
}

fn ends<T>(core: Core<T>) -> (Sender<T>, Receiver<T>) {
    let core = Arc::new(core);
    (Sender { core: core.clone() }, Receiver { core })
}

/// The sending end of a [`bounded`] or [`unbounded`] channel.
///
/// # Examples
/// ```
/// let (sender, receiver) = sinew::sync::channel::unbounded();
/// for number in [1, 2] {
///     let sender = sender.clone();
///     sinew::spawn(move || sender.send(number).unwrap());
/// }
/// drop(sender); // the receiver finds the end when all clones are gone
/// assert_eq!(receiver.iter().sum::<u32>(), 3);
/// ```
pub struct Sender<T> {
    core: Arc<Core<T>>,
}

/// The receiving end of a [`bounded`] or [`unbounded`] channel.
///
/// # Examples
/// ```
/// let (sender, receiver) = sinew::sync::channel::bounded(8);
/// // Each message goes to one of two workers.
/// let receivers = [receiver.clone(), receiver];
/// let workers = receivers.map(|jobs| sinew::spawn(move || jobs.iter().count()));
/// for job in 0..100 {
///     sender.send(job).unwrap();
/// }
/// drop(sender);
/// assert_eq!(workers.map(|worker| worker.join().unwrap()).iter().sum::<usize>(), 100);
/// ```
pub struct Receiver<T> {
    core: Arc<Core<T>>,
}

impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Sender<T> {
    /// Sends a message, waiting while the channel is full.
    ///
    /// # Errors
    /// Returns the message if all receivers are gone.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::bounded(1);
    /// sender.send(7).unwrap();
    /// drop(receiver);
    /// assert_eq!(sender.send(8).unwrap_err().0, 8);
    /// ```
    #[inline]
    #[track_caller]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.core.send(message, Some(clock::NEVER)).map_err(|(_, message)| SendError(message))
    }

    /// Sends a message if the channel has room for it, without waiting.
    ///
    /// # Errors
    /// Returns the message if the channel is full, or if all receivers are gone.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, TrySendError};
    ///
    /// let (sender, _receiver) = channel::bounded(1);
    /// assert!(sender.try_send(7).is_ok());
    /// assert_eq!(sender.try_send(8), Err(TrySendError::Full(8)));
    /// ```
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.core.send(message, None).map_err(|(failure, message)| match failure {
            Failure::Disconnected => TrySendError::Disconnected(message),
            _ => TrySendError::Full(message),
        })
    }

    /// Sends a message, waiting at most `timeout` while the channel is full.
    ///
    /// # Errors
    /// Returns the message if `timeout` has passed, or if all receivers are gone.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, SendTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (sender, _receiver) = channel::bounded(0);
    /// let error = sender.send_timeout(7, Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error, SendTimeoutError::Timeout(7));
    /// ```
    #[track_caller]
    pub fn send_timeout(&self, message: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_till(message, moment(timeout))
    }

    /// Sends a message, waiting until `deadline` at most while the channel is full.
    ///
    /// # Errors
    /// Returns the message if `deadline` has passed, or if all receivers are gone.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::bounded(1);
    /// sender.send_deadline(7, std::time::Instant::now()).unwrap();
    /// assert_eq!(receiver.recv(), Ok(7));
    /// ```
    #[track_caller]
    pub fn send_deadline(&self, message: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.send_till(message, clock::at(deadline))
    }

    #[track_caller]
    fn send_till(&self, message: T, deadline: u64) -> Result<(), SendTimeoutError<T>> {
        let sent = self.core.send(message, Some(deadline));
        sent.map_err(|(failure, message)| match failure {
            Failure::Disconnected => SendTimeoutError::Disconnected(message),
            _ => SendTimeoutError::Timeout(message),
        })
    }

    /// Returns the number of messages that were sent and not yet received.
    ///
    /// # Examples
    /// ```
    /// let (sender, _receiver) = sinew::sync::channel::unbounded();
    /// sender.send(7).unwrap();
    /// assert_eq!(sender.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Returns whether all sent messages were received.
    ///
    /// # Examples
    /// ```
    /// let (sender, _receiver) = sinew::sync::channel::bounded::<u32>(3);
    /// assert!(sender.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many messages the channel can hold; `None` if the channel is unbounded.
    ///
    /// # Examples
    /// ```
    /// let (sender, _receiver) = sinew::sync::channel::bounded::<u32>(3);
    /// assert_eq!(sender.capacity(), Some(3));
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        self.core.capacity()
    }

    /// Returns whether all receivers are gone.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::bounded::<u32>(3);
    /// drop(receiver);
    /// assert!(sender.is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        self.core.is_disconnected()
    }
}

impl<T> Receiver<T> {
    /// Receives a message, waiting until one arrives.
    ///
    /// # Errors
    /// Fails if all senders are gone and the channel is empty.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, RecvError};
    ///
    /// let (sender, receiver) = channel::bounded(1);
    /// sinew::spawn(move || sender.send(7).unwrap());
    /// assert_eq!(receiver.recv(), Ok(7));
    /// assert_eq!(receiver.recv(), Err(RecvError));
    /// ```
    #[inline]
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.core.receive(Some(clock::NEVER)).map_err(|_| RecvError)
    }

    /// Receives a message if the channel has one, without waiting.
    ///
    /// # Errors
    /// Fails if the channel is empty. The error tells whether all senders are gone.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, TryRecvError};
    ///
    /// let (sender, receiver) = channel::unbounded();
    /// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    /// sender.send(7).unwrap();
    /// assert_eq!(receiver.try_recv(), Ok(7));
    /// ```
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.core.receive(None).map_err(|failure| match failure {
            Failure::Disconnected => TryRecvError::Disconnected,
            _ => TryRecvError::Empty,
        })
    }

    /// Receives a message, waiting at most `timeout` for one.
    ///
    /// # Errors
    /// Fails if `timeout` has passed, or if all senders are gone and the channel is empty.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (_sender, receiver) = channel::bounded::<u32>(1);
    /// let error = receiver.recv_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error, RecvTimeoutError::Timeout);
    /// ```
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.receive_till(moment(timeout))
    }

    /// Receives a message, waiting until `deadline` at most.
    ///
    /// # Errors
    /// Fails if `deadline` has passed, or if all senders are gone and the channel is empty.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::bounded(1);
    /// sender.send(7).unwrap();
    /// assert_eq!(receiver.recv_deadline(std::time::Instant::now()), Ok(7));
    /// ```
    #[track_caller]
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.receive_till(clock::at(deadline))
    }

    #[track_caller]
    fn receive_till(&self, deadline: u64) -> Result<T, RecvTimeoutError> {
        self.core.receive(Some(deadline)).map_err(|failure| match failure {
            Failure::Disconnected => RecvTimeoutError::Disconnected,
            _ => RecvTimeoutError::Timeout,
        })
    }

    /// Returns an iterator that waits for messages, and ends when all senders are gone and the
    /// channel is empty.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::unbounded();
    /// sender.send(7).unwrap();
    /// drop(sender);
    /// assert_eq!(receiver.iter().collect::<Vec<_>>(), [7]);
    /// ```
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self)
    }

    /// Returns an iterator over the messages in the channel. It ends when the channel is empty.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::unbounded();
    /// sender.send(7).unwrap();
    /// assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [7]);
    /// ```
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter(self)
    }

    /// Returns the number of messages that were sent and not yet received.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::unbounded();
    /// sender.send(7).unwrap();
    /// assert_eq!(receiver.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Returns whether all sent messages were received.
    ///
    /// # Examples
    /// ```
    /// let (_sender, receiver) = sinew::sync::channel::bounded::<u32>(3);
    /// assert!(receiver.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many messages the channel can hold; `None` if the channel is unbounded.
    ///
    /// # Examples
    /// ```
    /// let (_sender, receiver) = sinew::sync::channel::unbounded::<u32>();
    /// assert_eq!(receiver.capacity(), None);
    /// ```
    pub fn capacity(&self) -> Option<usize> {
        self.core.capacity()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.core.add_sender();
        Sender { core: self.core.clone() }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.core.add_receiver();
        Receiver { core: self.core.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.core.remove_sender();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.core.remove_receiver();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// An iterator that waits for the messages of a channel; see [`Receiver::iter`].
///
/// # Examples
/// ```
/// let (sender, receiver) = sinew::sync::channel::bounded(1);
/// sinew::spawn(move || (1..=3).for_each(|number| sender.send(number).unwrap()));
/// let mut sum = 0;
/// for number in &receiver {
///     sum += number;
/// }
/// assert_eq!(sum, 6);
/// ```
#[derive(Debug)]
pub struct Iter<'a, T>(&'a Receiver<T>);

/// An iterator over the messages in a channel, without waiting; see [`Receiver::try_iter`].
///
/// # Examples
/// ```
/// let (sender, receiver) = sinew::sync::channel::unbounded();
/// sender.send(1).unwrap();
/// sender.send(2).unwrap();
/// let mut messages = receiver.try_iter();
/// assert_eq!((messages.next(), messages.next()), (Some(1), Some(2)));
/// assert_eq!(messages.next(), None); // the channel is empty, though a sender is left
/// sender.send(3).unwrap();
/// assert_eq!(messages.next(), Some(3));
/// ```
#[derive(Debug)]
pub struct TryIter<'a, T>(&'a Receiver<T>);

/// An iterator that owns its [`Receiver`], and waits for the messages of the channel.
///
/// # Examples
/// ```
/// let (sender, receiver) = sinew::sync::channel::unbounded();
/// let fiber = sinew::spawn(move || receiver.into_iter().map(|n: u32| n * n).collect::<Vec<_>>());
/// (1..=3).for_each(|number| sender.send(number).unwrap());
/// drop(sender);
/// assert_eq!(fiber.join().unwrap(), [1, 4, 9]);
/// ```
#[derive(Debug)]
pub struct IntoIter<T>(Receiver<T>);

impl<T> Iterator for Iter<'_, T> {
    type Item = T;
    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;
    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

#[cfg(all(test, sinew_loom))]
mod loom;
