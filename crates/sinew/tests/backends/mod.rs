//! Tests that run on every backend there is.
#![allow(dead_code, reason = "not every test needs all of it")]

use sinew::net::{TcpListener, TcpStream};
use sinew::os::unix::net::UnixStream;
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

/// The backends that are supported here; the one that `SINEW_IO` names, if it is set.
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

/// Returns when a fiber waits for a descriptor, or for the time to try again.
#[track_caller]
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

/// Writes until there is no more room; returns how many bytes that were. With TCP there may be more
/// room by and by, though nobody reads.
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

/// Writes until that fails, which it does once there is no room and the time is over, or the
/// connection.
pub(crate) fn write_until_it_fails(mut stream: &TcpStream) -> ErrorKind {
    loop {
        if let Err(error) = stream.write(&[b'x'; 4096]) {
            return error.kind();
        }
    }
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

/// A stream of bytes of which each end knows what comes where.
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    /// Its length has no divisor in common with that of any buffer.
    const LEN: usize = 65_521;

    pub(crate) fn new() -> Pattern {
        let mut seed = sinew_testkit::Seed::new(1);
        Pattern((0..Pattern::LEN).map(|_| seed.number() as u8).collect())
    }

    /// What comes at `offset`, as much as is at hand.
    pub(crate) fn at(&self, offset: u64) -> &[u8] {
        &self.0[(offset % Pattern::LEN as u64) as usize..]
    }

    /// Fails unless `bytes` are those at `offset`.
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

    /// Reads to the end, at most `most` bytes at a time; returns how many there were.
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
