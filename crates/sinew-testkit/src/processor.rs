//! The processor time of this process.

use std::time::Duration;

/// The processor time that the process has used, in user and system mode.
pub fn processor_time() -> Duration {
    // SAFETY: an all-zero `rusage` is valid, and `getrusage` may write to it.
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
