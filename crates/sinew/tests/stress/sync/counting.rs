//! Permits, parts and places are conserved.

use super::bout::{Bout, Order, Shelf, Worker};
use sinew::sync::{Barrier, Semaphore, WaitGroup};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Room {
    permits: Arc<Semaphore>,
    size: usize,
    taken: AtomicUsize,
    order: Order,
}

/// Counts the permits that are held.
struct Taken<'a>(&'a AtomicUsize, usize);

impl<'a> Taken<'a> {
    fn count(room: &'a Room, count: usize) -> Taken<'a> {
        let before = room.taken.fetch_add(count, Ordering::SeqCst);
        assert!(before + count <= room.size, "{before} + {count} of {} permits", room.size);
        Taken(&room.taken, count)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

pub(super) fn semaphore(bout: &mut Bout) {
    let size = bout.some() - 1;
    let room = Arc::new(Room {
        permits: Arc::new(Semaphore::new(size)),
        size,
        taken: AtomicUsize::new(0),
        order: Order::default(),
    });
    let theirs = room.clone();
    let count = bout.some();
    bout.start("holder of permits", count, move |worker| {
        for _ in 0..worker.steps() {
            take_once(worker, &theirs);
            worker.did();
            worker.pause();
        }
    });
    bout.all_ended();
    assert_eq!(room.taken.load(Ordering::SeqCst), 0);
    assert_eq!(room.permits.available(), size, "permits were lost, or made");
    assert!(room.permits.try_acquire_many(size).is_some(), "somebody seems to wait");
}

fn take_once(worker: &mut Worker, room: &Room) {
    let count = match worker.below(4) {
        0 => 1 + worker.below(room.size),
        _ => 1,
    };
    let permits = &room.permits;
    let ticket = room.order.come(worker);
    if worker.once_in(8) {
        let owned = Semaphore::acquire_owned(permits, count);
        let taken = Taken::count(room, count);
        worker.pause();
        drop(taken);
        if worker.once_in(2) {
            // Another fiber gives them back.
            drop(worker.spawn(move || drop(owned)).join());
        }
        return;
    }
    let held = worker.attempt(
        || permits.try_acquire_many(count),
        |patience| permits.acquire_timeout(count, patience),
        || permits.acquire_many(count),
    );
    let Some(held) = held else { return };
    if room.size == 1 {
        room.order.served(ticket);
    }
    let taken = Taken::count(room, count);
    worker.pause();
    drop(taken);
    if worker.once_in(8) {
        held.forget();
        permits.add(count);
    }
}

pub(super) fn barrier(bout: &mut Bout) {
    if bout.has_cancels() || bout.has_timeouts() {
        barrier_that_some_leave(bout);
    } else {
        let count = bout.some();
        barrier_for_all(bout, Arc::new(Barrier::new(count)), count);
    }
}

/// No worker passes before all are there, and one is the leader.
fn barrier_for_all(bout: &mut Bout, barrier: Arc<Barrier>, count: usize) {
    let there = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let theirs = there.clone();
    let crew = bout.start("at the barrier", count, move |worker| {
        let (came, leaders) = &*theirs;
        for round in 1..=worker.steps() {
            came.fetch_add(1, Ordering::SeqCst);
            let leads = barrier.wait().is_leader();
            assert!(came.load(Ordering::SeqCst) >= round * count, "passed too early");
            leaders.fetch_add(usize::from(leads), Ordering::SeqCst);
            worker.did();
            worker.pause();
        }
    });
    let steps = bout.steps();
    bout.ended(crew);
    assert_eq!(there.1.load(Ordering::SeqCst), steps, "one leader in each round");
}

/// Workers that leave do not count; afterwards the barrier is as new.
fn barrier_that_some_leave(bout: &mut Bout) {
    #[derive(Default)]
    struct Passed {
        leaders: AtomicUsize,
        others: AtomicUsize,
        left: AtomicUsize,
    }
    /// Counts a worker that leaves, unless it is forgotten.
    struct Leaves<'a>(&'a Passed);
    impl Drop for Leaves<'_> {
        fn drop(&mut self) {
            self.0.left.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (size, count) = (2 + bout.seed.below(4), bout.some());
    let barrier = Arc::new(Barrier::new(size));
    let passed = Arc::new(Passed::default());
    let (theirs, crowd) = (passed.clone(), barrier.clone());
    bout.start("at the barrier", count, move |worker| {
        for _ in 0..worker.steps().min(16) {
            let patience = worker.patience();
            let result = sinew::timeout(patience, || {
                let leaves = Leaves(&theirs);
                let result = crowd.wait();
                std::mem::forget(leaves);
                result
            });
            match result.map(|result| result.is_leader()) {
                Ok(true) => _ = theirs.leaders.fetch_add(1, Ordering::SeqCst),
                Ok(false) => _ = theirs.others.fetch_add(1, Ordering::SeqCst),
                Err(_) => {}
            }
            worker.did();
            worker.pause();
        }
    });
    bout.all_ended();
    // A worker may have been counted as present when it left.
    let [leaders, others, left] =
        [&passed.leaders, &passed.others, &passed.left].map(|count| count.load(Ordering::SeqCst));
    let followers = leaders * (size - 1);
    assert!(others <= followers, "{others} passed with {leaders} leaders of {size}");
    assert!(followers <= others + left, "{others} passed, {left} left, {leaders} led {size}");
    bout.no_more_cancels();
    barrier_for_all(bout, barrier, size);
}

struct Work {
    /// Parts by group, for the workers that do the work, and for those that wait for it.
    parts: Shelf<Vec<(usize, WaitGroup)>>,
    waits: Shelf<Vec<(usize, WaitGroup)>>,
    left: Vec<AtomicUsize>,
}

pub(super) fn wait_group(bout: &mut Bout) {
    let (groups, count) = (bout.steps().min(32), bout.some());
    let (mut parts, mut waits, mut left) = (Vec::new(), Vec::new(), Vec::new());
    for group in 0..groups {
        // No more waiters for a group than can wait at the same time: they have parts as well.
        let (size, waiters) = (1 + bout.seed.below(6), 1 + bout.seed.below(count.min(4)));
        let all = WaitGroup::new();
        parts.extend((0..size).map(|_| (group, all.clone())));
        waits.extend((0..waiters).map(|_| (group, all.clone())));
        left.push(AtomicUsize::new(size));
    }
    let work = Work { parts: Shelf::new(parts), waits: Shelf::new(waits), left };
    let work = Arc::new(work);
    let theirs = work.clone();
    bout.start("waits for a group", count, move |worker| {
        while let Some((index, group)) = theirs.waits.with(Vec::pop) {
            let group = std::cell::Cell::new(Some(group));
            let take = || group.take().expect("one way is taken");
            let done = worker.attempt(
                || None,
                |patience| take().wait_timeout(patience).then_some(()),
                || take().wait(),
            );
            let left = theirs.left[index].load(Ordering::SeqCst);
            assert!(done.is_none() || left == 0, "{left} parts are not done");
            worker.did();
            worker.pause();
        }
    });
    let theirs = work.clone();
    let count = bout.some();
    bout.start("does a part", count, move |worker| {
        while let Some((index, part)) = theirs.parts.with(Vec::pop) {
            // Counted even if the worker is cancelled, and before the part is dropped.
            struct Done<'a>(&'a AtomicUsize, Option<WaitGroup>);
            impl Drop for Done<'_> {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, Ordering::SeqCst);
                    drop(self.1.take());
                }
            }
            let done = Done(&theirs.left[index], Some(part));
            worker.pause();
            drop(done);
            worker.did();
        }
    });
    bout.all_ended();
    assert!(work.left.iter().all(|left| left.load(Ordering::SeqCst) == 0));
}
