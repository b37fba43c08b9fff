//! Locks of threads.

use crate::measure::{Lap, Timed};
use std::hint::black_box;

pub(crate) const STD: &str = "std::sync::Mutex, on a thread";
pub(crate) const PARKING_LOT: &str = "0.12.5, on a thread";

/// Locks, increments and unlocks, on the calling thread.
pub(crate) fn std_mutex() -> Timed {
    let mutex = std::sync::Mutex::new(0_u64);
    Box::new(move |count| {
        Lap::run(count, || {
            for _ in 0..count {
                *black_box(&mutex).lock().expect("nobody panics") += 1;
            }
        })
    })
}

/// The same with parking_lot.
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
