//! Dumps that a signal, a panic or a stall triggers. Each test has its own process, because a
//! process has one report hook.

use sinew::signal::Signal;
use sinew::{FiberBuilder, FiberState, Runtime};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Collects the reports from now on.
fn said() -> Arc<Mutex<String>> {
    let said: Arc<Mutex<String>> = Arc::default();
    let hook = said.clone();
    sinew::set_report_hook(move |line| {
        let mut said = hook.lock().unwrap();
        said.push_str(line);
        said.push('\n');
    });
    said
}

#[inline(never)]
fn waits_here() {
    sinew::park();
    std::hint::black_box(());
}

fn with_a_sleeper(builder: sinew::runtime::Builder) -> (Runtime, Arc<Mutex<String>>) {
    let said = said();
    let runtime = builder.carriers(1).build().unwrap();
    let sleeper = FiberBuilder::new().name("sleeper").runtime(runtime.handle());
    let sleeper = sleeper.spawn(waits_here).unwrap();
    sinew::wait_until(|| sleeper.fiber().state() == FiberState::Suspended);
    (runtime, said)
}

fn until_it_was_dumped(said: &Mutex<String>) -> String {
    sinew::wait_until(|| said.lock().unwrap().contains("waits_here"));
    said.lock().unwrap().clone()
}

/// Works even while the only carrier is stuck.
#[test]
fn a_signal_leads_to_a_dump() {
    child("a_signal_leads_to_a_dump", || {
        let _watch = watch::a_minute();
        let (runtime, said) = with_a_sleeper(Runtime::builder().dump_on_signal(Signal::USR2));
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let busy = runtime.spawn(move || while !seen.load(Ordering::Relaxed) {});
        sinew::wait_until(|| busy.fiber().state() == FiberState::Running);
        // SAFETY: the signal is handled.
        unsafe { libc::raise(libc::SIGUSR2) };
        let text = until_it_was_dumped(&said);
        assert!(text.contains("fiber \"sleeper\"") && text.contains("1 fiber running"), "{text}");
        done.store(true, Ordering::Relaxed);
    })
    .assert_success();
}

#[test]
fn a_panic_leads_to_a_dump_if_enabled() {
    child("a_panic_leads_to_a_dump_if_enabled", || {
        let _watch = watch::a_minute();
        let (runtime, said) = with_a_sleeper(Runtime::builder().dump_on_panic(true));
        assert!(runtime.spawn(|| panic!("on purpose")).join().is_err());
        let text = until_it_was_dumped(&said);
        assert!(text.contains("panics on carrier 0") && text.contains("sleeper"), "{text}");
    })
    .assert_success();
}

#[test]
fn a_stall_leads_to_a_dump_if_enabled() {
    child("a_stall_leads_to_a_dump_if_enabled", || {
        let _watch = watch::a_minute();
        let builder = Runtime::builder().report_stalls(Duration::from_millis(20));
        let (runtime, said) = with_a_sleeper(builder.dump_on_stall(true));
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let busy = runtime.spawn(move || while !seen.load(Ordering::Relaxed) {});
        let text = until_it_was_dumped(&said);
        assert!(text.contains("has kept carrier 0"), "{text}");
        done.store(true, Ordering::Relaxed);
        busy.join().unwrap();
    })
    .assert_success();
}

#[test]
fn stack_remaining_shrinks_with_depth() {
    assert_eq!(sinew::stack_remaining(), None);
    let small =
        FiberBuilder::new().stack_size(64 * 1024).spawn(|| sinew::stack_remaining().unwrap());
    let left = small.unwrap().join().unwrap();
    assert!((32 * 1024..64 * 1024).contains(&left), "{left}");
    #[inline(never)]
    fn deeper(depth: usize) -> usize {
        let room = [depth as u8; 1024];
        std::hint::black_box(&room);
        match depth {
            0 => sinew::stack_remaining().unwrap(),
            _ => deeper(depth - 1) - usize::from(std::hint::black_box(room[7]) == 255),
        }
    }
    let (before, after) = sinew::run(|| (deeper(0), deeper(10)));
    // The sanitizer keeps variables outside of the stack.
    let least = if cfg!(sinew_asan) { 10 } else { 10 * 1024 };
    assert!(before - after >= least, "{before} {after}");
}

#[test]
fn a_dump_works_on_the_smallest_stack() {
    child("a_dump_works_on_the_smallest_stack", || {
        let _watch = watch::a_minute();
        let (runtime, _) = with_a_sleeper(Runtime::builder());
        let small = || FiberBuilder::new().runtime(runtime.handle()).stack_size(16 * 1024);
        let dumps = small().spawn(|| {
            let mut text = Vec::new();
            sinew::dump(&mut text).unwrap();
            sinew::inspect::dump_json(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        });
        let text = dumps.unwrap().join().unwrap();
        assert!(text.contains("   1: dumping::waits_here"), "{text}");
        assert!(text.contains(r#"{"name":"dumping::waits_here""#), "{text}");
    })
    .assert_success();
}

#[test]
fn a_panic_on_the_smallest_stack_is_reported_with_a_dump() {
    let outcome = child("a_panic_on_the_smallest_stack_is_reported_with_a_dump", || {
        let _watch = watch::a_minute();
        let (runtime, said) = with_a_sleeper(Runtime::builder().dump_on_panic(true));
        let small = FiberBuilder::new().runtime(runtime.handle()).stack_size(16 * 1024);
        assert!(small.spawn(|| panic!("on purpose")).unwrap().join().is_err());
        let text = until_it_was_dumped(&said);
        assert!(text.contains("panics on carrier 0") && text.contains("sleeper"), "{text}");
    });
    outcome.assert_success();
}

/// More signals than fit into a pipe arrive, while the report hook blocks.
#[test]
fn raising_a_signal_does_not_wait_for_the_dump() {
    child("raising_a_signal_does_not_wait_for_the_dump", || {
        let _watch = watch::a_minute();
        let gate = Arc::new(Mutex::new(()));
        let hook = gate.clone();
        sinew::set_report_hook(move |_| drop(hook.lock()));
        let _runtime = Runtime::builder().dump_on_signal(Signal::USR2).build().unwrap();
        let _closed = gate.lock().unwrap();
        for _ in 0..100_000 {
            // SAFETY: the signal is handled.
            unsafe { libc::raise(libc::SIGUSR2) };
        }
    })
    .assert_success();
}

#[test]
fn signals_that_cannot_be_caught_are_errors() {
    for number in [libc::SIGKILL, libc::SIGSEGV, libc::SIGBUS] {
        let builder = Runtime::builder().dump_on_signal(Signal::from(number));
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&format!("signal {number}")), "{error}");
    }
}

/// While a carrier is stopped, the handlers of other signals wait: its alternate stack has no room
/// for them.
#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn signals_in_the_middle_of_a_stop_wait() {
    child("signals_in_the_middle_of_a_stop_wait", || {
        let _watch = watch::a_minute();
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        let signals = sinew::signal::Signals::new([Signal::USR1, Signal::USR2]).unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let thread = Arc::new(std::sync::atomic::AtomicI32::new(0));
        let mine = thread.clone();
        let busy = runtime.spawn(move || {
            // SAFETY: no preconditions.
            mine.store(unsafe { libc::gettid() }, Ordering::Relaxed);
            while !seen.load(Ordering::Relaxed) {}
        });
        sinew::wait_until(|| thread.load(Ordering::Relaxed) != 0);
        let (target, stop) = (thread.load(Ordering::Relaxed), done.clone());
        let sender = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for signal in [libc::SIGUSR1, libc::SIGUSR2] {
                    // SAFETY: plain numbers; the signals are handled.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), target, signal) };
                }
            }
        });
        let mut backtraces = 0;
        while backtraces < 20 {
            backtraces += usize::from(busy.fiber().backtrace_now().is_ok());
        }
        done.store(true, Ordering::Relaxed);
        sender.join().unwrap();
        busy.join().unwrap();
        assert!(signals.try_recv().is_some());
    })
    .assert_success();
}
