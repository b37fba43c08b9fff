//! Time as one number: nanoseconds since the first use of the clock in the process.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

static START: OnceLock<Instant> = OnceLock::new();

/// The moment that is never reached.
pub(crate) const NEVER: u64 = u64::MAX;

fn start() -> Instant {
    *START.get_or_init(Instant::now)
}

/// Returns the present moment.
#[inline]
pub(crate) fn now() -> u64 {
    // 584 years fit.
    start().elapsed().as_nanos() as u64
}

/// Returns the moment `duration` after `now`, or [`NEVER`] if it does not fit.
pub(crate) fn after(now: u64, duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).map_or(NEVER, |nanos| now.saturating_add(nanos))
}

/// Returns the moment of an instant, exactly. An instant before the first moment becomes the first
/// moment.
pub(crate) fn at(instant: Instant) -> u64 {
    after(0, instant.saturating_duration_since(start()))
}

/// Returns the instant of a moment; `None` for [`NEVER`], and if no instant can represent it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_not_rounded_to_an_earlier_moment() {
        now();
        // Read in this order, the moments can only agree if neither is early.
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
