//! may's locks, signals and channels.

use super::may::{join, timed};
use crate::load::{Hands, KEY, READERS, RIVALS};
use crate::measure::{Lap, Timed};
use may::coroutine::{JoinHandle, yield_now};
use may::go;
use may::sync::mpsc::{Receiver, channel};
use may::sync::{Barrier, Blocker, Condvar, Mutex, RwLock, Semphore};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

pub(crate) const UNBOUNDED: &str = "none of its channels has a bound";

/// Lets coroutines do `operations` operations together. may's barrier releases them when all have
/// arrived, and the first coroutine that continues starts the clock.
///
/// Coroutines that yield until all have arrived would keep the others from beginning: a worker
/// takes new coroutines only when no old one is ready.
fn crowd(coroutines: u64, operations: u64, work: impl Fn() + Send + Sync + 'static) -> Lap {
    let shared = Arc::new((Barrier::new(coroutines as usize), OnceLock::new(), work));
    let begin = |_| {
        let shared = shared.clone();
        go!(move || {
            let (barrier, start, work) = &*shared;
            barrier.wait();
            start.get_or_init(Instant::now);
            work();
        })
    };
    let all: Vec<_> = (0..coroutines).map(begin).collect();
    all.into_iter().for_each(join);
    Lap::new(shared.1.get().expect("there is a coroutine").elapsed(), operations)
}

/// Lets a coroutine lock, increment and unlock.
pub(crate) fn mutex_uncontended() -> Timed {
    timed(1, |count| {
        let mutex = Mutex::new(0_u64);
        Lap::run(count, || {
            for _ in 0..count {
                *black_box(&mutex).lock().expect("no holder panics") += 1;
            }
        })
    })
}

/// Lets two coroutines hold a lock across a yield and then release it; gives the time for each
/// change of holder.
pub(crate) fn mutex_handoff() -> Timed {
    handoff(2, true)
}

/// Lets 64 coroutines hold a lock across a yield, and lock it again at once.
pub(crate) fn mutex_handoff_64() -> Timed {
    handoff(RIVALS, false)
}

fn handoff(coroutines: u64, pauses: bool) -> Timed {
    timed(1, move |count| {
        let shared = Arc::new(Mutex::new(Hands::default()));
        let begin = |me| {
            let shared = shared.clone();
            go!(move || {
                loop {
                    let hands = shared.lock().expect("no holder panics");
                    if hands.take(me) >= count {
                        return;
                    }
                    yield_now();
                    drop(hands);
                    if pauses {
                        yield_now();
                    }
                }
            })
        };
        Lap::run(count, || {
            let all: Vec<_> = (1..=coroutines).map(begin).collect();
            all.into_iter().for_each(join);
        })
    })
}

/// Sends a message to another coroutine and back.
pub(crate) fn pingpong(workers: usize) -> Timed {
    timed(workers, |count| {
        let ((there, to), (from, back)) = (channel(), channel());
        let echo = go!(move || {
            for message in to.iter() {
                if from.send(message).is_err() {
                    return;
                }
            }
        });
        let lap = Lap::run(count, || {
            for number in 0..count {
                there.send(number).expect("it is received");
                black_box::<u64>(back.recv().expect("it comes back"));
            }
        });
        drop(there);
        join(echo);
        lap
    })
}

/// Lets coroutines on two workers lock, increment and unlock.
pub(crate) fn mutex_contended() -> Timed {
    timed(2, |count| {
        let each = count.div_ceil(RIVALS);
        let mutex = Arc::new(Mutex::new(0_u64));
        let theirs = mutex.clone();
        let lap = crowd(RIVALS, RIVALS * each, move || {
            for _ in 0..each {
                *theirs.lock().expect("no holder panics") += 1;
            }
        });
        assert_eq!(*mutex.lock().expect("no holder panics"), RIVALS * each);
        lap
    })
}

/// Lets coroutines on two workers read a number under a lock that has no writer.
pub(crate) fn rwlock_read() -> Timed {
    timed(2, |count| {
        let each = count.div_ceil(READERS);
        let lock = RwLock::new(1_u64);
        crowd(READERS, READERS * each, move || {
            for _ in 0..each {
                black_box(*lock.read().expect("no holder panics"));
            }
        })
    })
}

/// Runs two coroutines in turn, each of which waits `each` times for the other; gives the time for
/// each wait.
fn two(count: u64, begin: impl Fn(usize, u64) -> JoinHandle<()>) -> Lap {
    let each = count.div_ceil(2);
    Lap::run(2 * each, || [0, 1].map(|me| begin(me, each)).into_iter().for_each(join))
}

/// A slot for a value that one coroutine waits for. The value is the slot of the other coroutine.
struct Turn {
    blocker: Blocker,
    next: parking_lot::Mutex<Option<Arc<Turn>>>,
}

impl Turn {
    /// Makes a slot for the caller to wait on.
    fn new() -> Arc<Turn> {
        Arc::new(Turn { blocker: Blocker::new(false), next: parking_lot::Mutex::new(None) })
    }

    fn set(&self, next: Arc<Turn>) {
        *self.next.lock() = Some(next);
        self.blocker.unpark();
    }

    fn wait(&self) -> Arc<Turn> {
        loop {
            if let Some(next) = self.next.lock().take() {
                return next;
            }
            self.blocker.park(None).expect("the coroutine is not cancelled");
        }
    }

    /// Makes a slot, passes it to the other coroutine, and waits.
    fn pass(&self) -> Arc<Turn> {
        let mine = Turn::new();
        self.set(mine.clone());
        mine.wait()
    }
}

/// Lets two coroutines hand each other a value, in a new slot each time.
pub(crate) fn future() -> Timed {
    timed(1, |count| {
        let each = count.div_ceil(2);
        let first = Turn::new();
        let theirs = first.clone();
        let one = move || {
            let mut turn = theirs;
            for _ in 0..each {
                turn = turn.pass();
            }
        };
        let other = move || {
            let mut turn = first.wait();
            for _ in 1..each {
                turn = turn.pass();
            }
            turn.set(turn.clone());
        };
        Lap::run(2 * each, || [go!(one), go!(other)].into_iter().for_each(join))
    })
}

/// Lets two coroutines each wait for its turn and pass the turn to the other.
pub(crate) fn condvar() -> Timed {
    timed(1, |count| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        two(count, |me, each| {
            let shared = shared.clone();
            go!(move || {
                let (turn, changed) = &*shared;
                for _ in 0..each {
                    let mut turn = turn.lock().expect("no holder panics");
                    while *turn != me {
                        turn = changed.wait(turn).expect("no holder panics");
                    }
                    *turn = 1 - me;
                    changed.notify_one();
                }
            })
        })
    })
}

/// Gives two coroutines a semaphore each. Each takes a permit from its own and adds one to the
/// other's.
pub(crate) fn semaphore() -> Timed {
    timed(1, |count| {
        let permits = Arc::new([Semphore::new(1), Semphore::new(0)]);
        two(count, |me, each| {
            let permits = permits.clone();
            go!(move || {
                for _ in 0..each {
                    permits[me].wait();
                    permits[1 - me].post();
                }
            })
        })
    })
}

/// As [`mutex_handoff`], with one lock for each key, found in a map.
pub(crate) fn multilock() -> Timed {
    timed(1, |count| {
        type Locks = Mutex<HashMap<u64, Arc<Mutex<Hands>>>>;
        let locks = Arc::new(Locks::new(HashMap::new()));
        let begin = |me| {
            let locks = locks.clone();
            go!(move || {
                loop {
                    let lock = {
                        let mut locks = locks.lock().expect("no holder panics");
                        let new = || Arc::new(Mutex::new(Hands::default()));
                        locks.entry(black_box(KEY)).or_insert_with(new).clone()
                    };
                    let hands = lock.lock().expect("no holder panics");
                    if hands.take(me) >= count {
                        return;
                    }
                    yield_now();
                    drop(hands);
                    yield_now();
                }
            })
        };
        Lap::run(count, || [1, 2].map(begin).into_iter().for_each(join))
    })
}

/// Lets two coroutines wait for every other value of a counter, and increment it.
pub(crate) fn sequencer() -> Timed {
    timed(1, |count| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        two(count, |me, each| {
            let shared = shared.clone();
            go!(move || {
                let (counter, changed) = &*shared;
                for round in 0..each {
                    let mut counter = counter.lock().expect("no holder panics");
                    while *counter < 2 * round + me as u64 {
                        counter = changed.wait(counter).expect("no holder panics");
                    }
                    *counter += 1;
                    changed.notify_all();
                }
            })
        })
    })
}

/// Lets two coroutines send each other messages, over two channels in turn.
pub(crate) fn select() -> Timed {
    timed(1, |count| {
        let each = count.div_ceil(2);
        let pair = || [channel(), channel()];
        let ([(a, to_a), (b, to_b)], [(c, from_c), (d, from_d)]) = (pair(), pair());
        // Keep all channels open until the end: a closed channel would make `select!` return.
        let _open = [&a, &b, &c, &d].map(Clone::clone);
        let ping = move || {
            for round in 0..each {
                [&a, &b][round as usize % 2].send(round).expect("it is received");
                assert_eq!(either(&from_c, &from_d), round);
            }
        };
        let echo = move || {
            for round in 0..each {
                let message = either(&to_a, &to_b);
                [&c, &d][round as usize % 2].send(message).expect("it is received");
            }
        };
        Lap::run(2 * each, || [go!(echo), go!(ping)].into_iter().for_each(join))
    })
}

/// Receives from one of two channels. may's `select!` starts a coroutine for each arm, and cancels
/// the arms that are late.
fn either(a: &Receiver<u64>, b: &Receiver<u64>) -> u64 {
    let got = AtomicU64::new(u64::MAX);
    let put = |message: u64| got.store(message, Ordering::Relaxed);
    may::select!(
        message = a.recv() => put(message.expect("it was sent")),
        message = b.recv() => put(message.expect("it was sent"))
    );
    got.into_inner()
}
