//! What the two ends of a channel share.
//!
//! # Protocol
//!
//! A queue of messages, a list of senders that wait for room, and a list of receivers that wait for
//! messages, under one lock. Messages are handed over: a sender that finds a receiver waiting puts
//! its message into that one's hands, and a receiver that makes room moves the message of the first
//! sender that waits into the queue, or takes it. So senders wait only while the queue is full and
//! receivers only while it is empty, no message is overtaken, and whoever was woken has nothing left
//! to do.
//!
//! `park::list` says how a wait is granted and left. One that is cancelled or times out has neither
//! sent nor received: its message is still in its hands.
//!
//! When all senders or all receivers are gone, the channel is *disconnected*: all who wait are
//! woken with their hands as they are. Messages in the queue can still be received; if nobody can,
//! they are dropped at once.
//!
//! No memory is taken or given back under the lock, and no message dropped: either may run code of
//! the user's.

use crate::carrier::Claimed;
use crate::fiber::WaitKind;
use crate::park::Wait;
use crate::park::list::{Ended, List, Node, Terms, Wakes, wait_in};
use crate::primitive::{AtomicU64, AtomicUsize, Cell, Ordering, SpinLock};
use core::pin::Pin;
use std::collections::VecDeque;

/// What a waiter holds in its hands: the message of a sender, or room for that of a receiver.
pub(super) type Hands<T> = Cell<Option<T>>;

/// The capacity of a channel that nobody limits.
pub(super) const UNBOUNDED: usize = usize::MAX;

/// Messages that a bounded channel has room for from the beginning, at most.
const AT_ONCE: usize = 1024;

/// What is noted: one change; below that a number of messages.
const CHANGE: u64 = 1 << 40;
/// Or, of a channel without room: somebody waits to send, to receive.
const SENDING: u64 = 1;
const RECEIVING: u64 = 1 << 1;

/// What both ends of a channel have.
pub(super) struct Core<T> {
    state: SpinLock<State<T>>,
    /// For a look without the lock: how often something has changed, and in the lower bits how many
    /// messages there are, or, where there never are any, who waits.
    noted: AtomicU64,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    capacity: usize,
}

pub(super) struct State<T> {
    queue: VecDeque<T>,
    sending: List<Hands<T>>,
    receiving: List<Hands<T>>,
    disconnected: bool,
}

// SAFETY: messages go from thread to thread, under the lock. Lists hold pointers only.
unsafe impl<T: Send> Send for Core<T> {}
// SAFETY: the same.
unsafe impl<T: Send> Sync for Core<T> {}

/// Why nothing was sent or received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The queue is full, or empty.
    NotNow,
    TimedOut,
    Disconnected,
}

/// What came of a try.
pub(super) enum Try<T> {
    /// It is done, and somebody may have to be woken.
    Done(T, Option<Claimed>),
    /// It has to wait.
    Later,
    /// The queue may grow, but has no room.
    Grow,
    Disconnected,
}

impl<T> State<T> {
    /// Adds a message, if there is one, to a queue that has room for it.
    #[inline(always)]
    fn push(&mut self, message: Option<T>) {
        debug_assert!(message.is_none() || self.queue.len() < self.queue.capacity());
        if let Some(message) = message {
            self.queue.push_back(message);
        }
    }

    /// Sends the message in `hands`, if that is possible at once.
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

    /// Receives a message, if there is one.
    #[inline(always)]
    fn receive(&mut self) -> Try<T> {
        let message = self.queue.pop_front();
        // There is room now; or there never is any, and a sender waits with its message.
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

/// What came of entering one of several waits.
pub(super) enum Entered<T> {
    /// It waits.
    Linked,
    /// It was done at once, and the whole wait ended for it.
    Done(T, Option<Claimed>),
    /// Somebody has ended the wait in favour of another.
    Lost(Option<Claimed>),
    /// The queue may grow, but has no room.
    Grow,
}

impl<T> State<T> {
    /// Sends for one of several waits, or links its node.
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
        // The other side first: if it turns out that we have been served elsewhere, it waits again.
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
        // SAFETY: the node is pinned, and taken out before it goes.
        unsafe { self.sending.push(node) };
        Entered::Linked
    }

    /// Receives for one of several waits, or links its node.
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
        // SAFETY: the node is pinned, and taken out before it goes.
        unsafe { self.receiving.push(node) };
        Entered::Linked
    }
}

impl<T> Core<T> {
    /// Enters one of several waits to send; true if the message was sent.
    pub(super) fn select_send(&self, wait: &Wait, node: Pin<&Node<Hands<T>>>) -> Entered<bool> {
        loop {
            match self.locked(|state| state.select_send(wait, node, self.capacity)) {
                Entered::Grow => self.grow(),
                entered => return entered,
            }
        }
    }

    /// Enters one of several waits to receive; nothing if the channel is disconnected.
    pub(super) fn select_receive(
        &self,
        wait: &Wait,
        node: Pin<&Node<Hands<T>>>,
    ) -> Entered<Option<T>> {
        self.locked(|state| state.select_receive(wait, node))
    }

    /// Leaves one of several waits to send; true if it was granted.
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

    /// Leaves one of several waits to receive; true if it was granted.
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

    /// A channel with one sender and one receiver.
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

    /// Whether receiving seems to be possible at once, by a look without the lock.
    pub(super) fn seems_receivable(&self) -> bool {
        let noted = self.noted() % CHANGE;
        let possible = if self.capacity == 0 { noted & SENDING != 0 } else { noted > 0 };
        possible || self.is_one_sided()
    }

    /// Whether sending seems to be possible at once, by a look without the lock.
    pub(super) fn seems_sendable(&self) -> bool {
        let noted = self.noted() % CHANGE;
        let possible =
            if self.capacity == 0 { noted & RECEIVING != 0 } else { noted < self.capacity as u64 };
        possible || self.is_one_sided()
    }

    /// A number that changes with everything that such a look depends on.
    pub(super) fn version(&self) -> usize {
        (self.noted() / CHANGE) as usize
    }

    fn noted(&self) -> u64 {
        // ORDERING: Acquire: who looks at several channels sees them in the order of its looks; pairs
        // with the Release in `note`.
        self.noted.load(Ordering::Acquire)
    }

    /// Notes what has changed, under the lock.
    #[inline(always)]
    fn note(&self, state: &State<T>) {
        let noted = self.noted.load(Ordering::Relaxed);
        let len = state.queue.len() as u64;
        if self.capacity == 0 {
            self.note_who_waits(state);
        } else if noted % CHANGE != len {
            // ORDERING: Release: as in `noted`.
            self.noted.store((noted & !(CHANGE - 1)).wrapping_add(CHANGE) | len, Ordering::Release);
        }
    }

    #[inline(never)]
    fn note_who_waits(&self, state: &State<T>) {
        let waits = |list: &List<Hands<T>>, mark| if list.first().is_some() { mark } else { 0 };
        let who = waits(&state.sending, SENDING) | waits(&state.receiving, RECEIVING);
        let changes = self.noted.load(Ordering::Relaxed) & !(CHANGE - 1);
        // ORDERING: Release: as in `noted`.
        self.noted.store(changes.wrapping_add(CHANGE) | who, Ordering::Release);
    }

    fn is_one_sided(&self) -> bool {
        self.senders.load(Ordering::Relaxed) == 0 || self.receivers.load(Ordering::Relaxed) == 0
    }

    pub(super) fn len(&self) -> usize {
        if self.capacity == 0 { 0 } else { (self.noted() % CHANGE) as usize }
    }

    pub(super) fn capacity(&self) -> Option<usize> {
        (self.capacity != UNBOUNDED).then_some(self.capacity)
    }

    /// Tries under the lock.
    #[inline(always)]
    fn locked<R>(&self, work: impl FnOnce(&mut State<T>) -> R) -> R {
        let mut state = self.state.lock();
        let result = work(&mut state);
        self.note(&state);
        result
    }

    /// Makes the queue larger.
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

    /// Sends, until the deadline; without one, only if that is possible at once.
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
        sent.map_err(|failure| (failure, hands.take().expect("what was not sent is here")))
    }

    #[inline(never)]
    #[track_caller]
    fn wait_to_send(&self, hands: &Hands<T>, deadline: u64) -> Result<(), Failure> {
        let ended = wait_in(
            &self.state,
            Terms::new(WaitKind::Send, self, deadline),
            hands,
            |state, node| self.enter_sending(state, node),
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

    /// Sends what a node has in its hands, or links it.
    #[inline(always)]
    pub(super) fn enter_sending(
        &self,
        state: &mut State<T>,
        node: Pin<&Node<Hands<T>>>,
    ) -> Option<Try<()>> {
        match state.send(node.get_ref().payload(), self.capacity) {
            Try::Later => {
                // SAFETY: the node is pinned, and taken out before it goes.
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

    /// Receives, until the deadline; without one, only if that is possible at once.
    #[inline]
    #[track_caller]
    pub(super) fn receive(&self, deadline: Option<u64>) -> Result<T, Failure> {
        // If there seems to be nothing, the wait is begun before the lock is taken.
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
            &self.state,
            Terms::new(WaitKind::Receive, self, deadline),
            &hands,
            |state, node| self.enter_receiving(state, node),
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

    /// Receives, or links the node.
    #[inline(always)]
    pub(super) fn enter_receiving(
        &self,
        state: &mut State<T>,
        node: Pin<&Node<Hands<T>>>,
    ) -> Option<Try<T>> {
        match state.receive() {
            Try::Later | Try::Grow => {
                // SAFETY: the node is pinned, and taken out before it goes.
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

    /// Wakes everybody: nothing will come any more, or nobody will take it.
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
        // ORDERING: AcqRel: the last one disconnects after all that the others have sent.
        if self.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.disconnect(false);
        }
    }

    pub(super) fn remove_receiver(&self) {
        // ORDERING: as in `remove_sender`.
        if self.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.disconnect(true);
        }
    }
}

fn count(handles: &AtomicUsize) {
    if handles.fetch_add(1, Ordering::Relaxed) > usize::MAX / 2 {
        // As `Arc` does: only handles that are forgotten in a loop count so far.
        std::process::abort();
    }
}
