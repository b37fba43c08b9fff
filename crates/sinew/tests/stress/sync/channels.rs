//! Messages: each is received once or given back, and messages of one sender keep their order.

use super::bout::{Bout, Shelf, Worker};
use sinew::sync::channel::{
    self, Receiver, RecvTimeoutError, SendTimeoutError, Sender, TryRecvError, TrySendError,
};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Counts all messages of a bout.
#[derive(Default)]
pub(super) struct Ledger {
    made: AtomicU64,
    delivered: AtomicU64,
    given_back: AtomicU64,
    /// Sent, and never received.
    lost: AtomicU64,
    /// Received, although the sender got them back.
    stolen: AtomicU64,
    producers: AtomicU64,
}

/// The fate of one message. It is entered in the ledger when its last holder drops it.
struct Entry {
    ledger: Arc<Ledger>,
    sent: AtomicBool,
    received: AtomicBool,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let ledger = &*self.ledger;
        let count = match (*self.sent.get_mut(), *self.received.get_mut()) {
            (true, true) => &ledger.delivered,
            (true, false) => &ledger.lost,
            (false, true) => &ledger.stolen,
            (false, false) => &ledger.given_back,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

/// A message.
pub(super) struct Parcel {
    producer: u64,
    number: u64,
    entry: Arc<Entry>,
}

/// The part of a message that its sender keeps.
pub(super) struct Receipt(Arc<Entry>);

impl Receipt {
    /// Records that the message was sent, before any other wait.
    pub(super) fn sent(self) {
        self.0.sent.store(true, Ordering::SeqCst);
    }

    /// Whether this is the message that came back.
    pub(super) fn is_of(&self, parcel: &Parcel) -> bool {
        Arc::ptr_eq(&self.0, &parcel.entry)
    }
}

impl Ledger {
    /// Makes a new producer.
    pub(super) fn producer(self: &Arc<Ledger>) -> Producer {
        let name = self.producers.fetch_add(1, Ordering::SeqCst);
        Producer { ledger: self.clone(), name, number: 0 }
    }

    /// Checks the ledger after everything has ended. Messages that were sent may be lost only where
    /// receivers leave.
    #[track_caller]
    pub(super) fn close(&self, may_lose: bool) -> u64 {
        let get = |count: &AtomicU64| count.load(Ordering::SeqCst);
        let (made, lost) = (get(&self.made), get(&self.lost));
        let ended = get(&self.delivered) + get(&self.given_back) + lost + get(&self.stolen);
        assert_eq!(made, ended, "messages are still somewhere");
        assert_eq!(get(&self.stolen), 0, "received, though they were given back");
        assert!(may_lose || lost == 0, "{lost} of {made} messages were lost");
        lost
    }
}

/// Makes numbered messages.
pub(super) struct Producer {
    ledger: Arc<Ledger>,
    name: u64,
    number: u64,
}

impl Producer {
    pub(super) fn parcel(&mut self) -> (Parcel, Receipt) {
        self.number += 1;
        self.ledger.made.fetch_add(1, Ordering::SeqCst);
        let ledger = self.ledger.clone();
        let (sent, received) = (AtomicBool::new(false), AtomicBool::new(false));
        let entry = Arc::new(Entry { ledger, sent, received });
        let receipt = Receipt(entry.clone());
        (Parcel { producer: self.name, number: self.number, entry }, receipt)
    }
}

/// Receives from one channel, and checks the order.
#[derive(Default)]
pub(super) struct Inbox {
    /// The last number of each producer.
    seen: Vec<(u64, u64)>,
}

impl Inbox {
    #[track_caller]
    pub(super) fn accept(&mut self, parcel: Parcel) {
        assert!(!parcel.entry.received.swap(true, Ordering::SeqCst), "received twice");
        match self.seen.iter_mut().find(|(producer, _)| *producer == parcel.producer) {
            Some((_, last)) => {
                assert!(*last < parcel.number, "{} came after {last}", parcel.number);
                *last = parcel.number;
            }
            None => self.seen.push((parcel.producer, parcel.number)),
        }
    }
}

/// Holds a value for workers to use, until it is taken away.
pub(super) struct Desk<T>(Shelf<Option<T>>);

impl<T: Clone> Desk<T> {
    pub(super) fn new(value: T) -> Arc<Desk<T>> {
        Arc::new(Desk(Shelf::new(Some(value))))
    }

    pub(super) fn get(&self) -> Option<T> {
        self.0.with(|value| value.clone())
    }

    pub(super) fn clear(&self) {
        let value = self.0.with(Option::take);
        drop(value);
    }
}

/// The result of a try.
enum Outcome {
    Done,
    Not,
    Disconnected,
}

pub(super) fn channel(bout: &mut Bout) {
    let (sender, receiver) = match bout.seed.below(6) {
        0 | 1 => channel::bounded(0),
        2 => channel::bounded(1),
        3 => channel::bounded(3),
        4 => channel::bounded(64),
        _ => channel::unbounded(),
    };
    let (senders, receivers) = (Desk::new(sender), Desk::new(receiver));
    let ledger = Arc::new(Ledger::default());
    // Receivers stay until all senders are gone, or every worker leaves when it likes.
    let stay = bout.seed.below(3) > 0;
    let begun = Arc::new(AtomicUsize::new(0));
    let (count, theirs, there) = (bout.some(), receivers.clone(), begun.clone());
    let all = count;
    bout.start("receives", count, move |worker| {
        let receiver = theirs.get();
        there.fetch_add(1, Ordering::SeqCst);
        let Some(receiver) = receiver else { return };
        let mut inbox = Inbox::default();
        let mut left = worker.steps();
        while stay || left > 0 {
            left = left.saturating_sub(1);
            if let Outcome::Disconnected = receive(worker, &receiver, &mut inbox) {
                return;
            }
            worker.did();
            worker.pause();
        }
    });
    let (count, theirs, there, books) =
        (bout.some(), senders.clone(), begun.clone(), ledger.clone());
    let all = all + count;
    let sending = bout.start("sends", count, move |worker| {
        let sender = theirs.get();
        there.fetch_add(1, Ordering::SeqCst);
        let Some(sender) = sender else { return };
        let mut producer = books.producer();
        for _ in 0..worker.steps() {
            if let Outcome::Disconnected = send(worker, &sender, &mut producer) {
                assert!(!stay, "disconnected, and receivers are there");
                return;
            }
            worker.did();
            worker.pause();
        }
    });
    if stay {
        bout.ended(sending);
        senders.clear();
        bout.all_ended();
        assert!(receivers.get().is_some_and(|receiver| receiver.is_empty()));
        receivers.clear();
    } else {
        bout.until(|| begun.load(Ordering::SeqCst) >= all);
        senders.clear();
        receivers.clear();
        bout.all_ended();
    }
    ledger.close(!stay);
}

fn send(worker: &mut Worker, sender: &Sender<Parcel>, producer: &mut Producer) -> Outcome {
    let (parcel, receipt) = producer.parcel();
    let hand = Cell::new(Some(parcel));
    let take = || hand.take().expect("sent in one way");
    let outcome = worker.attempt(
        || {
            Some(match sender.try_send(take()) {
                Ok(()) => (Outcome::Done, None),
                Err(TrySendError::Full(back)) => (Outcome::Not, Some(back)),
                Err(TrySendError::Disconnected(back)) => (Outcome::Disconnected, Some(back)),
            })
        },
        |patience| {
            Some(match sender.send_timeout(take(), patience) {
                Ok(()) => (Outcome::Done, None),
                Err(SendTimeoutError::Timeout(back)) => (Outcome::Not, Some(back)),
                Err(SendTimeoutError::Disconnected(back)) => (Outcome::Disconnected, Some(back)),
            })
        },
        || match sender.send(take()) {
            Ok(()) => (Outcome::Done, None),
            Err(error) => (Outcome::Disconnected, Some(error.0)),
        },
    );
    let Some((outcome, back)) = outcome else { return Outcome::Not };
    match back {
        Some(back) => assert!(receipt.is_of(&back), "another message came back"),
        None => receipt.sent(),
    }
    outcome
}

fn receive(worker: &mut Worker, receiver: &Receiver<Parcel>, inbox: &mut Inbox) -> Outcome {
    let received = worker.attempt(
        || match receiver.try_recv() {
            Err(TryRecvError::Empty) => None,
            other => Some(other.ok()),
        },
        |patience| match receiver.recv_timeout(patience) {
            Err(RecvTimeoutError::Timeout) => None,
            other => Some(other.ok()),
        },
        || receiver.recv().ok(),
    );
    match received {
        Some(Some(parcel)) => {
            inbox.accept(parcel);
            Outcome::Done
        }
        Some(None) => Outcome::Disconnected,
        None => Outcome::Not,
    }
}
