//! Broadcasts, watches and tokens: each receiver sees all messages, or the last, and the end.

use super::bout::{Bout, Worker};
use super::channels::Desk;
use super::passing::Pool;
use sinew::sync::CancellationToken;
use sinew::sync::channel::{self, BroadcastReceiver, BroadcastRecvError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The history of one broadcast receiver.
struct Listener {
    receiver: BroadcastReceiver<(u64, u64)>,
    received: u64,
    missed: u64,
    /// The last number of each sender.
    last: Vec<(u64, u64)>,
}

impl Listener {
    fn note(&mut self, sender: u64, number: u64) {
        self.received += 1;
        match self.last.iter_mut().find(|(name, _)| *name == sender) {
            Some((_, last)) => {
                assert!(*last < number, "{number} came after {last}");
                *last = number;
            }
            None => self.last.push((sender, number)),
        }
    }
}

/// Every message reaches every receiver, or is counted as missed.
pub(super) fn broadcast(bout: &mut Bout) {
    let capacity = 1 << bout.seed.below(10);
    let (sender, receiver) = channel::broadcast(capacity);
    let (count, senders) = (bout.some(), bout.some());
    let listener = |receiver| Listener { receiver, received: 0, missed: 0, last: Vec::new() };
    let mut listeners: Vec<_> = (1..count).map(|_| listener(sender.subscribe())).collect();
    listeners.push(listener(receiver));
    let pool = Arc::new((Pool::new(listeners), Pool::new(Vec::new())));
    let desk = Desk::new(sender);
    let (sent, names) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let theirs = pool.clone();
    bout.start("listens", count, move |worker| {
        // A cancelled worker puts the receiver back in its state.
        while let Some(mut held) = theirs.0.take() {
            while listen(worker, held.get_mut()) {
                worker.did();
                worker.pause();
            }
            theirs.1.put(held.take());
        }
    });
    let (theirs, total) = (desk.clone(), sent.clone());
    let sending = bout.start("sends to all", senders, move |worker| {
        let sender = theirs.get().expect("there until all have sent");
        let name = names.fetch_add(1, Ordering::SeqCst);
        for number in 0..worker.steps() as u64 {
            sender.send((name, number)).expect("receivers are there");
            total.fetch_add(1, Ordering::SeqCst);
            worker.did();
            worker.pause();
        }
    });
    bout.ended(sending);
    desk.clear();
    bout.all_ended();
    let total = sent.load(Ordering::SeqCst);
    for _ in 0..count {
        let Listener { received, missed, .. } = pool.1.take().expect("all are back").take();
        assert_eq!(received + missed, total, "{received} received, {missed} missed");
        assert!(missed == 0 || total > capacity as u64, "missed what there was room for");
    }
}

/// Receives a message. Returns false if there will be none.
fn listen(worker: &mut Worker, listener: &mut Listener) -> bool {
    let receiver = std::cell::RefCell::new(&mut listener.receiver);
    let received = worker.attempt(
        || Some(receiver.borrow_mut().try_recv()),
        |patience| Some(receiver.borrow_mut().recv_timeout(patience)),
        || receiver.borrow_mut().recv(),
    );
    match received {
        Some(Ok((sender, number))) => listener.note(sender, number),
        Some(Err(BroadcastRecvError::Lagged(missed))) => listener.missed += missed,
        Some(Err(BroadcastRecvError::Disconnected)) => return false,
        Some(Err(BroadcastRecvError::Empty)) | None => {}
    }
    true
}

/// A value that only grows: a watcher never sees it shrink, and sees the last value.
pub(super) fn watch(bout: &mut Bout) {
    let (sender, receiver) = channel::watch(0_u64);
    let (senders, receivers) = (Desk::new(sender), Desk::new(receiver));
    let sent = Arc::new(AtomicU64::new(0));
    let (theirs, count, total) = (receivers.clone(), bout.some(), sent.clone());
    bout.start("watches", count, move |worker| {
        let mut receiver = theirs.get().expect("receivers stay");
        let mut last = 0;
        loop {
            let wanted = last + 1 + worker.below(4) as u64;
            let changed = if worker.once_in(3) {
                receiver.wait_until(|value| *value >= wanted).map(|value| {
                    assert!(*value >= wanted);
                })
            } else {
                let receiver = std::cell::RefCell::new(&mut receiver);
                let changed = worker.attempt(
                    || None,
                    |patience| Some(receiver.borrow_mut().changed_timeout(patience).map(|_| ())),
                    || receiver.borrow_mut().changed(),
                );
                changed.unwrap_or(Ok(()))
            };
            let value = *receiver.borrow();
            assert!(last <= value, "{value} after {last}");
            last = value;
            worker.did();
            if changed.is_err() {
                assert_eq!(last, total.load(Ordering::SeqCst), "the last value is seen");
                return;
            }
            worker.pause();
        }
    });
    let (theirs, count, total) = (senders.clone(), bout.some(), sent.clone());
    let sending = bout.start("changes", count, move |worker| {
        let sender = theirs.get().expect("there until all have sent");
        for _ in 0..worker.steps() {
            let grow = |value: &mut u64| {
                *value += 1;
                total.fetch_add(1, Ordering::SeqCst);
            };
            if worker.once_in(2) {
                sender.modify(grow);
            } else {
                let really = worker.once_in(2);
                sender.send_if(|value| {
                    if really {
                        grow(value);
                    }
                    really
                });
            }
            worker.did();
            worker.pause();
        }
    });
    bout.ended(sending);
    senders.clear();
    bout.all_ended();
    receivers.clear();
}

/// Cancelling a token wakes all waiters for it and for its children, and cancels all its fibers.
pub(super) fn token(bout: &mut Bout) {
    let root = CancellationToken::new();
    let mut tokens = vec![root.clone()];
    for _ in 0..bout.steps() {
        let parent = bout.seed.below(tokens.len());
        tokens.push(tokens[parent].child());
    }
    let (tokens, ended) = (Arc::new(tokens), Arc::new(AtomicU64::new(0)));
    let (theirs, count) = (tokens.clone(), bout.some());
    bout.start("waits for tokens", count, move |worker| {
        for _ in 0..worker.steps() {
            let token = &theirs[worker.below(theirs.len())];
            let cancelled = worker.attempt(
                || token.is_cancelled().then_some(()),
                |patience| token.wait_timeout(patience).then_some(()),
                || token.wait(),
            );
            assert!(cancelled.is_none() || token.is_cancelled());
            assert!(!token.is_cancelled() || token.child().is_cancelled());
            worker.did();
            worker.pause();
        }
    });
    let (theirs, count, ends) = (tokens.clone(), bout.some(), ended.clone());
    let spawning = bout.start("attaches fibers", count, move |worker| {
        struct Ends(Arc<AtomicU64>);
        impl Drop for Ends {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        for _ in 0..worker.steps().min(16) {
            let token = &theirs[worker.below(theirs.len())];
            ends.fetch_add(1, Ordering::SeqCst);
            let ends = Ends(ends.clone());
            let fiber = worker.spawn(move || {
                let _ends = ends;
                loop {
                    sinew::park();
                }
            });
            token.attach(&fiber.fiber());
            worker.did();
            worker.pause();
        }
    });
    let theirs = tokens.clone();
    bout.start("cancels tokens", 2, move |worker| {
        for _ in 0..worker.steps() / 4 {
            // Not the root.
            let token = &theirs[1 + worker.below(theirs.len() - 1)];
            token.cancel();
            assert!(token.is_cancelled());
            worker.did();
            worker.pause();
        }
    });
    bout.ended(spawning);
    root.cancel();
    // All of them are children; another thread may still be cancelling some.
    bout.until(|| tokens.iter().all(CancellationToken::is_cancelled));
    bout.all_ended();
    bout.until(|| ended.load(Ordering::SeqCst) == 0);
}
