//! The date of a response, rendered once a second for all threads.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

/// A date in the format of HTTP, for instance "Sun, 06 Nov 1994 08:49:37 GMT".
pub(crate) type Date = [u8; 29];

/// Null until [`start`] has been called; then the date of the current second.
static NOW: AtomicPtr<Date> = AtomicPtr::new(std::ptr::null_mut());

/// Renders the date once, and then each second in a thread of its own.
pub(crate) fn start() {
    render();
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_secs(1));
            render();
        }
    });
}

fn render() {
    let text = httpdate::fmt_http_date(SystemTime::now());
    let date: Date = text.into_bytes().try_into().expect("a date has 29 bytes");
    // Threads may still read the previous date, so no date is ever freed. Each date takes 29 bytes,
    // and a server lives for some seconds.
    let date = Box::leak(Box::new(date));
    // ORDERING: Release publishes the text; pairs with the Acquire in `now`.
    NOW.store(date, Ordering::Release);
}

/// Returns the date of the current second.
pub(crate) fn now() -> &'static Date {
    // ORDERING: Acquire sees the text; pairs with the Release in `render`.
    let now = NOW.load(Ordering::Acquire);
    assert!(!now.is_null(), "the date is rendered before a server starts");
    // SAFETY: `now` is not null, so `render` has leaked it. Nothing writes to it after that.
    unsafe { &*now }
}
