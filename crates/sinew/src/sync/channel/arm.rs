//! Channel operations as arms of `select!`.

use super::core::{Core, Entered as CoreEntered, Failure, Hands};
use super::{Receiver, RecvError, SendError, Sender};
use crate::park::list::Node;
use crate::primitive::Cell;
use crate::sync::select::sealed::{self, Entered, Joint, Left};
use crate::sync::select::{Arm, resume};
use core::fmt;
use core::pin::Pin;

/// A receive as an arm of [`select!`](crate::select); see [`Receiver::arm`].
///
/// # Examples
/// ```
/// use sinew::sync::channel::{self, RecvArm};
/// use sinew::sync::{Patience, select};
///
/// let channels: Vec<_> = (0..3).map(|_| channel::unbounded()).collect();
/// channels[2].0.send(7).unwrap();
/// let receivers = channels.iter().map(|(_, receiver)| receiver);
/// let mut arms: Vec<RecvArm<'_, u32>> = receivers.map(|receiver| receiver.arm()).collect();
/// let mut borrowed: Vec<_> = arms.iter_mut().map(|arm| arm as _).collect();
/// assert_eq!(select(&mut borrowed, Patience::Forever), Some(2));
/// assert_eq!(arms[2].take(), Ok(7));
/// ```
pub struct RecvArm<'a, T> {
    core: &'a Core<T>,
    /// The message, after it was received and until the caller takes it.
    hands: Hands<T>,
    node: Option<Node<Hands<T>>>,
}

/// A send as an arm of [`select!`](crate::select); see [`Sender::arm`].
///
/// # Examples
/// ```
/// use sinew::sync::channel;
/// use sinew::sync::{Patience, select};
///
/// let ((full, _full), (free, received)) = (channel::bounded(0), channel::bounded(1));
/// let (mut first, mut second) = (full.arm("to the first"), free.arm("to the second"));
/// assert_eq!(select(&mut [&mut first, &mut second], Patience::Forever), Some(1));
/// assert_eq!(second.take(), Ok(()));
/// assert_eq!(received.recv(), Ok("to the second"));
/// assert_eq!(first.take().unwrap_err().0, "to the first"); // was not sent
/// ```
pub struct SendArm<'a, T> {
    core: &'a Core<T>,
    /// The message, until it is sent.
    hands: Hands<T>,
    node: Option<Node<Hands<T>>>,
}

impl<T> Receiver<T> {
    /// Returns an arm that receives a message, for [`select`](crate::sync::select).
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel;
    /// use sinew::sync::{Patience, select};
    ///
    /// let (sender, receiver) = channel::unbounded();
    /// sender.send(7).unwrap();
    /// let mut arm = receiver.arm();
    /// assert_eq!(select(&mut [&mut arm], Patience::None), Some(0));
    /// assert_eq!(arm.take(), Ok(7));
    /// ```
    pub fn arm(&self) -> RecvArm<'_, T> {
        RecvArm { core: &self.core, hands: Cell::new(None), node: None }
    }
}

impl<T> Sender<T> {
    /// Returns an arm that sends `message`, for [`select`](crate::sync::select).
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::channel;
    /// use sinew::sync::{Patience, select};
    ///
    /// let (sender, receiver) = channel::bounded(1);
    /// let mut arm = sender.arm(7);
    /// assert_eq!(select(&mut [&mut arm], Patience::None), Some(0));
    /// assert!(arm.take().is_ok());
    /// assert_eq!(receiver.recv(), Ok(7));
    /// ```
    pub fn arm(&self, message: T) -> SendArm<'_, T> {
        SendArm { core: &self.core, hands: Cell::new(Some(message)), node: None }
    }
}

impl<T> RecvArm<'_, T> {
    /// Returns the message that this arm received when it was selected.
    ///
    /// # Errors
    /// Fails if the channel is disconnected, or if this arm was not selected.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::unbounded::<u32>();
    /// drop(sender);
    /// let mut arm = receiver.arm();
    /// sinew::sync::select(&mut [&mut arm], sinew::sync::Patience::Forever);
    /// assert!(arm.take().is_err());
    /// ```
    pub fn take(&mut self) -> Result<T, RecvError> {
        self.hands.take().ok_or(RecvError)
    }
}

impl<T> SendArm<'_, T> {
    /// Returns `Ok` if this arm was selected and has sent its message. Call it once: after an error
    /// has given the message back, a second call returns `Ok`.
    ///
    /// # Errors
    /// Returns the message if all receivers are gone, or if this arm was not selected.
    ///
    /// # Examples
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::unbounded();
    /// drop(receiver);
    /// let mut arm = sender.arm(7);
    /// sinew::sync::select(&mut [&mut arm], sinew::sync::Patience::Forever);
    /// assert_eq!(arm.take().unwrap_err().0, 7);
    /// ```
    pub fn take(&mut self) -> Result<(), SendError<T>> {
        self.hands.take().map_or(Ok(()), |message| Err(SendError(message)))
    }
}

fn is_full<T>(hands: &Hands<T>) -> bool {
    let message = hands.take();
    let is_full = message.is_some();
    hands.set(message);
    is_full
}

impl<T> Arm for RecvArm<'_, T> {}
impl<T> Arm for SendArm<'_, T> {}

impl<T> sealed::Arm for RecvArm<'_, T> {
    fn attempt(&mut self) -> bool {
        if self.hands.get_mut().is_some() {
            // An earlier `select` received this message, and the caller has not taken it.
            return true;
        }
        match self.core.receive(None) {
            Ok(message) => {
                self.hands.set(Some(message));
                true
            }
            Err(failure) => failure == Failure::Disconnected,
        }
    }

    fn seems_ready(&self) -> bool {
        // An earlier `select` may have received a message that the caller has not taken.
        is_full(&self.hands) || self.core.seems_receivable()
    }

    fn version(&self) -> usize {
        self.core.version()
    }

    fn enter(&mut self, Joint(wait): Joint<'_>) -> Entered {
        let node = self.node.insert(Node::one_of_several(wait, &self.hands));
        // SAFETY: `select` does not move an arm between `enter` and `leave`, and `leave` drops the
        // node.
        let node = unsafe { Pin::new_unchecked(&*node) };
        match self.core.select_receive(wait, node) {
            CoreEntered::Linked | CoreEntered::Grow => Entered::Linked,
            CoreEntered::Done(message, claimed) => {
                self.hands.set(message);
                resume(claimed);
                Entered::Done
            }
            CoreEntered::Lost(claimed) => {
                resume(claimed);
                Entered::Lost
            }
        }
    }

    fn leave(&mut self) -> Left {
        let granted = self.node.as_ref().is_some_and(|node| self.core.leave_receiving(node));
        self.node = None;
        if granted { Left::Granted } else { Left::Nothing }
    }
}

impl<T> sealed::Arm for SendArm<'_, T> {
    fn attempt(&mut self) -> bool {
        let Some(message) = self.hands.take() else { return true };
        match self.core.send(message, None) {
            Ok(()) => true,
            Err((failure, message)) => {
                self.hands.set(Some(message));
                failure == Failure::Disconnected
            }
        }
    }

    fn seems_ready(&self) -> bool {
        // With empty hands, an earlier `select` has sent the message.
        !is_full(&self.hands) || self.core.seems_sendable()
    }

    fn version(&self) -> usize {
        self.core.version()
    }

    fn enter(&mut self, Joint(wait): Joint<'_>) -> Entered {
        let node = self.node.insert(Node::one_of_several(wait, &self.hands));
        // SAFETY: `select` does not move an arm between `enter` and `leave`, and `leave` drops the
        // node.
        let node = unsafe { Pin::new_unchecked(&*node) };
        match self.core.select_send(wait, node) {
            CoreEntered::Linked | CoreEntered::Grow => Entered::Linked,
            CoreEntered::Done(_, claimed) => {
                resume(claimed);
                Entered::Done
            }
            CoreEntered::Lost(claimed) => {
                resume(claimed);
                Entered::Lost
            }
        }
    }

    fn leave(&mut self) -> Left {
        let granted = self.node.as_ref().is_some_and(|node| self.core.leave_sending(node));
        self.node = None;
        if granted { Left::Granted } else { Left::Nothing }
    }
}

impl<T> fmt::Debug for RecvArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvArm").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SendArm<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendArm").finish_non_exhaustive()
    }
}
