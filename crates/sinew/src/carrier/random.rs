//! Random numbers for fair choices, on any thread.

use super::current;
use crate::primitive::{AtomicU64, Ordering};

/// Returns a random number below `end`, good enough for fairness.
pub(crate) fn random(end: usize) -> usize {
    static STATE: AtomicU64 = AtomicU64::new(0);
    let number = match current::running() {
        Some((carrier, _)) => carrier.random(),
        None => {
            let mut number = STATE.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
            number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            number ^ number >> 31
        }
    };
    ((u128::from(number) * end as u128) >> 64) as usize
}
