//! The members of a test, as fibers or as threads.

use sinew::{JoinHandle, Runtime, WaitKind};
use sinew_testkit::watch;

/// The kind of the members of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Team {
    Fibers,
    Threads,
}

/// Runs the test as a fiber among fibers, on one carrier and on two, and as a thread among threads.
pub(crate) fn everywhere(test: fn(Team)) {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        runtime.run(move || test(Team::Fibers));
    }
    test(Team::Threads);
}

impl Team {
    /// Starts a member.
    pub(crate) fn start<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Member<T> {
        match self {
            Team::Fibers => Member::Fiber(sinew::spawn(work)),
            Team::Threads => Member::Thread(std::thread::spawn(work)),
        }
    }
}

/// A member.
pub(crate) enum Member<T> {
    Fiber(JoinHandle<T>),
    Thread(std::thread::JoinHandle<T>),
}

impl<T> Member<T> {
    /// Returns the member's result, or the payload of its panic.
    pub(crate) fn result(self) -> std::thread::Result<T> {
        match self {
            Member::Fiber(fiber) => fiber.join(),
            Member::Thread(thread) => thread.join(),
        }
    }

    /// Returns the member's result.
    #[track_caller]
    pub(crate) fn end(self) -> T {
        self.result().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }

    /// Returns when the member waits for `kind`. A thread cannot be observed and only gets time to
    /// begin its wait, so no assertion may depend on it.
    #[track_caller]
    pub(crate) fn waits(&self, kind: WaitKind) {
        match self {
            Member::Fiber(fiber) => {
                let handle = fiber.fiber();
                let waits = || handle.waits_for() == Some(kind);
                sinew::wait_until(|| waits() || fiber.is_finished());
                assert!(waits(), "it ended, and should wait");
            }
            Member::Thread(thread) => {
                (0..20).for_each(|_| std::thread::yield_now());
                assert!(!thread.is_finished(), "it ended, and should wait");
            }
        }
    }
}
