//! Streams: every byte arrives, once and in its place, for all kinds of readers and writers.

use crate::backends::{Pattern, Who, connected, on_each, on_each_with};
use sinew::net::{Shutdown, TcpStream};
use sinew::os::unix::net::UnixStream;
use sinew_testkit::child::child;
use sinew_testkit::watch;
use socket2::SockRef;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod backends;

/// Sets the smallest send buffer that the system allows. The receive buffer is larger: without room
/// for a packet, the system would wait for a timer of its own.
fn make_small(stream: &TcpStream) {
    SockRef::from(stream).set_send_buffer_size(1).unwrap();
    SockRef::from(stream).set_recv_buffer_size(64 << 10).unwrap();
}

#[test]
fn one_fiber_reads_while_another_writes_by_reference_and_by_copy() {
    const TOTAL: u64 = 300_000;
    on_each(|runtime| {
        for copies in [false, true] {
            let (one, other) = connected();
            let echo = runtime.spawn(move || {
                sinew::io::copy(&mut &other, &mut &other).unwrap();
                other.shutdown(Shutdown::Write).unwrap();
            });
            let one = Arc::new(one);
            let writer = if copies { Arc::new(one.try_clone().unwrap()) } else { one.clone() };
            let writer = runtime.spawn(move || {
                Pattern::new().write(&*writer, TOTAL, 10_007);
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let reader = runtime.spawn(move || Pattern::new().read(&*one, 7001));
            writer.join().unwrap();
            assert_eq!(reader.join().unwrap(), TOTAL);
            echo.join().unwrap();
        }
    });
}

#[test]
fn two_readers_both_get_a_byte() {
    on_each(|runtime| {
        let (one, mut other) = connected();
        let one = Arc::new(one);
        for _ in 0..20 {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let one = one.clone();
                    Who::Fiber.start(runtime, move || {
                        let mut byte = [0];
                        (&*one).read_exact(&mut byte).unwrap();
                        byte[0]
                    })
                })
                .collect();
            readers.iter().for_each(|reader| reader.until_it_waits());
            other.write_all(b"ab").unwrap();
            let mut both: Vec<_> = readers.into_iter().map(|reader| reader.end()).collect();
            both.sort_unstable();
            assert_eq!(both, b"ab");
        }
    });
}

#[test]
fn no_bytes_are_read_and_written_at_once() {
    let check = || {
        let (mut one, other) = connected();
        assert_eq!(one.read(&mut []).unwrap(), 0);
        assert_eq!(one.read_vectored(&mut []).unwrap(), 0);
        assert_eq!(one.peek(&mut []).unwrap(), 0);
        assert_eq!(one.write(&[]).unwrap(), 0);
        drop(other);
        assert_eq!(one.read(&mut []).unwrap(), 0);
    };
    on_each(|runtime| {
        check();
        runtime.run(check);
    });
}

#[test]
fn vectored_reads_and_writes_are_one_stream() {
    on_each(|runtime| {
        runtime.run(|| {
            let (mut one, mut other) = connected();
            let writer = sinew::spawn(move || {
                let parts = [IoSlice::new(b"he"), IoSlice::new(b""), IoSlice::new(b"llo")];
                assert_eq!(one.write_vectored(&parts).unwrap(), 5);
                one
            });
            let (mut first, mut second) = ([0; 3], [0; 8]);
            let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            assert_eq!(other.read_vectored(&mut parts).unwrap(), 5);
            assert_eq!((&first, &second[..2]), (b"hel", &b"lo"[..]));
            drop(writer.join().unwrap());
            let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
            assert_eq!(other.read_vectored(&mut parts).unwrap(), 0);
        });
    });
}

/// Each write finds room for only some of its bytes, and each wait for room is short.
#[test]
fn writes_go_on_where_they_ran_out_of_room() {
    const TOTAL: u64 = 500_000;
    on_each(|runtime| {
        for (writes, reads) in [(Who::Fiber, Who::Migratable), (Who::Thread, Who::Fiber)] {
            let (one, other) = connected();
            make_small(&one);
            make_small(&other);
            let writer = writes.start(runtime, move || Pattern::new().write(one, TOTAL, 65_536));
            let reader = reads.start(runtime, move || Pattern::new().read(other, 997));
            writer.end();
            assert_eq!(reader.end(), TOTAL);
        }
    });
}

#[test]
fn much_data_arrives_as_it_was_sent() {
    const TOTAL: u64 = if cfg!(debug_assertions) { 64 << 20 } else { 1 << 30 };
    on_each_with(2, |runtime| {
        let (one, other) = connected();
        let writer = runtime.spawn(move || Pattern::new().write(one, TOTAL / 2, 65_536));
        let reader = runtime.spawn(move || Pattern::new().read(other, 100_000));
        writer.join().unwrap();
        assert_eq!(reader.join().unwrap(), TOTAL / 2);
        let (one, other) = UnixStream::pair().unwrap();
        let writer = runtime.spawn(move || Pattern::new().write(one, TOTAL / 2, 65_536));
        let reader = runtime.spawn(move || Pattern::new().read(other, 100_000));
        writer.join().unwrap();
        assert_eq!(reader.join().unwrap(), TOTAL / 2);
    });
}

#[test]
fn all_kinds_of_ends_understand_each_other() {
    const TOTAL: u64 = 100_000;
    on_each(|runtime| {
        let whos = [Who::Fiber, Who::Migratable, Who::Pinned, Who::Thread];
        for (writes, reads) in
            whos.iter().flat_map(|one| whos.iter().map(move |other| (*one, *other)))
        {
            // A pinned fiber blocks the fibers of its carrier, so the other end must be a thread.
            if [writes, reads].contains(&Who::Pinned) && ![writes, reads].contains(&Who::Thread) {
                continue;
            }
            let (one, other) = connected();
            make_small(&one);
            let writer = writes.start(runtime, move || Pattern::new().write(one, TOTAL, 8192));
            let reader = reads.start(runtime, move || Pattern::new().read(other, 8192));
            writer.end();
            assert_eq!(reader.end(), TOTAL, "{writes:?} to {reads:?}");
        }
    });
}

/// The last bytes and the end come together, so one event reports both.
#[test]
fn the_end_that_comes_with_the_last_bytes_is_seen() {
    on_each(|runtime| {
        for round in 0..100 {
            let (mut one, other) = connected();
            let reader = Who::POLITE[round % 3].start(runtime, move || {
                // The buffer is longer than the data, so the read is short.
                let mut other = other;
                let mut buffer = [0; 64];
                let mut all = Vec::new();
                loop {
                    match other.read(&mut buffer).unwrap() {
                        0 => return all,
                        count => all.extend_from_slice(&buffer[..count]),
                    }
                }
            });
            // The bytes come before the reader first waits, while it waits, or after it has read
            // once.
            if round % 2 == 0 {
                reader.until_it_waits();
            }
            if round % 4 < 2 {
                one.write_all(b"first ").unwrap();
            }
            one.write_all(b"last").unwrap();
            drop(one);
            assert!(reader.end().ends_with(b"last"));
        }
    });
}

fn send_urgent(stream: &TcpStream, byte: u8) {
    // SAFETY: a valid descriptor, and one byte.
    let sent =
        unsafe { libc::send(stream.as_raw_fd(), (&raw const byte).cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1);
}

/// A read stops short of the mark of urgent data, although more is there.
#[test]
fn urgent_data_does_not_hide_later_bytes() {
    on_each(|runtime| {
        for inline in [false, true] {
            for waits_first in [false, true] {
                let (mut one, mut other) = connected();
                SockRef::from(&other).set_out_of_band_inline(inline).unwrap();
                let reader = Who::Fiber.start(runtime, move || {
                    let mut all = Vec::new();
                    let mut buffer = [0; 64];
                    while !all.ends_with(b"z") {
                        let count = other.read(&mut buffer).unwrap();
                        assert!(count > 0);
                        all.extend_from_slice(&buffer[..count]);
                    }
                    all
                });
                if waits_first {
                    reader.until_it_waits();
                }
                one.write_all(b"before").unwrap();
                send_urgent(&one, b'!');
                one.write_all(b"after").unwrap();
                send_urgent(&one, b'?');
                one.write_all(b"z").unwrap();
                let all = String::from_utf8(reader.end()).unwrap();
                // Only the last urgent byte counts as urgent; an earlier one becomes an ordinary
                // byte.
                let rest = all.strip_prefix("before").unwrap().trim_start_matches('!');
                assert_eq!(rest, if inline { "after?z" } else { "afterz" });
            }
        }
    });
}

#[test]
fn signals_do_not_disturb_streams() {
    const TOTAL: u64 = 2_000_000;
    extern "C" fn ignore(_: libc::c_int) {}
    child("signals_do_not_disturb_streams", || {
        // SAFETY: the handler does nothing; system calls that it interrupts fail.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
        }
        on_each(|runtime| {
            let stop = Arc::new(AtomicBool::new(false));
            let disturbs = std::thread::spawn({
                let stop = stop.clone();
                move || {
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) {
                        count += signal_all();
                        std::thread::yield_now();
                    }
                    count
                }
            });
            for who in Who::POLITE {
                let (one, other) = connected();
                make_small(&one);
                let echo = who.start(runtime, move || {
                    sinew::io::copy(&mut &other, &mut &other).unwrap();
                    other.shutdown(Shutdown::Write).unwrap();
                });
                let one = Arc::new(one);
                let stream = one.clone();
                let writer = who.start(runtime, move || {
                    Pattern::new().write(&*stream, TOTAL / 20, 10_007);
                    stream.shutdown(Shutdown::Write).unwrap();
                });
                let reader = who.start(runtime, move || Pattern::new().read(&*one, 7001));
                writer.end();
                assert_eq!(reader.end(), TOTAL / 20);
                echo.end();
            }
            stop.store(true, Ordering::Relaxed);
            assert!(disturbs.join().unwrap() > 0);
        });
    })
    .assert_success();
}

/// Sends a signal to every thread but this one. Returns how many there were.
fn signal_all() -> usize {
    // SAFETY: no preconditions.
    let (process, this) = unsafe { (libc::getpid(), libc::gettid()) };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let ids = tasks.filter_map(|task| task.file_name().to_str()?.parse::<libc::pid_t>().ok());
    let send = |id: &libc::pid_t| {
        // SAFETY: the id belongs to a thread of this process, or to none any more. The signal has a
        // handler.
        unsafe { libc::syscall(libc::SYS_tgkill, process, *id, libc::SIGUSR1) == 0 }
    };
    ids.filter(|id| *id != this).filter(send).count()
}

/// A reader and a writer that never have to wait share a carrier with another fiber.
#[test]
fn a_stream_that_never_waits_lets_other_fibers_run() {
    let _watch = watch::a_minute();
    on_each_with(1, |runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let bytes = Arc::new(AtomicU64::new(0));
        let (mut one, mut other) = connected();
        let (stopped, counted) = (stop.clone(), bytes.clone());
        let flood = runtime.spawn(move || {
            // Written bytes can be read at once.
            let mut buffer = [0; 64];
            while !stopped.load(Ordering::Relaxed) {
                one.write_all(&buffer).unwrap();
                other.read_exact(&mut buffer).unwrap();
                counted.fetch_add(64, Ordering::Relaxed);
            }
        });
        let ticker = runtime.spawn(|| (0..1000).for_each(|_| sinew::yield_now()));
        ticker.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        // Each turn of the other fiber is a few operations long.
        let turns = bytes.load(Ordering::Relaxed) / 64;
        assert!(turns < 100_000, "{turns} operations for 1000 turns");
    });
}
