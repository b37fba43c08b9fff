//! Waiting for descriptors of all kinds, one or several at a time.
#![allow(clippy::print_stdout, reason = "processes tell what they have read")]

use crate::backends::{Who, all, connected, on_each, on_each_with, until_it_waits};
use sinew::FiberBuilder;
use sinew::io::{
    Async, Interest, PollFd, poll, wait_readable, wait_readable_timeout, wait_writable,
};
use sinew_testkit::child::{child, child_with};
use sinew_testkit::processor_time;
use sinew_testkit::watch;
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

mod backends;

const SHORT: Duration = Duration::from_millis(2);

/// Takes ownership of a new descriptor that a system call returned.
fn owned(fd: libc::c_int) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the descriptor was just made, and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn pairs(count: usize) -> (Vec<UnixStream>, Vec<UnixStream>) {
    (0..count).map(|_| UnixStream::pair().unwrap()).unzip()
}

#[test]
fn the_first_of_several_ends_the_wait() {
    on_each(|runtime| {
        for who in [Who::Fiber, Who::Migratable, Who::Pinned, Who::Thread] {
            for which in 0..3 {
                let (ones, others) = pairs(3);
                let waits = who.start(runtime, move || {
                    let entry = |one| PollFd::new(one, Interest::Readable);
                    let mut entries: Vec<_> = ones.iter().map(entry).collect();
                    let count = poll(&mut entries, None).unwrap();
                    (count, entries.iter().position(PollFd::is_readable))
                });
                if who != Who::Pinned {
                    waits.until_it_waits();
                }
                (&others[which]).write_all(b"x").unwrap();
                assert_eq!(waits.end(), (1, Some(which)));
            }
        }
    });
}

/// Such devices are always ready, so there is nothing to wait for.
#[test]
fn devices_that_are_always_ready_use_no_processor() {
    let name = "devices_that_are_always_ready_use_no_processor";
    child(name, || {
        on_each(|runtime| {
            let zero = Async::new(File::open("/dev/zero").unwrap()).unwrap();
            let builder = FiberBuilder::new().runtime(runtime.handle());
            let fiber = builder.spawn_when_readable(zero, |mut zero: Async<File>| {
                zero.wait_readable().unwrap();
                let mut entries = [PollFd::new(&zero, Interest::Readable)];
                assert_eq!(poll(&mut entries, None).unwrap(), 1);
                zero.read_exact(&mut [1; 16]).unwrap();
                zero
            });
            let zero = fiber.unwrap().join().unwrap();
            let before = processor_time();
            sinew::sleep(Duration::from_millis(50));
            let used = processor_time() - before;
            assert!(used < Duration::from_millis(25), "{used:?} on {runtime:?}");
            drop(zero);
        });
    })
    .assert_success();
}

/// More descriptors than fit into one call, with slots in several parts of the table.
#[test]
fn one_wait_may_have_hundreds_of_descriptors() {
    on_each_with(2, |runtime| {
        let (ones, others) = pairs(200);
        let waits = runtime.spawn(move || {
            let entry = |one| PollFd::new(one, Interest::Readable);
            let mut entries: Vec<_> = ones.iter().map(entry).collect();
            let mut seen = Vec::new();
            for _ in 0..3 {
                assert_eq!(poll(&mut entries, None).unwrap(), 1);
                let index = entries.iter().position(PollFd::is_readable).unwrap();
                (&ones[index]).read_exact(&mut [0]).unwrap();
                (&ones[index]).write_all(b"seen").unwrap();
                seen.push(index);
            }
            seen
        });
        for index in [199, 0, 64] {
            (&others[index]).write_all(b"x").unwrap();
            (&others[index]).read_exact(&mut [0; 4]).unwrap();
        }
        assert_eq!(waits.join().unwrap(), [199, 0, 64]);
    });
}

#[test]
fn a_descriptor_may_be_in_two_entries() {
    on_each(|runtime| {
        for who in Who::POLITE {
            let (one, other) = UnixStream::pair().unwrap();
            let mut entries =
                [PollFd::new(&one, Interest::Readable), PollFd::new(&one, Interest::Both)];
            // There is room to write, which ends the wait of one entry only.
            assert_eq!(poll(&mut entries, None).unwrap(), 1);
            assert!(entries[1].is_writable() && !entries[1].is_readable());
            let waits = who.start(runtime, move || {
                let mut entries =
                    [PollFd::new(&one, Interest::Readable), PollFd::new(&one, Interest::Readable)];
                let count = poll(&mut entries, None).unwrap();
                (count, entries[0].is_readable(), entries[1].is_readable())
            });
            waits.until_it_waits();
            (&other).write_all(b"x").unwrap();
            assert_eq!(waits.end(), (2, true, true));
        }
    });
}

#[test]
fn entries_are_used_again_and_again() {
    on_each(|runtime| {
        let (one, other) = UnixStream::pair().unwrap();
        let waits = runtime.spawn(move || {
            let mut entries = [PollFd::new(&one, Interest::Readable)];
            for _ in 0..50 {
                assert_eq!(poll(&mut entries, None).unwrap(), 1);
                (&one).read_exact(&mut [0]).unwrap();
                assert_eq!(poll(&mut entries, Some(Duration::ZERO)).unwrap(), 0);
                assert!(!entries[0].is_readable());
                (&one).write_all(b"y").unwrap();
            }
        });
        for _ in 0..50 {
            (&other).write_all(b"x").unwrap();
            (&other).read_exact(&mut [0]).unwrap();
        }
        waits.join().unwrap();
    });
}

#[test]
fn a_wait_without_result_takes_its_time_and_no_more() {
    on_each(|runtime| {
        for who in [Who::Fiber, Who::Migratable, Who::Pinned, Who::Thread] {
            let check = who.start(runtime, move || {
                let (one, _other) = UnixStream::pair().unwrap();
                let mut entries = [PollFd::new(&one, Interest::Readable)];
                assert_eq!(poll(&mut entries, Some(Duration::ZERO)).unwrap(), 0);
                let start = Instant::now();
                assert_eq!(poll(&mut entries, Some(SHORT)).unwrap(), 0);
                assert!(start.elapsed() >= SHORT);
                assert_eq!(poll(&mut [], Some(SHORT)).unwrap(), 0);
                assert!(start.elapsed() >= SHORT * 2);
                assert!(!wait_readable_timeout(&one, Duration::ZERO).unwrap());
                assert!(!wait_readable_timeout(&one, SHORT).unwrap());
                assert!(start.elapsed() >= SHORT * 3);
            });
            check.end();
        }
    });
}

#[test]
fn files_and_closed_peers_are_ready() {
    on_each(|runtime| {
        for who in [Who::Fiber, Who::Pinned, Who::Thread] {
            let check = who.start(runtime, || {
                let file = File::open("/proc/self/exe").unwrap();
                wait_readable(&file).unwrap();
                wait_writable(&file).unwrap();
                let (idle, _peer) = UnixStream::pair().unwrap();
                let mut entries =
                    [PollFd::new(&idle, Interest::Readable), PollFd::new(&file, Interest::Both)];
                assert_eq!(poll(&mut entries, None).unwrap(), 1);
                assert!(entries[1].is_readable() && entries[1].is_writable());
                let (one, other) = UnixStream::pair().unwrap();
                drop(other);
                let mut entries = [PollFd::new(&one, Interest::Readable)];
                assert_eq!(poll(&mut entries, None).unwrap(), 1);
                assert!(entries[0].is_readable() && entries[0].is_hung_up());
                let (reader, writer) = io::pipe().unwrap();
                drop(reader);
                let mut entries = [PollFd::new(&writer, Interest::Writable)];
                assert_eq!(poll(&mut entries, None).unwrap(), 1);
                assert!(entries[0].is_error() && entries[0].is_writable());
            });
            check.end();
        }
    });
}

#[test]
fn room_and_data_end_waits_for_both() {
    on_each(|runtime| {
        for data in [true, false] {
            let (one, other) = sinew::os::unix::net::UnixStream::pair().unwrap();
            let sent = backends::fill(&one);
            let waits = runtime.spawn(move || {
                let mut entries = [PollFd::new(&one, Interest::Both)];
                assert_eq!(poll(&mut entries, None).unwrap(), 1);
                (entries[0].is_readable(), entries[0].is_writable())
            });
            until_it_waits(&waits);
            if data {
                (&other).write_all(b"x").unwrap();
            } else {
                let mut all = vec![0; sent];
                (&other).read_exact(&mut all).unwrap();
            }
            assert_eq!(waits.join().unwrap(), (data, !data));
        }
    });
}

/// Waits for `source` as a fiber and as a thread: first it is not ready, then it is.
fn becomes_readable<S: AsFd + Send + Sync + 'static>(
    make: impl Fn() -> S,
    make_ready: impl Fn(&S),
) {
    on_each(|runtime| {
        for who in Who::POLITE {
            let source = Arc::new(make());
            assert!(!wait_readable_timeout(&*source, Duration::ZERO).unwrap());
            let theirs = source.clone();
            let waits = who.start(runtime, move || wait_readable(&*theirs).unwrap());
            waits.until_it_waits();
            make_ready(&source);
            waits.end();
        }
    });
}

fn write_to(fd: &impl AsFd, bytes: &[u8]) {
    // SAFETY: a valid descriptor, and a buffer with its length.
    let count = unsafe { libc::write(fd.as_fd().as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    assert_eq!(count, bytes.len() as isize);
}

#[test]
fn counters_become_readable() {
    // SAFETY: no preconditions.
    let make = || owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) });
    becomes_readable(make, |counter| write_to(counter, &1_u64.to_ne_bytes()));
}

#[test]
fn timers_become_readable() {
    // SAFETY: no preconditions.
    let make = || owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) });
    becomes_readable(make, |timer| {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let soon = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let time = libc::itimerspec { it_interval: never, it_value: soon };
        // SAFETY: a valid descriptor and time.
        let set =
            unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &time, std::ptr::null_mut()) };
        assert_eq!(set, 0);
    });
}

#[test]
fn pipes_become_readable() {
    let make = || {
        let (reader, writer) = io::pipe().unwrap();
        Pair(OwnedFd::from(reader), OwnedFd::from(writer))
    };
    becomes_readable(make, |pipe| write_to(&pipe.1, b"x"));
}

/// The end that a test waits for, and the other end.
struct Pair(OwnedFd, OwnedFd);

impl AsFd for Pair {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[test]
fn terminals_become_readable() {
    let make = || {
        let (mut one, mut other) = (-1, -1);
        let none = std::ptr::null_mut::<libc::c_char>();
        // SAFETY: room for two descriptors; no name and no settings.
        let opened = unsafe {
            libc::openpty(&mut one, &mut other, none, std::ptr::null(), std::ptr::null())
        };
        assert_eq!(opened, 0);
        Pair(owned(one), owned(other))
    };
    becomes_readable(make, |terminal| write_to(&terminal.1, b"a line\n"));
}

#[test]
fn watches_of_folders_become_readable() {
    let folder = std::env::temp_dir().join(format!("sinew-polling-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = std::ffi::CString::new(folder.to_str().unwrap()).unwrap();
    let make = || {
        // SAFETY: no preconditions.
        let watch = owned(unsafe { libc::inotify_init1(libc::IN_CLOEXEC) });
        // SAFETY: a valid descriptor and path.
        let added =
            unsafe { libc::inotify_add_watch(watch.as_raw_fd(), path.as_ptr(), libc::IN_CREATE) };
        assert!(added >= 0);
        watch
    };
    let number = std::cell::Cell::new(0);
    becomes_readable(make, |_| {
        number.set(number.get() + 1);
        File::create(folder.join(number.get().to_string())).unwrap();
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_foreign_type_waits_where_it_would_block() {
    /// A type that knows nothing of fibers.
    struct Counter(OwnedFd);
    impl Counter {
        fn take(&self) -> io::Result<u64> {
            let mut bytes = [0; 8];
            // SAFETY: a valid descriptor, and a buffer with its length.
            match unsafe { libc::read(self.0.as_raw_fd(), bytes.as_mut_ptr().cast(), 8) } {
                8 => Ok(u64::from_ne_bytes(bytes)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
    impl AsFd for Counter {
        fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
    on_each(|runtime| {
        // SAFETY: no preconditions.
        let counter = Counter(owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }));
        let counter = Arc::new(Async::new(counter).unwrap());
        for who in Who::POLITE {
            let theirs = counter.clone();
            let takes = who.start(runtime, move || theirs.read_with(Counter::take).unwrap());
            takes.until_it_waits();
            write_to(&*counter, &7_u64.to_ne_bytes());
            assert_eq!(takes.end(), 7);
        }
        counter.wait_writable().unwrap();
        assert!(!counter.wait_readable_timeout(SHORT).unwrap());
    });
}

/// One fiber reads from the descriptor, and others wait for it too. Each waiter asks the kernel
/// again.
#[test]
fn several_readers_of_one_descriptor_use_no_processor() {
    child("several_readers_of_one_descriptor_use_no_processor", || {
        on_each(|runtime| {
            let (one, other) = connected();
            let one = Arc::new(one);
            let wait = |reads: bool| {
                let one = one.clone();
                runtime.spawn(move || match reads {
                    true => (&*one).read(&mut [0]).is_ok(),
                    false => wait_readable(&*one).is_ok(),
                })
            };
            // One after the other, so that each fiber finds the descriptor watched.
            let waits = [true, false, false, true].map(|reads| {
                let fiber = wait(reads);
                until_it_waits(&fiber);
                fiber
            });
            let before = processor_time();
            sinew::sleep(Duration::from_millis(200));
            let used = processor_time() - before;
            assert!(used < Duration::from_millis(20), "{used:?} with {}", runtime.handle().name());
            drop(other);
            waits.into_iter().for_each(|fiber| assert!(fiber.join().unwrap()));
        });
    })
    .assert_success();
}

/// No descriptor is left for a poller when the first wait comes.
#[test]
fn without_descriptors_for_a_poller_waits_work_all_the_same() {
    let outcome = child("without_descriptors_for_a_poller_waits_work_all_the_same", || {
        let _watch = watch::a_minute();
        for backend in all() {
            let runtime = sinew::Runtime::builder().carriers(2).backend(backend).build().unwrap();
            let (mut one, mut other) = connected();
            let mut more: Vec<_> = (0..10).map(|_| connected()).collect();
            let used: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
            let reader = runtime.spawn(move || {
                let mut buffer = [0; 8];
                for _ in 0..20 {
                    one.read_exact(&mut buffer[..1]).unwrap();
                    one.write_all(&buffer[..1]).unwrap();
                }
                one
            });
            for byte in 0..20 {
                other.write_all(&[byte]).unwrap();
                let mut back = [0];
                other.read_exact(&mut back).unwrap();
                assert_eq!(back[0], byte);
            }
            drop(reader.join().unwrap());
            let deferred = more.pop().unwrap();
            let fiber = FiberBuilder::new()
                .runtime(runtime.handle())
                .spawn_when_readable(deferred.0, |mut one| one.read(&mut [0; 8]).unwrap())
                .unwrap();
            (&deferred.1).write_all(b"xyz").unwrap();
            assert_eq!(fiber.join().unwrap(), 3);
            drop(used);
            // The runtime keeps the descriptors that it has.
            runtime.run(move || {
                for (mut one, mut other) in more {
                    one.write_all(b"x").unwrap();
                    other.read_exact(&mut [0]).unwrap();
                }
            });
        }
    });
    outcome.assert_success();
    assert!(outcome.stderr.contains("it uses poll"), "{outcome:#?}");
}

/// Reads all lines of standard input in a fiber, while another fiber runs.
fn read_lines() {
    let _watch = watch::a_minute();
    let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let theirs = done.clone();
    let others = runtime.spawn(move || {
        let mut turns = 0_u64;
        while !theirs.load(Ordering::SeqCst) {
            sinew::yield_now();
            turns += 1;
        }
        turns
    });
    let lines =
        runtime.run(|| sinew::io::stdin().lock().lines().map(Result::unwrap).collect::<Vec<_>>());
    done.store(true, Ordering::SeqCst);
    others.join().unwrap();
    println!("lines: {}", lines.join(","));
}

#[test]
fn standard_input_may_be_a_pipe() {
    let (reader, mut writer) = io::pipe().unwrap();
    let feeds = std::thread::spawn(move || {
        for line in ["one\n", "tw", "o\n", "three"] {
            writer.write_all(line.as_bytes()).unwrap();
            std::thread::yield_now();
        }
    });
    let outcome = child_with(
        "standard_input_may_be_a_pipe",
        |command| _ = command.stdin(Stdio::from(reader)),
        read_lines,
    );
    feeds.join().unwrap();
    outcome.assert_success();
    assert!(outcome.stdout.contains("lines: one,two,three"), "{outcome:#?}");
}

#[test]
fn standard_input_may_be_a_file() {
    let path = std::env::temp_dir().join(format!("sinew-input-{}", std::process::id()));
    std::fs::write(&path, "one\ntwo\n").unwrap();
    let outcome = child_with(
        "standard_input_may_be_a_file",
        |command| _ = command.stdin(Stdio::from(File::open(&path).unwrap())),
        read_lines,
    );
    std::fs::remove_file(&path).unwrap();
    outcome.assert_success();
    assert!(outcome.stdout.contains("lines: one,two"), "{outcome:#?}");
}

#[test]
fn standard_input_may_be_closed() {
    let outcome = child("standard_input_may_be_closed", || {
        let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
        // SAFETY: no other code in this process uses standard input.
        unsafe { libc::close(libc::STDIN_FILENO) };
        let read = || {
            let mut text = String::new();
            sinew::io::stdin().read_to_string(&mut text).map(|_| text)
        };
        assert_eq!(runtime.run(read).unwrap(), "");
    });
    outcome.assert_success();
}
