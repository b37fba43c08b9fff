//! Tests that run on every backend there is.

use sinew::runtime::Backend;
use sinew::{JoinHandle, Runtime, WaitKind};
use sinew_testkit::watch;

/// Runs `test` with a runtime of each backend that is supported here, on one carrier and on two.
pub(crate) fn on_each(test: impl Fn(&Runtime)) {
    let _watch = watch::a_minute();
    let backends = [Backend::Epoll, Backend::Kqueue, Backend::Poll];
    for backend in backends.into_iter().filter(|backend| backend.is_supported()) {
        for carriers in [1, 2] {
            let name = format!("{backend:?} with {carriers}");
            let builder = Runtime::builder().carriers(carriers).name(name).backend(backend);
            test(&builder.build().unwrap());
        }
    }
}

/// Returns when a fiber waits for a descriptor.
#[allow(dead_code, reason = "not every test stops a fiber")]
pub(crate) fn until_it_waits<T>(fiber: &JoinHandle<T>) {
    let waits =
        || matches!(fiber.fiber().waits_for(), Some(WaitKind::Readable | WaitKind::Writable));
    sinew::wait_until(waits, None);
}
