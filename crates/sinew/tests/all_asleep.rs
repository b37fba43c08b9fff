//! A program in which every thread waits in sinew. The report says that nothing can wake its
//! fibers.
//!
//! It runs without the test harness, which has threads of its own.
#![allow(clippy::print_stdout, reason = "it is a program")]

use sinew::{FiberBuilder, Runtime};
use std::time::Duration;

fn main() {
    if cfg!(any(not(target_os = "linux"), sinew_tsan)) {
        println!("skipped: the kernel does not list threads, or the sanitizer has one of its own");
        return;
    }
    // An alarm detects a hang: a thread for that purpose could wake a fiber.
    // SAFETY: no preconditions.
    unsafe { libc::alarm(60) };
    sinew::set_report_hook(|line| {
        if line.starts_with("sinew: all fibers are asleep") {
            let expected = "sinew: all fibers are asleep, 1 of them, and nothing can wake them:";
            let firm = line == expected;
            println!("{} ... {line}", if firm { "ok" } else { "FAILED" });
            std::process::exit(i32::from(!firm));
        }
    });
    let builder = Runtime::builder().carriers(2).report_deadlocks(Duration::from_millis(10));
    let runtime = builder.build().unwrap();
    let lost =
        FiberBuilder::new().name("lost").runtime(runtime.handle()).spawn(sinew::park).unwrap();
    lost.join().unwrap();
    unreachable!("nothing wakes the fiber");
}
