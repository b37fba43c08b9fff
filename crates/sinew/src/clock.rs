//! Moments as one number: nanoseconds since the process first used the clock.
//!
//! Every deadline of the runtime is such a number, and [`NEVER`] stands for "no deadline". Moments
//! never decrease. A conversion from an [`Instant`] never gives an earlier moment.
//!
//! This module uses no other. `carrier`, `park`, `cancel` and `time` use it. Next: `queue::timers`,
//! the heap of deadlines.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

static START: OnceLock<Instant> = OnceLock::new();

/// The moment that never comes: the deadline of a wait without a deadline.
pub(crate) const NEVER: u64 = u64::MAX;

fn start() -> Instant {
    *START.get_or_init(Instant::now)
}

/// Returns the present moment.
#[inline]
pub(crate) fn now() -> u64 {
    // A `u64` has room for 584 years of nanoseconds.
    start().elapsed().as_nanos() as u64
}

/// Returns the moment `duration` after `now`, or [`NEVER`] if it does not fit.
pub(crate) fn after(now: u64, duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).map_or(NEVER, |nanos| now.saturating_add(nanos))
}

/// Returns the moment of an instant, without rounding. An instant before the start of the clock
/// becomes 0, the first moment.
pub(crate) fn at(instant: Instant) -> u64 {
    after(0, instant.saturating_duration_since(start()))
}

/// Returns the instant of a moment; `None` for [`NEVER`], and for a moment that no instant can
/// represent.
pub(crate) fn to_instant(moment: u64) -> Option<Instant> {
    if moment == NEVER { None } else { start().checked_add(Duration::from_nanos(moment)) }
}

/// Returns the time from `now` until `moment`; `None` for [`NEVER`].
pub(crate) fn until(now: u64, moment: u64) -> Option<Duration> {
    (moment != NEVER).then(|| Duration::from_nanos(moment.saturating_sub(now)))
}

/// Returns the time from the present until `moment`; `None` for [`NEVER`], without reading the
/// clock.
pub(crate) fn left_until(moment: u64) -> Option<Duration> {
    if moment == NEVER { None } else { until(now(), moment) }
}

/// Returns a timeout as the kernel takes it. A timeout that does not fit becomes the longest one.
#[inline(always)]
pub(crate) fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos() as _,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_not_rounded_to_an_earlier_moment() {
        now();
        // `at(instant)` is between the two readings only if neither conversion rounds to an earlier
        // moment.
        for _ in 0..10_000 {
            let before = now();
            let instant = Instant::now();
            let after = now();
            assert!((before..=after).contains(&at(instant)));
            assert_eq!(at(instant + Duration::from_secs(1)), at(instant) + 1_000_000_000);
        }
    }

    #[test]
    fn a_moment_that_does_not_fit_is_never() {
        assert_eq!(after(1, Duration::MAX), NEVER);
        assert_eq!(after(u64::MAX - 1, Duration::from_nanos(5)), NEVER);
        assert_eq!(until(5, NEVER), None);
        assert_eq!(until(5, 3), Some(Duration::ZERO));
    }
}
