//! Loops that should rest, and loops that should not.

use crate::kit::{MS, kept, simple};
use sinew::WaitKind;
use sinew::manager::{
    FiberManager, LoopController, Options, Runner, SimpleLoopController, Until, run_in_main_context,
};
use sinew::sync::Baton;
use sinew_testkit::child::{child, child_with};
use sinew_testkit::{memory, watch};
use std::cell::Cell;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn waits_with_no_timeout_left_do_not_keep_the_loop() {
    let _watch = watch::a_minute();
    let waits: [fn(); 5] = [
        // Each wait is over when the carrier next looks at its clock.
        || {
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_micros(60) {}
            let (_sender, receiver) = sinew::sync::channel::bounded::<()>(1);
            let _ = receiver.recv_deadline(begun + Duration::from_micros(30));
        },
        || sinew::sleep(Duration::ZERO),
        || assert!(!Baton::new().wait_timeout(Duration::ZERO)),
        || sinew::park_timeout(Duration::ZERO),
        || {
            let (_sender, receiver) = sinew::sync::channel::bounded::<()>(1);
            let _ = receiver.recv_timeout(Duration::ZERO);
        },
    ];
    for wait in waits {
        let (manager, _) = simple();
        let done = kept(Cell::new(false));
        manager.add_task(move || {
            while !done.get() {
                wait();
            }
        });
        (0..100).for_each(|_| manager.loop_until_no_ready());
        done.set(true);
        manager.loop_until_no_ready();
        assert!(!manager.has_tasks());
    }
}

/// A call of the scheduler while the loop silences its bell is not lost, nor is any later one.
#[test]
fn scheduling_all_the_time_does_not_silence_the_bell() {
    type Place = Arc<std::sync::Mutex<Option<Arc<dyn Fn() + Send + Sync>>>>;
    struct Around(SimpleLoopController, Place);
    impl LoopController for Around {
        fn attach(&self, runner: Runner) {
            *self.1.lock().unwrap() = Some(runner.scheduler());
            self.0.attach(runner);
        }
        fn schedule(&self) {
            self.0.schedule();
        }
        fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
            self.0.remote()
        }
        fn idle(&self, until: Until) {
            self.0.idle(until);
        }
    }
    let _watch = watch::a_minute();
    let (controller, scheduler) = (SimpleLoopController::new(), Place::default());
    let around = Around(controller.clone(), Arc::clone(&scheduler));
    let manager = FiberManager::new(around, Options::default()).unwrap();
    let schedule = scheduler.lock().unwrap().take().unwrap();
    let (remote, done) = (manager.remote(), Arc::new(AtomicBool::new(false)));
    let ends = done.clone();
    let thread = std::thread::spawn(move || {
        for turn in 0..2000 {
            for n in 0..turn % 7 {
                schedule();
                for _ in 0..(turn * 31 + n * 17) % 400 {
                    std::hint::spin_loop();
                }
            }
            let task = remote.add_task_remote_future(|| ());
            assert!(task.wait_timeout(Duration::from_secs(30)), "a lost wake in turn {turn}");
        }
        ends.store(true, Ordering::SeqCst);
        remote.add_task_remote(|| ());
    });
    manager.add_task(sinew::park);
    controller.run_until(|| done.load(Ordering::SeqCst));
    thread.join().unwrap();
}

/// The manager whose fiber waited first watches a socket, until a fiber of a runtime waits for it.
#[test]
fn a_socket_goes_from_a_manager_that_does_not_run_to_a_runtime() {
    let _watch = watch::a_minute();
    let (manager, controller) = simple();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stream = manager.add_task_future(move || {
        let mut stream = sinew::net::TcpStream::connect(address).unwrap();
        assert!(sinew::timeout(MS, || stream.read(&mut [0])).is_err());
        stream
    });
    controller.run();
    let mut stream = stream.get().unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let reader = sinew::spawn(move || {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        byte[0]
    });
    sinew::wait_until(|| reader.fiber().state() == sinew::FiberState::Suspended);
    peer.write_all(&[7]).unwrap();
    assert_eq!(reader.join().unwrap(), 7);
}

/// A fiber of a manager waits to read from a socket, and a fiber of a runtime waits to write to it.
/// The runtime watches the socket then.
fn a_socket_is_waited_for_by_two() {
    let (manager, controller) = simple();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect = move || Arc::new(sinew::net::TcpStream::connect(address).unwrap());
    let stream = manager.add_task_future(connect);
    controller.run();
    let stream = stream.get().unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let theirs = stream.clone();
    let reader = manager.add_task_future(move || {
        let mut byte = [0];
        (&*theirs).read_exact(&mut byte).unwrap();
        byte[0]
    });
    // Run until the fiber waits for data; it may have yielded before.
    while reader.fiber().waits_for() != Some(WaitKind::Readable) {
        manager.loop_until_no_ready();
    }
    let writer = sinew::spawn(move || {
        let bytes = vec![0; 1 << 16];
        while (&*stream).write_all(&bytes).is_ok() {}
    });
    sinew::wait_until(|| writer.fiber().waits_for() == Some(WaitKind::Writable));
    peer.write_all(&[7]).unwrap();
    controller.run();
    assert_eq!(reader.get().unwrap(), 7);
    drop((peer, listener));
    writer.join().unwrap();
}

#[test]
fn a_socket_of_a_manager_and_a_runtime_wakes_both() {
    let _watch = watch::a_minute();
    a_socket_is_waited_for_by_two();
}

#[test]
fn a_polled_socket_of_a_manager_and_a_runtime_wakes_both() {
    let name = "resting::a_polled_socket_of_a_manager_and_a_runtime_wakes_both";
    child_with(name, polls, || {
        let _watch = watch::a_minute();
        a_socket_is_waited_for_by_two();
    })
    .assert_success();
}

fn polls(command: &mut std::process::Command) {
    command.env("SINEW_IO", "poll");
}

/// Returns how often the loop turns in a tenth of a second without work, after a fiber has
/// connected.
fn turns_at_rest(then: impl FnOnce(sinew::net::TcpStream) + 'static) -> usize {
    let (manager, controller) = simple();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    manager.add_task(move || {
        then(sinew::net::TcpStream::connect(address).unwrap());
        sinew::sleep(100 * MS);
    });
    let mut turns = 0;
    controller.run_until(|| {
        turns += 1;
        false
    });
    turns
}

fn a_loop_rests() {
    let turns = [
        turns_at_rest(drop),
        turns_at_rest(|mut stream| {
            assert!(sinew::timeout(MS, || stream.read(&mut [0])).is_err());
        }),
        // Another thread closes the socket, which rings the bell.
        turns_at_rest(|mut stream| {
            assert!(sinew::timeout(MS, || stream.read(&mut [0])).is_err());
            let thread = std::thread::spawn(move || {
                let _ = sinew::timeout(MS, || stream.read(&mut [0]));
            });
            run_in_main_context(|| thread.join().unwrap());
        }),
    ];
    assert!(turns.iter().all(|turns| *turns < 100), "{turns:?}");
}

#[test]
fn a_loop_rests_when_its_sockets_are_gone() {
    let _watch = watch::a_minute();
    a_loop_rests();
}

#[test]
fn a_loop_that_polls_rests_when_its_sockets_are_gone() {
    let name = "resting::a_loop_that_polls_rests_when_its_sockets_are_gone";
    child_with(name, polls, || {
        let _watch = watch::a_minute();
        a_loop_rests();
    })
    .assert_success();
}

#[test]
fn a_manager_that_is_measured_takes_no_memory_for_wakes() {
    if cfg!(any(sinew_asan, sinew_tsan)) {
        return; // the sanitizers keep memory of their own
    }
    child("resting::a_manager_that_is_measured_takes_no_memory_for_wakes", || {
        let _watch = watch::a_minute();
        let (manager, _) = simple();
        manager.add_task(|| {
            sinew::runtime::RuntimeHandle::current().measure(true);
            loop {
                sinew::yield_now();
            }
        });
        let turns = |n| (0..n).for_each(|_| manager.loop_until_no_ready());
        turns(1000);
        let before = memory::resident();
        turns(200_000);
        let grown = memory::resident().saturating_sub(before);
        assert!(grown < 1 << 20, "{grown} bytes");
    })
    .assert_success();
}
