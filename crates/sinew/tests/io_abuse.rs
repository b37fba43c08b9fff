//! What safe code can do to descriptors that it should not: the runtime bears it.

use crate::backends::{connected, on_each, until_it_waits};
use sinew::Runtime;
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

mod backends;

/// The processor time that this process has used.
fn processor_time() -> Duration {
    // SAFETY: zeroed is a valid value to write over.
    let usage = unsafe {
        let mut usage = core::mem::zeroed::<libc::rusage>();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    [usage.ru_utime, usage.ru_stime]
        .iter()
        .map(|time| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000))
        .sum()
}

#[test]
fn two_who_watch_one_descriptor_do_not_keep_the_kernel_busy() {
    // Alone in its process, whose processor time is measured.
    let name = "two_who_watch_one_descriptor_do_not_keep_the_kernel_busy";
    child(name, || on_each(are_quiet)).assert_success();
}

fn are_quiet(runtime: &Runtime) {
    let (reader, mut writer) = sinew::io::pipe().unwrap();
    let reader = Arc::new(reader);
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let reader = reader.clone();
            runtime.spawn(move || sinew::io::wait_readable(&*reader, None))
        })
        .collect();
    waiters.iter().for_each(until_it_waits);
    let before = processor_time();
    std::thread::sleep(Duration::from_millis(200));
    let used = processor_time() - before;
    writer.write_all(b"x").unwrap();
    for waiter in waiters {
        assert!(waiter.join().unwrap().unwrap());
    }
    assert!(
        used < Duration::from_millis(100),
        "used {used:?} while nothing happened on {runtime:?}"
    );
}

#[test]
fn sockets_outlive_the_runtimes_that_watched_them() {
    let _watch = watch::a_minute();
    for backend in backends::all() {
        for round in 0..50 {
            let runtime = Runtime::builder().carriers(2).backend(backend).build().unwrap();
            let pairs: Vec<_> = (0..8).map(|_| connected()).collect();
            let fibers: Vec<_> = pairs
                .into_iter()
                .map(|(client, server)| {
                    let server = Arc::new(server);
                    let theirs = server.clone();
                    let fiber = runtime.spawn(move || (&*theirs).read(&mut [0]).is_ok());
                    (client, server, fiber)
                })
                .collect();
            fibers.iter().for_each(|(_, _, fiber)| until_it_waits(fiber));
            let threads: Vec<_> = fibers
                .into_iter()
                .map(|(client, server, fiber)| {
                    std::thread::spawn(move || {
                        if round % 2 == 0 {
                            drop(client);
                        }
                        let _ = server.close();
                        drop(server);
                        let _ = fiber.join();
                    })
                })
                .collect();
            drop(runtime);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    }
}
