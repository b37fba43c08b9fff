//! Helpers for tests that run on every backend of this system.
#![allow(dead_code, reason = "not every test needs all of it")]

use sinew::net::{TcpListener, TcpStream};
use sinew::os::unix::net::UnixStream;
use sinew::runtime::{Backend, PinnedWait};
use sinew::{FiberBuilder, JoinHandle, Runtime, WaitKind};
use sinew_testkit::watch;
use std::io::{ErrorKind, Write};

/// Runs `test` with a runtime of each supported backend, on one carrier and on two.
pub(crate) fn on_each(test: impl Fn(&Runtime)) {
    for carriers in [1, 2] {
        on_each_with(carriers, &test);
    }
}

/// Runs `test` with a runtime of each supported backend, on `carriers` carriers.
pub(crate) fn on_each_with(carriers: usize, test: impl Fn(&Runtime)) {
    let _watch = watch::a_minute();
    for backend in all() {
        let name = format!("{backend:?} with {carriers}");
        let builder = Runtime::builder().carriers(carriers).name(name).backend(backend);
        test(&builder.pinned_wait(PinnedWait::Silent).build().unwrap());
    }
}

/// Returns the supported backends, or only the one that `SINEW_IO` names if it is set.
pub(crate) fn all() -> Vec<Backend> {
    let chosen = std::env::var("SINEW_IO").ok();
    let is_chosen = |backend: &Backend| {
        chosen.as_ref().is_none_or(|name| format!("{backend:?}").to_lowercase() == *name)
    };
    let mut backends = vec![Backend::Epoll, Backend::Kqueue, Backend::Uring, Backend::Poll];
    backends.retain(|backend| is_chosen(backend) && backend.is_supported());
    backends
}

/// Runs `test` as a fiber on each backend, and as a thread.
pub(crate) fn as_fiber_and_thread(test: fn()) {
    on_each(|runtime| {
        runtime.run(test);
        std::thread::spawn(test).join().unwrap();
    });
}

/// Returns when a fiber waits for a descriptor, or waits before it tries again.
#[track_caller]
pub(crate) fn until_it_waits<T>(fiber: &JoinHandle<T>) {
    let kinds = [WaitKind::Readable, WaitKind::Writable, WaitKind::Sleep];
    let handle = fiber.fiber();
    let waits = || handle.waits_for().is_some_and(|kind| kinds.contains(&kind));
    sinew::wait_until(|| waits() || fiber.is_finished());
    assert!(!fiber.is_finished(), "it ended, and should wait");
}

/// Returns the two ends of a TCP connection.
pub(crate) fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Writes until there is no more room. Returns the number of bytes written. A TCP socket may get
/// more room later, even without a reader; a Unix socket does not.
pub(crate) fn fill(stream: &UnixStream) -> usize {
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

/// Writes until a write fails: because there is no room and the timeout has passed, or because the
/// connection is closed. Returns the kind of error.
pub(crate) fn write_until_it_fails(mut stream: &TcpStream) -> ErrorKind {
    loop {
        if let Err(error) = stream.write(&[b'x'; 4096]) {
            return error.kind();
        }
    }
}

/// Returns the number of descriptors that the process has open.
pub(crate) fn open_descriptors() -> usize {
    // One descriptor belongs to the folder that is read here.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// The kind of participant in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Fiber,
    /// A fiber that may move between its waits.
    Migratable,
    /// A fiber that blocks its carrier.
    Pinned,
    Thread,
}

impl Who {
    /// The kinds that do not block a carrier.
    pub(crate) const POLITE: [Who; 3] = [Who::Fiber, Who::Migratable, Who::Thread];

    pub(crate) fn start<T: Send + 'static>(
        self,
        runtime: &Runtime,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Member<T> {
        match self {
            Who::Fiber => Member::Fiber(runtime.spawn(work)),
            Who::Migratable => {
                // SAFETY: the closures of these tests keep nothing that belongs to a thread across
                // a wait.
                let builder = unsafe { FiberBuilder::new().migratable() };
                Member::Fiber(builder.runtime(runtime.handle()).spawn(work).unwrap())
            }
            Who::Pinned => Member::Fiber(runtime.spawn(|| sinew::pinned(work))),
            Who::Thread => Member::Thread(std::thread::spawn(work)),
        }
    }
}

/// A participant.
pub(crate) enum Member<T> {
    Fiber(JoinHandle<T>),
    Thread(std::thread::JoinHandle<T>),
}

impl<T> Member<T> {
    /// Returns when the participant waits. For a thread this cannot be told, and it returns at
    /// once.
    #[track_caller]
    pub(crate) fn until_it_waits(&self) {
        if let Member::Fiber(fiber) = self {
            until_it_waits(fiber);
        }
    }

    pub(crate) fn end(self) -> T {
        let result = match self {
            Member::Fiber(fiber) => fiber.join(),
            Member::Thread(thread) => thread.join(),
        };
        result.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    }
}

/// A stream of bytes that both ends can compute, to check each byte by its offset.
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    /// The length has no divisor in common with the length of any buffer.
    const LEN: usize = 65_521;

    pub(crate) fn new() -> Pattern {
        let mut seed = sinew_testkit::Seed::new(1);
        Pattern((0..Pattern::LEN).map(|_| seed.number() as u8).collect())
    }

    /// Returns bytes of the stream from `offset` on, as many as are stored contiguously.
    pub(crate) fn at(&self, offset: u64) -> &[u8] {
        &self.0[(offset % Pattern::LEN as u64) as usize..]
    }

    /// Fails unless `bytes` equal the stream at `offset`.
    #[track_caller]
    pub(crate) fn check(&self, mut offset: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let expected = self.at(offset);
            let len = bytes.len().min(expected.len());
            assert!(bytes[..len] == expected[..len], "other bytes within {len} after {offset}");
            offset += len as u64;
            bytes = &bytes[len..];
        }
    }

    /// Writes the first `total` bytes, at most `most` at a time.
    pub(crate) fn write(&self, mut writer: impl Write, total: u64, most: usize) {
        let mut offset = 0;
        while offset < total {
            let bytes = self.at(offset);
            let len = (bytes.len().min(most) as u64).min(total - offset) as usize;
            offset += writer.write(&bytes[..len]).unwrap() as u64;
        }
    }

    /// Reads to the end, at most `most` bytes at a time, and checks each byte. Returns the count.
    pub(crate) fn read(&self, mut reader: impl std::io::Read, most: usize) -> u64 {
        let mut buffer = vec![0; most];
        let mut offset = 0;
        loop {
            let count = reader.read(&mut buffer).unwrap();
            if count == 0 {
                return offset;
            }
            self.check(offset, &buffer[..count]);
            offset += count as u64;
        }
    }
}
