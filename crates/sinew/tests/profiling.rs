//! Fibers under `perf`: every stack ends at the base of its fiber.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(clippy::print_stdout, reason = "what is left out is said")]

use sinew_testkit::watch;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

#[inline(never)]
fn burns(number: u64) -> u64 {
    (0..100_000).fold(number, |sum, next| black_box(sum.wrapping_mul(31).wrapping_add(next)))
}

#[inline(never)]
fn calls_burns(number: u64) -> u64 {
    black_box(burns(number)) + 1
}

/// The profiled program. The other test runs it.
#[test]
#[ignore = "has the processor busy for a while, to be profiled"]
fn fibers_that_compute() {
    let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
    let fibers: Vec<_> = (0..4)
        .map(|number| {
            runtime.spawn(move || {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_millis(400) {
                    black_box(calls_burns(number));
                    sinew::yield_now();
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

/// Returns the stacks in which `burns` was found, each with the innermost frame first. `None` if
/// nothing can be profiled here.
fn profile() -> Option<Vec<Vec<String>>> {
    let file = std::env::temp_dir().join(format!("sinew-profile-{}", std::process::id()));
    let me = std::env::current_exe().unwrap();
    let record = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock", "-F", "499", "--call-graph", "dwarf,16384", "-o"])
        .arg(&file)
        .arg(me)
        .args(["--exact", "fibers_that_compute", "--include-ignored"])
        .output();
    let text = match record {
        Ok(recorded) if recorded.status.success() => {
            let script = ["script", "--no-inline", "-F", "ip,sym", "-i"];
            let script = Command::new("perf").args(script).arg(&file).output().unwrap();
            String::from_utf8_lossy(&script.stdout).into_owned()
        }
        Ok(recorded) => {
            let errors = String::from_utf8_lossy(&recorded.stderr);
            println!("skipped: perf may not record here: {errors}");
            return None;
        }
        Err(error) => {
            println!("skipped: there is no perf ({error}); install linux-perf");
            return None;
        }
    };
    std::fs::remove_file(&file).unwrap();
    let stacks = text.split("\n\n").map(|stack| {
        let frames = stack.lines().filter_map(|line| line.trim().split_once(' '));
        frames.map(|(_, name)| name.to_owned()).collect::<Vec<_>>()
    });
    Some(stacks.filter(|stack| stack.iter().any(|frame| frame.contains("calls_burns"))).collect())
}

#[test]
fn stacks_end_at_the_base_of_the_fiber() {
    let _watch = watch::a_minute();
    let Some(stacks) = profile() else { return };
    assert!(stacks.len() > 20, "{stacks:?}");
    for stack in stacks {
        assert!(stack.last().unwrap().contains("trampoline"), "{stack:#?}");
        assert!(!stack.iter().any(|frame| frame.contains("[unknown]")), "{stack:#?}");
    }
}
