//! All primitives of `sinew::sync` between fibers of managers, fibers of a runtime and plain
//! threads.

use crate::kit::{LONG, MS, kept, run_until, simple};
use sinew::manager::{self, EventLoop, RemoteHandle, TaskFuture, manager_for};
use sinew::sync::channel::{self, RecvError};
use sinew::sync::{
    Barrier, Baton, CancellationToken, Condvar, Event, FairMutex, FiberFuture, Futex, LazyLock,
    MultiLock, Mutex, Once, OnceLock, RwLock, Semaphore, Sequencer, WaitGroup, wait_for_multiple,
};
use sinew::{Runtime, select};
use sinew_testkit::{Seed, watch};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

/// The kind of a test's participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    /// A fiber of a manager.
    Manager,
    /// A fiber of a manager on another thread.
    OtherManager,
    /// A fiber of a runtime.
    Runtime,
    Thread,
}

const SIDES: [Side; 4] = [Side::Manager, Side::OtherManager, Side::Runtime, Side::Thread];

/// A manager that runs on its own thread.
struct Hosted {
    remote: RemoteHandle,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Hosted {
    fn new() -> Hosted {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, receive) = mpsc::channel();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (manager, controller) = simple();
            send.send(manager.remote()).unwrap();
            run_until(&manager, &controller, || stopped.load(Ordering::SeqCst));
            assert!(!manager.has_tasks(), "all members were waited for");
        });
        Hosted { remote: receive.recv().unwrap(), stop, thread: Some(thread) }
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        let stop = self.stop.clone();
        self.remote.add_task_remote(move || stop.store(true, Ordering::SeqCst));
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

struct Stage {
    managers: [Hosted; 2],
    runtime: Runtime,
}

enum Member<T> {
    Task(TaskFuture<T>),
    Fiber(sinew::JoinHandle<T>),
    Thread(std::thread::JoinHandle<T>),
}

impl<T> Member<T> {
    #[track_caller]
    fn end(self) -> T {
        let result = match self {
            Member::Task(future) => future.get(),
            Member::Fiber(fiber) => fiber.join(),
            Member::Thread(thread) => thread.join(),
        };
        result.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }
}

impl Stage {
    fn new() -> Stage {
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        Stage { managers: [Hosted::new(), Hosted::new()], runtime }
    }

    fn start<T: Send + 'static>(
        &self,
        side: Side,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Member<T> {
        match side {
            Side::Manager => Member::Task(self.managers[0].remote.add_task_remote_future(work)),
            Side::OtherManager => {
                Member::Task(self.managers[1].remote.add_task_remote_future(work))
            }
            Side::Runtime => Member::Fiber(self.runtime.spawn(work)),
            Side::Thread => Member::Thread(std::thread::spawn(work)),
        }
    }
}

/// Runs the test once for each pair of sides.
fn in_every_pairing(test: impl Fn(&Stage, Side, Side)) {
    let _watch = watch::a_minute();
    let stage = Stage::new();
    for first in SIDES {
        for second in SIDES {
            test(&stage, first, second);
        }
    }
}

/// Lets other fibers run, as far as that is possible.
fn pause(n: usize) {
    if n.is_multiple_of(8) {
        sinew::yield_now();
    }
}

const ROUNDS: usize = 200;

#[test]
fn mutexes() {
    in_every_pairing(|stage, first, second| {
        let mutex = Arc::new(Mutex::new((0, 0)));
        let work = |mutex: Arc<Mutex<(usize, usize)>>| {
            move || {
                for n in 0..ROUNDS {
                    let mut pair = mutex.lock();
                    pair.0 += 1;
                    pause(n);
                    assert_eq!(pair.0, pair.1 + 1);
                    pair.1 += 1;
                }
            }
        };
        let members = [first, second].map(|side| stage.start(side, work(mutex.clone())));
        members.into_iter().for_each(Member::end);
        assert_eq!(*mutex.lock(), (2 * ROUNDS, 2 * ROUNDS));
    });
}

#[test]
fn timed_locks() {
    in_every_pairing(|stage, first, second| {
        let mutex = Arc::new(Mutex::new(0));
        let (held, release) = (Arc::new(Baton::new()), Arc::new(Baton::new()));
        let holder = stage.start(first, {
            let (mutex, held, release) = (mutex.clone(), held.clone(), release.clone());
            move || {
                let mut guard = mutex.lock();
                held.post();
                release.wait();
                *guard += 1;
            }
        });
        let taker = stage.start(second, move || {
            held.wait();
            assert!(mutex.try_lock().is_none());
            assert!(mutex.try_lock_for(MS).is_none());
            release.post();
            *mutex.try_lock_for(LONG).unwrap()
        });
        assert_eq!(taker.end(), 1);
        holder.end();
    });
}

#[test]
fn fair_mutexes() {
    in_every_pairing(|stage, first, second| {
        let mutex = Arc::new(FairMutex::new(0));
        let members = [first, second].map(|side| {
            let mutex = mutex.clone();
            stage.start(side, move || {
                for n in 0..ROUNDS {
                    let mut count = mutex.lock();
                    let seen = *count;
                    pause(n);
                    *count = seen + 1;
                }
            })
        });
        members.into_iter().for_each(Member::end);
        assert_eq!(*mutex.lock(), 2 * ROUNDS);
    });
}

#[test]
fn reader_writer_locks() {
    in_every_pairing(|stage, first, second| {
        let lock = Arc::new(RwLock::new((0, 0)));
        let members = [first, second].map(|side| {
            let lock = lock.clone();
            stage.start(side, move || {
                for n in 0..ROUNDS {
                    if n % 4 == 0 {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        pause(n);
                        pair.1 += 1;
                    } else {
                        let pair = lock.read();
                        pause(n + 7);
                        assert_eq!(pair.0, pair.1);
                    }
                }
            })
        });
        members.into_iter().for_each(Member::end);
        assert_eq!(*lock.read(), (ROUNDS / 2, ROUNDS / 2));
    });
}

#[test]
fn condition_variables() {
    in_every_pairing(|stage, first, second| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let members = [(first, 0), (second, 1)].map(|(side, parity)| {
            let shared = shared.clone();
            stage.start(side, move || {
                let (turn, changed) = &*shared;
                for _ in 0..ROUNDS {
                    let mut turn = turn.lock();
                    changed.wait_while(&mut turn, |turn| *turn % 2 != parity);
                    *turn += 1;
                    changed.notify_all();
                }
            })
        });
        members.into_iter().for_each(Member::end);
        assert_eq!(*shared.0.lock(), 2 * ROUNDS);
    });
}

#[test]
fn semaphores() {
    in_every_pairing(|stage, first, second| {
        let (semaphore, inside) = (Arc::new(Semaphore::new(3)), Arc::new(AtomicUsize::new(0)));
        let members = [first, second, first, second].map(|side| {
            let (semaphore, inside) = (semaphore.clone(), inside.clone());
            stage.start(side, move || {
                for n in 0..ROUNDS {
                    let count = 1 + n % 2;
                    let permits = match n % 3 {
                        0 => semaphore.acquire_many(count),
                        1 => semaphore.acquire_for(count, LONG).unwrap(),
                        _ => match semaphore.try_acquire_many(count) {
                            Some(permits) => permits,
                            None => semaphore.acquire_many(count),
                        },
                    };
                    assert!(inside.fetch_add(count, Ordering::SeqCst) + count <= 3);
                    pause(n);
                    inside.fetch_sub(count, Ordering::SeqCst);
                    drop(permits);
                }
            })
        });
        members.into_iter().for_each(Member::end);
        assert_eq!(semaphore.available(), 3);
    });
}

#[test]
fn bounded_channels() {
    for capacity in [0, 1, 5] {
        in_every_pairing(|stage, first, second| {
            let (sender, receiver) = channel::bounded(capacity);
            let sends = stage.start(first, move || {
                (0..ROUNDS).for_each(|n| sender.send(n).unwrap());
            });
            let receives = stage.start(second, move || receiver.iter().sum::<usize>());
            assert_eq!(receives.end(), ROUNDS * (ROUNDS - 1) / 2);
            sends.end();
        });
    }
}

#[test]
fn unbounded_channels_and_their_ends() {
    in_every_pairing(|stage, first, second| {
        let (sender, receiver) = channel::unbounded();
        let (answers, answered) = channel::oneshot();
        let asks = stage.start(first, move || {
            (0..ROUNDS).for_each(|n| sender.send(n).unwrap());
            drop(sender);
            answered.recv()
        });
        let counts = stage.start(second, move || {
            answers.send(receiver.iter().count()).unwrap();
            receiver.recv()
        });
        assert_eq!(asks.end(), Ok(ROUNDS));
        assert_eq!(counts.end(), Err(RecvError));
    });
}

#[test]
fn broadcasts_and_watches() {
    in_every_pairing(|stage, first, second| {
        let (all, mut each) = channel::broadcast(ROUNDS);
        let (newest, mut watched) = channel::watch(0);
        let tells = stage.start(first, move || {
            for n in 1..=ROUNDS {
                all.send(n).unwrap();
                newest.replace(n);
                pause(n);
            }
        });
        let hears = stage.start(second, move || {
            let sum: usize = each.iter().map(Result::unwrap).sum();
            while *watched.borrow() != ROUNDS {
                watched.changed().unwrap();
            }
            sum
        });
        tells.end();
        assert_eq!(hears.end(), ROUNDS * (ROUNDS + 1) / 2);
    });
}

#[test]
fn events() {
    in_every_pairing(|stage, first, second| {
        let (there, back) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let copies = (there.clone(), back.clone());
        let asks = stage.start(first, move || {
            for _ in 0..ROUNDS {
                there.set();
                back.wait();
                back.reset();
            }
        });
        let answers = stage.start(second, move || {
            let (there, back) = copies;
            for n in 0..ROUNDS {
                if n % 2 == 0 {
                    there.wait();
                } else {
                    assert!(there.wait_for(LONG));
                }
                there.reset();
                back.set();
            }
        });
        asks.end();
        answers.end();
    });
}

#[test]
fn batons() {
    in_every_pairing(|stage, first, second| {
        let batons: Arc<[Baton]> = (0..2 * ROUNDS).map(|_| Baton::new()).collect();
        let copies = batons.clone();
        let posts = stage.start(first, move || {
            for pair in batons.chunks(2) {
                pair[0].post();
                pair[1].wait();
            }
        });
        let waits = stage.start(second, move || {
            for (n, pair) in copies.chunks(2).enumerate() {
                match n % 3 {
                    0 => pair[0].wait(),
                    1 => assert!(pair[0].wait_for(LONG)),
                    _ => pair[0].wait_with(|| ()),
                }
                pair[1].post();
            }
        });
        posts.end();
        waits.end();
    });
}

#[test]
fn values() {
    in_every_pairing(|stage, first, second| {
        let values: Arc<[FiberFuture<usize>]> =
            (0..3 * ROUNDS).map(|_| FiberFuture::new()).collect();
        let copies = values.clone();
        let sets = stage.start(first, move || {
            for n in 0..ROUNDS {
                values[3 * n].set(n).unwrap();
                values[3 * n + 1 + n % 2].set(n).unwrap();
                pause(n);
            }
        });
        let waits = stage.start(second, move || {
            for n in 0..ROUNDS {
                assert_eq!(*copies[3 * n].wait(), n);
                let index = wait_for_multiple(&[&copies[3 * n + 1], &copies[3 * n + 2]]);
                assert_eq!(index, Some(n % 2));
            }
        });
        sets.end();
        waits.end();
    });
}

#[test]
fn barriers() {
    in_every_pairing(|stage, first, second| {
        let (barrier, rounds) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
        let members = [first, second].map(|side| {
            let (barrier, rounds) = (barrier.clone(), rounds.clone());
            stage.start(side, move || {
                (0..ROUNDS)
                    .filter(|round| {
                        rounds.fetch_add(1, Ordering::SeqCst);
                        let leads = barrier.wait().is_leader();
                        assert!(rounds.load(Ordering::SeqCst) >= 2 * (round + 1));
                        leads
                    })
                    .count()
            })
        });
        let leads: usize = members.map(Member::end).iter().sum();
        assert_eq!(leads, ROUNDS);
    });
}

#[test]
fn things_done_once() {
    in_every_pairing(|stage, first, second| {
        let shared = Arc::new((Once::new(), OnceLock::new(), AtomicUsize::new(0)));
        let lazy: &'static LazyLock<usize> = kept(LazyLock::new(|| {
            sinew::yield_now();
            7
        }));
        let members = [first, second].map(|side| {
            let shared = shared.clone();
            stage.start(side, move || {
                shared.0.call_once(|| {
                    sinew::yield_now();
                    shared.2.fetch_add(1, Ordering::SeqCst);
                });
                assert_eq!(shared.2.load(Ordering::SeqCst), 1);
                let made = *shared.1.get_or_init(|| {
                    sinew::yield_now();
                    side
                });
                assert_eq!(**lazy, 7);
                made
            })
        });
        let [one, other] = members.map(Member::end);
        assert_eq!(one, other);
    });
}

#[test]
fn selects() {
    in_every_pairing(|stage, first, second| {
        let (numbers, more) = (channel::bounded(0), channel::bounded(1));
        let done = Arc::new(FiberFuture::new());
        let (stops, permits) = (done.clone(), Arc::new(Semaphore::new(0)));
        let gives = permits.clone();
        let sends = stage.start(first, move || {
            for n in 0..ROUNDS {
                select! {
                    send(numbers.0, n) -> sent => sent.unwrap(),
                    send(more.0, n) -> sent => sent.unwrap(),
                    after(LONG) => panic!("nobody received"),
                }
                if n % 10 == 0 {
                    gives.add(1);
                }
            }
            stops.set(()).unwrap();
        });
        let receives = stage.start(second, move || {
            let (mut sum, mut permitted) = (0, 0);
            loop {
                select! {
                    recv(numbers.1) -> n => if let Ok(n) = n { sum += n; },
                    recv(more.1) -> n => if let Ok(n) = n { sum += n; },
                    wait(permits) -> permit => {
                        permit.forget();
                        permitted += 1;
                    },
                    wait(done) -> _ => break,
                }
            }
            sum += more.1.try_iter().sum::<usize>();
            (sum, permitted + permits.available())
        });
        sends.end();
        let expected = (ROUNDS * (ROUNDS - 1) / 2, ROUNDS.div_ceil(10));
        assert_eq!(receives.end(), expected);
    });
}

#[test]
fn wait_groups() {
    in_every_pairing(|stage, first, second| {
        let (group, done) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
        let parts: Vec<_> = (0..20)
            .map(|n| {
                let (part, done) = (group.clone(), done.clone());
                stage.start(first, move || {
                    pause(n);
                    done.fetch_add(1, Ordering::SeqCst);
                    drop(part);
                })
            })
            .collect();
        let waits = stage.start(second, move || {
            group.wait();
            done.load(Ordering::SeqCst)
        });
        assert_eq!(waits.end(), 20);
        parts.into_iter().for_each(Member::end);
    });
}

#[test]
fn sequencers() {
    in_every_pairing(|stage, first, second| {
        let turn = Arc::new(Sequencer::new());
        let members = [(first, 0), (second, 1)].map(|(side, parity)| {
            let turn = turn.clone();
            stage.start(side, move || {
                for n in 0..ROUNDS as u64 {
                    let mine = 2 * n + parity;
                    if n % 2 == 0 {
                        turn.wait(mine);
                    } else {
                        assert!(turn.wait_for(mine, LONG));
                    }
                    assert_eq!(turn.increment(), mine + 1);
                }
            })
        });
        members.into_iter().for_each(Member::end);
        assert_eq!(turn.get(), 2 * ROUNDS as u64);
    });
}

#[test]
fn keys() {
    in_every_pairing(|stage, first, second| {
        let shared = Arc::new((MultiLock::new(), [AtomicUsize::new(0), AtomicUsize::new(0)]));
        let members = [first, second, first].map(|side| {
            let shared = shared.clone();
            stage.start(side, move || {
                for n in 0..ROUNDS {
                    let key = n % 2;
                    shared.0.with(key as u64, || {
                        let seen = shared.1[key].load(Ordering::Relaxed);
                        pause(n);
                        shared.1[key].store(seen + 1, Ordering::Relaxed);
                    });
                }
            })
        });
        members.into_iter().for_each(Member::end);
        let counts = shared.1.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [3 * ROUNDS / 2, 3 * ROUNDS / 2]);
    });
}

#[test]
fn words() {
    in_every_pairing(|stage, first, second| {
        let futex = Arc::new(Futex::new());
        let posts = futex.clone();
        let poster = stage.start(first, move || {
            for n in 0..ROUNDS {
                posts.post();
                pause(n);
            }
        });
        let waiter = stage.start(second, move || {
            for token in 1..=ROUNDS as u64 {
                futex.wait(token);
            }
        });
        poster.end();
        waiter.end();
    });
}

#[test]
fn tokens() {
    in_every_pairing(|stage, first, second| {
        let token = CancellationToken::new();
        let child = token.child();
        let waits = stage.start(first, move || {
            child.wait();
            child.is_cancelled()
        });
        let cancels = stage.start(second, move || token.cancel());
        assert!(waits.end());
        cancels.end();
    });
}

#[test]
fn parking() {
    in_every_pairing(|stage, first, second| {
        let (send, receive) = channel::oneshot();
        let (done, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (theirs, tells) = (done.clone(), told.clone());
        let parks = stage.start(first, move || {
            send.send(sinew::current()).unwrap();
            while !told.load(Ordering::SeqCst) {
                sinew::park();
            }
            assert!(
                sinew::timeout(MS, || loop {
                    sinew::park()
                })
                .is_err()
            );
            done.store(true, Ordering::SeqCst);
        });
        let unparks = stage.start(second, move || {
            let parked = receive.recv().unwrap();
            tells.store(true, Ordering::SeqCst);
            parked.unpark();
        });
        unparks.end();
        parks.end();
        assert!(theirs.load(Ordering::SeqCst));
    });
}

#[test]
fn ends_of_fibers() {
    in_every_pairing(|stage, first, second| {
        // One side spawns a fiber of the runtime, and the other joins it.
        let gate = Arc::new(Baton::new());
        let opened = gate.clone();
        let handle = stage.runtime.handle().clone();
        let spawner = stage.start(first, move || {
            let fiber = handle.spawn(move || {
                opened.wait();
                7
            });
            gate.post();
            fiber
        });
        let fiber = spawner.end();
        let joiner = stage.start(second, move || fiber.join().unwrap());
        assert_eq!(joiner.end(), 7);
        // One side waits for the end of a fiber of the other.
        let waits = stage.start(first, || {
            let inner = sinew::spawn(sinew::current);
            inner.join().unwrap()
        });
        let fiber = waits.end();
        let ended = stage.start(second, move || fiber.wait_finished(Some(LONG)));
        assert!(ended.end());
    });
}

/// Threads and fibers lock one mutex, and hold it while they wait.
#[test]
fn threads_and_fibers_do_not_deadlock_each_other() {
    let _watch = watch::a_minute();
    let events = EventLoop::new().unwrap();
    let manager = manager_for(&events);
    let mutex = Arc::new(Mutex::new(0));
    let theirs = mutex.clone();
    let thread = std::thread::spawn(move || {
        for _ in 0..100 {
            *theirs.lock() += 1;
            std::thread::yield_now();
        }
    });
    for n in 0..50 {
        let mutex = mutex.clone();
        manager.add_task(move || {
            for round in 0..20 {
                let mut count = mutex.lock();
                if (n + round) % 10 == 0 {
                    assert!(!Baton::new().wait_for(MS / 10));
                }
                *count += 1;
                drop(count);
                sinew::yield_now();
            }
        });
    }
    events.run();
    assert!(!manager.has_tasks());
    thread.join().unwrap();
    assert_eq!(*mutex.lock(), 1100);
}

/// Fibers of managers on many threads share permits, acquired in every way.
#[test]
fn permits_of_many_managers_are_conserved() {
    let _watch = watch::a_minute();
    const PERMITS: usize = 6;
    let semaphore = Arc::new(Semaphore::new(PERMITS));
    let taken = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (semaphore, taken) = (semaphore.clone(), taken.clone());
            std::thread::spawn(move || {
                let (manager, controller) = simple();
                let done = kept(Cell::new(0));
                for _ in 0..10 {
                    let (semaphore, taken) = (semaphore.clone(), taken.clone());
                    manager.add_task(move || {
                        for n in 0..100 {
                            let count = n % 5 + 1;
                            let permits = match n % 4 {
                                0 => semaphore.acquire_many(count),
                                1 => semaphore.acquire_for(count, LONG).unwrap(),
                                2 => select! {
                                    wait(semaphore) -> one => {
                                        drop(one);
                                        semaphore.acquire_many(count)
                                    },
                                },
                                _ => semaphore
                                    .try_acquire_many(count)
                                    .unwrap_or_else(|| semaphore.acquire_many(count)),
                            };
                            let now = taken.fetch_add(count, Ordering::SeqCst) + count;
                            assert!(now <= PERMITS, "{now}");
                            if n % 7 == 0 {
                                sinew::yield_now();
                            }
                            taken.fetch_sub(count, Ordering::SeqCst);
                            drop(permits);
                        }
                        done.set(done.get() + 1);
                    });
                }
                controller.run();
                done.get()
            })
        })
        .collect();
    let done: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(done, 40);
    assert_eq!((semaphore.available(), taken.load(Ordering::SeqCst)), (PERMITS, 0));
}

/// Waiters for more permits than are available wait in their order of arrival, and all of them get
/// their permits.
#[test]
fn permits_of_different_counts_reach_every_waiter() {
    let _watch = watch::a_minute();
    const MOST: usize = 5;
    let (manager, controller) = simple();
    let semaphore = kept(Semaphore::new(MOST));
    semaphore.acquire_many(MOST).forget();
    let served = kept(Cell::new(0));
    for count in 1..=MOST {
        manager.add_task(move || {
            let permits = semaphore.acquire_for(count, LONG).expect("it is served");
            sinew::yield_now();
            served.set(served.get() + 1);
            drop(permits);
        });
    }
    manager.add_task(|| semaphore.add(MOST));
    controller.run();
    assert_eq!((served.get(), semaphore.available()), (MOST, MOST));
}

#[test]
fn a_permit_publishes_earlier_writes() {
    let _watch = watch::a_minute();
    for _ in 0..200 {
        let (semaphore, data) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (theirs, read) = (semaphore.clone(), data.clone());
        let thread = std::thread::spawn(move || {
            theirs.acquire().forget();
            read.load(Ordering::Relaxed)
        });
        data.store(1, Ordering::Relaxed);
        semaphore.add(1);
        assert_eq!(thread.join().unwrap(), 1);
    }
}

/// Readers and writers of managers on several threads. Some writers become readers.
#[test]
fn readers_and_writers_of_many_managers() {
    let _watch = watch::a_minute();
    const THREADS: usize = 3;
    const READERS: usize = 100;
    const WRITERS: usize = 20;
    let lock = Arc::new(RwLock::new((0, 0)));
    let reads = Arc::new(AtomicUsize::new(0));
    let mut seed = Seed::from_env();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (lock, reads, mut seed) = (lock.clone(), reads.clone(), seed.fork());
            std::thread::spawn(move || {
                let events = EventLoop::new().unwrap();
                let manager = manager_for(&events);
                for _ in 0..READERS {
                    let (lock, reads) = (lock.clone(), reads.clone());
                    let waits = seed.below(10) == 0;
                    manager.add_task(move || {
                        for _ in 0..10 {
                            let pair = lock.read();
                            if waits {
                                assert!(!Baton::new().wait_for(MS / 10));
                            }
                            assert_eq!(pair.0, pair.1);
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                for n in 0..WRITERS {
                    let lock = lock.clone();
                    manager.add_task(move || {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        sinew::yield_now();
                        pair.1 += 1;
                        if n % 10 == 0 {
                            let seen = pair.1;
                            let read = lock_api::RwLockWriteGuard::downgrade(pair);
                            sinew::yield_now();
                            assert_eq!(read.1, seen, "no writer comes in between");
                        }
                    });
                }
                events.run();
                assert!(!manager.has_tasks());
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(reads.load(Ordering::Relaxed), THREADS * READERS * 10);
    assert_eq!(*lock.read(), (THREADS * WRITERS, THREADS * WRITERS));
}

/// A future that is polled in one fiber waits for the result of another fiber.
#[test]
fn futures_in_fibers_wait_for_neighbours() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let step = kept(Cell::new(0));
    let released = kept(FiberFuture::<()>::new());
    let holds = manager.add_task_future(|| {
        step.set(1);
        assert!(!Baton::new().wait_for(5 * MS));
        step.set(2);
        released.set(()).unwrap();
        7
    });
    let waits = manager.add_task_future(move || {
        let seven = sinew::block_on(async { holds.await.unwrap() });
        assert_eq!(step.get(), 2);
        step.set(3);
        // The polled code runs in the fiber, and may wait.
        sinew::block_on(async {
            assert!(manager::on_fiber());
            sinew::sleep(MS);
        });
        seven
    });
    controller.run();
    assert_eq!((waits.get().unwrap(), step.get()), (7, 3));
    assert!(released.is_set());
}
