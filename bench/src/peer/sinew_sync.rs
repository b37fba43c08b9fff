//! sinew's own contenders in the suite `sync`.

use super::sinew_runtime::{join, timed};
use crate::load::{Gate, Hands, KEY, READERS, RIVALS, ROOM, TALKERS};
use crate::measure::{Lap, Timed};
use sinew::sync::channel::{OneshotSender, Receiver, bounded, oneshot};
use sinew::sync::{Condvar, FiberFuture, MultiLock, Mutex, RwLock, Semaphore, Sequencer};
use sinew::{Builder, JoinHandle, spawn, yield_now};
use std::hint::black_box;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const HALVES: &str = "2 carriers, half of the fibers kept on each";
pub(crate) const SPAWNED: &str = "2 carriers, spawn: the one that starts them keeps them";
pub(crate) const APART: &str = "2 carriers, one fiber kept on each";

fn spawn_on<T: Send + 'static>(
    carrier: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    Builder::new().carrier(carrier).spawn(work).expect("there is such a carrier")
}

/// Fibers that `start` has started do `operations` operations together. Each is told its number.
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

/// The same with each pair of fibers on the other carrier than the pair before.
fn crowd(fibers: u64, operations: u64, work: impl Fn(u64) + Send + Sync + 'static) -> Lap {
    crowd_by(fibers, operations, work, |number, work| spawn_on(number as usize / 2 % 2, work))
}

/// A fiber locks, increments and unlocks.
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

/// Two fibers hold a lock across a yield, so that the other waits for it, and let it have it: for each
/// time that it changes hands.
pub(crate) fn mutex_handoff() -> Timed {
    timed(1, |count| {
        let shared = Arc::new(Mutex::new(Hands::default()));
        let begin = |me| {
            let shared = shared.clone();
            spawn(move || {
                loop {
                    let hands = shared.lock();
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

/// A message goes to another fiber and comes back.
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

/// Fibers on two carriers lock, increment and unlock.
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

/// Fibers on two carriers read a number under a lock that nobody writes to.
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

/// Half of the fibers send, the others receive, over one bounded channel: for each message.
pub(crate) fn channel_mpmc() -> Timed {
    timed(2, |count| {
        let (each, work) = talk(count);
        crowd(TALKERS, each * TALKERS / 2, work)
    })
}

/// The same without saying where the fibers run: as they do nothing but wait at first, their parent's
/// carrier starts and keeps all of them.
pub(crate) fn channel_mpmc_spawned() -> Timed {
    timed(2, |count| {
        let (each, work) = talk(count);
        crowd_by(TALKERS, each * TALKERS / 2, work, |_, work| spawn(work))
    })
}

/// How many messages each of the senders sends, and what each fiber does.
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

/// A message goes to a fiber of another carrier and comes back. If they are busy, each carrier has
/// another fiber that yields all the time.
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

/// Two fibers in turn, each of which waits `each` times for what the other does: for each wait.
fn two(count: u64, begin: impl Fn(usize, u64) -> JoinHandle<()>) -> Lap {
    let each = count.div_ceil(2);
    Lap::run(2 * each, || [0, 1].map(|me| begin(me, each)).into_iter().for_each(join))
}

/// A future of a fiber that waits for it, as it is told to the other.
struct Turn(*const FiberFuture<Turn>);

// SAFETY: who has it sets a future that can be shared.
unsafe impl Send for Turn {}
// SAFETY: the same.
unsafe impl Sync for Turn {}

impl Turn {
    /// Makes a future, sets the other's to it, and waits.
    fn pass(self) -> Turn {
        let mine = FiberFuture::new();
        self.end(Turn(&mine));
        Turn(mine.wait().0)
    }

    fn end(self, next: Turn) {
        // SAFETY: the other waits for it, and its frame stays until it is set.
        let theirs = unsafe { &*self.0 };
        assert!(theirs.set(next).is_ok(), "it is set once");
    }
}

/// Two fibers set each other's futures, a new one each time, on the stack.
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

/// The sender to the fiber that waits; none waits for the last one.
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

/// Two fibers send each other a message, over a new channel each time.
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

/// Two fibers wait for their turn, and make it the other's.
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

/// Two fibers take a permit each from a semaphore of their own, and give the other one.
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

/// As [`mutex_handoff`], with the lock of a key.
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

/// Two fibers wait for every other value of a counter, and increment it.
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

/// Two fibers send each other messages, now over the one channel and now over the other.
pub(crate) fn select() -> Timed {
    timed(1, |count| {
        let each = count.div_ceil(2);
        let pair = || [bounded(1), bounded(1)];
        let ([(a, to_a), (b, to_b)], [(c, from_c), (d, from_d)]) = (pair(), pair());
        // No channel is closed before the end: that would be an event as well.
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
