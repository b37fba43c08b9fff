//! Fibers that start when there is something to read.

use crate::backends::{all, connected, on_each, on_each_with};
use sinew::net::{Shutdown, TcpListener, TcpStream};
use sinew::{FiberBuilder, FiberState, JoinHandle, Runtime};
use sinew_testkit::{Log, Seed, watch};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

mod backends;

fn on(runtime: &Runtime) -> FiberBuilder {
    FiberBuilder::new().runtime(runtime.handle())
}

/// Starts a fiber that returns the first bytes that arrive.
fn first_bytes(runtime: &Runtime, stream: TcpStream) -> JoinHandle<Vec<u8>> {
    let read = |mut stream: TcpStream| {
        let mut buffer = [0; 16];
        stream.read(&mut buffer).map(|count| buffer[..count].to_vec()).unwrap()
    };
    on(runtime).spawn_when_readable(stream, read).unwrap()
}

/// The only stack is used by another fiber: armed fibers take none.
#[test]
fn no_stack_is_needed_before_the_first_byte() {
    let _watch = watch::a_minute();
    for backend in all() {
        let builder = Runtime::builder().carriers(1).max_stacks(1).backend(backend);
        let runtime = builder.build().unwrap();
        let mut pairs: Vec<_> = (0..20).map(|_| connected()).collect();
        let clients: Vec<_> = pairs.iter().map(|(one, _)| one.try_clone().unwrap()).collect();
        let fibers = runtime.run(move || {
            let start = |(_, other): (TcpStream, TcpStream)| {
                sinew::spawn_when_readable(other, |mut stream| {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).map(|()| byte[0]).unwrap()
                })
            };
            let fibers: Vec<_> = pairs.drain(..).map(start).collect();
            // Other fibers run meanwhile, and wait.
            sinew::sleep(Duration::from_millis(1));
            assert!(fibers.iter().all(|fiber| fiber.fiber().state() == FiberState::Suspended));
            fibers
        });
        // One after the other: each fiber leaves its stack to the next.
        for ((index, fiber), mut client) in fibers.into_iter().enumerate().zip(clients) {
            client.write_all(&[index as u8]).unwrap();
            assert_eq!(fiber.join().unwrap(), index as u8);
        }
    }
}

#[test]
fn an_early_and_a_late_byte_start_a_deferred_fiber() {
    on_each(|runtime| {
        for before in [true, false] {
            for inside in [true, false] {
                let (mut one, other) = connected();
                if before {
                    one.write_all(b"hello").unwrap();
                }
                let handle = runtime.handle().clone();
                let start = move || {
                    let read = |mut stream: TcpStream| stream.read(&mut [0; 16]).unwrap();
                    FiberBuilder::new().runtime(&handle).spawn_when_readable(other, read).unwrap()
                };
                let fiber = if inside { runtime.run(start) } else { start() };
                if !before {
                    one.write_all(b"hello").unwrap();
                }
                assert_eq!(fiber.join().unwrap(), 5);
            }
        }
    });
}

/// Bytes that arrive between the last read and the call were reported before the fiber was armed.
#[test]
fn bytes_since_the_last_read_start_a_deferred_fiber() {
    on_each_with(1, |runtime| {
        for room in [1, 16] {
            let (mut one, mut other) = connected();
            let ready = other.try_clone().unwrap();
            let fiber = runtime.run(move || {
                let writer = sinew::spawn(move || one.write_all(b"x").map(|()| one).unwrap());
                // The read waits, so the socket is watched from here on.
                assert_eq!(other.read(&mut vec![0; room]).unwrap(), 1);
                let mut one = writer.join().unwrap();
                one.write_all(b"y").unwrap();
                // A harvest reports the byte: this wait uses another descriptor of the same
                // connection.
                sinew::io::wait_readable(&ready).unwrap();
                (0..100).for_each(|_| sinew::yield_now());
                let read = move |mut stream: TcpStream| {
                    drop(one);
                    stream.read(&mut [0; 16]).unwrap()
                };
                sinew::spawn_when_readable(other, read)
            });
            assert_eq!(fiber.join().unwrap(), 1);
        }
    });
}

/// A thread that does not read can end a shared connection.
#[test]
fn a_shared_source_starts_a_deferred_fiber() {
    on_each(|runtime| {
        let (mut one, other) = connected();
        let other = Arc::new(other);
        let read = |stream: Arc<TcpStream>| (&*stream).read(&mut [0; 16]).unwrap();
        let fiber = on(runtime).spawn_when_readable(other.clone(), read).unwrap();
        one.write_all(b"hello").unwrap();
        assert_eq!(fiber.join().unwrap(), 5);
        let fiber = on(runtime).spawn_when_readable(other.clone(), read).unwrap();
        other.shutdown(Shutdown::Read).unwrap();
        assert_eq!(fiber.join().unwrap(), 0);
    });
}

#[test]
fn the_end_of_the_stream_starts_a_deferred_fiber() {
    on_each(|runtime| {
        let (one, other) = connected();
        let fiber = first_bytes(runtime, other);
        drop(one);
        assert_eq!(fiber.join().unwrap(), b"");
    });
}

#[test]
fn closing_starts_a_deferred_fiber() {
    on_each(|runtime| {
        let (_one, other) = connected();
        let other = Arc::new(other);
        // A copy shares the connection, which closing shuts down.
        let copy = other.try_clone().unwrap();
        let fiber = first_bytes(runtime, copy);
        other.close().unwrap();
        assert_eq!(fiber.join().unwrap(), b"");
        // A socket that is closed already.
        let (_one, other) = connected();
        other.close().unwrap();
        let read = |mut stream: TcpStream| stream.read(&mut [0]).unwrap_err().kind();
        let fiber = on(runtime).spawn_when_readable(other, read).unwrap();
        assert_eq!(fiber.join().unwrap(), ErrorKind::NotConnected);
    });
}

#[test]
fn a_deferred_fiber_cancelled_before_its_start_drops_its_source() {
    on_each(|runtime| {
        for inside in [true, false] {
            let log = Log::new();
            let (mut one, other) = connected();
            let (theirs, dropped) = (log.clone(), log.on_drop("closure dropped"));
            let body = move |_| {
                let _dropped = dropped;
                theirs.line("began");
            };
            let fiber = on(runtime).spawn_when_readable(other, body).unwrap();
            let cancel = move || {
                fiber.cancel();
                assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
            };
            if inside {
                runtime.run(cancel);
            } else {
                cancel();
            }
            assert_eq!(log.take(), ["closure dropped"]);
            assert_eq!(one.read(&mut [0]).unwrap(), 0, "the source was dropped");
        }
    });
}

#[test]
fn a_runtime_that_ends_cancels_its_deferred_fibers() {
    let _watch = watch::a_minute();
    for backend in all() {
        for carriers in [1, 2] {
            let runtime = Runtime::builder().carriers(carriers).backend(backend).build().unwrap();
            let (clients, fibers): (Vec<_>, Vec<_>) = (0..50)
                .map(|_| {
                    let (one, other) = connected();
                    (one, first_bytes(&runtime, other))
                })
                .unzip();
            runtime.shutdown_timeout(Duration::from_secs(20)).unwrap();
            for (mut client, fiber) in clients.into_iter().zip(fibers) {
                assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
                assert_eq!(client.read(&mut [0]).unwrap(), 0, "the source was dropped");
            }
        }
    }
}

/// One fiber of a runtime drops the runtime while another fiber still arms a deferred one.
#[test]
fn arming_a_fiber_does_not_keep_an_ending_runtime() {
    let _watch = watch::a_minute();
    for backend in all() {
        let runtime = Runtime::builder().carriers(2).backend(backend).build().unwrap();
        let handle = runtime.handle().clone();
        let (one, other) = connected();
        let gone = Arc::new(AtomicUsize::new(0));
        let late = {
            let gone = gone.clone();
            handle.spawn(move || {
                sinew::masked(|| {
                    while gone.load(Ordering::SeqCst) == 0 {
                        std::hint::spin_loop();
                    }
                    sinew::spawn_when_readable(other, drop)
                })
            })
        };
        let dropper = handle.spawn(move || {
            drop(runtime);
            gone.store(1, Ordering::SeqCst);
        });
        dropper.join().unwrap();
        if let Ok(armed) = late.join() {
            assert!(sinew::is_cancel(&*armed.join().unwrap_err()));
        }
        drop(one);
    }
}

#[test]
fn connections_spread_over_the_carriers() {
    on_each_with(2, |runtime| {
        let seen: Arc<[AtomicUsize; 2]> = Arc::default();
        let (clients, fibers): (Vec<_>, Vec<_>) = (0..100)
            .map(|_| {
                let (one, other) = connected();
                let seen = seen.clone();
                let body = move |_| {
                    seen[sinew::current_carrier().unwrap()].fetch_add(1, Ordering::SeqCst);
                    // No fiber ends before both carriers have started one.
                    while seen.iter().any(|count| count.load(Ordering::SeqCst) == 0) {
                        std::thread::yield_now();
                    }
                };
                (one, on(runtime).spawn_when_readable(other, body).unwrap())
            })
            .unzip();
        clients.iter().for_each(|mut client| client.write_all(b"x").unwrap());
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert_eq!(seen.iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>(), 100);
    });
}

#[test]
fn a_deferred_fiber_runs_on_its_carrier() {
    on_each_with(2, |runtime| {
        for carrier in [0, 1, 0, 1] {
            let (mut one, other) = connected();
            let builder = on(runtime).carrier(carrier);
            let fiber = builder.spawn_when_readable(other, |_| sinew::current_carrier()).unwrap();
            one.write_all(b"x").unwrap();
            assert_eq!(fiber.join().unwrap(), Some(carrier));
        }
        let (_one, other) = connected();
        assert!(on(runtime).carrier(2).spawn_when_readable(other, |_| ()).is_err());
    });
}

/// A fiber of one runtime arms a fiber of another runtime.
#[test]
fn a_deferred_fiber_runs_in_its_runtime() {
    on_each(|runtime| {
        let other_runtime = Runtime::builder().carriers(1).name("elsewhere").build().unwrap();
        let handle = other_runtime.handle().clone();
        let (mut one, other) = connected();
        let fiber = runtime.run(move || {
            let name = |_| sinew::RuntimeHandle::current().name().to_owned();
            FiberBuilder::new().runtime(&handle).spawn_when_readable(other, name).unwrap()
        });
        one.write_all(b"x").unwrap();
        assert_eq!(fiber.join().unwrap(), "elsewhere");
    });
}

#[test]
fn a_panic_of_a_deferred_fiber_goes_to_its_joiner() {
    on_each(|runtime| {
        let (mut one, other) = connected();
        let fiber =
            on(runtime).spawn_when_readable(other, |_| std::panic::resume_unwind(Box::new(7)));
        let fiber: JoinHandle<()> = fiber.unwrap();
        one.write_all(b"x").unwrap();
        assert_eq!(*fiber.join().unwrap_err().downcast::<i32>().unwrap(), 7);
        assert_eq!(one.read(&mut [0]).map_err(|error| error.kind()).unwrap_or(0), 0);
    });
}

/// A fiber without a join handle runs too.
#[test]
fn a_deferred_fiber_needs_no_handle() {
    on_each(|runtime| {
        let count = Arc::new(AtomicUsize::new(0));
        let clients: Vec<_> = (0..20)
            .map(|_| {
                let (one, other) = connected();
                let count = count.clone();
                let body = move |_| _ = count.fetch_add(1, Ordering::SeqCst);
                drop(on(runtime).spawn_when_readable(other, body).unwrap());
                one
            })
            .collect();
        clients.iter().for_each(|mut client| client.write_all(b"x").unwrap());
        sinew::wait_until(|| count.load(Ordering::SeqCst) == 20);
    });
}

/// Data, the end of the stream, a cancellation and a close come at the same time.
#[test]
fn every_deferred_fiber_starts_or_is_cancelled() {
    const ROUNDS: usize = 400;
    let mut seed = Seed::from_env();
    let seed = std::cell::RefCell::new(&mut seed);
    on_each(|runtime| {
        let mut seed = seed.borrow_mut().fork();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        struct Counts(Arc<AtomicUsize>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let mut fibers = Vec::new();
        for _ in 0..ROUNDS {
            let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (other, _) = listener.accept().unwrap();
            let counts = Counts(dropped.clone());
            let body = move |mut stream: TcpStream| {
                let _counts = counts;
                stream.read(&mut [0; 8]).unwrap()
            };
            let fiber = on(runtime).spawn_when_readable(other, body).unwrap();
            let mut chance = seed.fork();
            let data = runtime.spawn(move || {
                (0..chance.below(500)).for_each(|_| std::hint::spin_loop());
                match chance.below(3) {
                    0 => drop(one),
                    _ => _ = (&one).write(b"x"),
                }
            });
            (0..seed.below(2000)).for_each(|_| std::hint::spin_loop());
            if seed.below(2) == 0 {
                fiber.cancel();
            }
            fibers.push((fiber, data));
        }
        let mut cancelled = 0;
        for (fiber, data) in fibers {
            data.join().unwrap();
            match fiber.join() {
                Ok(count) => assert!(count <= 1),
                Err(payload) => {
                    assert!(sinew::is_cancel(&*payload));
                    cancelled += 1;
                }
            }
        }
        assert!(cancelled < ROUNDS);
        assert_eq!(dropped.load(Ordering::SeqCst), ROUNDS);
    });
}
