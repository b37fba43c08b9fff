//! tokio's locks, signals and channels, and other channels that are common with tokio.

use super::tokio::{current, timed, workers};
use crate::load::{Gate, Hands, KEY, READERS, RIVALS, ROOM, TALKERS};
use crate::measure::{Lap, Timed};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio::spawn;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{Mutex, Notify, RwLock, Semaphore, oneshot, watch};
use tokio::task::{JoinHandle, yield_now};

pub(crate) const ASYNC_CHANNEL: &str = "async-channel 2.5.0 on tokio 1.54.1, 2 workers";
pub(crate) const FLUME: &str = "flume 0.12.0 on tokio 1.54.1, 2 workers";
pub(crate) const TWO_CURRENT: &str = "1.54.1, 2 threads with a current_thread runtime each";
pub(crate) const FREE: &str = "1.54.1, 2 workers: it may run both tasks on one";

async fn join<T>(task: JoinHandle<T>) -> T {
    task.await.expect("it does not panic")
}

/// Lets tasks do `operations` operations together.
async fn crowd<F>(operations: u64, work: Vec<F>) -> Lap
where
    F: Future<Output = ()> + Send + 'static,
{
    let gate = Arc::new(Gate::default());
    let tasks = work.len() as u64;
    let begin = |work: F| {
        let gate = gate.clone();
        spawn(async move {
            gate.arrive();
            while !gate.is_open() {
                yield_now().await;
            }
            work.await;
        })
    };
    let all: Vec<_> = work.into_iter().map(begin).collect();
    while gate.arrived() < tasks {
        yield_now().await;
    }
    let start = Instant::now();
    gate.open();
    for task in all {
        join(task).await;
    }
    Lap::new(start.elapsed(), operations)
}

/// Lets a task lock, increment and unlock.
pub(crate) fn mutex_uncontended(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        let mutex = Mutex::new(0_u64);
        let start = Instant::now();
        for _ in 0..count {
            *black_box(&mutex).lock().await += 1;
        }
        Lap::new(start.elapsed(), count)
    })
}

/// Lets two tasks hold a lock across a yield and then release it; gives the time for each change of
/// holder.
pub(crate) fn mutex_handoff(runtime: Runtime) -> Timed {
    handoff(runtime, 2, true)
}

/// Lets 64 tasks hold a lock across a yield, and lock it again at once.
pub(crate) fn mutex_handoff_64(runtime: Runtime) -> Timed {
    handoff(runtime, RIVALS, false)
}

fn handoff(runtime: Runtime, tasks: u64, pauses: bool) -> Timed {
    timed(runtime, move |count| async move {
        let shared = Arc::new(Mutex::new(Hands::default()));
        let begin = |me| {
            let shared = shared.clone();
            spawn(async move {
                loop {
                    let hands = shared.lock().await;
                    if hands.take(me) >= count {
                        return;
                    }
                    yield_now().await;
                    drop(hands);
                    if pauses {
                        yield_now().await;
                    }
                }
            })
        };
        let start = Instant::now();
        let all: Vec<_> = (1..=tasks).map(begin).collect();
        for task in all {
            task.await.expect("it does not panic");
        }
        Lap::new(start.elapsed(), count)
    })
}

/// Sends a message to another task and back.
pub(crate) fn pingpong(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        let ((there, mut to), (from, mut back)) = (channel(1), channel(1));
        let echo = spawn(async move {
            while let Some(message) = to.recv().await {
                if from.send(message).await.is_err() {
                    return;
                }
            }
        });
        let start = Instant::now();
        for number in 0..count {
            there.send(number).await.expect("it is received");
            black_box(back.recv().await.expect("it comes back"));
        }
        let lap = Lap::new(start.elapsed(), count);
        drop(there);
        echo.await.expect("it does not panic");
        lap
    })
}

/// Lets tasks on two workers lock, increment and unlock.
pub(crate) fn mutex_contended() -> Timed {
    timed(workers(2), |count| async move {
        let each = count.div_ceil(RIVALS);
        let mutex = Arc::new(Mutex::new(0_u64));
        let work = |_| {
            let mutex = mutex.clone();
            async move {
                for _ in 0..each {
                    *mutex.lock().await += 1;
                }
            }
        };
        let lap = crowd(RIVALS * each, (0..RIVALS).map(work).collect()).await;
        assert_eq!(*mutex.lock().await, RIVALS * each);
        lap
    })
}

/// Lets tasks on two workers read a number under a lock that has no writer.
pub(crate) fn rwlock_read() -> Timed {
    timed(workers(2), |count| async move {
        let each = count.div_ceil(READERS);
        let lock = Arc::new(RwLock::new(1_u64));
        let work = |_| {
            let lock = lock.clone();
            async move {
                for _ in 0..each {
                    black_box(*lock.read().await);
                }
            }
        };
        crowd(READERS * each, (0..READERS).map(work).collect()).await
    })
}

/// Lets half of the tasks send and the others receive over a bounded async-channel; gives the time
/// for each message.
pub(crate) fn channel_mpmc_async_channel() -> Timed {
    timed(workers(2), |count| async move {
        let each = count.div_ceil(TALKERS / 2);
        let (sender, receiver) = async_channel::bounded(ROOM);
        let work = |number| {
            let (sender, receiver) = (sender.clone(), receiver.clone());
            async move {
                for message in 0..each {
                    if number % 2 == 0 {
                        sender.send(message).await.expect("it is received");
                    } else {
                        black_box(receiver.recv().await.expect("it was sent"));
                    }
                }
            }
        };
        crowd(each * TALKERS / 2, (0..TALKERS).map(work).collect()).await
    })
}

/// Lets half of the tasks send and the others receive over a bounded channel of flume; gives the
/// time for each message.
pub(crate) fn channel_mpmc_flume() -> Timed {
    timed(workers(2), |count| async move {
        let each = count.div_ceil(TALKERS / 2);
        let (sender, receiver) = flume::bounded(ROOM);
        let work = |number| {
            let (sender, receiver) = (sender.clone(), receiver.clone());
            async move {
                for message in 0..each {
                    if number % 2 == 0 {
                        sender.send_async(message).await.expect("it is received");
                    } else {
                        black_box(receiver.recv_async().await.expect("it was sent"));
                    }
                }
            }
        };
        crowd(each * TALKERS / 2, (0..TALKERS).map(work).collect()).await
    })
}

async fn ping(count: u64, there: Sender<u64>, mut back: Receiver<u64>) -> Lap {
    let start = Instant::now();
    for number in 0..count {
        there.send(number).await.expect("it is received");
        black_box(back.recv().await.expect("it comes back"));
    }
    Lap::new(start.elapsed(), count)
}

async fn echo(mut to: Receiver<u64>, from: Sender<u64>) {
    while let Some(message) = to.recv().await {
        if from.send(message).await.is_err() {
            return;
        }
    }
}

/// Yields until `stop` is set.
async fn fidget(stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        yield_now().await;
    }
}

/// Sends a message to a task of another runtime, on another thread, and back. With `busy`, each
/// runtime has another task that yields all the time.
pub(crate) fn pingpong_cross(busy: bool) -> Timed {
    Box::new(move |count| {
        let stop = Arc::new(AtomicBool::new(!busy));
        let ((there, to), (from, back)) = (channel(1), channel(1));
        thread::scope(|scope| {
            let theirs = stop.clone();
            scope.spawn(move || {
                current().block_on(async {
                    let other = spawn(fidget(theirs));
                    join(spawn(echo(to, from))).await;
                    join(other).await;
                });
            });
            current().block_on(async {
                let other = spawn(fidget(stop.clone()));
                let lap = join(spawn(ping(count, there, back))).await;
                stop.store(true, Ordering::Relaxed);
                join(other).await;
                lap
            })
        })
    })
}

/// As [`pingpong`], on two workers that have two more tasks which yield all the time.
pub(crate) fn pingpong_busy() -> Timed {
    timed(workers(2), |count| async move {
        let stop = Arc::new(AtomicBool::new(false));
        let others = [0, 1].map(|_| spawn(fidget(stop.clone())));
        let ((there, to), (from, back)) = (channel(1), channel(1));
        let echo = spawn(echo(to, from));
        let lap = join(spawn(ping(count, there, back))).await;
        join(echo).await;
        stop.store(true, Ordering::Relaxed);
        for other in others {
            join(other).await;
        }
        lap
    })
}

/// Runs two tasks in turn, each of which waits `each` times for the other; gives the time for each
/// wait.
async fn two(count: u64, begin: impl Fn(usize, u64) -> JoinHandle<()>) -> Lap {
    let each = count.div_ceil(2);
    let start = Instant::now();
    for task in [0, 1].map(|me| begin(me, each)) {
        join(task).await;
    }
    Lap::new(start.elapsed(), 2 * each)
}

/// The sender to the waiting task; `None` in the last message, after which no task waits.
struct Turn(Option<oneshot::Sender<Turn>>);

impl Turn {
    /// Makes a channel, sends its sender to the other task, and waits.
    async fn pass(self) -> Turn {
        let (sender, mine) = oneshot::channel();
        self.end(Turn(Some(sender)));
        mine.await.expect("it is sent")
    }

    fn end(self, next: Turn) {
        let theirs = self.0.expect("the other waits");
        assert!(theirs.send(next).is_ok(), "it is received");
    }
}

/// Lets two tasks send each other a message, over a new channel each time.
pub(crate) fn future(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        let each = count.div_ceil(2);
        let (sender, first) = oneshot::channel();
        let start = Instant::now();
        let one = spawn(async move {
            let mut turn = Turn(Some(sender));
            for _ in 0..each {
                turn = turn.pass().await;
            }
        });
        let other = spawn(async move {
            let mut turn: Turn = first.await.expect("it is sent");
            for _ in 1..each {
                turn = turn.pass().await;
            }
            turn.end(Turn(None));
        });
        join(one).await;
        join(other).await;
        Lap::new(start.elapsed(), 2 * each)
    })
}

/// Lets two tasks each wait for its turn and pass the turn to the other.
pub(crate) fn condvar(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        let shared = Arc::new((std::sync::Mutex::new(0), Notify::new()));
        let begin = |me, each| {
            let shared = shared.clone();
            spawn(async move {
                let (turn, changed) = &*shared;
                let take = || {
                    let mut turn = turn.lock().expect("no holder panics");
                    let mine = *turn == me;
                    if mine {
                        *turn = 1 - me;
                        changed.notify_one();
                    }
                    mine
                };
                for _ in 0..each {
                    while !take() {
                        changed.notified().await;
                    }
                }
            })
        };
        two(count, begin).await
    })
}

/// Gives two tasks a semaphore each. Each takes a permit from its own and adds one to the other's.
pub(crate) fn semaphore(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        let permits = Arc::new([Semaphore::new(1), Semaphore::new(0)]);
        let begin = |me: usize, each| {
            let permits = permits.clone();
            spawn(async move {
                for _ in 0..each {
                    permits[me].acquire().await.expect("it is open").forget();
                    permits[1 - me].add_permits(1);
                }
            })
        };
        two(count, begin).await
    })
}

/// As [`mutex_handoff`], with one lock for each key, found in a map.
pub(crate) fn multilock(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        type Locks = std::sync::Mutex<HashMap<u64, Arc<Mutex<Hands>>>>;
        let locks = Arc::new(Locks::default());
        let begin = |me| {
            let locks = locks.clone();
            spawn(async move {
                loop {
                    let lock = {
                        let mut locks = locks.lock().expect("no holder panics");
                        locks.entry(black_box(KEY)).or_default().clone()
                    };
                    let hands = lock.lock().await;
                    if hands.take(me) >= count {
                        return;
                    }
                    yield_now().await;
                    drop(hands);
                    yield_now().await;
                }
            })
        };
        let start = Instant::now();
        for task in [1, 2].map(begin) {
            join(task).await;
        }
        Lap::new(start.elapsed(), count)
    })
}

/// Lets two tasks wait for every other value of a counter, and increment it.
pub(crate) fn sequencer(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        let counter = Arc::new(watch::Sender::new(0));
        let begin = |me: usize, each| {
            let counter = counter.clone();
            let mut changes = counter.subscribe();
            spawn(async move {
                for round in 0..each {
                    let mine = 2 * round + me as u64;
                    drop(changes.wait_for(|value| *value >= mine).await.expect("it is open"));
                    counter.send_modify(|value| *value += 1);
                }
            })
        };
        two(count, begin).await
    })
}

/// Lets two tasks send each other messages, over two channels in turn.
pub(crate) fn select(runtime: Runtime) -> Timed {
    timed(runtime, |count| async move {
        let each = count.div_ceil(2);
        let pair = || [channel(1), channel(1)];
        let ([(a, mut to_a), (b, mut to_b)], [(c, mut from_c), (d, mut from_d)]) = (pair(), pair());
        // Keep all channels open until the end: a closed channel would make `select!` return.
        let _open = [&a, &b, &c, &d].map(Clone::clone);
        let start = Instant::now();
        let echo = spawn(async move {
            for round in 0..each {
                let message = either(&mut to_a, &mut to_b).await;
                [&c, &d][round as usize % 2].send(message).await.expect("it is received");
            }
        });
        let ping = spawn(async move {
            for round in 0..each {
                [&a, &b][round as usize % 2].send(round).await.expect("it is received");
                assert_eq!(either(&mut from_c, &mut from_d).await, round);
            }
        });
        join(echo).await;
        join(ping).await;
        Lap::new(start.elapsed(), 2 * each)
    })
}

async fn either(a: &mut Receiver<u64>, b: &mut Receiver<u64>) -> u64 {
    tokio::select! {
        message = a.recv() => message,
        message = b.recv() => message,
    }
    .expect("it was sent")
}
