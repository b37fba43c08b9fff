//! A log delivers lines to its reader, and does not block writers if the reader does not read.

use sinew::io::LineLog;
use sinew_testkit::child::{child, child_with};
use sinew_testkit::watch;
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read, pipe};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::Stdio;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(40);

/// Returns the text that a descriptor has for its reader at this moment.
fn at_hand(fd: RawFd) -> String {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    if unsafe { libc::poll(&raw mut poll, 1, 0) } != 1 {
        return String::new();
    }
    let mut buffer = [0_u8; 4096];
    // SAFETY: the pointer and the length belong to the buffer.
    let count = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
    String::from_utf8_lossy(&buffer[..usize::try_from(count).unwrap()]).into_owned()
}

/// Opens a terminal. Returns its other end, and the end that programs write to.
fn terminal() -> Ends {
    let (mut other, mut program) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: two valid places for descriptors; the rest may be null.
    let result = unsafe { libc::openpty(&mut other, &mut program, none, none.cast(), none.cast()) };
    assert_eq!(result, 0);
    // SAFETY: both descriptors were just opened.
    unsafe { (OwnedFd::from_raw_fd(other), OwnedFd::from_raw_fd(program)) }
}

fn named_pipe() -> Ends {
    let path = std::env::temp_dir().join(format!("sinew-line-log-{}", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the string ends in zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let both = File::options().read(true).write(true).open(&path).unwrap();
    let writer = File::options().write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    (both.into(), writer.into())
}

fn socket() -> Ends {
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    (one.into(), other.into())
}

fn plain_pipe() -> Ends {
    let (reader, writer) = pipe().unwrap();
    (reader.into(), writer.into())
}

/// The reader's end and the writer's end.
type Ends = (OwnedFd, OwnedFd);

/// A name, and a function that opens it.
type Kind = (&'static str, fn() -> Ends);

/// All kinds of files that can block their writer.
const KINDS: [Kind; 4] =
    [("pipe", plain_pipe), ("named pipe", named_pipe), ("socket", socket), ("terminal", terminal)];

#[test]
fn a_line_is_there_when_the_call_returns_if_there_is_room() {
    for (kind, open) in KINDS {
        let (reader, writer) = open();
        let log = LineLog::new(writer);
        assert!(log.write_line("a line"));
        // A terminal adds a carriage return.
        assert_eq!(at_hand(reader.as_raw_fd()).replace('\r', ""), "a line\n", "{kind}");
    }
}

#[test]
fn a_full_queue_drops_lines_and_the_reader_is_told_how_many() {
    let _watch = watch::a_minute();
    for (kind, open) in KINDS {
        let (reader, writer) = open();
        // SAFETY: no preconditions.
        let mode = |fd: &OwnedFd| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
        let (before, also) = (mode(&writer), writer.try_clone().unwrap());
        let log = LineLog::new(writer);
        // Nothing reads. Once two lines in a row were refused, the log's thread has taken all that
        // it will take.
        let mut accepted = Vec::new();
        let mut refused = 0;
        for number in 0_u64.. {
            let line = format!("{number:>199}");
            match log.write_line(&line) {
                true => accepted.push(line),
                false => refused += 1,
            }
            if refused == 2 {
                break;
            }
        }
        assert!(!log.flush_timeout(Duration::from_millis(1)), "{kind}");
        assert_eq!(mode(&also), before, "{kind}: other processes share the mode");
        let dropped = log.dropped();
        assert_eq!(dropped, 2, "{kind}");
        let mut lines = BufReader::new(File::from(reader)).lines().map(Result::unwrap);
        for line in &accepted {
            assert_eq!(lines.next().as_ref(), Some(line), "{kind}");
        }
        let notice = lines.next().unwrap();
        assert!(notice.contains("2 lines were dropped"), "{kind}: {notice}");
        assert!(log.flush_timeout(LONG), "{kind}");
        // The reader is told once, and further lines arrive.
        assert!(log.write_line("the next"));
        assert_eq!(lines.next().unwrap(), "the next", "{kind}");
    }
}

#[test]
fn a_message_longer_than_the_queue_arrives_whole() {
    let _watch = watch::a_minute();
    let (mut reader, writer) = pipe().unwrap();
    let log = LineLog::new(writer);
    let long = "x".repeat(5 << 20);
    assert!(log.write_line(&long));
    drop(log);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(text.strip_suffix('\n') == Some(&*long), "{} bytes", text.len());
}

#[test]
fn lines_of_many_threads_are_whole_and_each_threads_are_in_order() {
    let _watch = watch::a_minute();
    let (reader, writer) = pipe().unwrap();
    let log = LineLog::new(writer);
    let count = 2000;
    let reads = std::thread::spawn(|| collect(reader));
    std::thread::scope(|s| {
        for thread in 0..4 {
            let log = &log;
            s.spawn(move || {
                for number in 0..count {
                    assert!(log.write_line(format_args!("{thread} {number:04}")));
                }
            });
        }
    });
    drop(log);
    let lines = reads.join().unwrap();
    assert_eq!(lines.len(), 4 * count);
    for thread in 0..4 {
        let mine: Vec<_> =
            lines.iter().filter_map(|line| line.strip_prefix(&format!("{thread} "))).collect();
        let all: Vec<_> = (0..count).map(|number| format!("{number:04}")).collect();
        assert_eq!(mine, all);
    }
}

fn collect(reader: PipeReader) -> Vec<String> {
    BufReader::new(reader).lines().map(Result::unwrap).collect()
}

#[test]
fn lines_for_a_reader_that_is_gone_are_counted() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let log = LineLog::new(writer);
    for _ in 0..3 {
        log.write_line("lost");
    }
    assert_eq!(log.dropped(), 3);
    let full = LineLog::new(File::options().write(true).open("/dev/full").unwrap());
    full.write_line("lost");
    assert_eq!(full.dropped(), 1);
}

/// The pipe breaks while the thread waits for the reader.
#[test]
fn a_reader_that_goes_away_ends_the_wait_for_it() {
    let _watch = watch::a_minute();
    let (reader, writer) = pipe().unwrap();
    let log = LineLog::new(writer);
    let lines = 2000;
    for number in 0..lines {
        assert!(log.write_line(format_args!("{number:>99}")));
    }
    drop(reader);
    assert!(log.flush_timeout(LONG));
    assert!((1..=lines).contains(&log.dropped()), "{}", log.dropped());
}

#[test]
fn lines_of_a_log_that_was_dropped_are_written() {
    let _watch = watch::a_minute();
    let (reader, writer) = pipe().unwrap();
    let log = LineLog::new(writer);
    for number in 0..2000 {
        log.write_line(format_args!("{number:>99}"));
    }
    drop(log);
    assert_eq!(collect(reader).len(), 2000);
}

/// A panic in a line's `Display` goes to the caller, and leaves the log unchanged.
#[test]
fn a_line_that_panics_is_not_written() {
    struct Panics;
    impl std::fmt::Display for Panics {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("on purpose")
        }
    }
    let (mut reader, writer) = pipe().unwrap();
    let log = LineLog::new(writer);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| log.write_line(Panics))).unwrap_err();
    assert!(log.write_line("after it"));
    drop(log);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "after it\n");
}

/// Causes a report of the runtime: a pinned fiber waits.
fn report() {
    sinew::run(|| sinew::pinned(|| sinew::sleep(Duration::from_millis(1))));
}

#[test]
fn reports_are_there_when_the_process_ends_or_aborts_right_after() {
    let _watch = watch::a_minute();
    let ended = child("reports_are_there_when_the_process_ends_or_aborts_right_after", || {
        report();
        LineLog::stdout().write_line("also the output");
        std::process::abort();
    });
    ended.assert_died(libc::SIGABRT, &["pinned"]);
    assert!(ended.stdout.ends_with("also the output\n"), "{ended:#?}");
}

/// The queue is still full of lines when `main` returns, because the reader is slow.
#[test]
fn an_orderly_end_waits_for_a_slow_reader() {
    let _watch = watch::a_minute();
    let ended = child("an_orderly_end_waits_for_a_slow_reader", || {
        for number in 0..10_000 {
            LineLog::stderr().write_line(format_args!("{number:>99}"));
        }
    });
    ended.assert_success();
    assert_eq!(ended.stderr.lines().filter(|line| line.len() == 99).count(), 10_000);
}

/// Standard error is a pipe that nothing reads, and it is full.
#[test]
fn reports_that_are_not_read_stop_no_fiber_and_no_exit() {
    let _watch = watch::a_minute();
    let (reader, writer) = pipe().unwrap();
    let full = LineLog::new(writer.try_clone().unwrap());
    // More than any pipe holds: the rest waits for the thread of this log.
    assert!(full.write_line("x".repeat(2 << 20)));
    let ended = child_with(
        "reports_that_are_not_read_stop_no_fiber_and_no_exit",
        |command| {
            command.stdout(Stdio::piped()).stderr(writer);
        },
        || {
            for _ in 0..100 {
                report();
            }
            LineLog::stdout().write_line("all were reported");
        },
    );
    ended.assert_success();
    assert!(ended.stdout.contains("all were reported"), "{ended:#?}");
    drop(reader);
}
