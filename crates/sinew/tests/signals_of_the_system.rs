//! Signals of the operating system. Each test raises them in a separate process, once for each
//! backend, so that the process of the tests is not disturbed.

use sinew::runtime::Runtime;
use sinew::signal::{Signal, Signals, ctrl_c};
use sinew::sync::channel;
use sinew::{FiberBuilder, FiberState, is_cancel};
use sinew_testkit::{child, watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Runs the calling test's body in separate processes.
fn in_processes(test: &str, body: impl Fn()) {
    let best =
        if cfg!(any(target_os = "linux", target_os = "android")) { "epoll" } else { "kqueue" };
    for backend in [best, "poll"] {
        let prepare = |command: &mut std::process::Command| {
            command.env("SINEW_IO", backend);
        };
        let watched = || {
            let _watch = watch::a_minute();
            body();
        };
        child::child_with(test, prepare, watched).assert_success();
    }
}

fn carriers(count: usize) -> Runtime {
    Runtime::builder().carriers(count).build().unwrap()
}

/// Sends a signal to this process. Any thread may get it.
fn send(signal: Signal) {
    // SAFETY: no preconditions.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.as_raw()) }, 0);
}

/// Sends a signal to this thread. It has been handled when this returns.
fn raise(signal: Signal) {
    // SAFETY: no preconditions.
    assert_eq!(unsafe { libc::raise(signal.as_raw()) }, 0);
}

fn until_suspended<T>(fiber: &sinew::JoinHandle<T>) {
    sinew::wait_until(|| fiber.fiber().state() == FiberState::Suspended);
}

#[test]
fn ctrl_c_waits_for_an_interrupt() {
    in_processes("ctrl_c_waits_for_an_interrupt", || {
        carriers(1).run(|| {
            for _ in 0..3 {
                let fiber = sinew::spawn(ctrl_c);
                until_suspended(&fiber);
                send(Signal::INT);
                fiber.join().unwrap().unwrap();
            }
        });
        // No fiber waits, and the handler is still installed.
        raise(Signal::INT);
    });
}

#[test]
fn an_interrupt_without_a_subscriber_ends_the_process() {
    let outcome = child::child("an_interrupt_without_a_subscriber_ends_the_process", || {
        // Programs that a shell has started in the background ignore the signal.
        // SAFETY: `SIG_DFL` is no function.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        let _other = Signals::new([Signal::USR1]).unwrap();
        raise(Signal::INT);
    });
    outcome.assert_died(libc::SIGINT, &[]);
}

#[test]
fn each_subscriber_gets_each_signal() {
    in_processes("each_subscriber_gets_each_signal", || {
        carriers(2).run(|| {
            let all: Vec<_> =
                (0..4).map(|_| Signals::new([Signal::USR1, Signal::USR2]).unwrap()).collect();
            let (told, tells) = channel::unbounded();
            let fibers: Vec<_> = all
                .into_iter()
                .map(|signals| {
                    let told = told.clone();
                    sinew::spawn(move || {
                        for _ in 0..10 {
                            told.send(signals.recv()).unwrap();
                        }
                    })
                })
                .collect();
            for round in 0..10 {
                let signal = [Signal::USR1, Signal::USR2][round % 2];
                send(signal);
                // The next signal is sent when all have seen this one, so none is lost.
                for _ in 0..4 {
                    assert_eq!(tells.recv(), Ok(signal));
                }
            }
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        });
    });
}

#[test]
fn a_burst_is_received_at_least_once_and_not_too_often() {
    in_processes("a_burst_is_received_at_least_once_and_not_too_often", || {
        carriers(1).run(|| {
            let signals = Signals::new([Signal::USR2, Signal::USR1]).unwrap();
            (0..1000).for_each(|_| raise(Signal::USR1));
            raise(Signal::USR2);
            // The signal that was named first comes first.
            assert_eq!(signals.recv(), Signal::USR2);
            assert_eq!(signals.recv(), Signal::USR1);
            assert_eq!(signals.try_recv(), None);
            assert_eq!(signals.recv_timeout(Duration::from_millis(1)), None);
        });
    });
}

/// Signals meet the receiver at every point between its check and its wait.
#[test]
fn no_signal_is_lost_in_a_storm() {
    in_processes("no_signal_is_lost_in_a_storm", || {
        let runtime = carriers(2);
        let signals = Signals::new([Signal::USR1]).unwrap();
        let (answer, answers) = channel::unbounded();
        let receiver = runtime.spawn(move || {
            for _ in 0..5000 {
                assert_eq!(signals.recv(), Signal::USR1);
                answer.send(()).unwrap();
            }
        });
        for _ in 0..5000 {
            send(Signal::USR1);
            answers.recv().unwrap();
        }
        receiver.join().unwrap();
    });
}

#[test]
fn a_signal_ends_the_waits_of_fibers_and_threads() {
    in_processes("a_signal_ends_the_waits_of_fibers_and_threads", || {
        let runtime = carriers(2);
        let fibers: Vec<_> = (0..4)
            .map(|_| {
                let signals = Signals::new([Signal::HUP]).unwrap();
                runtime.spawn(move || signals.recv())
            })
            .collect();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let signals = Signals::new([Signal::HUP]).unwrap();
                thread::spawn(move || signals.recv())
            })
            .collect();
        let pinned = Signals::new([Signal::HUP]).unwrap();
        fibers.iter().for_each(until_suspended);
        let pinned = runtime.spawn(move || sinew::pinned(|| pinned.recv()));
        send(Signal::HUP);
        for fiber in fibers.into_iter().chain([pinned]) {
            assert_eq!(fiber.join().unwrap(), Signal::HUP);
        }
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Signal::HUP);
        }
    });
}

/// Two signals ring once. The receiver that takes the first tells the others of the second.
#[test]
fn several_receivers_share_a_stream() {
    in_processes("several_receivers_share_a_stream", || {
        let runtime = carriers(2);
        for _ in 0..200 {
            let signals = Arc::new(Signals::new([Signal::USR1, Signal::USR2]).unwrap());
            let (theirs, ours) = (signals.clone(), signals.clone());
            let fiber = runtime.spawn(move || theirs.recv());
            let thread = thread::spawn(move || ours.recv());
            raise(Signal::USR1);
            raise(Signal::USR2);
            let mut both = [fiber.join().unwrap(), thread.join().unwrap()];
            both.sort();
            assert_eq!(both, [Signal::USR1, Signal::USR2]);
        }
    });
}

/// Only the ticker raises the signal.
#[test]
fn other_fibers_run_while_one_waits_for_a_signal() {
    in_processes("other_fibers_run_while_one_waits_for_a_signal", || {
        carriers(1).run(|| {
            let signals = Signals::new([Signal::ALRM]).unwrap();
            let ticks = Arc::new(AtomicUsize::new(0));
            let counted = ticks.clone();
            sinew::spawn(move || {
                for _ in 0..1000 {
                    counted.fetch_add(1, Ordering::Relaxed);
                    sinew::yield_now();
                }
                raise(Signal::ALRM);
            });
            assert_eq!(signals.forever().next(), Some(Signal::ALRM));
            assert_eq!(ticks.load(Ordering::Relaxed), 1000);
        });
    });
}

#[test]
fn a_cancelled_wait_takes_no_signal() {
    in_processes("a_cancelled_wait_takes_no_signal", || {
        carriers(2).run(|| {
            let signals = Arc::new(Signals::new([Signal::USR1]).unwrap());
            let theirs = signals.clone();
            let fiber = sinew::spawn(move || theirs.recv());
            until_suspended(&fiber);
            fiber.cancel();
            assert!(is_cancel(&*fiber.join().unwrap_err()));
            assert!(sinew::timeout(Duration::from_millis(1), || signals.recv()).is_err());
            raise(Signal::USR1);
            assert_eq!(signals.recv(), Signal::USR1);
        });
    });
}

#[test]
fn signals_that_cannot_be_waited_for_are_refused() {
    in_processes("signals_that_cannot_be_waited_for_are_refused", || {
        let refused = [
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGSTOP, "SIGSTOP"),
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGBUS, "SIGBUS"),
            (libc::SIGILL, "SIGILL"),
            (libc::SIGFPE, "SIGFPE"),
            (0, "0"),
            (-1, "-1"),
            (1000, "1000"),
        ];
        for (number, name) in refused {
            let error = Signals::new([libc::SIGUSR1, number]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
            let text = error.to_string();
            let known = name.starts_with("SIG");
            let said = if known {
                format!("signal {number} ({name}): ")
            } else {
                format!("signal {name}: ")
            };
            assert!(text.contains(&said), "{text}");
        }
        // The signals registered before the refusal were given up, and nothing is in the way.
        let signals = Signals::new([Signal::USR1, Signal::USR1]).unwrap();
        raise(Signal::USR1);
        assert_eq!(signals.recv(), Signal::USR1);
        assert_eq!(signals.try_recv(), None);
    });
}

#[test]
fn subscribers_are_dropped_in_every_state() {
    in_processes("subscribers_are_dropped_in_every_state", || {
        carriers(2).run(|| {
            let new = || Signals::new([Signal::USR1, Signal::USR2]).unwrap();
            let stays = new();
            // One that has seen nothing.
            drop(new());
            // One with a pending signal.
            let pending = new();
            raise(Signal::USR1);
            drop(pending);
            // One with a received and a pending signal.
            let half = new();
            raise(Signal::USR1);
            raise(Signal::USR2);
            assert_eq!(half.recv(), Signal::USR1);
            drop(half);
            // One that is owned by a waiting fiber.
            let waiting = new();
            let fiber = sinew::spawn(move || waiting.recv());
            until_suspended(&fiber);
            fiber.cancel();
            assert!(is_cancel(&*fiber.join().unwrap_err()));
            // One that has waited on another carrier.
            let moved = new();
            let fiber = sinew::spawn(move || {
                assert_eq!(moved.recv_timeout(Duration::from_millis(1)), None);
                moved
            });
            drop(fiber.join().unwrap());
            raise(Signal::USR2);
            assert_eq!(stays.recv(), Signal::USR1);
            assert_eq!(stays.recv(), Signal::USR2);
            assert_eq!(stays.try_recv(), None);
        });
        // The handlers stay installed, so the process survives.
        raise(Signal::USR1);
        raise(Signal::USR2);
        let signals = Signals::new([Signal::USR1]).unwrap();
        assert_eq!(signals.try_recv(), None);
    });
}

#[test]
fn subscribers_come_and_go_in_a_storm() {
    in_processes("subscribers_come_and_go_in_a_storm", || {
        let first = Signals::new([Signal::USR1]).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let theirs = over.clone();
        let storm = thread::spawn(move || {
            while !theirs.load(Ordering::Relaxed) {
                send(Signal::USR1);
            }
        });
        let runtime = carriers(2);
        let fibers: Vec<_> = (0..4)
            .map(|_| {
                runtime.spawn(|| {
                    for _ in 0..200 {
                        let signals = Signals::new([Signal::USR1]).unwrap();
                        assert_eq!(signals.recv(), Signal::USR1);
                    }
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        over.store(true, Ordering::Relaxed);
        storm.join().unwrap();
        assert_eq!(first.recv(), Signal::USR1);
    });
}

/// The kernel's frame for a handler is larger than the room that many fibers have left.
#[test]
fn handlers_do_not_run_on_the_stacks_of_fibers() {
    static PLACE: AtomicUsize = AtomicUsize::new(0);
    /// The handler of sinew, which is installed later, calls this one.
    extern "C" fn note_place(_: libc::c_int) {
        let local = 0_u8;
        PLACE.store(std::hint::black_box(&raw const local) as usize, Ordering::Relaxed);
    }
    const SIZE: usize = 64 * 1024;
    in_processes("handlers_do_not_run_on_the_stacks_of_fibers", || {
        // SAFETY: the handler touches only an atomic.
        unsafe { libc::signal(libc::SIGUSR1, note_place as *const () as libc::sighandler_t) };
        let runtime = carriers(1);
        let signals = Signals::new([Signal::USR1]).unwrap();
        let raises = || {
            let local = 0_u8;
            let here = std::hint::black_box(&raw const local) as usize;
            raise(Signal::USR1);
            let there = PLACE.load(Ordering::Relaxed);
            // A function called here would be below this frame, not farther than the size of the
            // stack.
            there != 0 && (there > here || here - there > SIZE)
        };
        let builder = FiberBuilder::new().stack_size(SIZE).runtime(runtime.handle());
        assert!(builder.spawn(raises).unwrap().join().unwrap());
        assert_eq!(signals.recv(), Signal::USR1);
    });
}

#[test]
fn a_handler_that_was_there_is_still_called() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: libc::c_int) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    in_processes("a_handler_that_was_there_is_still_called", || {
        // SAFETY: the handler touches only an atomic.
        unsafe { libc::signal(libc::SIGUSR1, count as *const () as libc::sighandler_t) };
        let signals = Signals::new([Signal::USR1]).unwrap();
        raise(Signal::USR1);
        assert_eq!(signals.recv(), Signal::USR1);
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    });
}

/// The child of a `fork` shares the descriptor, but not the pending signals.
#[test]
fn a_signal_to_a_forked_child_is_not_received_here() {
    in_processes("a_signal_to_a_forked_child_is_not_received_here", || {
        let signals = Signals::new([Signal::USR1]).unwrap();
        // SAFETY: the child calls only functions that a child of a process with threads may call.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: both functions may be called there.
            unsafe {
                libc::raise(libc::SIGUSR1);
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: a child of this process, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert_eq!(status, 0);
        assert_eq!(signals.recv_timeout(Duration::from_millis(1)), None);
        raise(Signal::USR1);
        assert_eq!(signals.recv(), Signal::USR1);
    });
}

/// Programs that are started do not inherit the handlers.
#[test]
fn a_started_program_has_no_handlers() {
    in_processes("a_started_program_has_no_handlers", || {
        use std::os::unix::process::ExitStatusExt;
        let _signals = Signals::new([Signal::TERM]).unwrap();
        let mut command = sinew::process::Command::new("sh");
        let status = command.args(["-c", "kill -TERM $$"]).status().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGTERM));
    });
}
