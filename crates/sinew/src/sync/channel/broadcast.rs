//! A channel that delivers each message to every receiver.
//!
//! # Protocol
//!
//! A ring under a lock holds the last messages. Each message counts the receivers that have yet to
//! see it, and the last of these receivers takes the message out. Each receiver has the number of
//! the message that it wants next. If that message has left the ring, the receiver has fallen
//! behind, and continues with the oldest message in the ring.
//!
//! A receiver that finds no message waits for the next post of a futex. A sender posts after it has
//! changed the ring; the last sender also posts when it is dropped. So a receiver sees the change
//! when it looks, or the post ends its wait.
//!
//! No user code runs under the lock: each message is behind an `Arc`, so it is cloned and dropped
//! outside. The ring has all its memory from the start.
//!
//! Uses `Futex` for its waits. Next: `watch`, which waits in the same way for changes of one value.

use super::SendError;
use crate::clock;
use crate::primitive::{AtomicUsize, Ordering, SpinLock};
use crate::sync::futex::Futex;
use crate::sync::moment;
use crate::sync::select::sealed::{self, Entered, Joint, Left};
use crate::sync::select::{Arm, SignalArm};
use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// Creates a channel that holds the last `capacity` messages, each for every receiver. `send` never
/// waits. A receiver that is too slow misses messages, and learns how many.
///
/// Room for `capacity` messages is allocated at once. Receivers share a message until each has its
/// own clone, so messages that go to other threads must be `Send` and `Sync`.
///
/// # Panics
/// Panics if the capacity is 0, or more than there is memory for.
///
/// # Examples
/// ```
/// let (sender, mut first) = sinew::sync::channel::broadcast(16);
/// let mut second = sender.subscribe();
/// sender.send("news").unwrap();
/// assert_eq!(first.recv(), Ok("news"));
/// assert_eq!(second.recv(), Ok("news"));
/// ```
#[track_caller]
pub fn broadcast<T: Clone>(capacity: usize) -> (BroadcastSender<T>, BroadcastReceiver<T>) {
    assert!(capacity > 0, "a broadcast channel of capacity 0 cannot hold a message; use 1 or more");
    let mut messages = VecDeque::new();
    if let Err(error) = messages.try_reserve_exact(capacity) {
        panic!("no memory for a broadcast channel of capacity {capacity}: {error}");
    }
    let shared = Arc::new(Shared {
        ring: SpinLock::new(Ring {
            messages,
            first: 0,
            capacity,
            receivers: 1,
            disconnected: false,
        }),
        changed: Futex::new(),
        senders: AtomicUsize::new(1),
    });
    let receiver = BroadcastReceiver { shared: shared.clone(), next: 0 };
    (BroadcastSender { shared }, receiver)
}

struct Shared<T> {
    ring: SpinLock<Ring<T>>,
    /// Posted after each change that a receiver may wait for.
    changed: Futex,
    senders: AtomicUsize,
}

struct Ring<T> {
    messages: VecDeque<Message<T>>,
    /// The number of the first message in `messages`.
    first: u64,
    capacity: usize,
    receivers: usize,
    /// All senders are gone.
    disconnected: bool,
}

struct Message<T> {
    /// The message. The last receiver that sees it takes it out.
    value: Option<Arc<T>>,
    /// How many receivers have yet to see the message.
    left: usize,
}

/// The result of a receiver's look for a message by number.
enum Found<T> {
    Message(Arc<T>),
    /// This number of messages left the ring before the receiver saw them.
    Behind(u64),
    Nothing,
    Disconnected,
}

impl<T> Ring<T> {
    /// Returns the number that the next message will have.
    fn end(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    /// Adds a message. Returns the message that falls out of the ring; the caller drops it.
    fn push(&mut self, value: Arc<T>) -> Option<Message<T>> {
        let oldest = if self.messages.len() == self.capacity {
            self.first += 1;
            self.messages.pop_front()
        } else {
            None
        };
        self.messages.push_back(Message { value: Some(value), left: self.receivers });
        oldest
    }

    /// Returns the message with this number to a receiver that has not seen it.
    fn see(&mut self, number: u64) -> Found<T> {
        let Some(index) = number.checked_sub(self.first) else {
            return Found::Behind(self.first - number);
        };
        let message = usize::try_from(index).ok().and_then(|index| self.messages.get_mut(index));
        match message {
            Some(message) => {
                message.left -= 1;
                let last = message.left == 0;
                let value = if last { message.value.take() } else { message.value.clone() };
                value.map_or(Found::Nothing, Found::Message)
            }
            None if self.disconnected => Found::Disconnected,
            None => Found::Nothing,
        }
    }

    /// Returns whether a receiver that wants this message can return without waiting: with the
    /// message, or with an error.
    fn has(&self, number: u64) -> bool {
        number < self.end() || self.disconnected
    }
}

/// The sending end of a [`broadcast`] channel. Clones send to the same receivers.
///
/// # Examples
/// ```
/// let (sender, receiver) = sinew::sync::channel::broadcast(8);
/// let receivers = [receiver.clone(), receiver];
/// let fibers = receivers.map(|mut receiver| sinew::spawn(move || receiver.recv()));
/// assert_eq!(sender.send("stop"), Ok(2)); // each of two receivers gets it
/// assert_eq!(fibers.map(|fiber| fiber.join().unwrap()), [Ok("stop"), Ok("stop")]);
/// ```
pub struct BroadcastSender<T> {
    shared: Arc<Shared<T>>,
}

/// The receiving end of a [`broadcast`] channel. A clone gets the messages that this receiver has
/// yet to receive.
///
/// # Examples
/// ```
/// let (sender, mut first) = sinew::sync::channel::broadcast(8);
/// sender.send(1).unwrap();
/// let mut second = first.clone(); // has yet to receive the message
/// let mut late = sender.subscribe(); // gets later messages only
/// sender.send(2).unwrap();
/// assert_eq!((first.recv(), first.recv()), (Ok(1), Ok(2)));
/// assert_eq!((second.recv(), second.recv()), (Ok(1), Ok(2)));
/// assert_eq!(late.recv(), Ok(2));
/// ```
pub struct BroadcastReceiver<T> {
    shared: Arc<Shared<T>>,
    /// The number of the message that this receiver wants next.
    next: u64,
}

impl<T> UnwindSafe for BroadcastSender<T> {}
impl<T> RefUnwindSafe for BroadcastSender<T> {}
impl<T> UnwindSafe for BroadcastReceiver<T> {}
impl<T> RefUnwindSafe for BroadcastReceiver<T> {}

/// Why a receiver of a [`broadcast`] channel got no message.
///
/// # Examples
/// ```
/// use sinew::sync::channel::{self, BroadcastRecvError};
///
/// let (sender, mut receiver) = channel::broadcast(1);
/// assert_eq!(receiver.try_recv(), Err(BroadcastRecvError::Empty));
/// sender.send(1).unwrap();
/// sender.send(2).unwrap(); // the channel keeps one message, so the receiver misses the first
/// assert_eq!(receiver.recv(), Err(BroadcastRecvError::Lagged(1)));
/// assert_eq!(receiver.recv(), Ok(2));
/// drop(sender);
/// assert_eq!(receiver.recv(), Err(BroadcastRecvError::Disconnected));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BroadcastRecvError {
    /// The receiver missed this number of messages. Its next receive returns the oldest message
    /// that is left.
    Lagged(u64),
    /// The receiver has no message, or none arrived in time.
    Empty,
    /// All senders are gone, and this receiver has no message left.
    Disconnected,
}

impl fmt::Display for BroadcastRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BroadcastRecvError::Lagged(missed) => {
                write!(f, "the receiver was too slow and missed {missed} messages")
            }
            BroadcastRecvError::Empty => f.write_str("no message has arrived"),
            BroadcastRecvError::Disconnected => {
                f.write_str("receiving on an empty and disconnected channel")
            }
        }
    }
}

impl std::error::Error for BroadcastRecvError {}

impl<T> BroadcastSender<T> {
    /// Sends a message to all current receivers, and returns how many there are.
    ///
    /// # Errors
    /// Returns the message if there is no receiver.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::broadcast(1);
    /// assert_eq!(sender.send(1), Ok(1));
    /// drop(receiver);
    /// assert_eq!(sender.send(2).unwrap_err().0, 2);
    /// ```
    pub fn send(&self, message: T) -> Result<usize, SendError<T>> {
        let mut value = Some(Arc::new(message));
        let (receivers, oldest) = {
            let mut ring = self.shared.ring.lock();
            let oldest = match ring.receivers {
                0 => None,
                _ => value.take().and_then(|value| ring.push(value)),
            };
            (ring.receivers, oldest)
        };
        let result = match value.and_then(Arc::into_inner) {
            Some(message) => Err(SendError(message)),
            None => {
                self.shared.changed.post();
                Ok(receivers)
            }
        };
        // Drop the old message last: its destructor is the user's code, which may panic or wait.
        drop(oldest);
        result
    }

    /// Creates another receiver, for messages that are sent from now on.
    ///
    /// # Examples
    /// ```
    /// let (sender, _) = sinew::sync::channel::broadcast(1);
    /// let mut receiver = sender.subscribe();
    /// sender.send(7).unwrap();
    /// assert_eq!(receiver.recv(), Ok(7));
    /// ```
    pub fn subscribe(&self) -> BroadcastReceiver<T> {
        let mut ring = self.shared.ring.lock();
        ring.receivers += 1;
        BroadcastReceiver { shared: self.shared.clone(), next: ring.end() }
    }

    /// Returns the number of receivers.
    ///
    /// # Examples
    /// ```
    /// let (sender, _receiver) = sinew::sync::channel::broadcast::<u32>(1);
    /// assert_eq!(sender.receivers(), 1);
    /// ```
    pub fn receivers(&self) -> usize {
        self.shared.ring.lock().receivers
    }
}

impl<T> Clone for BroadcastSender<T> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        BroadcastSender { shared: self.shared.clone() }
    }
}

impl<T> Drop for BroadcastSender<T> {
    fn drop(&mut self) {
        // ORDERING: AcqRel pairs with the `fetch_sub` of the other senders: their messages come
        // before the end.
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.ring.lock().disconnected = true;
            self.shared.changed.post();
        }
    }
}

impl<T: Clone> BroadcastReceiver<T> {
    /// Receives the next message, waiting until it arrives.
    ///
    /// # Errors
    /// Fails if this receiver has missed messages, or if all senders are gone and no message is
    /// left.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, BroadcastRecvError};
    ///
    /// let (sender, mut receiver) = channel::broadcast(2);
    /// for number in 0..5 {
    ///     sender.send(number).unwrap();
    /// }
    /// drop(sender);
    /// assert_eq!(receiver.recv(), Err(BroadcastRecvError::Lagged(3)));
    /// assert_eq!(receiver.recv(), Ok(3));
    /// assert_eq!(receiver.recv(), Ok(4));
    /// assert_eq!(receiver.recv(), Err(BroadcastRecvError::Disconnected));
    /// ```
    #[track_caller]
    pub fn recv(&mut self) -> Result<T, BroadcastRecvError> {
        self.receive(clock::NEVER)
    }

    /// Receives the next message if it has arrived, without waiting.
    ///
    /// # Errors
    /// Fails if no message has arrived, if this receiver has missed messages, or if all senders are
    /// gone and no message is left.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, BroadcastRecvError};
    ///
    /// let (_sender, mut receiver) = channel::broadcast::<u32>(1);
    /// assert_eq!(receiver.try_recv(), Err(BroadcastRecvError::Empty));
    /// ```
    pub fn try_recv(&mut self) -> Result<T, BroadcastRecvError> {
        let found = self.shared.ring.lock().see(self.next);
        match found {
            Found::Message(message) => {
                self.next += 1;
                Ok(Arc::unwrap_or_clone(message))
            }
            Found::Behind(missed) => {
                self.next += missed;
                Err(BroadcastRecvError::Lagged(missed))
            }
            Found::Nothing => Err(BroadcastRecvError::Empty),
            Found::Disconnected => Err(BroadcastRecvError::Disconnected),
        }
    }

    /// Receives the next message, waiting at most `timeout`.
    ///
    /// # Errors
    /// Fails as [`recv`](Self::recv) does, and with `Empty` if no message arrived in time.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, BroadcastRecvError};
    /// use std::time::Duration;
    ///
    /// let (_sender, mut receiver) = channel::broadcast::<u32>(1);
    /// let none = receiver.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(none, Err(BroadcastRecvError::Empty));
    /// ```
    #[track_caller]
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<T, BroadcastRecvError> {
        self.receive(moment(timeout))
    }

    #[track_caller]
    fn receive(&mut self, deadline: u64) -> Result<T, BroadcastRecvError> {
        loop {
            let token = self.shared.changed.get();
            match self.try_recv() {
                Err(BroadcastRecvError::Empty) => {}
                result => return result,
            }
            if !self.shared.changed.wait_till(token + 1, deadline) {
                return self.try_recv();
            }
        }
    }

    /// Returns an iterator that waits for messages, and ends when all senders are gone. If this
    /// receiver has missed messages, the iterator yields their number as an `Err`.
    ///
    /// # Examples
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::broadcast(8);
    /// for number in 0..5 {
    ///     sender.send(number).unwrap();
    /// }
    /// drop(sender);
    /// assert_eq!(receiver.iter().map(Result::unwrap).sum::<u32>(), 10);
    /// ```
    pub fn iter(&mut self) -> impl Iterator<Item = Result<T, u64>> {
        core::iter::from_fn(|| match self.recv() {
            Ok(message) => Some(Ok(message)),
            Err(BroadcastRecvError::Lagged(missed)) => Some(Err(missed)),
            Err(_) => None,
        })
    }

    /// Returns an arm that receives a message, for [`select`](crate::sync::select).
    ///
    /// # Examples
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::broadcast(1);
    /// sender.send(7).unwrap();
    /// sinew::select! {
    ///     recv(receiver) -> message => assert_eq!(message, Ok(7)),
    /// }
    /// ```
    pub fn arm(&mut self) -> BroadcastArm<'_, T> {
        let arm = SignalArm::new(&self.shared.changed);
        BroadcastArm { receiver: self, arm }
    }
}

impl<T> BroadcastReceiver<T> {
    /// Returns the number of messages that this receiver can receive at once.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::broadcast(2);
    /// sender.send(7).unwrap();
    /// assert_eq!(receiver.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        let ring = self.shared.ring.lock();
        ring.end().saturating_sub(self.next.max(ring.first)) as usize
    }

    /// Returns whether there is no message for this receiver.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::sync::channel::broadcast::<u32>(2).1.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for BroadcastReceiver<T> {
    fn clone(&self) -> Self {
        let mut ring = self.shared.ring.lock();
        ring.receivers += 1;
        let seen = self.next.saturating_sub(ring.first) as usize;
        for message in ring.messages.iter_mut().skip(seen) {
            message.left += 1;
        }
        BroadcastReceiver { shared: self.shared.clone(), next: self.next }
    }
}

impl<T> Drop for BroadcastReceiver<T> {
    fn drop(&mut self) {
        /// Continues with the remaining messages if the destructor of one panics.
        struct Remaining<'a, T>(&'a mut BroadcastReceiver<T>, bool);
        impl<T> Drop for Remaining<'_, T> {
            fn drop(&mut self) {
                while self.1 {
                    self.1 = self.0.pass_over();
                }
            }
        }
        let mut remaining = Remaining(self, true);
        while remaining.1 {
            remaining.1 = remaining.0.pass_over();
        }
    }
}

impl<T> BroadcastReceiver<T> {
    /// Skips a message. If none is left, removes this receiver from the ring and returns false.
    fn pass_over(&mut self) -> bool {
        // A message in `found` is dropped at the end of this function, without the lock: its
        // destructor is the user's code.
        let found = {
            let mut ring = self.shared.ring.lock();
            if ring.end() <= self.next {
                ring.receivers -= 1;
                return false;
            }
            ring.see(self.next)
        };
        self.next += if let Found::Behind(missed) = found { missed } else { 1 };
        true
    }
}

/// A receive from a [`broadcast`] channel as an arm of [`select!`](crate::select); see
/// [`BroadcastReceiver::arm`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let (sender, mut news) = sinew::sync::channel::broadcast(8);
/// sinew::spawn(move || sender.send("it rains"));
/// let heard = sinew::select! {
///     recv(news) -> message => message,
///     after(Duration::from_secs(60)) => panic!("no news"),
/// };
/// assert_eq!(heard, Ok("it rains"));
/// ```
pub struct BroadcastArm<'a, T> {
    receiver: &'a mut BroadcastReceiver<T>,
    arm: SignalArm,
}

impl<T: Clone> BroadcastArm<'_, T> {
    /// Receives the message for which this arm was selected.
    ///
    /// # Errors
    /// Fails as [`try_recv`](BroadcastReceiver::try_recv) does.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel::{self, BroadcastRecvError};
    ///
    /// let (_sender, mut receiver) = channel::broadcast::<u32>(1);
    /// assert_eq!(receiver.arm().take(), Err(BroadcastRecvError::Empty)); // was not selected
    /// ```
    pub fn take(&mut self) -> Result<T, BroadcastRecvError> {
        self.receiver.try_recv()
    }
}

impl<T> BroadcastArm<'_, T> {
    fn is_ready(&self) -> bool {
        self.receiver.shared.ring.lock().has(self.receiver.next)
    }
}

impl<T> Arm for BroadcastArm<'_, T> {}

impl<T> sealed::Arm for BroadcastArm<'_, T> {
    fn attempt(&mut self) -> bool {
        self.is_ready()
    }

    fn seems_ready(&self) -> bool {
        self.is_ready()
    }

    fn enter(&mut self, wait: Joint<'_>) -> Entered {
        let shared = &self.receiver.shared;
        let ready = || shared.ring.lock().has(self.receiver.next);
        self.arm.enter(wait, &shared.changed, ready)
    }

    fn leave(&mut self) -> Left {
        self.arm.leave();
        if self.is_ready() { Left::Ready } else { Left::Nothing }
    }
}

impl<T> fmt::Debug for BroadcastArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastArm").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for BroadcastSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastSender").field("receivers", &self.receivers()).finish()
    }
}

impl<T> fmt::Debug for BroadcastReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastReceiver").field("len", &self.len()).finish()
    }
}
