//! An idle carrier uses no processor time.

use sinew::Runtime;
use sinew_testkit::child::child;
use sinew_testkit::processor_time;
use sinew_testkit::watch;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

#[test]
fn ten_thousand_sleepers_use_no_processor() {
    let outcome = child("ten_thousand_sleepers_use_no_processor", || {
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        let fibers: Vec<_> =
            (0..10_000).map(|_| runtime.spawn(|| sinew::sleep(Duration::from_secs(60)))).collect();
        for fiber in &fibers {
            sinew::wait_until(|| fiber.fiber().waits_for().is_some());
        }
        let before = processor_time();
        std::thread::sleep(Duration::from_secs(2));
        let used = processor_time() - before;
        assert!(used < Duration::from_millis(20), "{used:?}");
        std::process::exit(0);
    });
    outcome.assert_success();
}

#[test]
fn an_empty_runtime_uses_no_processor() {
    let outcome = child("an_empty_runtime_uses_no_processor", || {
        let runtime = Runtime::builder().carriers(4).build().unwrap();
        runtime.run(|| ());
        std::thread::sleep(Duration::from_millis(50));
        let before = processor_time();
        std::thread::sleep(Duration::from_secs(1));
        let used = processor_time() - before;
        assert!(used < Duration::from_millis(5), "{used:?}");
    });
    outcome.assert_success();
}

#[test]
fn an_idle_hook_is_told_of_the_next_deadline() {
    let _watch = watch::a_minute();
    let seen: Arc<Mutex<Vec<Option<Duration>>>> = Arc::default();
    let theirs = seen.clone();
    let runtime = Runtime::builder()
        .carriers(1)
        .idle_hook(move |idle| {
            assert_eq!(idle.carrier(), 0);
            theirs.lock().unwrap().push(idle.timeout());
            idle.wait();
        })
        .build()
        .unwrap();
    // There is no deadline at first.
    sinew::wait_until(|| seen.lock().unwrap().contains(&None));
    runtime.run(|| sinew::sleep(Duration::from_millis(200)));
    let seen = seen.lock().unwrap();
    assert!(seen.iter().flatten().any(|timeout| *timeout > Duration::from_millis(100)), "{seen:?}");
}

/// The hook blocks in its own `poll`. A wake from another thread ends it.
#[test]
fn a_wake_from_elsewhere_ends_the_hook() {
    let _watch = watch::a_minute();
    let asleep = Arc::new(AtomicUsize::new(0));
    let theirs = asleep.clone();
    let runtime = Runtime::builder()
        .carriers(1)
        .idle_hook(move |idle| {
            theirs.fetch_add(1, Ordering::SeqCst);
            let mut poll =
                libc::pollfd { fd: idle.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry.
            unsafe { libc::poll(&mut poll, 1, 60_000) };
            assert!(idle.is_woken());
        })
        .build()
        .unwrap();
    let fiber = runtime.spawn(|| {
        let mut woken = Vec::new();
        for _ in 0..20 {
            sinew::park();
            woken.push(Instant::now());
        }
        woken
    });
    let mut sent = Vec::new();
    for _ in 0..20 {
        let seen = asleep.load(Ordering::SeqCst);
        sinew::wait_until(|| {
            fiber.fiber().waits_for().is_some() && asleep.load(Ordering::SeqCst) >= seen
        });
        std::thread::sleep(Duration::from_millis(1));
        sent.push(Instant::now());
        fiber.fiber().unpark();
    }
    let woken = fiber.join().unwrap();
    let mut late: Vec<_> = sent.iter().zip(&woken).map(|(sent, woken)| *woken - *sent).collect();
    late.sort_unstable();
    assert!(late[10] < Duration::from_millis(1), "median {:?}", late[10]);
}

#[test]
fn a_waker_ends_the_hook() {
    let _watch = watch::a_minute();
    let (send, receive) = mpsc::channel();
    let calls = Arc::new(AtomicUsize::new(0));
    let theirs = calls.clone();
    let runtime = Runtime::builder()
        .carriers(1)
        .idle_hook(move |idle| {
            theirs.fetch_add(1, Ordering::SeqCst);
            let _ = send.send(idle.waker());
            idle.wait();
        })
        .build()
        .unwrap();
    for round in 1..20 {
        let waker = receive.recv().unwrap();
        assert!(calls.load(Ordering::SeqCst) >= round);
        waker.wake();
    }
    drop(receive);
    drop(runtime);
}
