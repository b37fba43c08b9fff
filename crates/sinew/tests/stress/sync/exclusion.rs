//! Locks: one owner at a time, or many readers; served in the order of arrival where that is
//! promised.

use super::bout::{Bout, Inside, Order, Worker};
use lock_api::{MutexGuard, RawMutexFair, RawMutexTimed};
use sinew::sync::{
    FairMutex, FairMutexPlace, MultiLock, MultiLockPlace, Mutex, Patience, RawFairMutex, RawMutex,
    RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard, select,
};
use std::mem::forget;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The interface that both mutexes share.
trait Lock: Deref<Target = lock_api::Mutex<Self::Raw, u64>> + Default + Send + Sync + 'static {
    type Raw: RawMutexFair + RawMutexTimed<Duration = Duration, Instant = Instant>;
    /// Whether waiters are served in their order of arrival.
    const FAIR: bool;
    /// Locks, and can be cancelled.
    fn wait(&self) -> MutexGuard<'_, Self::Raw, u64>;
}

impl Lock for Mutex<u64> {
    type Raw = RawMutex;
    const FAIR: bool = false;
    fn wait(&self) -> MutexGuard<'_, RawMutex, u64> {
        self.lock()
    }
}

impl Lock for FairMutex<u64> {
    type Raw = RawFairMutex;
    const FAIR: bool = true;
    fn wait(&self) -> MutexGuard<'_, RawFairMutex, u64> {
        self.lock()
    }
}

#[derive(Default)]
struct Guarded<L> {
    lock: L,
    inside: AtomicUsize,
    total: AtomicU64,
    order: Order,
}

impl<L> Guarded<L> {
    fn add_one(&self, worker: &mut Worker, value: &mut u64) {
        let _inside = Inside::enter(&self.inside, 0);
        let number = *value;
        worker.pause();
        *value = number + 1;
        self.total.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn mutex(bout: &mut Bout) {
    one_at_a_time::<Mutex<u64>>(bout, own_once);
}

pub(super) fn fair_mutex(bout: &mut Bout) {
    one_at_a_time::<FairMutex<u64>>(bout, |worker, shared| {
        if worker.once_in(3) { own_by_ticket(worker, shared) } else { own_once(worker, shared) }
    });
}

fn one_at_a_time<L: Lock>(bout: &mut Bout, own: fn(&mut Worker, &Guarded<L>)) {
    let shared = Arc::new(Guarded::<L>::default());
    let theirs = shared.clone();
    let count = bout.some();
    bout.start("owner", count, move |worker| {
        for _ in 0..worker.steps() {
            own(worker, &theirs);
            worker.did();
            worker.pause();
        }
    });
    bout.all_ended();
    assert!(!shared.lock.is_locked(), "everybody has ended, and somebody has the lock");
    assert_eq!(*shared.lock.wait(), shared.total.load(Ordering::Relaxed), "updates were lost");
}

fn own_once<L: Lock>(worker: &mut Worker, shared: &Guarded<L>) {
    let Guarded { lock, order, .. } = shared;
    let anyhow = worker.once_in(4);
    let ticket = order.come(worker);
    let guard = worker.attempt(
        || lock.try_lock(),
        |patience| {
            if patience.is_zero() {
                lock.try_lock_until(Instant::now())
            } else {
                lock.try_lock_for(patience)
            }
        },
        // `lock` of `lock_api` cannot be cancelled.
        || if anyhow { (**lock).lock() } else { lock.wait() },
    );
    let Some(mut guard) = guard else { return };
    if L::FAIR {
        order.served(ticket);
    }
    shared.add_one(worker, &mut guard);
    match worker.below(8) {
        0 => MutexGuard::unlock_fair(guard),
        1 => MutexGuard::bump(&mut guard),
        2 => {
            MutexGuard::unlocked(&mut guard, || worker.pause());
            shared.add_one(worker, &mut guard);
        }
        _ => drop(guard),
    }
}

/// Takes a ticket first, and claims the turn later or not at all.
fn own_by_ticket(worker: &mut Worker, shared: &Guarded<FairMutex<u64>>) {
    let Guarded { lock, order, .. } = shared;
    let place = pin!(FairMutexPlace::new());
    let order_ticket = order.come(worker);
    let ticket = lock.enter(place);
    worker.pause();
    let mut guard = match worker.below(if worker.has_timeouts() { 6 } else { 4 }) {
        // Given up by dropping the place.
        0 => return,
        1 => {
            assert_eq!(select(&mut [&mut ticket.arm()], Patience::Forever), Some(0));
            assert!(ticket.has_come());
            ticket.wait()
        }
        2 | 3 => ticket.wait(),
        _ => match ticket.wait_timeout(worker.patience()) {
            Ok(guard) => guard,
            Err(ticket) if worker.once_in(2) => ticket.wait(),
            Err(_) => return,
        },
    };
    order.served(order_ticket);
    shared.add_one(worker, &mut guard);
}

#[derive(Default)]
struct Table {
    lock: RwLock<(u64, u64)>,
    readers: AtomicUsize,
    writers: AtomicUsize,
    upgradable: AtomicUsize,
    total: AtomicU64,
}

impl Table {
    fn read(&self, worker: &mut Worker, data: &(u64, u64)) {
        let _inside = Inside::enter(&self.readers, usize::MAX);
        assert_eq!(self.writers.load(Ordering::SeqCst), 0, "somebody writes what is read");
        let (a, b) = *data;
        assert_eq!(a, b);
        worker.pause();
        assert_eq!(*data, (a, b), "changed while it was read");
    }

    fn write(&self, worker: &mut Worker, data: &mut (u64, u64)) {
        let _inside = Inside::enter(&self.writers, 0);
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "somebody reads what is written");
        let (a, b) = *data;
        assert_eq!(a, b);
        worker.pause();
        assert_eq!(*data, (a, b), "changed by somebody else");
        *data = (a + 1, b + 1);
        self.total.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn rwlock(bout: &mut Bout) {
    if bout.seed.below(3) == 0 { readers_who_meet(bout) } else { readers_and_writers(bout) }
}

/// Readers wait for each other while they hold the lock. A writer that gives up must not keep out
/// the readers that it made wait.
fn readers_who_meet(bout: &mut Bout) {
    #[derive(Default)]
    struct Meeting {
        lock: RwLock<u64>,
        came: AtomicUsize,
        over: AtomicBool,
    }
    let meeting = Arc::new(Meeting::default());
    let (theirs, count) = (meeting.clone(), bout.some());
    let readers = bout.start_safe("reads with others", count, move |worker| {
        for round in 1..=worker.steps().min(4) {
            let first = worker.once_in(2).then(|| theirs.lock.try_write()).flatten();
            let guard = match first {
                Some(mut guard) => {
                    *guard += 1;
                    worker.pause();
                    // Lets in the readers that have come meanwhile.
                    RwLockWriteGuard::downgrade(guard)
                }
                None => theirs.lock.read(),
            };
            theirs.came.fetch_add(1, Ordering::SeqCst);
            while theirs.came.load(Ordering::SeqCst) < round * count {
                sinew::yield_now();
            }
            worker.pause();
            drop(guard);
            worker.did();
        }
    });
    let theirs = meeting.clone();
    let some = if bout.seed.below(2) == 0 { 0 } else { bout.some() };
    bout.start("gives up writing", some, move |worker| {
        while !theirs.over.load(Ordering::SeqCst) {
            let patience = worker.patience();
            if worker.once_in(2) {
                drop(theirs.lock.try_write_for(patience));
            } else {
                drop(theirs.lock.try_upgradable_read_for(patience));
            }
            sinew::yield_now();
        }
    });
    bout.ended(readers);
    meeting.over.store(true, Ordering::SeqCst);
    bout.all_ended();
    assert!(meeting.lock.try_write().is_some(), "nobody has the lock");
}

fn readers_and_writers(bout: &mut Bout) {
    let table = Arc::new(Table::default());
    let theirs = table.clone();
    let count = bout.some();
    bout.start("reader or writer", count, move |worker| {
        for _ in 0..worker.steps() {
            use_once(worker, &theirs);
            worker.did();
            worker.pause();
        }
    });
    bout.all_ended();
    assert!(!table.lock.is_locked(), "everybody has ended, and somebody has the lock");
    let data = *table.lock.try_write().expect("nobody has the lock");
    assert_eq!(data.0, table.total.load(Ordering::Relaxed), "updates were lost");
    assert_eq!(data.0, data.1);
}

fn use_once(worker: &mut Worker, table: &Table) {
    let lock = &table.lock;
    match worker.below(8) {
        0..=3 => {
            let guard = worker.attempt(
                || lock.try_read(),
                |patience| lock.try_read_for(patience),
                || lock.read(),
            );
            if let Some(guard) = guard {
                table.read(worker, &guard);
                if worker.once_in(4) {
                    table.read(worker, &lock.read_recursive());
                }
            }
        }
        4 | 5 => {
            let guard = worker.attempt(
                || lock.try_write(),
                |patience| lock.try_write_for(patience),
                || lock.write(),
            );
            let Some(mut guard) = guard else { return };
            table.write(worker, &mut guard);
            match worker.below(4) {
                0 => table.read(worker, &RwLockWriteGuard::downgrade(guard)),
                1 => change_once(worker, table, RwLockWriteGuard::downgrade_to_upgradable(guard)),
                2 => RwLockWriteGuard::unlock_fair(guard),
                _ => drop(guard),
            }
        }
        _ => {
            let guard = worker.attempt(
                || lock.try_upgradable_read(),
                |patience| lock.try_upgradable_read_for(patience),
                || lock.upgradable_read(),
            );
            if let Some(guard) = guard {
                change_once(worker, table, guard);
            }
        }
    }
}

fn change_once(
    worker: &mut Worker,
    table: &Table,
    mut guard: RwLockUpgradableReadGuard<'_, (u64, u64)>,
) {
    {
        let _alone = Inside::enter(&table.upgradable, 0);
        table.read(worker, &guard);
    }
    let seen = *guard;
    let upgraded = match worker.below(if worker.has_timeouts() { 8 } else { 4 }) {
        0 => RwLockUpgradableReadGuard::try_upgrade(guard).ok(),
        1 => return table.read(worker, &RwLockUpgradableReadGuard::downgrade(guard)),
        2 => {
            return guard.with_upgraded(|data| {
                assert_eq!(*data, seen, "somebody wrote before the one who may");
                table.write(worker, data);
            });
        }
        3 | 4 => Some(RwLockUpgradableReadGuard::upgrade(guard)),
        5 => {
            let patience = worker.patience();
            sinew::timeout(patience, || RwLockUpgradableReadGuard::upgrade(guard)).ok()
        }
        _ => RwLockUpgradableReadGuard::try_upgrade_for(guard, worker.patience()).ok(),
    };
    if let Some(mut guard) = upgraded {
        assert_eq!(*guard, seen, "somebody wrote before the one who may");
        table.write(worker, &mut guard);
    }
}

const KEYS: usize = 4;

#[derive(Default)]
struct Rows {
    locks: MultiLock,
    values: [AtomicU64; KEYS],
    totals: [AtomicU64; KEYS],
    inside: [AtomicUsize; KEYS],
    orders: [Order; KEYS],
}

impl Rows {
    fn change(&self, worker: &mut Worker, key: usize) {
        let _inside = Inside::enter(&self.inside[key], 0);
        let value = self.values[key].load(Ordering::Relaxed);
        worker.pause();
        self.values[key].store(value + 1, Ordering::Relaxed);
        self.totals[key].fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn multi_lock(bout: &mut Bout) {
    let rows = Arc::new(Rows::default());
    let theirs = rows.clone();
    let (count, keys) = (bout.some(), 1 + bout.seed.below(KEYS));
    bout.start("owner of a key", count, move |worker| {
        for _ in 0..worker.steps() {
            lock_once(worker, &theirs, keys);
            worker.did();
            worker.pause();
        }
    });
    bout.all_ended();
    for key in 0..KEYS {
        assert!(rows.locks.try_with(key as u64, || ()).is_some(), "key {key} is still locked");
        let (value, total) = (&rows.values[key], &rows.totals[key]);
        assert_eq!(value.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
    }
}

fn lock_once(worker: &mut Worker, rows: &Rows, keys: usize) {
    let key = worker.below(keys);
    let number = key as u64;
    let locks = &rows.locks;
    let mut slot = pin!(MultiLockPlace::new());
    if worker.once_in(8) {
        let ticket = rows.orders[key].come(worker);
        return locks.with(number, || {
            rows.orders[key].served(ticket);
            rows.change(worker, key);
        });
    }
    let ticket = rows.orders[key].come(worker);
    // One slot for each way, of which one is used.
    let (mut other, mut third) = (pin!(MultiLockPlace::new()), pin!(MultiLockPlace::new()));
    let guard = worker.attempt(
        || locks.try_lock(number, slot.as_mut()),
        |patience| locks.try_lock_for(number, other.as_mut(), patience),
        || locks.lock(number, third.as_mut()),
    );
    let Some(guard) = guard else { return };
    rows.orders[key].served(ticket);
    rows.change(worker, key);
    if key + 1 < keys && worker.once_in(4) {
        // Two keys at a time, always in the same order.
        let ticket = rows.orders[key + 1].come(worker);
        locks.with(number + 1, || {
            rows.orders[key + 1].served(ticket);
            rows.change(worker, key + 1);
        });
    }
    if worker.once_in(8) {
        // The slot gives the key back.
        forget(guard);
    }
}
