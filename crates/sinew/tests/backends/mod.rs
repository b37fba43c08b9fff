//! Tests that run on every backend there is.
#![allow(dead_code, reason = "not every test needs all of it")]

use sinew::net::{TcpListener, TcpStream};
use sinew::runtime::{Backend, PinnedWait};
use sinew::{Builder, JoinHandle, Runtime, WaitKind};
use sinew_testkit::watch;
use std::io::{ErrorKind, Write};

/// Runs `test` with a runtime of each backend that is supported here, on one carrier and on two.
pub(crate) fn on_each(test: impl Fn(&Runtime)) {
    for carriers in [1, 2] {
        on_each_with(carriers, &test);
    }
}

/// The same on so many carriers only.
pub(crate) fn on_each_with(carriers: usize, test: impl Fn(&Runtime)) {
    let _watch = watch::a_minute();
    for backend in all() {
        let name = format!("{backend:?} with {carriers}");
        let builder = Runtime::builder().carriers(carriers).name(name).backend(backend);
        test(&builder.pinned_wait(PinnedWait::Silent).build().unwrap());
    }
}

/// The backends that are supported here.
pub(crate) fn all() -> Vec<Backend> {
    let mut backends = vec![Backend::Epoll, Backend::Kqueue, Backend::Uring, Backend::Poll];
    backends.retain(|backend| backend.is_supported());
    backends
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

/// Two ends of a TCP connection.
pub(crate) fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Writes until there is no more room; returns how many bytes that were.
pub(crate) fn fill(stream: &TcpStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let mut total = 0;
    let error = loop {
        match (&*stream).write(&[b'x'; 4096]) {
            Ok(count) => total += count,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    total
}

/// How many descriptors the process has open.
pub(crate) fn open_descriptors() -> usize {
    // One of them is that of the folder.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// What those are who take part in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Fiber,
    /// One that may move between its waits.
    Migratable,
    /// A fiber that blocks its carrier.
    Pinned,
    Thread,
}

impl Who {
    /// All who leave a carrier for others.
    pub(crate) const POLITE: [Who; 3] = [Who::Fiber, Who::Migratable, Who::Thread];

    pub(crate) fn start<T: Send + 'static>(
        self,
        runtime: &Runtime,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Member<T> {
        match self {
            Who::Fiber => Member::Fiber(runtime.spawn(work)),
            Who::Migratable => {
                // SAFETY: the closures of these tests keep nothing of the thread's across a wait.
                let builder = unsafe { Builder::new().migratable() };
                Member::Fiber(builder.runtime(runtime.handle()).spawn(work).unwrap())
            }
            Who::Pinned => Member::Fiber(runtime.spawn(|| sinew::pinned(work))),
            Who::Thread => Member::Thread(std::thread::spawn(work)),
        }
    }
}

/// One that takes part.
pub(crate) enum Member<T> {
    Fiber(JoinHandle<T>),
    Thread(std::thread::JoinHandle<T>),
}

impl<T> Member<T> {
    /// Returns when it waits, as far as that can be told from outside.
    pub(crate) fn until_it_waits(&self) {
        match self {
            Member::Fiber(fiber) => sinew::wait_until(|| fiber.fiber().waits_for().is_some(), None),
            Member::Thread(_) => true,
        };
    }

    pub(crate) fn end(self) -> T {
        let result = match self {
            Member::Fiber(fiber) => fiber.join(),
            Member::Thread(thread) => thread.join(),
        };
        result.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }
}
