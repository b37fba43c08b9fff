//! Child processes: waiting for them, their pipes, and their cleanup.

use sinew::process::{Child, ChildStdin, Command, Stdio};
use sinew::runtime::{Backend, Runtime};
use sinew::{FiberState, is_cancel};
use sinew_testkit::watch;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Runs `body` in a fiber of a runtime with `carriers` carriers, once for each backend of this
/// system.
fn on_each_backend(carriers: usize, body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let best = if cfg!(any(target_os = "linux", target_os = "android")) {
        Backend::Epoll
    } else {
        Backend::Kqueue
    };
    for backend in [best, Backend::Poll] {
        let runtime = Runtime::builder().carriers(carriers).backend(backend).build().unwrap();
        let body = body.clone();
        runtime.run(move || body());
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Starts a child that ends at the end of its input.
fn reader() -> (Child, ChildStdin) {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

/// Whether the system still has an entry for a process, possibly as a zombie.
fn exists(pid: u32) -> bool {
    // SAFETY: signal 0 sends nothing.
    unsafe { libc::kill(pid as libc::pid_t, 0) == 0 }
}

/// Only the ticker lets the child end. If the wait kept the only carrier from running other fibers,
/// it would last for ever.
#[test]
fn other_fibers_run_while_one_waits_for_a_child() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let (mut child, stdin) = reader();
        let ticks = Arc::new(AtomicUsize::new(0));
        let counted = ticks.clone();
        sinew::spawn(move || {
            for _ in 0..1000 {
                counted.fetch_add(1, Ordering::Relaxed);
                sinew::yield_now();
            }
            drop(stdin);
        });
        assert!(child.wait().unwrap().success());
        assert_eq!(ticks.load(Ordering::Relaxed), 1000);
    });
}

#[test]
fn output_of_a_mebibyte_on_both_pipes_arrives() {
    let _watch = watch::a_minute();
    let both = "head -c 1048576 /dev/zero | tr '\\0' o; head -c 1048576 /dev/zero | tr '\\0' e >&2";
    let mixed = "for i in 1 2 3 4 5 6 7 8; do head -c 131072 /dev/zero >&2; \
                 head -c 131072 /dev/zero; done";
    let check = move || {
        let output = shell(both).output().unwrap();
        assert!(output.status.success());
        assert_eq!(output.stdout.len(), 1 << 20);
        assert_eq!(output.stderr.len(), 1 << 20);
        assert!(output.stdout.iter().all(|&byte| byte == b'o'));
        assert!(output.stderr.iter().all(|&byte| byte == b'e'));
        let output = shell(mixed).output().unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (1 << 20, 1 << 20));
    };
    on_each_backend(1, check);
    check();
}

/// The first pipe ends long before the other.
#[test]
fn output_ends_when_both_pipes_have_ended() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let mut command = shell("exec >&-; read line; echo $line >&2");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let collector = sinew::spawn(move || child.wait_with_output());
        sinew::wait_until(|| collector.fiber().state() == FiberState::Suspended);
        stdin.write_all(b"late\n").unwrap();
        let output = collector.join().unwrap().unwrap();
        assert_eq!((&*output.stdout, &*output.stderr), (&b""[..], &b"late\n"[..]));
    });
}

#[test]
fn written_bytes_come_back_through_cat() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let text: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let written = text.clone();
        let writer = sinew::spawn(move || stdin.write_all(&written));
        let mut read = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut read).unwrap();
        writer.join().unwrap().unwrap();
        assert!(child.wait().unwrap().success());
        assert!(read == text);
    });
}

#[test]
fn a_write_to_a_child_that_has_closed_its_input_fails() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let mut child = shell("exec <&-; echo closed")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 7];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        // More than a pipe holds. A process that another test is starting may have the other end
        // until it executes its program, and the write waits until then.
        let error = child.stdin.as_mut().unwrap().write_all(&[0; 1 << 20]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        child.wait().unwrap();
    });
}

#[test]
fn one_child_reads_the_output_of_another() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let mut first = shell("head -c 1048576 /dev/zero").stdout(Stdio::piped()).spawn().unwrap();
        let zeros = first.stdout.take().unwrap();
        let count = Command::new("wc").arg("-c").stdin(zeros).output().unwrap();
        assert_eq!(String::from_utf8(count.stdout).unwrap().trim(), "1048576");
        assert!(first.wait().unwrap().success());
    });
}

#[test]
fn a_status_has_the_exit_code_or_signal() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        for code in [0, 1, 7, 255] {
            let status = shell(&format!("exit {code}")).status().unwrap();
            assert_eq!(status.code(), Some(code));
        }
        let status = shell("kill -TERM $$").status().unwrap();
        assert_eq!((status.code(), status.signal()), (None, Some(libc::SIGTERM)));
    });
}

#[test]
fn wait_closes_the_input_first() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        assert!(child.stdin.is_some());
        assert!(child.wait().unwrap().success());
        assert!(child.stdin.is_none());
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(child.wait_timeout(Duration::from_secs(50)).unwrap().unwrap().success());
    });
}

#[test]
fn a_wait_with_a_timeout_is_over_in_time() {
    let _watch = watch::a_minute();
    let check = || {
        let (mut child, stdin) = reader();
        for millis in [0, 1, 5] {
            assert!(child.wait_timeout(Duration::from_millis(millis)).unwrap().is_none());
        }
        drop(stdin);
        let status = child.wait_timeout(Duration::from_secs(50)).unwrap().unwrap();
        assert!(status.success());
        assert_eq!(child.wait_timeout(Duration::ZERO).unwrap(), Some(status));
        assert_eq!(child.try_wait().unwrap(), Some(status));
        assert_eq!(child.wait().unwrap(), status);
    };
    on_each_backend(1, check);
    check();
}

#[test]
fn a_killed_child_has_the_signal_in_its_status() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let (mut child, _stdin) = reader();
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        // There is no process left to kill.
        child.kill().unwrap();
    });
}

#[test]
fn a_child_outlives_a_cancelled_wait() {
    let _watch = watch::a_minute();
    on_each_backend(2, || {
        let (mut child, stdin) = reader();
        for _ in 0..3 {
            sinew::scope(|s| {
                let waiter = s.spawn(|| child.wait());
                sinew::wait_until(|| waiter.fiber().state() == FiberState::Suspended);
                waiter.cancel();
                assert!(is_cancel(&*waiter.join().unwrap_err()));
            });
            assert!(sinew::timeout(Duration::from_millis(1), || child.wait()).is_err());
        }
        assert!(child.try_wait().unwrap().is_none());
        drop(stdin);
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn a_child_outlives_its_handle() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let (child, stdin) = reader();
        let pid = child.id();
        drop(child);
        assert!(exists(pid));
        drop(stdin);
        // SAFETY: a child of this process that no other code waits for.
        let ended = unsafe { libc::waitpid(pid as libc::pid_t, std::ptr::null_mut(), 0) };
        assert_eq!(ended, pid as i32);
    });
}

#[test]
fn a_child_that_is_killed_on_drop_leaves_no_zombie() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let (pid, _stdin) = (child.id(), child.stdin.take());
        drop(child);
        sinew::wait_until(|| !exists(pid));
    });
}

#[test]
fn a_cancelled_status_kills_its_child_if_asked_to() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let (mut reader, writer) = sinew::io::pipe().unwrap();
        let fiber = sinew::spawn(move || {
            let mut command = shell("echo $$; exec sleep 1000");
            command.stdout(io::PipeWriter::from(writer)).kill_on_drop(true).status()
        });
        let mut text = [0; 16];
        let count = reader.read(&mut text).unwrap();
        let pid = std::str::from_utf8(&text[..count]).unwrap().trim().parse().unwrap();
        assert!(exists(pid));
        fiber.cancel();
        assert!(is_cancel(&*fiber.join().unwrap_err()));
        sinew::wait_until(|| !exists(pid));
    });
}

#[test]
fn a_program_that_does_not_exist_is_an_error() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let mut command = Command::new("no-such-program-anywhere");
        assert_eq!(command.spawn().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(command.output().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(command.status().unwrap_err().kind(), io::ErrorKind::NotFound);
        let error = Command::new("/").spawn().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    });
}

#[test]
fn two_hundred_children_at_once() {
    let _watch = watch::a_minute();
    for carriers in [1, 2] {
        on_each_backend(carriers, || {
            let fibers: Vec<_> =
                (0..200).map(|_| sinew::spawn(|| Command::new("true").status())).collect();
            for fiber in fibers {
                assert!(fiber.join().unwrap().unwrap().success());
            }
        });
    }
}

#[test]
fn plain_threads_and_pinned_fibers_wait_too() {
    let _watch = watch::a_minute();
    let check = || {
        let output = shell("echo out; echo err >&2; exit 3").output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&*output.stdout, &*output.stderr), (&b"out\n"[..], &b"err\n"[..]));
        let (mut child, stdin) = reader();
        let done = Arc::new(AtomicBool::new(false));
        let theirs = done.clone();
        let closer = thread::spawn(move || {
            theirs.store(true, Ordering::SeqCst);
            drop(stdin);
        });
        assert!(child.wait().unwrap().success());
        assert!(done.load(Ordering::SeqCst));
        closer.join().unwrap();
    };
    check();
    on_each_backend(2, move || sinew::pinned(check));
}

#[test]
fn a_command_can_be_used_again_after_output() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let mut command = shell("cat; exit 4");
        for _ in 0..2 {
            let output = command.arg("more").output().unwrap();
            assert_eq!(output.status.code(), Some(4));
        }
        let output = command.stdout(Stdio::null()).output().unwrap();
        assert!(output.stdout.is_empty());
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        assert!(child.stdout.is_none() && child.stderr.is_none());
        assert_eq!(child.wait().unwrap().code(), Some(4));
    });
}

#[test]
fn a_child_of_the_standard_library_can_be_waited_for() {
    let _watch = watch::a_minute();
    on_each_backend(1, || {
        let mut command = std::process::Command::new("echo");
        let child = command.arg("hello").stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(Child::from(child).wait_with_output().unwrap().stdout, b"hello\n");
        assert_eq!(Command::from(command).output().unwrap().stdout, b"hello\n");
    });
}

/// The child writes to a blocking pipe: it never gets "would block".
#[test]
fn children_may_have_our_pipes() {
    on_each_backend(1, || {
        let by = [
            |pipe: sinew::io::PipeWriter| Stdio::from(pipe),
            |pipe: sinew::io::PipeWriter| Stdio::from(std::os::fd::OwnedFd::from(pipe)),
        ];
        for into in by {
            let (mut reader, writer) = sinew::io::pipe().unwrap();
            let mut child = shell("head -c 300000 /dev/zero || echo failed")
                .stdout(into(writer))
                .spawn()
                .unwrap();
            // The pipe is full by now, or will be.
            sinew::yield_now();
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), 300_000);
            assert!(child.wait().unwrap().success());
        }
    });
}

/// In a separate process, in which no other code opens descriptors.
#[test]
#[cfg(target_os = "linux")]
fn children_leave_no_descriptors() {
    fn open() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }
    sinew_testkit::child::child("children_leave_no_descriptors", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        runtime.run(|| {
            let round = || {
                shell("echo; echo >&2").output().unwrap();
                let (mut child, stdin) = reader();
                assert!(child.wait_timeout(Duration::from_millis(1)).unwrap().is_none());
                drop(stdin);
                child.wait().unwrap();
            };
            round();
            let before = open();
            (0..20).for_each(|_| round());
            assert_eq!(open(), before);
        });
    })
    .assert_success();
}
