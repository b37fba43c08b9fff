//! The state that the two ends of a channel share.
//!
//! # Protocol
//!
//! One lock guards a queue of messages, a list of senders that wait for room, and a list of
//! receivers that wait for messages. Each waiter has *hands*, a cell for one message. A sender that
//! finds a waiting receiver puts its message into that receiver's hands. A receiver that makes room
//! in the queue moves the message of the first waiting sender there; if the queue is empty, the
//! receiver takes the message itself. Hence:
//!
//! - Senders wait only while the queue is full, and receivers only while it is empty.
//! - Messages stay in order.
//! - A waiter that was granted its wait has nothing left to do when it runs.
//!
//! `park::list` describes how a waiter is granted its wait and how it leaves. A waiter that is
//! cancelled or times out has neither sent nor received: a sender still has its message in its
//! hands. A `select` may wake a waiter without a grant, if another arm of that `select` was faster;
//! the waiter then waits again.
//!
//! When all senders or all receivers are gone, the channel is *disconnected*. The last handle of
//! that side grants all waiters and leaves their hands as they are. A granted sender whose hands
//! are full, or a granted receiver whose hands are empty, returns an error. Receivers can still
//! receive the messages in the queue. If no receiver is left, the last receiver drops the messages.
//!
//! Nothing is allocated, freed or dropped under the lock, because allocators and destructors may be
//! the user's code.
//!
//! Used by `bounded` and `unbounded` in `channel`, by `oneshot`, and by the arms in `arm`.

use crate::carrier::Claimed;
use crate::fiber::WaitKind;
use crate::park::Wait;
use crate::park::list::{Begin, Ended, List, Node, Terms, Wakes, wait_in};
use crate::primitive::{AtomicU64, AtomicUsize, Cell, Ordering, SpinLock};
use core::pin::Pin;
use std::collections::VecDeque;

/// A waiter's hands: the message of a waiting sender, or the place where a waiting receiver gets
/// its message.
pub(super) type Hands<T> = Cell<Option<T>>;

/// The capacity of an unbounded channel.
pub(super) const UNBOUNDED: usize = usize::MAX;

/// The most messages for which a bounded channel allocates room when it is created.
const AT_ONCE: usize = 1024;

/// The unit of the upper bits of `noted`, which count changes. The lower bits hold the number of
/// messages, or the two marks below.
const CHANGE: u64 = 1 << 40;
/// Marks in the lower bits of `noted` if the capacity is 0: a sender waits, a receiver waits.
const SENDING: u64 = 1;
const RECEIVING: u64 = 1 << 1;

/// The state of a channel, in an `Arc` that both ends have.
pub(super) struct Core<T> {
    state: SpinLock<State<T>>,
    /// A summary of the state, for callers that look without the lock. The upper bits count
    /// changes. The lower bits hold the number of messages; if the capacity is 0, they tell which
    /// kinds of waiters there are.
    noted: AtomicU64,
    /// How many senders the channel has.
    senders: AtomicUsize,
    /// How many receivers the channel has.
    receivers: AtomicUsize,
    capacity: usize,
}

/// The part of the state that the lock guards.
pub(super) struct State<T> {
    queue: VecDeque<T>,
    /// Senders that wait for room.
    sending: List<Hands<T>>,
    /// Receivers that wait for messages.
    receiving: List<Hands<T>>,
    /// Whether all senders or all receivers are gone.
    disconnected: bool,
}

// SAFETY: messages move between threads, which `T: Send` allows. The pointers in the lists are used
// under the lock only.
unsafe impl<T: Send> Send for Core<T> {}
// SAFETY: one thread at a time accesses a message: under the lock, or as the waiter that was
// granted it. So `T: Send` suffices.
unsafe impl<T: Send> Sync for Core<T> {}

/// Why a message was not sent or received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The queue is full (for a sender) or empty (for a receiver), and the caller does not wait.
    NotNow,
    TimedOut,
    Disconnected,
}

/// The result of an attempt to send or receive.
pub(super) enum Try<T> {
    /// The attempt succeeded. The claimed waiter, if there is one, has to be resumed.
    Done(T, Option<Claimed>),
    /// The caller has to wait.
    Later,
    /// The channel may hold one more message, but the queue has to grow for it.
    Grow,
    Disconnected,
}

impl<T> State<T> {
    /// Adds a message, if there is one, to a queue that has memory for it.
    #[inline(always)]
    fn push(&mut self, message: Option<T>) {
        debug_assert!(message.is_none() || self.queue.len() < self.queue.capacity());
        if let Some(message) = message {
            self.queue.push_back(message);
        }
    }

    /// Sends the message in `hands`, if that is possible without waiting.
    #[inline(always)]
    fn send(&mut self, hands: &Hands<T>, capacity: usize) -> Try<()> {
        if self.disconnected {
            return Try::Disconnected;
        }
        if let Some((claimed, ())) = self.receiving.grant_one(|theirs| theirs.set(hands.take())) {
            return Try::Done((), Some(claimed));
        }
        if self.queue.len() >= capacity {
            return Try::Later;
        }
        if self.queue.len() == self.queue.capacity() {
            return Try::Grow;
        }
        self.push(hands.take());
        Try::Done((), None)
    }

    /// Receives a message, if that is possible without waiting.
    #[inline(always)]
    fn receive(&mut self) -> Try<T> {
        let message = self.queue.pop_front();
        // Taking a message out makes room for the message of the first waiting sender. If the queue
        // was empty, the capacity may be 0, and a waiting sender hands its message to the caller.
        let (claimed, sent) = match self.sending.grant_one(Cell::take) {
            Some((claimed, sent)) => (Some(claimed), sent),
            None => (None, None),
        };
        match message {
            Some(message) => {
                self.push(sent);
                Try::Done(message, claimed)
            }
            None => match sent {
                Some(message) => Try::Done(message, claimed),
                None if self.disconnected => Try::Disconnected,
                None => Try::Later,
            },
        }
    }
}

/// The result of entering one arm of a `select`.
pub(super) enum Entered<T> {
    /// The node is linked: the arm waits.
    Linked,
    /// The operation was done at once, and this arm ended the wait of the `select`.
    Done(T, Option<Claimed>),
    /// The wait of the `select` had ended before: for another arm, or by a cancellation.
    Lost(Option<Claimed>),
    /// The channel may hold one more message, but the queue has to grow for it.
    Grow,
}

impl<T> State<T> {
    /// Sends the message of an arm of a `select`, or links its node.
    fn select_send(
        &mut self,
        wait: &Wait,
        node: Pin<&Node<Hands<T>>>,
        capacity: usize,
    ) -> Entered<bool> {
        let hands = node.get_ref().payload();
        if self.disconnected {
            return if wait.claim_for_itself() {
                Entered::Done(false, None)
            } else {
                Entered::Lost(None)
            };
        }
        // Claim the receiver first. If the wait of this `select` has ended in the meantime, the
        // caller wakes the receiver without a message, and the receiver waits again.
        if let Some((receiver, claimed)) = self.receiving.claim_another(wait) {
            if !wait.claim_for_itself() {
                return Entered::Lost(Some(claimed));
            }
            receiver.payload().set(hands.take());
            receiver.grant();
            return Entered::Done(true, Some(claimed));
        }
        if self.queue.len() < capacity {
            if self.queue.len() == self.queue.capacity() {
                return Entered::Grow;
            }
            if !wait.claim_for_itself() {
                return Entered::Lost(None);
            }
            self.push(hands.take());
            return Entered::Done(true, None);
        }
        // SAFETY: the node is pinned, and `leave_sending` unlinks it before the arm drops it.
        unsafe { self.sending.push(node) };
        Entered::Linked
    }

    /// Receives for an arm of a `select`, or links its node.
    fn select_receive(&mut self, wait: &Wait, node: Pin<&Node<Hands<T>>>) -> Entered<Option<T>> {
        if !self.queue.is_empty() {
            if !wait.claim_for_itself() {
                return Entered::Lost(None);
            }
            return match self.receive() {
                Try::Done(message, claimed) => Entered::Done(Some(message), claimed),
                _ => Entered::Done(None, None),
            };
        }
        if let Some((sender, claimed)) = self.sending.claim_another(wait) {
            if !wait.claim_for_itself() {
                return Entered::Lost(Some(claimed));
            }
            let message = sender.payload().take();
            sender.grant();
            return Entered::Done(message, Some(claimed));
        }
        if self.disconnected {
            return if wait.claim_for_itself() {
                Entered::Done(None, None)
            } else {
                Entered::Lost(None)
            };
        }
        // SAFETY: the node is pinned, and `leave_receiving` unlinks it before the arm drops it.
        unsafe { self.receiving.push(node) };
        Entered::Linked
    }
}

impl<T> Core<T> {
    /// Enters a sending arm of a `select`. `Done(false)` means that the channel is disconnected.
    pub(super) fn select_send(&self, wait: &Wait, node: Pin<&Node<Hands<T>>>) -> Entered<bool> {
        loop {
            match self.locked(|state| state.select_send(wait, node, self.capacity)) {
                Entered::Grow => self.grow(),
                entered => return entered,
            }
        }
    }

    /// Enters a receiving arm of a `select`. `Done(None)` means that the channel is disconnected.
    pub(super) fn select_receive(
        &self,
        wait: &Wait,
        node: Pin<&Node<Hands<T>>>,
    ) -> Entered<Option<T>> {
        self.locked(|state| state.select_receive(wait, node))
    }

    /// Takes a sending arm of a `select` out of its list. Returns whether the arm was granted.
    pub(super) fn leave_sending(&self, node: &Node<Hands<T>>) -> bool {
        if node.is_granted() {
            return true;
        }
        let mut state = self.state.lock();
        if node.is_linked() {
            state.sending.remove(node);
            self.note(&state);
        }
        node.is_granted()
    }

    /// Takes a receiving arm of a `select` out of its list. Returns whether the arm was granted.
    pub(super) fn leave_receiving(&self, node: &Node<Hands<T>>) -> bool {
        if node.is_granted() {
            return true;
        }
        let mut state = self.state.lock();
        if node.is_linked() {
            state.receiving.remove(node);
            self.note(&state);
        }
        node.is_granted()
    }

    /// Creates the state of a channel with one sender and one receiver.
    pub(super) fn new(capacity: usize) -> Core<T> {
        let room = if capacity == UNBOUNDED { 0 } else { capacity.min(AT_ONCE) };
        Core {
            state: SpinLock::new(State {
                queue: VecDeque::with_capacity(room),
                sending: List::new(),
                receiving: List::new(),
                disconnected: false,
            }),
            noted: AtomicU64::new(0),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            capacity,
        }
    }

    /// Returns whether a receive seems possible at once, by a look without the lock.
    pub(super) fn seems_receivable(&self) -> bool {
        let noted = self.noted() % CHANGE;
        let possible = if self.capacity == 0 { noted & SENDING != 0 } else { noted > 0 };
        possible || self.is_one_sided()
    }

    /// Returns whether a send seems possible at once, by a look without the lock.
    pub(super) fn seems_sendable(&self) -> bool {
        let noted = self.noted() % CHANGE;
        let possible =
            if self.capacity == 0 { noted & RECEIVING != 0 } else { noted < self.capacity as u64 };
        possible || self.is_one_sided()
    }

    /// Returns a number that changes whenever the lower bits of `noted` change.
    pub(super) fn version(&self) -> usize {
        (self.noted() / CHANGE) as usize
    }

    fn noted(&self) -> u64 {
        // ORDERING: Acquire orders the looks of one caller at several channels; pairs with the
        // Release in `note` and `note_who_waits`.
        self.noted.load(Ordering::Acquire)
    }

    /// Updates `noted` after a change. The caller holds the lock.
    #[inline(always)]
    fn note(&self, state: &State<T>) {
        let noted = self.noted.load(Ordering::Relaxed);
        let len = state.queue.len() as u64;
        if self.capacity == 0 {
            self.note_who_waits(state);
        } else if noted % CHANGE != len {
            // ORDERING: Release pairs with the Acquire in `noted`.
            self.noted.store((noted & !(CHANGE - 1)).wrapping_add(CHANGE) | len, Ordering::Release);
        }
    }

    #[inline(never)]
    fn note_who_waits(&self, state: &State<T>) {
        let waits = |list: &List<Hands<T>>, mark| if list.first().is_some() { mark } else { 0 };
        let who = waits(&state.sending, SENDING) | waits(&state.receiving, RECEIVING);
        let changes = self.noted.load(Ordering::Relaxed) & !(CHANGE - 1);
        // ORDERING: Release pairs with the Acquire in `noted`.
        self.noted.store(changes.wrapping_add(CHANGE) | who, Ordering::Release);
    }

    /// Returns whether all senders or all receivers are gone, by a look without the lock.
    fn is_one_sided(&self) -> bool {
        self.senders.load(Ordering::Relaxed) == 0 || self.receivers.load(Ordering::Relaxed) == 0
    }

    pub(super) fn len(&self) -> usize {
        if self.capacity == 0 { 0 } else { (self.noted() % CHANGE) as usize }
    }

    pub(super) fn capacity(&self) -> Option<usize> {
        (self.capacity != UNBOUNDED).then_some(self.capacity)
    }

    /// Runs `work` under the lock, and updates `noted`.
    #[inline(always)]
    fn locked<R>(&self, work: impl FnOnce(&mut State<T>) -> R) -> R {
        let mut state = self.state.lock();
        let result = work(&mut state);
        self.note(&state);
        result
    }

    /// Makes the queue larger. Allocates and frees outside of the lock.
    #[cold]
    fn grow(&self) {
        let len = self.len();
        let wanted = (2 * len).max(16);
        let mut larger = VecDeque::with_capacity(wanted);
        let smaller = self.locked(|state| {
            if state.queue.capacity() < wanted {
                larger.append(&mut state.queue);
                core::mem::swap(&mut state.queue, &mut larger);
            }
            larger
        });
        drop(smaller);
    }

    /// Sends, waiting until `deadline`. With `None`, sends only if that is possible at once.
    #[inline]
    #[track_caller]
    pub(super) fn send(&self, message: T, deadline: Option<u64>) -> Result<(), (Failure, T)> {
        let hands = Cell::new(Some(message));
        let sent = loop {
            match self.locked(|state| state.send(&hands, self.capacity)) {
                Try::Done((), claimed) => {
                    if let Some(claimed) = claimed {
                        claimed.resume();
                    }
                    return Ok(());
                }
                Try::Grow => self.grow(),
                Try::Disconnected => break Err(Failure::Disconnected),
                Try::Later => match deadline {
                    None => break Err(Failure::NotNow),
                    Some(deadline) => match self.wait_to_send(&hands, deadline) {
                        Err(Failure::NotNow) => self.grow(),
                        waited => break waited,
                    },
                },
            }
        };
        sent.map_err(|failure| (failure, hands.take().expect("an unsent message is in the hands")))
    }

    #[inline(never)]
    #[track_caller]
    fn wait_to_send(&self, hands: &Hands<T>, deadline: u64) -> Result<(), Failure> {
        let ended = wait_in(
            Begin::Anew,
            &self.state,
            Terms::new(WaitKind::Send, self, deadline),
            hands,
            |node| self.enter_sending(&mut self.state.lock(), node),
            |state, node| {
                if let Some(node) = node {
                    state.sending.remove(node);
                    self.note(state);
                }
                Wakes::none()
            },
        );
        match ended {
            Ended::AtOnce(Try::Done((), claimed)) => {
                if let Some(claimed) = claimed {
                    claimed.resume();
                }
                Ok(())
            }
            Ended::AtOnce(Try::Grow) => Err(Failure::NotNow),
            Ended::AtOnce(_) => Err(Failure::Disconnected),
            Ended::TimedOut => Err(Failure::TimedOut),
            Ended::Granted => match hands.take() {
                None => Ok(()),
                left => {
                    hands.set(left);
                    Err(Failure::Disconnected)
                }
            },
        }
    }

    /// Sends the message in the hands of a node, or links the node. The caller holds the lock.
    #[inline(always)]
    pub(super) fn enter_sending(
        &self,
        state: &mut State<T>,
        node: Pin<&Node<Hands<T>>>,
    ) -> Option<Try<()>> {
        match state.send(node.get_ref().payload(), self.capacity) {
            Try::Later => {
                // SAFETY: `wait_in` pins the node, and unlinks it before its frame ends.
                unsafe { state.sending.push(node) };
                self.note(state);
                None
            }
            done => {
                self.note(state);
                Some(done)
            }
        }
    }

    /// Receives, waiting until `deadline`. With `None`, receives only if that is possible at once.
    #[inline]
    #[track_caller]
    pub(super) fn receive(&self, deadline: Option<u64>) -> Result<T, Failure> {
        // If the queue seems empty, begin the wait at once: it takes the lock only once, to look
        // for a message and to link its node.
        if deadline.is_none() || self.len() > 0 {
            match self.locked(State::receive) {
                Try::Done(message, claimed) => {
                    if let Some(claimed) = claimed {
                        claimed.resume();
                    }
                    return Ok(message);
                }
                Try::Disconnected => return Err(Failure::Disconnected),
                _ => {}
            }
        }
        match deadline {
            None => Err(Failure::NotNow),
            Some(deadline) => self.wait_to_receive(deadline),
        }
    }

    #[inline(always)]
    #[track_caller]
    fn wait_to_receive(&self, deadline: u64) -> Result<T, Failure> {
        let hands = Cell::new(None);
        let ended = wait_in(
            Begin::Anew,
            &self.state,
            Terms::new(WaitKind::Receive, self, deadline),
            &hands,
            |node| self.enter_receiving(&mut self.state.lock(), node),
            |state, node| {
                if let Some(node) = node {
                    state.receiving.remove(node);
                    self.note(state);
                }
                Wakes::none()
            },
        );
        match ended {
            Ended::AtOnce(Try::Done(message, claimed)) => {
                if let Some(claimed) = claimed {
                    claimed.resume();
                }
                Ok(message)
            }
            Ended::AtOnce(_) => Err(Failure::Disconnected),
            Ended::TimedOut => Err(Failure::TimedOut),
            Ended::Granted => hands.take().ok_or(Failure::Disconnected),
        }
    }

    /// Receives for a node, or links the node. The caller holds the lock.
    #[inline(always)]
    pub(super) fn enter_receiving(
        &self,
        state: &mut State<T>,
        node: Pin<&Node<Hands<T>>>,
    ) -> Option<Try<T>> {
        match state.receive() {
            Try::Later | Try::Grow => {
                // SAFETY: `wait_in` pins the node, and unlinks it before its frame ends.
                unsafe { state.receiving.push(node) };
                self.note(state);
                None
            }
            done => {
                self.note(state);
                Some(done)
            }
        }
    }

    pub(super) fn is_disconnected(&self) -> bool {
        self.state.lock().disconnected
    }

    /// Marks the channel as disconnected, and wakes all waiters. Drops the messages in the queue if
    /// `drop_messages` is true, because no receiver is left.
    #[cold]
    fn disconnect(&self, drop_messages: bool) {
        let mut dropped = VecDeque::new();
        let mut drop_messages = drop_messages;
        loop {
            let mut wakes = Wakes::none();
            self.locked(|state| {
                state.disconnected = true;
                if core::mem::take(&mut drop_messages) {
                    core::mem::swap(&mut dropped, &mut state.queue);
                }
                for list in [&mut state.sending, &mut state.receiving] {
                    while !wakes.is_full() {
                        let Some((claimed, ())) = list.grant_one(|_| ()) else { break };
                        wakes.push(claimed);
                    }
                }
            });
            if !wakes.resume() {
                break;
            }
        }
        drop(dropped);
    }

    pub(super) fn add_sender(&self) {
        count(&self.senders);
    }

    pub(super) fn add_receiver(&self) {
        count(&self.receivers);
    }

    pub(super) fn remove_sender(&self) {
        // ORDERING: AcqRel pairs with the `fetch_sub` of the other senders: all their messages are
        // in the queue before the last sender disconnects.
        if self.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.disconnect(false);
        }
    }

    pub(super) fn remove_receiver(&self) {
        // ORDERING: AcqRel pairs with the `fetch_sub` of the other receivers, as in
        // `remove_sender`.
        if self.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.disconnect(true);
        }
    }
}

fn count(handles: &AtomicUsize) {
    if handles.fetch_add(1, Ordering::Relaxed) > usize::MAX / 2 {
        // `Arc` aborts here as well. Only a loop that forgets handles gets this far.
        std::process::abort();
    }
}
