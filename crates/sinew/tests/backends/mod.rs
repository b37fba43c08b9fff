//! Tests that run on every backend there is.
#![allow(dead_code, reason = "not every test needs all of it")]

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

/// Runs `test` as a fiber on each backend, and as a thread.
pub(crate) fn as_fiber_and_thread(test: fn()) {
    on_each(|runtime| {
        runtime.run(test);
        std::thread::spawn(test).join().unwrap();
    });
}

/// Returns when a fiber waits for a descriptor, or for the time to try again.
pub(crate) fn until_it_waits<T>(fiber: &JoinHandle<T>) {
    let kinds = [WaitKind::Readable, WaitKind::Writable, WaitKind::Sleep];
    let handle = fiber.fiber();
    let waits = || handle.waits_for().is_some_and(|kind| kinds.contains(&kind));
    sinew::wait_until(|| waits() || fiber.is_finished(), None);
    assert!(!fiber.is_finished(), "it ended, and should wait");
}
