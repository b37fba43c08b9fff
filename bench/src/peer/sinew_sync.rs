//! sinew's contenders in the suite `sync`.

use super::sinew_runtime::{join, timed};
use crate::load::{Gate, Hands, KEY, READERS, RIVALS, ROOM, TALKERS};
use crate::measure::{Lap, Timed};
use sinew::sync::channel::{OneshotSender, Receiver, bounded, oneshot};
use sinew::sync::{
    Condvar, FairMutex, FiberFuture, MultiLock, Mutex, RwLock, Semaphore, Sequencer,
};
use sinew::{FiberBuilder, JoinHandle, spawn, yield_now};
use std::hint::black_box;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const HALVES: &str = "2 carriers, half of the fibers kept on each";
pub(crate) const FAIR: &str = "1 carrier, FairMutex";
pub(crate) const SPAWNED: &str = "2 carriers, spawn: the carrier that starts a fiber keeps it";
pub(crate) const APART: &str = "2 carriers, one fiber kept on each";

fn spawn_on<T: Send + 'static>(
    carrier: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    FiberBuilder::new().carrier(carrier).spawn(work).expect("there is such a carrier")
}

/// Lets fibers, which `start` starts, do `operations` operations together. `work` gets the number
/// of its fiber.
fn crowd_by<W: Fn(u64) + Send + Sync + 'static>(
    fibers: u64,
    operations: u64,
    work: W,
    start: impl Fn(u64, Box<dyn FnOnce() + Send>) -> JoinHandle<()>,
) -> Lap {
    let shared = Arc::new((Gate::default(), work));
    let begin = |number| {
        let shared = shared.clone();
        let work = move || {
            let (gate, work) = &*shared;
            gate.arrive();
            while !gate.is_open() {
                yield_now();
            }
            work(number);
        };
        start(number, Box::new(work))
    };
    let all: Vec<_> = (0..fibers).map(begin).collect();
    let gate = &shared.0;
    while gate.arrived() < fibers {
        yield_now();
    }
    Lap::run(operations, || {
        gate.open();
        all.into_iter().for_each(join);
    })
}

/// Lets fibers do `operations` operations together. Pairs of fibers alternate between the two
/// carriers.
fn crowd(fibers: u64, operations: u64, work: impl Fn(u64) + Send + Sync + 'static) -> Lap {
    crowd_by(fibers, operations, work, |number, work| spawn_on(number as usize / 2 % 2, work))
}

/// Lets a fiber lock, increment and unlock.
pub(crate) fn mutex_uncontended() -> Timed {
    timed(1, |count| {
        let mutex = Mutex::new(0_u64);
        Lap::run(count, || {
            for _ in 0..count {
                *black_box(&mutex).lock() += 1;
            }
        })
    })
}

/// Lets two fibers hold a lock across a yield, so that the other waits for it, and then release it;
/// gives the time for each change of holder.
pub(crate) fn mutex_handoff() -> Timed {
    handoff(2, true, hold)
}

/// Lets 64 fibers hold a lock across a yield, so that all others wait for it, and lock it again at
/// once; gives the time for each change of holder.
pub(crate) fn mutex_handoff_64() -> Timed {
    handoff(RIVALS, false, hold)
}

/// As [`mutex_handoff_64`], with a lock that is always handed to the first waiter.
pub(crate) fn fair_handoff_64() -> Timed {
    handoff(RIVALS, false, |lock: &FairMutex<Hands>, me, most| {
        let hands = lock.lock();
        let goes_on = hands.take(me) < most;
        if goes_on {
            yield_now();
        }
        goes_on
    })
}

/// Holds a lock across a yield. Returns whether the holder has changed less than `most` times.
fn hold(lock: &Mutex<Hands>, me: u64, most: u64) -> bool {
    let hands = lock.lock();
    let goes_on = hands.take(me) < most;
    if goes_on {
        yield_now();
    }
    goes_on
}

/// Lets fibers `hold` a lock again and again; `pauses` says whether they also yield without it.
fn handoff<L: Default + Send + Sync + 'static>(
    fibers: u64,
    pauses: bool,
    hold: fn(&L, u64, u64) -> bool,
) -> Timed {
    timed(1, move |count| {
        let lock = Arc::new(L::default());
        let begin = |me| {
            let lock = lock.clone();
            spawn(move || {
                while hold(&lock, me, count) {
                    if pauses {
                        yield_now();
                    }
                }
            })
        };
        Lap::run(count, || {
            let all: Vec<_> = (1..=fibers).map(begin).collect();
            all.into_iter().for_each(join);
        })
    })
}

/// Sends a message to another fiber and back.
pub(crate) fn pingpong() -> Timed {
    timed(1, |count| {
        let ((there, to), (from, back)) = (bounded(1), bounded(1));
        let echo = spawn(move || to.iter().try_for_each(|message| from.send(message)));
        let lap = Lap::run(count, || {
            for number in 0..count {
                there.send(number).expect("it is received");
                black_box(back.recv().expect("it comes back"));
            }
        });
        drop(there);
        join(echo).expect("all came back");
        lap
    })
}

/// Lets fibers on two carriers lock, increment and unlock.
pub(crate) fn mutex_contended() -> Timed {
    timed(2, |count| {
        let each = count.div_ceil(RIVALS);
        let mutex = Arc::new(Mutex::new(0_u64));
        let theirs = mutex.clone();
        let lap = crowd(RIVALS, RIVALS * each, move |_| {
            for _ in 0..each {
                *theirs.lock() += 1;
            }
        });
        assert_eq!(*mutex.lock(), RIVALS * each);
        lap
    })
}

/// Lets fibers on two carriers read a number under a lock that has no writer.
pub(crate) fn rwlock_read() -> Timed {
    timed(2, |count| {
        let each = count.div_ceil(READERS);
        let lock = RwLock::new(1_u64);
        crowd(READERS, READERS * each, move |_| {
            for _ in 0..each {
                black_box(*lock.read());
            }
        })
    })
}

/// Lets half of the fibers send and the others receive over one bounded channel; gives the time for
/// each message.
pub(crate) fn channel_mpmc() -> Timed {
    timed(2, |count| {
        let (each, work) = talk(count);
        crowd(TALKERS, each * TALKERS / 2, work)
    })
}

/// As [`channel_mpmc`], with fibers that `spawn` places. They only wait at first, so the carrier of
/// their parent starts and keeps all of them.
pub(crate) fn channel_mpmc_spawned() -> Timed {
    timed(2, |count| {
        let (each, work) = talk(count);
        crowd_by(TALKERS, each * TALKERS / 2, work, |_, work| spawn(work))
    })
}

/// Returns the number of messages that each sender sends, and the work of a fiber.
fn talk(count: u64) -> (u64, impl Fn(u64) + Send + Sync + 'static) {
    let each = count.div_ceil(TALKERS / 2);
    let (sender, receiver) = bounded(ROOM);
    let work = move |number| {
        for message in 0..each {
            if number % 2 == 0 {
                sender.send(message).expect("it is received");
            } else {
                black_box(receiver.recv().expect("it was sent"));
            }
        }
    };
    (each, work)
}

/// Sends a message to a fiber of another carrier and back. With `busy`, each carrier has another
/// fiber that yields all the time.
pub(crate) fn pingpong_cross(busy: bool) -> Timed {
    timed(2, move |count| {
        let stop = Arc::new(AtomicBool::new(!busy));
        let others = [0, 1].map(|carrier| {
            let stop = stop.clone();
            spawn_on(carrier, move || {
                while !stop.load(Ordering::Relaxed) {
                    yield_now();
                }
            })
        });
        let ((there, to), (from, back)) = (bounded(1), bounded(1));
        let echo = spawn_on(1, move || to.iter().try_for_each(|message| from.send(message)));
        let ping = spawn_on(0, move || {
            Lap::run(count, || {
                for number in 0..count {
                    there.send(number).expect("it is received");
                    black_box(back.recv().expect("it comes back"));
                }
            })
        });
        let lap = join(ping);
        join(echo).expect("all came back");
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(join);
        lap
    })
}

/// Runs two fibers in turn, each of which waits `each` times for the other; gives the time for each
/// wait.
fn two(count: u64, begin: impl Fn(usize, u64) -> JoinHandle<()>) -> Lap {
    let each = count.div_ceil(2);
    Lap::run(2 * each, || [0, 1].map(|me| begin(me, each)).into_iter().for_each(join))
}

/// A pointer to the future that a fiber waits for, as the other fiber gets it.
struct Turn(*const FiberFuture<Turn>);

// SAFETY: the pointer is only used to set the future, and a `FiberFuture` may be set from any
// thread.
unsafe impl Send for Turn {}
// SAFETY: a shared `Turn` gives access to nothing but the future, which may be shared.
unsafe impl Sync for Turn {}

impl Turn {
    /// Makes a future, sets the other fiber's future to it, and waits.
    fn pass(self) -> Turn {
        let mine = FiberFuture::new();
        self.end(Turn(&mine));
        Turn(mine.wait().0)
    }

    fn end(self, next: Turn) {
        // SAFETY: the other fiber waits for this future, so its frame stays until the future is
        // set.
        let theirs = unsafe { &*self.0 };
        assert!(theirs.set(next).is_ok(), "it is set once");
    }
}

/// Lets two fibers set each other's futures, with a new future on the stack for each wait.
pub(crate) fn future() -> Timed {
    timed(1, |count| {
        let first = Arc::new(FiberFuture::new());
        two(count, |me, each| {
            let first = first.clone();
            spawn(move || {
                if me == 0 {
                    let mut turn = Turn(&*first);
                    for _ in 0..each {
                        turn = turn.pass();
                    }
                } else {
                    let mut turn = Turn(first.wait().0);
                    for _ in 1..each {
                        turn = turn.pass();
                    }
                    turn.end(Turn(ptr::null()));
                }
            })
        })
    })
}

/// The sender to the waiting fiber; `None` in the last message, after which no fiber waits.
struct Reply(Option<OneshotSender<Reply>>);

impl Reply {
    /// Makes a channel, sends its sender to the other fiber, and waits.
    fn pass(self) -> Reply {
        let (sender, mine) = oneshot();
        self.end(Reply(Some(sender)));
        mine.recv().expect("it is sent")
    }

    fn end(self, next: Reply) {
        let theirs = self.0.expect("the other fiber waits");
        assert!(theirs.send(next).is_ok(), "it is received");
    }
}

/// Lets two fibers send each other a message, over a new channel each time.
pub(crate) fn oneshots() -> Timed {
    timed(1, |count| {
        let each = count.div_ceil(2);
        let (sender, first) = oneshot();
        let one = move || {
            let mut reply = Reply(Some(sender));
            for _ in 0..each {
                reply = reply.pass();
            }
        };
        let other = move || {
            let mut reply: Reply = first.recv().expect("it is sent");
            for _ in 1..each {
                reply = reply.pass();
            }
            reply.end(Reply(None));
        };
        Lap::run(2 * each, || [spawn(one), spawn(other)].into_iter().for_each(join))
    })
}

/// Lets two fibers each wait for its turn and pass the turn to the other.
pub(crate) fn condvar() -> Timed {
    timed(1, |count| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        two(count, |me, each| {
            let shared = shared.clone();
            spawn(move || {
                let (turn, changed) = &*shared;
                for _ in 0..each {
                    let mut turn = turn.lock();
                    while *turn != me {
                        changed.wait(&mut turn);
                    }
                    *turn = 1 - me;
                    changed.notify_one();
                }
            })
        })
    })
}

/// Gives two fibers a semaphore each. Each takes a permit from its own and adds one to the other's.
pub(crate) fn semaphore() -> Timed {
    timed(1, |count| {
        let permits = Arc::new([Semaphore::new(1), Semaphore::new(0)]);
        two(count, |me, each| {
            let permits = permits.clone();
            spawn(move || {
                for _ in 0..each {
                    permits[me].acquire().forget();
                    permits[1 - me].add(1);
                }
            })
        })
    })
}

/// As [`mutex_handoff`], with a `MultiLock` and one key.
pub(crate) fn multilock() -> Timed {
    timed(1, |count| {
        let shared = Arc::new((MultiLock::new(), Hands::default()));
        let begin = |me| {
            let shared = shared.clone();
            spawn(move || {
                let (locks, hands) = &*shared;
                let hold = || {
                    let more = hands.take(me) < count;
                    if more {
                        yield_now();
                    }
                    more
                };
                while locks.with(KEY, hold) {
                    yield_now();
                }
            })
        };
        Lap::run(count, || [1, 2].map(begin).into_iter().for_each(join))
    })
}

/// Lets two fibers wait for every other value of a counter, and increment it.
pub(crate) fn sequencer() -> Timed {
    timed(1, |count| {
        let counter = Arc::new(Sequencer::new());
        two(count, |me, each| {
            let counter = counter.clone();
            spawn(move || {
                for round in 0..each {
                    counter.wait(2 * round + me as u64);
                    counter.increment();
                }
            })
        })
    })
}

/// Lets two fibers send each other messages, over two channels in turn.
pub(crate) fn select() -> Timed {
    timed(1, |count| {
        let each = count.div_ceil(2);
        let pair = || [bounded(1), bounded(1)];
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
        Lap::run(2 * each, || [spawn(echo), spawn(ping)].into_iter().for_each(join))
    })
}

fn either(a: &Receiver<u64>, b: &Receiver<u64>) -> u64 {
    sinew::select! {
        recv(a) -> message => message,
        recv(b) -> message => message,
    }
    .expect("it was sent")
}
