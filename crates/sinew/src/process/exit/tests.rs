use super::{Exit, open, reap};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Calls `check` with both ways of waiting, whichever one this system would choose.
fn each_way(check: impl Fn(fn(u32) -> Exit)) {
    if cfg!(any(target_os = "linux", target_os = "android")) {
        check(Exit::of);
    }
    check(Exit::watched);
}

fn cat() -> std::process::Child {
    Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
}

#[test]
fn an_end_is_seen_and_the_status_stays() {
    each_way(|exit| {
        crate::run(move || {
            let mut child = Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap();
            let exit = exit(child.id());
            assert!(exit.wait(None).unwrap());
            assert!(exit.wait(Some(Duration::ZERO)).unwrap());
            assert_eq!(child.wait().unwrap().code(), Some(7));
        });
    });
}

#[test]
fn a_timeout_leaves_the_child() {
    each_way(|exit| {
        let mut child = cat();
        let exit = exit(child.id());
        assert!(!exit.wait(Some(Duration::from_millis(1))).unwrap());
        assert!(!exit.wait(Some(Duration::ZERO)).unwrap());
        drop(child.stdin.take());
        assert!(exit.wait(None).unwrap());
        assert!(child.wait().unwrap().success());
    });
}

#[test]
fn a_cancelled_wait_leaves_the_child() {
    each_way(|exit| {
        crate::run(move || {
            let mut child = cat();
            let exit = exit(child.id());
            crate::scope(|s| {
                let waiter = s.spawn(|| exit.wait(None));
                crate::yield_now();
                waiter.cancel();
                assert!(crate::is_cancel(&*waiter.join().unwrap_err()));
            });
            drop(child.stdin.take());
            assert!(exit.wait(None).unwrap());
            assert!(child.wait().unwrap().success());
        });
    });
}

#[test]
fn a_reaped_child_is_gone() {
    let mut child = cat();
    let pid = child.id();
    drop(child.stdin.take());
    reap(pid);
    // `reap` takes the status, so the child must not be waited for.
    std::mem::forget(child);
    let gone = || open(pid).is_err();
    if cfg!(any(target_os = "linux", target_os = "android")) {
        assert!(crate::wait_until_timeout(gone, Duration::from_secs(30)));
    }
}
