//! `select!`: one of several operations completes, and nothing of the others.

use super::bout::{Bout, Worker};
use super::channels::{Desk, Inbox, Ledger, Parcel, Producer};
use sinew::sync::channel::{self, BroadcastReceiver, BroadcastRecvError, WatchReceiver};
use sinew::sync::channel::{Receiver, Sender};
use sinew::sync::{Arm, CancellationToken, FiberFuture, Patience};
use std::sync::Arc;

type Senders = Vec<Sender<Parcel>>;
type Receivers = Vec<Receiver<Parcel>>;

pub(super) fn select(bout: &mut Bout) {
    let channels = 1 + bout.seed.below(3);
    let ends = (0..channels).map(|_| match bout.seed.below(4) {
        0 | 1 => channel::bounded(0),
        2 => channel::bounded(1 + bout.seed.below(4)),
        _ => channel::unbounded(),
    });
    let (senders, receivers): (Senders, Receivers) = ends.collect();
    let (senders, receivers) = (Desk::new(senders), Desk::new(receivers));
    let ledger = Arc::new(Ledger::default());

    let (count, theirs) = (bout.some(), receivers.clone());
    bout.start("receives one of several", count, move |worker| {
        let receivers = theirs.get().expect("receivers stay");
        receive_until_disconnected(worker, &receivers);
    });
    let (count, theirs, books) = (bout.some(), senders.clone(), ledger.clone());
    let sending = bout.start("sends one of several", count, move |worker| {
        let senders = theirs.get().expect("senders stay until all have sent");
        let mut producer = books.producer();
        for _ in 0..worker.steps() {
            send_one(worker, &senders, &mut producer);
            worker.did();
            worker.pause();
        }
    });
    let (count, books, from, to) =
        (bout.some(), ledger.clone(), receivers.clone(), senders.clone());
    let both = bout.start("sends or receives", count, move |worker| {
        let senders = to.get().expect("senders stay until all have sent");
        let receivers = from.get().expect("receivers stay");
        let mut producer = books.producer();
        let mut inboxes: Vec<Inbox> = receivers.iter().map(|_| Inbox::default()).collect();
        for _ in 0..worker.steps() {
            send_or_receive(worker, &senders, &receivers, &mut producer, &mut inboxes);
            worker.did();
            worker.pause();
        }
    });
    bout.ended(sending);
    bout.ended(both);
    senders.clear();
    bout.all_ended();
    receivers.clear();
    ledger.close(false);
}

/// Returns how long to wait for an arm; `None` where a timeout around it shall end the wait.
fn patience(worker: &mut Worker) -> Option<Patience> {
    match worker.below(if worker.has_timeouts() { 8 } else { 4 }) {
        0 => Some(Patience::None),
        1..=3 => Some(Patience::Forever),
        4..=6 => Some(Patience::For(worker.patience())),
        _ => None,
    }
}

fn select_of(worker: &mut Worker, arms: &mut [&mut dyn Arm]) -> Option<usize> {
    match patience(worker) {
        Some(patience) => sinew::sync::select(arms, patience),
        None => {
            let forever = || sinew::sync::select(arms, Patience::Forever);
            sinew::timeout(worker.patience(), forever).ok().flatten()
        }
    }
}

fn send_one(worker: &mut Worker, senders: &[Sender<Parcel>], producer: &mut Producer) {
    let (parcels, receipts): (Vec<_>, Vec<_>) = senders.iter().map(|_| producer.parcel()).collect();
    let mut arms: Vec<_> =
        senders.iter().zip(parcels).map(|(sender, parcel)| sender.arm(parcel)).collect();
    let mut borrowed: Vec<_> = arms.iter_mut().map(|arm| arm as &mut dyn Arm).collect();
    let done = select_of(worker, &mut borrowed);
    for (index, (arm, receipt)) in arms.iter_mut().zip(receipts).enumerate() {
        match arm.take() {
            Ok(()) => {
                assert_eq!(done, Some(index), "sent, though another arm was selected");
                receipt.sent();
            }
            Err(error) => {
                assert!(receipt.is_of(&error.0), "another message came back");
                assert_ne!(done, Some(index), "disconnected, and receivers are there");
            }
        }
    }
}

fn receive_until_disconnected(worker: &mut Worker, receivers: &[Receiver<Parcel>]) {
    let mut inboxes: Vec<Inbox> = receivers.iter().map(|_| Inbox::default()).collect();
    let mut open = vec![true; receivers.len()];
    let (mut bell, mut stop, mut fiber) = (new_bell(worker), new_stop(worker), new_end(worker));
    let (mut level, mut news) = new_announcements(worker);
    while open.contains(&true) {
        let which: Vec<_> = (0..receivers.len()).filter(|&index| open[index]).collect();
        let mut arms: Vec<_> = which.iter().map(|&index| receivers[index].arm()).collect();
        let (mut ring, mut stopped, mut end) = (bell.arm(), stop.arm(), fiber.arm());
        let (mut change, mut message) = (level.arm(), news.arm());
        let mut soon = sinew::sync::after(worker.patience());
        let mut borrowed: Vec<_> = arms.iter_mut().map(|arm| arm as &mut dyn Arm).collect();
        let other = worker.below(if worker.has_timeouts() { 8 } else { 7 });
        match other {
            0 | 1 => {}
            2 => borrowed.push(&mut ring),
            3 => borrowed.push(&mut stopped),
            4 => borrowed.push(&mut end),
            5 => borrowed.push(&mut change),
            6 => borrowed.push(&mut message),
            _ => borrowed.push(&mut soon),
        }
        let done = select_of(worker, &mut borrowed);
        let mut disconnected = None;
        for (arm, (mut received, &index)) in
            arms.iter_mut().map(|arm| arm.take()).zip(&which).enumerate()
        {
            if let Ok(parcel) = std::mem::replace(&mut received, Err(channel::RecvError)) {
                assert_eq!(done, Some(arm), "received, though another arm was selected");
                inboxes[index].accept(parcel);
            } else if done == Some(arm) {
                disconnected = Some(index);
            }
        }
        if let Some(index) = disconnected {
            open[index] = false;
        }
        if done == Some(which.len()) {
            match other {
                2 => {
                    assert_eq!(*ring.take(), 7);
                    bell = new_bell(worker);
                }
                3 => {
                    assert!(stop.is_cancelled());
                    stop = new_stop(worker);
                }
                4 => {
                    assert_eq!(end.take().expect("nobody cancels it"), 7);
                    fiber = new_end(worker);
                }
                // Each change is seen once, and the end after the last.
                5 if change.take().is_err() => {
                    assert!(level.is_disconnected() && *level.borrow() == ANNOUNCEMENTS);
                    (level, news) = new_announcements(worker);
                }
                6 => match message.take() {
                    Ok(_) => {}
                    Err(BroadcastRecvError::Disconnected) => {
                        (level, news) = new_announcements(worker);
                    }
                    Err(error) => panic!("selected, and {error}"),
                },
                _ => {}
            }
        }
        worker.did();
        worker.pause();
    }
}

/// How often a value is announced.
const ANNOUNCEMENTS: u64 = 5;

/// Starts a fiber that changes a value now and then, and broadcasts messages.
fn new_announcements(worker: &mut Worker) -> (WatchReceiver<u64>, BroadcastReceiver<u64>) {
    let (level, watcher) = channel::watch(0);
    let (news, reader) = channel::broadcast(ANNOUNCEMENTS as usize);
    let yields = worker.below(4);
    drop(worker.spawn(move || {
        for number in 1..=ANNOUNCEMENTS {
            level.replace(number);
            // There may be no receiver any more.
            let _ = news.send(number);
            (0..yields).for_each(|_| sinew::yield_now());
        }
    }));
    (watcher, reader)
}

/// Returns a token that is cancelled some time later.
fn new_stop(worker: &mut Worker) -> CancellationToken {
    let stop = CancellationToken::new();
    let (theirs, yields) = (stop.child(), worker.below(8));
    drop(worker.spawn({
        let stop = stop.clone();
        move || {
            (0..yields).for_each(|_| sinew::yield_now());
            stop.cancel();
        }
    }));
    theirs
}

/// Starts a fiber that ends some time later.
fn new_end(worker: &mut Worker) -> sinew::JoinHandle<u64> {
    let yields = worker.below(8);
    worker.spawn(move || {
        (0..yields).for_each(|_| sinew::yield_now());
        7
    })
}

/// Returns a future that is set some time later.
fn new_bell(worker: &mut Worker) -> Arc<FiberFuture<u64>> {
    let bell = Arc::new(FiberFuture::new());
    let (theirs, yields) = (bell.clone(), worker.below(8));
    drop(worker.spawn(move || {
        (0..yields).for_each(|_| sinew::yield_now());
        theirs.set(7).expect("set once");
    }));
    bell
}

/// Selects among both ends of channels, perhaps of one channel. A select does not send to itself.
fn send_or_receive(
    worker: &mut Worker,
    senders: &[Sender<Parcel>],
    receivers: &[Receiver<Parcel>],
    producer: &mut Producer,
    inboxes: &mut [Inbox],
) {
    let (from, to) = (worker.below(receivers.len()), worker.below(senders.len()));
    let (receiver, sender) = (&receivers[from], &senders[to]);
    let (parcel, receipt) = producer.parcel();
    let timeouts = worker.has_timeouts();
    match worker.below(3) {
        0 => sinew::select! {
            recv(receiver) -> received => inboxes[from].accept(received.expect("senders are there")),
            send(sender, parcel) -> sent => {
                sent.expect("receivers are there");
                receipt.sent();
            },
            default => {},
        },
        1 if timeouts => sinew::select! {
            send(sender, parcel) -> sent => {
                sent.expect("receivers are there");
                receipt.sent();
            }
            recv(receiver) -> received => inboxes[from].accept(received.expect("senders are there")),
            default(worker.patience()) => {},
        },
        _ => sinew::select! {
            recv(receiver) -> received => inboxes[from].accept(received.expect("senders are there")),
            send(sender, parcel) -> sent => {
                sent.expect("receivers are there");
                receipt.sent();
            }
        },
    }
}
