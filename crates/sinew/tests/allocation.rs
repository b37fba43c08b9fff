//! Warm operations do not use the heap.

use sinew::Runtime;
use sinew::sync::{Barrier, Baton, Condvar, Event, FairMutex, FiberFuture, Futex, MultiLock};
use sinew::sync::{Mutex, RwLock, Semaphore, Sequencer, Subscription, channel};
use sinew_testkit::watch;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local!(static COUNTED: Cell<bool> = const { Cell::new(false) });

// SAFETY: passes every call to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations on this carrier's thread while `work` runs, after enough runs for every
/// list to have its final size.
fn allocations(work: impl Fn()) -> u64 {
    for _ in 0..100 {
        work();
    }
    COUNTED.set(true);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    work();
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    COUNTED.set(false);
    after - before
}

#[test]
fn warm_operations_do_not_allocate() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        let me = sinew::current();
        let check = |name: &str, work: &dyn Fn()| {
            assert_eq!(allocations(work), 0, "{name} allocates");
        };
        let (one, other) = sinew::os::unix::net::UnixStream::pair().unwrap();
        let echo = sinew::spawn_for_each_arrival(other, |stream| {
            let mut byte = [0];
            match (stream.read(&mut byte), stream.write(&byte)) {
                (Ok(1), Ok(1)) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        check("a call of a fiber that rests", &|| {
            for _ in 0..10 {
                (&one).write_all(b"x").unwrap();
                (&one).read_exact(&mut [0]).unwrap();
            }
        });
        drop(one);
        echo.join().unwrap();
        check("yield", &|| (0..100).for_each(|_| sinew::yield_now()));
        check("sleep", &|| (0..3).for_each(|_| sinew::sleep(Duration::from_micros(10))));
        check("park", &|| {
            for _ in 0..100 {
                me.unpark();
                sinew::park();
            }
        });
        check("park_timeout", &|| sinew::park_timeout(Duration::from_micros(10)));
        check("spawn and join", &|| {
            for n in 0..100_u64 {
                assert_eq!(sinew::spawn(move || n).join().unwrap(), n);
            }
        });
        check("a hundred at a time", &|| {
            let fibers: [_; 100] = std::array::from_fn(|n| {
                sinew::spawn(move || {
                    sinew::yield_now();
                    n
                })
            });
            fibers
                .into_iter()
                .enumerate()
                .for_each(|(n, fiber)| assert_eq!(fiber.join().unwrap(), n));
        });
        check("park and wake of another", &|| {
            let me = sinew::current();
            let other = sinew::spawn(move || {
                for _ in 0..10 {
                    sinew::park();
                    me.unpark();
                }
            });
            for _ in 0..10 {
                other.fiber().unpark();
                sinew::park();
            }
            other.join().unwrap();
        });
        check("scope", &|| {
            let total = AtomicU64::new(0);
            sinew::scope(|s| {
                for _ in 0..10 {
                    s.spawn(|| total.fetch_add(1, Ordering::Relaxed));
                }
            });
            assert_eq!(total.into_inner(), 10);
        });
        check("join with a timeout", &|| {
            let fiber = sinew::spawn(|| sinew::sleep(Duration::from_micros(10)));
            fiber.join_timeout(Duration::from_secs(10)).unwrap().unwrap();
        });
        check("timeout", &|| {
            sinew::timeout(Duration::from_secs(10), || sinew::yield_now()).unwrap();
        });
        let (sender, receiver) = channel::bounded(0);
        let (unused, never) = channel::bounded::<u64>(0);
        check("select", &|| {
            let sender = sender.clone();
            let other = sinew::spawn(move || (0..100).for_each(|n| sender.send(n).unwrap()));
            for expected in 0..100_u64 {
                sinew::select! {
                    send(unused, 0) -> _ => unreachable!(),
                    recv(receiver) -> message => assert_eq!(message, Ok(expected)),
                    recv(never) -> _ => unreachable!(),
                }
            }
            other.join().unwrap();
        });
        check("wait_finished", &|| {
            let fiber = sinew::spawn(sinew::yield_now);
            fiber.fiber().wait_finished();
        });
        waits_of_sync(&check);
    });
}

/// Two fibers wait for each other in turn, by each primitive.
fn waits_of_sync(check: &dyn Fn(&str, &dyn Fn())) {
    /// Runs `theirs` in another fiber while `mine` runs here, on one carrier.
    fn beside(mine: impl Fn(), theirs: impl Fn() + Send + Sync) {
        sinew::scope(|s| {
            s.spawn(&theirs);
            mine();
        });
    }
    let long = Duration::from_secs(10);
    let (mutex, shared, fair) = (Mutex::new(0), RwLock::new(0), FairMutex::new(0));
    let hold = |guard: &mut u64| {
        *guard += 1;
        sinew::yield_now();
    };
    let lock = || (0..5).for_each(|_| hold(&mut mutex.lock()));
    check("a mutex that is waited for", &|| beside(lock, lock));
    let timed = || (0..5).for_each(|_| hold(&mut mutex.try_lock_for(long).unwrap()));
    check("with a timeout", &|| beside(timed, timed));
    let write = || (0..5).for_each(|_| hold(&mut shared.write()));
    let read = || (0..5).for_each(|_| assert!(*shared.read() < u64::MAX));
    check("a lock of many readers", &|| beside(write, read));
    let turns = || (0..5).for_each(|_| hold(&mut fair.lock()));
    check("a fair lock", &|| beside(turns, turns));
    let keys = MultiLock::new();
    let key = || (0..5).for_each(|_| keys.with(7, sinew::yield_now));
    check("a lock of keys", &|| beside(key, key));
    let changed = Condvar::new();
    check("a condition", &|| {
        *mutex.lock() = 0;
        let wait = || changed.wait_while(&mut mutex.lock(), |count| *count == 0);
        beside(wait, || {
            *mutex.lock() = 1;
            changed.notify_one();
        });
    });
    let permits = Semaphore::new(0);
    check("permits", &|| beside(|| permits.acquire().forget(), || permits.add(1)));
    let posts = Futex::new();
    check("a futex", &|| beside(|| posts.wait_next(), || posts.post()));
    check("a future", &|| {
        let future = FiberFuture::new();
        beside(|| assert_eq!(*future.wait(), 7), || future.set(7).unwrap());
    });
    check("a future with a pinned callback", &|| {
        static CALLED: AtomicU64 = AtomicU64::new(0);
        let future = FiberFuture::new();
        let callback = || _ = CALLED.fetch_add(1, Ordering::Relaxed);
        let subscription = std::pin::pin!(Subscription::new(callback));
        future.subscribe_pinned(subscription.into_ref());
        let before = CALLED.load(Ordering::Relaxed);
        future.set(7).unwrap();
        assert_eq!(CALLED.load(Ordering::Relaxed), before + 1);
    });
    let event = Event::new();
    check("an event", &|| {
        event.reset();
        beside(|| event.wait(), || event.set());
    });
    let turn = Sequencer::new();
    check("a sequencer", &|| {
        beside(|| turn.wait(turn.get() + 1), || assert!(turn.increment() > 0))
    });
    check("a baton", &|| {
        let baton = Baton::new();
        beside(|| baton.wait(), || baton.post());
    });
    let barrier = Barrier::new(2);
    let arrive = || {
        barrier.wait();
    };
    check("a barrier", &|| beside(arrive, arrive));
    for capacity in [0, 1] {
        let (sender, receiver) = channel::bounded(capacity);
        let send = || (0..5).for_each(|n| sender.send(n).unwrap());
        let receive = || (0..5).for_each(|n| assert_eq!(receiver.recv(), Ok(n)));
        check("a channel", &|| beside(receive, send));
        check("a channel from the other end", &|| beside(send, receive));
    }
    let (level, watcher) = channel::watch(0);
    let watcher = std::cell::RefCell::new(watcher);
    check("a watched value", &|| {
        beside(|| watcher.borrow_mut().changed().unwrap(), || level.send(1).unwrap());
    });
}
