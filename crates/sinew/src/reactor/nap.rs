//! When a carrier lets events gather before it looks for them.
//!
//! A carrier that serves its connections faster than requests come finds one or two events at each
//! look. It never sleeps, because there always is one. So it spends its time on looks, and keeps
//! other threads from its processor, among them the clients of a test on one machine. Such a carrier
//! *naps*: it waits some tens of microseconds for its bell alone, and then takes all events that
//! have come.
//!
//! A nap must gain something. If a look after a nap does not find more events than a few, events
//! come only as answers to what the carrier does, as with a single connection that sends a request
//! at a time. Then the carrier stops napping, for a time that doubles with each useless nap.
//!
//! Guarantee: a nap ends with the carrier's bell, so wakes from other threads do not wait for it. A
//! carrier with a near deadline does not nap, nor does one with operations of a ring under way.

use crate::primitive::{AtomicU64, Ordering};
use core::time::Duration;

/// How long a nap lasts, in nanoseconds. The kernel adds its slack of 50 microseconds.
const LENGTH: u64 = 20_000;
/// A carrier with a deadline within this time does not nap, in nanoseconds.
const NEAR: u64 = 100_000;
/// A look that returned within this time has not slept, in nanoseconds.
const AT_ONCE: u64 = 5_000;
/// A carrier naps only after it has not slept for this long, in nanoseconds.
const AWAKE: u64 = 150_000;
/// A look with at most this many events finds little.
const LITTLE: usize = 6;
/// The pause after the first useless nap, and the longest pause, in nanoseconds.
const FIRST_PAUSE: u64 = 500_000;
const LAST_PAUSE: u64 = 100_000_000;

/// What the looks of a carrier have found. Only the carrier's thread uses it.
pub(super) struct Naps {
    /// Since when the carrier has found little at each look without sleeping; zero if it has slept.
    awake_since: AtomicU64,
    /// Before this time there are no naps.
    not_before: AtomicU64,
    /// The pause after the last useless nap.
    pause: AtomicU64,
}

impl Naps {
    pub(super) const fn new() -> Naps {
        Naps {
            awake_since: AtomicU64::new(0),
            not_before: AtomicU64::new(0),
            pause: AtomicU64::new(0),
        }
    }

    /// Returns how long the carrier, which has nothing to run until `timeout`, should nap before it
    /// looks; `None` if it should look at once.
    pub(super) fn due(&self, now: u64, timeout: Option<Duration>) -> Option<Duration> {
        let since = self.awake_since.load(Ordering::Relaxed);
        let length = Duration::from_nanos(LENGTH);
        let due = since != 0
            && now.saturating_sub(since) > AWAKE
            && now >= self.not_before.load(Ordering::Relaxed)
            && timeout.is_none_or(|timeout| timeout > Duration::from_nanos(NEAR));
        // Where a bell waits for whole milliseconds, a nap would last too long.
        (due && !cfg!(target_vendor = "apple")).then_some(length)
    }

    /// Notes the look after a nap.
    pub(super) fn napped(&self, now: u64, found: usize) {
        if found > LITTLE {
            self.pause.store(0, Ordering::Relaxed);
            return;
        }
        let pause = (2 * self.pause.load(Ordering::Relaxed)).clamp(FIRST_PAUSE, LAST_PAUSE);
        self.pause.store(pause, Ordering::Relaxed);
        self.not_before.store(now + pause, Ordering::Relaxed);
    }

    /// Notes a look without a nap, which began at `before` and has found `found` events.
    pub(super) fn looked(&self, before: u64, now: u64, found: usize) {
        let slept = found == 0 || now.saturating_sub(before) > AT_ONCE;
        if slept || found > LITTLE {
            self.awake_since.store(0, Ordering::Relaxed);
        } else if self.awake_since.load(Ordering::Relaxed) == 0 {
            self.awake_since.store(now, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks as often as a carrier that finds `found` events every ten microseconds, until it is to
    /// nap. Returns the time; `None` if it does not nap within a second.
    fn until_nap(naps: &Naps, from: u64, found: usize) -> Option<u64> {
        (from..from + 1_000_000_000).step_by(10_000).find(|now| {
            let due = naps.due(*now, None).is_some();
            if !due {
                naps.looked(*now, *now + 1_000, found);
            }
            due
        })
    }

    #[test]
    fn a_carrier_that_finds_little_for_long_naps() {
        let naps = Naps::new();
        let first = until_nap(&naps, 1, 2).unwrap();
        assert!(first > AWAKE && first < 2 * AWAKE);
        // The nap was of use: the next one may follow at once.
        naps.napped(first, LITTLE + 1);
        assert!(naps.due(first + 1, None).is_some());
        // A deadline is near.
        assert!(naps.due(first + 1, Some(Duration::from_nanos(NEAR))).is_none());
        assert!(naps.due(first + 1, Some(Duration::from_nanos(NEAR + 1))).is_some());
    }

    #[test]
    fn a_carrier_that_finds_much_or_sleeps_does_not_nap() {
        assert_eq!(until_nap(&Naps::new(), 1, LITTLE + 1), None);
        let naps = Naps::new();
        for now in (1..100 * AWAKE).step_by(100_000) {
            assert!(naps.due(now, None).is_none());
            naps.looked(now, now + 1_000, 1);
            naps.looked(now + 1_000, now + 2_000 + AT_ONCE, 1);
        }
    }

    #[test]
    fn naps_without_use_become_rare() {
        let naps = Naps::new();
        let mut now = 1;
        let mut count = 0;
        while now < 10_000_000_000 {
            now = until_nap(&naps, now, 1).unwrap_or(now + 1_000_000_000);
            naps.napped(now, 1);
            count += 1;
        }
        assert!(count < 120, "{count} naps in ten seconds");
    }
}
