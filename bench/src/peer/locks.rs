//! Locks for threads.

use super::threads::crowd;
use crate::load::{READERS, RIVALS};
use crate::measure::{Lap, Timed};
use std::hint::black_box;

pub(crate) const STD: &str = "std::sync::Mutex, on a thread";
pub(crate) const STD_2: &str = "std::sync, 2 threads";
pub(crate) const STD_8: &str = "std::sync, 8 threads";
pub(crate) const STD_64: &str = "std::sync, 64 threads";
pub(crate) const PARKING_LOT: &str = "0.12.5, on a thread";
pub(crate) const PARKING_LOT_2: &str = "0.12.5, 2 threads";
pub(crate) const PARKING_LOT_8: &str = "0.12.5, 8 threads";
pub(crate) const PARKING_LOT_64: &str = "0.12.5, 64 threads";

/// Locks, increments and unlocks `std::sync::Mutex` on the calling thread.
pub(crate) fn std_mutex() -> Timed {
    let mutex = std::sync::Mutex::new(0_u64);
    Box::new(move |count| {
        Lap::run(count, || {
            for _ in 0..count {
                *black_box(&mutex).lock().expect("no holder panics") += 1;
            }
        })
    })
}

/// Locks, increments and unlocks `parking_lot::Mutex` on the calling thread.
pub(crate) fn parking_lot_mutex() -> Timed {
    let mutex = parking_lot::Mutex::new(0_u64);
    Box::new(move |count| {
        Lap::run(count, || {
            for _ in 0..count {
                *black_box(&mutex).lock() += 1;
            }
        })
    })
}

/// Lets `threads` threads lock, increment and unlock `std::sync::Mutex`.
pub(crate) fn std_contended(threads: u64) -> Timed {
    contended(threads, || {
        let mutex = std::sync::Mutex::new(0);
        move || {
            let mut count = mutex.lock().expect("no holder panics");
            *count += 1;
            *count
        }
    })
}

/// Lets `threads` threads lock, increment and unlock `parking_lot::Mutex`.
pub(crate) fn parking_lot_contended(threads: u64) -> Timed {
    contended(threads, || {
        let mutex = parking_lot::Mutex::new(0);
        move || {
            let mut count = mutex.lock();
            *count += 1;
            *count
        }
    })
}

/// Lets `threads` threads increment under a lock. `make` returns a closure that locks, increments
/// and returns the count.
fn contended<I: Fn() -> u64 + Sync>(threads: u64, make: impl Fn() -> I + 'static) -> Timed {
    Box::new(move |count| {
        let each = count.div_ceil(RIVALS) * RIVALS / threads;
        let increment = make();
        let lap = crowd(threads, each * threads, |_| {
            for _ in 0..each {
                black_box(increment());
            }
        });
        assert_eq!(increment(), each * threads + 1);
        lap
    })
}

/// Lets `threads` threads read a number under a `std::sync::RwLock` that has no writer.
pub(crate) fn std_read(threads: u64) -> Timed {
    reading(threads, || {
        let lock = std::sync::RwLock::new(1);
        move || *lock.read().expect("no holder panics")
    })
}

/// Lets `threads` threads read a number under a `parking_lot::RwLock` that has no writer.
pub(crate) fn parking_lot_read(threads: u64) -> Timed {
    reading(threads, || {
        let lock = parking_lot::RwLock::new(1);
        move || *lock.read()
    })
}

fn reading<R: Fn() -> u64 + Sync>(threads: u64, make: impl Fn() -> R + 'static) -> Timed {
    Box::new(move |count| {
        let each = count.div_ceil(READERS) * READERS / threads;
        let read = make();
        crowd(threads, each * threads, |_| {
            for _ in 0..each {
                black_box(read());
            }
        })
    })
}
