//! What the process has cost.

use std::time::Duration;

/// Time that the process has used the processor.
pub fn processor_time() -> Duration {
    // SAFETY: an all-zero structure is valid, and is filled in.
    let usage = unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::new(time.tv_sec as u64, 0) + Duration::from_micros(time.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}
