//! Time as one number: nanoseconds since the process first asked.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

static START: OnceLock<Instant> = OnceLock::new();

/// The moment that is never reached.
pub(crate) const NEVER: u64 = u64::MAX;

fn start() -> Instant {
    *START.get_or_init(Instant::now)
}

/// Now.
#[inline]
pub(crate) fn now() -> u64 {
    // 584 years fit.
    start().elapsed().as_nanos() as u64
}

/// The moment `duration` after `now`; one that does not fit is never.
pub(crate) fn after(now: u64, duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).map_or(NEVER, |nanos| now.saturating_add(nanos))
}

/// The moment that an instant stands for, exactly; what was before the first moment is that one.
pub(crate) fn at(instant: Instant) -> u64 {
    after(0, instant.saturating_duration_since(start()))
}

/// The instant that a moment stands for; nothing for never, and for one that no instant can be.
pub(crate) fn to_instant(moment: u64) -> Option<Instant> {
    if moment == NEVER { None } else { start().checked_add(Duration::from_nanos(moment)) }
}

/// How long it is until `moment`; nothing for never.
pub(crate) fn until(now: u64, moment: u64) -> Option<Duration> {
    (moment != NEVER).then(|| Duration::from_nanos(moment.saturating_sub(now)))
}

/// How long it is from now until `moment`; nothing for never, for which the clock is not read.
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
    fn what_does_not_fit_is_never() {
        assert_eq!(after(1, Duration::MAX), NEVER);
        assert_eq!(after(u64::MAX - 1, Duration::from_nanos(5)), NEVER);
        assert_eq!(until(5, NEVER), None);
        assert_eq!(until(5, 3), Some(Duration::ZERO));
    }
}
