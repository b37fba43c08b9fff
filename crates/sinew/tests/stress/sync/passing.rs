//! One value from one side to the other: set once, seen by its waiters, with one call of each
//! callback.

use super::bout::{Bout, Shelf, Worker};
use super::channels::{Inbox, Ledger, Parcel, Receipt};
use sinew::sync::channel::{self, OneshotReceiver, OneshotSender, RecvTimeoutError, TryRecvError};
use sinew::sync::{FiberFuture, Patience, select, wait_for_multiple};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Things to do. A worker that does not do its thing puts it back.
pub(super) struct Pool<T>(Shelf<Vec<T>>);

impl<T> Pool<T> {
    pub(super) fn new(things: Vec<T>) -> Pool<T> {
        Pool(Shelf::new(things))
    }

    pub(super) fn take(&self) -> Option<Held<'_, T>> {
        let thing = self.0.with(Vec::pop)?;
        Some(Held { pool: self, thing: Some(thing) })
    }

    pub(super) fn put(&self, thing: T) {
        self.0.with(|things| things.insert(0, thing));
    }
}

pub(super) struct Held<'a, T> {
    pool: &'a Pool<T>,
    thing: Option<T>,
}

impl<T> Held<'_, T> {
    pub(super) fn get(&self) -> &T {
        self.thing.as_ref().expect("not taken out yet")
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("not taken out yet")
    }

    /// Takes the thing out for good: it is done, or will be.
    pub(super) fn take(mut self) -> T {
        self.thing.take().expect("not taken out yet")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        if let Some(thing) = self.thing.take() {
            self.pool.put(thing);
        }
    }
}

struct Futures {
    futures: Vec<FiberFuture<usize>>,
    sets: Vec<AtomicUsize>,
    calls: Arc<Vec<AtomicUsize>>,
    subscribed: Vec<AtomicBool>,
    to_wait: Pool<usize>,
    to_set: Pool<usize>,
}

pub(super) fn fiber_future(bout: &mut Bout) {
    let count = bout.steps();
    let counts = || (0..count).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>();
    let mut to_set: Vec<_> = (0..count).collect();
    // Some futures are set twice, if possible.
    to_set.extend((0..count / 3).map(|_| bout.seed.below(count)));
    let shared = Arc::new(Futures {
        futures: (0..count).map(|_| FiberFuture::new()).collect(),
        sets: counts(),
        calls: Arc::new(counts()),
        subscribed: (0..count).map(|_| AtomicBool::new(false)).collect(),
        to_wait: Pool::new((0..count).collect()),
        to_set: Pool::new(to_set),
    });
    let (theirs, some) = (shared.clone(), bout.some());
    bout.start("waits for values", some, move |worker| {
        while let Some(held) = theirs.to_wait.take() {
            wait_once(worker, &theirs, held);
            worker.did();
            worker.pause();
        }
    });
    let (theirs, some) = (shared.clone(), bout.some());
    bout.start("sets values", some, move |worker| {
        while let Some(held) = theirs.to_set.take() {
            worker.pause();
            let index = held.take();
            match theirs.futures[index].set(index + 1) {
                Ok(()) => _ = theirs.sets[index].fetch_add(1, Ordering::SeqCst),
                Err(back) => assert_eq!(back, index + 1),
            }
            worker.did();
        }
    });
    bout.all_ended();
    for index in 0..count {
        assert_eq!(shared.futures[index].get(), Some(&(index + 1)));
        assert_eq!(shared.sets[index].load(Ordering::SeqCst), 1, "set once");
        let subscribed = shared.subscribed[index].load(Ordering::SeqCst);
        let calls = shared.calls[index].load(Ordering::SeqCst);
        assert_eq!(calls, usize::from(subscribed), "called once, if it was to be");
    }
}

fn wait_once(worker: &mut Worker, shared: &Futures, held: Held<'_, usize>) {
    let index = *held.get();
    let future = &shared.futures[index];
    match worker.below(8) {
        0 => {
            // Several futures at a time, one of them twice.
            let more: Vec<_> = (0..3).map_while(|_| shared.to_wait.take()).collect();
            let all: Vec<_> = [&held, &held].into_iter().chain(&more).collect();
            let futures: Vec<_> = all.iter().map(|held| &shared.futures[*held.get()]).collect();
            let set = wait_for_multiple(&futures).expect("there are some");
            assert!(futures[set].is_set(), "told of one that is not set");
            let mut all: Vec<_> = [held].into_iter().chain(more).collect();
            all.remove(set.saturating_sub(1)).take();
        }
        1 => {
            let calls = shared.calls.clone();
            // Record it first: the callback may run at once.
            shared.subscribed[index].store(true, Ordering::SeqCst);
            future.subscribe(move || _ = calls[index].fetch_add(1, Ordering::SeqCst));
            held.take();
        }
        2 => {
            let patience = match worker.has_timeouts() {
                true => Patience::For(worker.patience()),
                false => Patience::Forever,
            };
            let mut arm = future.arm();
            if select(&mut [&mut arm], patience).is_some() {
                assert_eq!(*arm.take(), index + 1);
                held.take();
            }
        }
        _ => {
            let value = worker.attempt(
                || future.get(),
                |patience| future.wait_timeout(patience),
                || future.wait(),
            );
            if let Some(value) = value {
                assert_eq!(*value, index + 1);
                held.take();
            }
        }
    }
}

struct Letters {
    senders: Pool<(usize, OneshotSender<Parcel>)>,
    receivers: Pool<(usize, OneshotReceiver<Parcel>)>,
    /// Set by a sender before it sends. A sender that leaves without it causes an error.
    sends: Vec<AtomicBool>,
    /// The number of receivers that left without a message.
    gave_up: AtomicUsize,
}

pub(super) fn oneshot(bout: &mut Bout) {
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for index in 0..bout.steps() {
        let (sender, receiver) = channel::oneshot();
        senders.push((index, sender));
        receivers.push((index, receiver));
    }
    let shared = Arc::new(Letters {
        sends: senders.iter().map(|_| AtomicBool::new(false)).collect(),
        senders: Pool::new(senders),
        receivers: Pool::new(receivers),
        gave_up: AtomicUsize::new(0),
    });
    let ledger = Arc::new(Ledger::default());
    let (theirs, some) = (shared.clone(), bout.some());
    bout.start("receives one", some, move |worker| {
        /// Counts a receiver that leaves empty-handed, also by cancellation.
        struct GivesUp<'a>(&'a AtomicUsize, bool);
        impl Drop for GivesUp<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(usize::from(self.1), Ordering::SeqCst);
            }
        }
        while let Some(held) = theirs.receivers.take() {
            let (index, mut receiver) = held.take();
            let mut gives_up = GivesUp(&theirs.gave_up, true);
            if worker.once_in(16) {
                continue;
            }
            worker.pause();
            // Some tries, and then a wait until the message comes.
            let mut received = None;
            while received.is_none() && worker.once_in(2) {
                let timeout = if worker.has_timeouts() { Some(worker.patience()) } else { None };
                received = match timeout {
                    None => match receiver.try_recv() {
                        Err(TryRecvError::Empty) => None,
                        other => Some(other.ok()),
                    },
                    Some(timeout) => match receiver.recv_timeout(timeout) {
                        Err(RecvTimeoutError::Timeout) => None,
                        other => Some(other.ok()),
                    },
                };
            }
            match received.unwrap_or_else(|| receiver.recv().ok()) {
                Some(parcel) => {
                    Inbox::default().accept(parcel);
                    gives_up.1 = false;
                }
                None => assert!(!theirs.sends[index].load(Ordering::SeqCst), "sent, and not there"),
            }
            worker.did();
        }
    });
    let (theirs, some, books) = (shared.clone(), bout.some(), ledger.clone());
    bout.start("sends one", some, move |worker| {
        while let Some(held) = theirs.senders.take() {
            // A sender that is cancelled here leaves without a message.
            let (index, sender) = held.take();
            worker.pause();
            if worker.once_in(16) {
                continue;
            }
            theirs.sends[index].store(true, Ordering::SeqCst);
            let (parcel, receipt): (Parcel, Receipt) = books.producer().parcel();
            match sender.send(parcel) {
                Ok(()) => receipt.sent(),
                Err(back) => assert!(receipt.is_of(&back)),
            }
            worker.did();
        }
    });
    bout.all_ended();
    let lost = ledger.close(true);
    let gave_up = shared.gave_up.load(Ordering::SeqCst) as u64;
    assert!(lost <= gave_up, "{lost} messages lost, and {gave_up} receivers gave up");
}
