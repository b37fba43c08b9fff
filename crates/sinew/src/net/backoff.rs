//! Slows down a listener that cannot accept because the system has run out of a resource.

use crate::primitive::{AtomicU32, Ordering};
use core::time::Duration;
use std::io;

/// Slows down a loop of accepts that fail because the system has no descriptor or no memory left.
/// The connection stays in the kernel's queue, so without a pause the next accept would fail at
/// once.
#[derive(Default, Debug)]
pub(crate) struct Backoff {
    failures: AtomicU32,
}

/// The first pause. Each pause after it is twice as long, for [`DOUBLINGS`] steps.
const FIRST: Duration = Duration::from_millis(1);
const DOUBLINGS: u32 = 8;

impl Backoff {
    /// Returns `result`. If it is an error for lack of a resource, this call sleeps first, longer
    /// after each such error.
    pub(crate) fn pace<R>(&self, result: io::Result<R>) -> io::Result<R> {
        match &result {
            Err(error) if is_used_up(error) => {
                let failures = self.failures.fetch_add(1, Ordering::Relaxed);
                crate::sleep(FIRST * (1 << failures.min(DOUBLINGS)));
            }
            _ => {
                if self.failures.load(Ordering::Relaxed) != 0 {
                    self.failures.store(0, Ordering::Relaxed);
                }
            }
        }
        result
    }
}

fn is_used_up(error: &io::Error) -> bool {
    let used_up = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| used_up.contains(&code))
}
