//! Time as one number: nanoseconds since the process first asked.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

static START: OnceLock<Instant> = OnceLock::new();

/// The moment that is never reached.
pub(crate) const NEVER: u64 = u64::MAX;

/// Now.
#[inline]
pub(crate) fn now() -> u64 {
    let start = START.get_or_init(Instant::now);
    // 584 years fit.
    start.elapsed().as_nanos() as u64
}

/// The moment `duration` after `now`; one that does not fit is never.
pub(crate) fn after(now: u64, duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).map_or(NEVER, |nanos| now.saturating_add(nanos))
}

/// The moment that an instant stands for; what has passed is now.
pub(crate) fn at(instant: Instant) -> u64 {
    let now = now();
    after(now, instant.saturating_duration_since(Instant::now()))
}

/// How long it is until `moment`; nothing for never.
pub(crate) fn until(now: u64, moment: u64) -> Option<Duration> {
    (moment != NEVER).then(|| Duration::from_nanos(moment.saturating_sub(now)))
}
