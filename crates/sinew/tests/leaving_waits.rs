//! Waits for descriptors that end by cancellation or by a deadline. The descriptor is unchanged,
//! and no byte is lost.

use crate::backends::{Pattern, connected, fill, on_each, until_it_waits};
use sinew::io::{Interest, PipeReader, PollFd};
use sinew::net::{TcpListener, TcpStream};
use sinew::os::unix::net::UnixStream;
use sinew::{JoinHandle, Runtime};
use sinew_testkit::Seed;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod backends;

fn is_left<T: std::fmt::Debug>(fiber: JoinHandle<T>) {
    until_it_waits(&fiber);
    fiber.cancel();
    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
}

/// Leaves `wait` by a cancellation and by a deadline, and checks that another wait succeeds after
/// `make_ready`.
fn is_left_and_works<S, T>(
    runtime: &Runtime,
    subject: S,
    wait: impl Fn(&S) -> T + Send + Copy + 'static,
    make_ready: impl FnOnce(),
) -> T
where
    S: Send + Sync + 'static,
    T: Send + std::fmt::Debug + 'static,
{
    let subject = Arc::new(subject);
    let start = || {
        let subject = subject.clone();
        runtime.spawn(move || wait(&subject))
    };
    is_left(start());
    let theirs = subject.clone();
    runtime.run(move || {
        assert!(sinew::timeout(Duration::from_millis(1), || wait(&theirs)).is_err());
    });
    let stays = start();
    is_left(start());
    until_it_waits(&stays);
    make_ready();
    stays.join().unwrap()
}

#[test]
fn after_an_accept_was_left_another_accepts() {
    on_each(|runtime| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let accept = |listener: &TcpListener| listener.accept().unwrap().1;
        let mut client = None;
        let peer = is_left_and_works(runtime, listener, accept, || {
            client = Some(TcpStream::connect(address).unwrap());
        });
        assert_eq!(peer, client.unwrap().local_addr().unwrap());
    });
}

#[test]
fn after_a_read_was_left_another_reads() {
    on_each(|runtime| {
        let (one, mut other) = connected();
        let read = |stream: &TcpStream| {
            let mut buffer = [0; 8];
            (&*stream).read(&mut buffer).map(|count| buffer[..count].to_vec()).unwrap()
        };
        let got = is_left_and_works(runtime, one, read, || other.write_all(b"x").unwrap());
        assert_eq!(got, b"x");
    });
}

#[test]
fn after_a_write_was_left_another_writes() {
    on_each(|runtime| {
        let (one, mut other) = UnixStream::pair().unwrap();
        let sent = fill(&one);
        let write = |stream: &UnixStream| (&*stream).write(b"last").unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let counts = received.clone();
        let mut reader = None;
        let count = is_left_and_works(runtime, one, write, || {
            reader = Some(std::thread::spawn(move || {
                let mut buffer = vec![0; 65_536];
                loop {
                    match other.read(&mut buffer).unwrap() {
                        0 => return,
                        count => _ = counts.fetch_add(count as u64, Ordering::SeqCst),
                    }
                }
            }));
        });
        reader.unwrap().join().unwrap();
        // The writes that were left have written nothing.
        assert_eq!(received.load(Ordering::SeqCst), (sent + count) as u64);
    });
}

#[test]
fn after_a_read_of_a_pipe_was_left_another_reads() {
    on_each(|runtime| {
        let (reader, mut writer) = sinew::io::pipe().unwrap();
        let read = |mut pipe: &PipeReader| {
            let mut buffer = [0; 8];
            pipe.read(&mut buffer).map(|count| buffer[..count].to_vec()).unwrap()
        };
        let got = is_left_and_works(runtime, reader, read, || writer.write_all(b"x").unwrap());
        assert_eq!(got, b"x");
    });
}

#[test]
fn after_a_wait_for_a_descriptor_was_left_another_waits() {
    on_each(|runtime| {
        let (one, mut other) = connected();
        let wait = |stream: &TcpStream| sinew::io::wait_readable(stream).unwrap();
        is_left_and_works(runtime, one, wait, || other.write_all(b"x").unwrap());
    });
}

#[test]
fn after_a_wait_for_several_was_left_another_waits() {
    on_each(|runtime| {
        let (one, mut other) = connected();
        let (pipe, _writer) = sinew::io::pipe().unwrap();
        let wait = |(stream, pipe): &(TcpStream, PipeReader)| {
            let mut entries =
                [PollFd::new(pipe, Interest::Readable), PollFd::new(stream, Interest::Readable)];
            assert_eq!(sinew::io::poll(&mut entries, None).unwrap(), 1);
            entries[1].is_readable()
        };
        let make_ready = || other.write_all(b"x").unwrap();
        assert!(is_left_and_works(runtime, (one, pipe), wait, make_ready));
    });
}

/// Readers are cancelled while bytes arrive. The next reader gets the bytes that a cancelled one
/// missed.
#[test]
fn no_byte_is_lost_to_readers_that_are_cancelled() {
    const BYTES: usize = 400;
    let mut seed = Seed::from_env();
    let seed = std::cell::RefCell::new(&mut seed);
    on_each(|runtime| {
        let (one, mut other) = connected();
        let one = Arc::new(one);
        let all = Arc::new(Mutex::new(Vec::new()));
        let mut chance = seed.borrow_mut().fork();
        let writer = std::thread::spawn(move || {
            for byte in 0..BYTES {
                (0..chance.below(5000)).for_each(|_| std::hint::spin_loop());
                other.write_all(&[byte as u8]).unwrap();
            }
        });
        let mut chance = seed.borrow_mut().fork();
        loop {
            let (stream, got) = (one.clone(), all.clone());
            let reader = runtime.spawn(move || {
                let mut buffer = [0; 8];
                loop {
                    match (&*stream).read(&mut buffer).unwrap() {
                        0 => return,
                        count => got.lock().unwrap().extend_from_slice(&buffer[..count]),
                    }
                }
            });
            (0..chance.below(20_000)).for_each(|_| std::hint::spin_loop());
            reader.cancel();
            if reader.join().is_ok() {
                break;
            }
        }
        writer.join().unwrap();
        let all = all.lock().unwrap();
        assert_eq!(all.len(), BYTES);
        assert!(all.iter().enumerate().all(|(index, byte)| index as u8 == *byte));
    });
}

/// Writers are cancelled while there is no room. The next writer writes the bytes that a cancelled
/// one did not.
#[test]
fn no_byte_is_lost_or_written_twice_by_writers_that_are_cancelled() {
    const TOTAL: u64 = 400_000;
    let mut seed = Seed::from_env();
    let seed = std::cell::RefCell::new(&mut seed);
    on_each(|runtime| {
        let (one, other) = connected();
        socket2::SockRef::from(&one).set_send_buffer_size(1).unwrap();
        let reader = std::thread::spawn(move || Pattern::new().read(other, 5000));
        let one = Arc::new(one);
        let (offset, pattern) = (Arc::new(AtomicU64::new(0)), Arc::new(Pattern::new()));
        let mut chance = seed.borrow_mut().fork();
        loop {
            let (stream, offset, pattern) = (one.clone(), offset.clone(), pattern.clone());
            let writer = runtime.spawn(move || {
                loop {
                    let at = offset.load(Ordering::SeqCst);
                    if at == TOTAL {
                        return;
                    }
                    let bytes = pattern.at(at);
                    let len = (bytes.len() as u64).min(TOTAL - at) as usize;
                    let count = (&*stream).write(&bytes[..len]).unwrap();
                    offset.store(at + count as u64, Ordering::SeqCst);
                }
            });
            (0..chance.below(50_000)).for_each(|_| std::hint::spin_loop());
            writer.cancel();
            if writer.join().is_ok() {
                break;
            }
        }
        drop(one);
        assert_eq!(reader.join().unwrap(), TOTAL);
    });
}

#[test]
fn a_read_in_a_masked_region_is_not_left() {
    on_each(|runtime| {
        let (mut one, mut other) = connected();
        let reader = runtime.spawn(move || {
            let mut buffer = [0; 8];
            let count = sinew::masked(|| one.read(&mut buffer)).unwrap();
            assert_eq!(&buffer[..count], b"x");
            assert!(sinew::is_cancelled());
            // The next wait raises the cancellation.
            one.read(&mut buffer)
        });
        until_it_waits(&reader);
        reader.cancel();
        (0..100).for_each(|_| std::thread::yield_now());
        assert!(!reader.is_finished());
        other.write_all(b"x").unwrap();
        assert!(sinew::is_cancel(&*reader.join().unwrap_err()));
    });
}

/// A pinned fiber blocks in a system call, which a cancellation ends.
#[test]
fn a_pinned_wait_is_cancelled() {
    on_each(|runtime| {
        let blocks: [fn(&TcpStream); 2] = [
            |mut stream| _ = stream.read(&mut [0]).unwrap(),
            |stream| {
                let mut entries = [PollFd::new(stream, Interest::Readable)];
                sinew::io::poll(&mut entries, None).unwrap();
            },
        ];
        for block in blocks {
            let (one, _other) = connected();
            let begins = Arc::new(AtomicBool::new(false));
            let theirs = begins.clone();
            let fiber = runtime.spawn(move || {
                sinew::pinned(|| {
                    theirs.store(true, Ordering::SeqCst);
                    block(&one);
                });
            });
            sinew::wait_until(|| begins.load(Ordering::SeqCst));
            (0..100).for_each(|_| std::thread::yield_now());
            fiber.cancel();
            assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        }
        // A deadline ends the wait as well, also on a thread.
        let (one, _other) = connected();
        let limit = Duration::from_millis(2);
        let check =
            move || sinew::timeout(limit, || sinew::pinned(|| (&one).read(&mut [0]).unwrap()));
        assert!(runtime.run(check).is_err());
        let (one, _other) = connected();
        assert!(sinew::timeout(limit, || (&one).read(&mut [0]).unwrap()).is_err());
    });
}
