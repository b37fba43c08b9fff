//! Measures how busy the machine is, and how much of that time other processes take.

use std::time::{Duration, Instant};

pub(crate) struct Noise {
    start: Instant,
    busy: Duration,
    own: Duration,
}

impl Noise {
    pub(crate) fn start() -> Noise {
        Noise { start: Instant::now(), busy: busy(), own: own() }
    }

    /// Returns the processor time that other processes used since the start, as a share of one
    /// processor.
    pub(crate) fn share(&self) -> f64 {
        let busy = busy().saturating_sub(self.busy);
        let own = own().saturating_sub(self.own);
        busy.saturating_sub(own).as_secs_f64() / self.start.elapsed().as_secs_f64()
    }
}

/// Measures the share of all processors' time that no process uses.
pub(crate) struct Idle {
    start: Instant,
    busy: Duration,
}

impl Idle {
    pub(crate) fn start() -> Idle {
        Idle { start: Instant::now(), busy: busy() }
    }

    pub(crate) fn share(&self) -> f64 {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let busy = busy().saturating_sub(self.busy).as_secs_f64() / processors as f64;
        (1.0 - busy / self.start.elapsed().as_secs_f64()).max(0.0)
    }
}

/// Returns the time that all processors together were busy since the machine started.
fn busy() -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = first.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // The fields are user, nice, system, idle, iowait, irq, softirq, steal. User time already
    // includes the fields after them.
    let busy: u64 = ticks.iter().take(8).sum::<u64>()
        - ticks.get(3).copied().unwrap_or(0)
        - ticks.get(4).copied().unwrap_or(0);
    // SAFETY: no preconditions.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    Duration::from_millis(busy * 1000 / hertz)
}

/// Returns the processor time of this process and its finished children.
fn own() -> Duration {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .into_iter()
        .map(|who| {
            // SAFETY: an all-zero `rusage` is valid, and the call fills it in.
            let usage = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                libc::getrusage(who, &mut usage);
                usage
            };
            let time = |value: libc::timeval| {
                Duration::from_secs(value.tv_sec as u64)
                    + Duration::from_micros(value.tv_usec as u64)
            };
            time(usage.ru_utime) + time(usage.ru_stime)
        })
        .sum()
}
