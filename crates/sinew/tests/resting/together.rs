//! Resting fibers beside others that use the same connections or descriptors.

use crate::backends::{all, connected, on_each, on_each_with};
use crate::{BOUND, Bound, on, read_some, until_it_rests};
use sinew::Runtime;
use sinew::net::TcpStream;
use sinew_testkit::{Log, Seed, watch};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Data, the end of the stream, a cancellation and a close come at the same time, between calls and
/// within them.
#[test]
fn every_resting_fiber_ends_or_is_cancelled() {
    const FIBERS: usize = 60;
    let mut seed = Seed::from_env();
    let seed = RefCell::new(&mut seed);
    on_each(|runtime| {
        let mut seed = seed.borrow_mut().fork();
        let dropped = Arc::new(AtomicUsize::new(0));
        struct Counts(Arc<AtomicUsize>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let mut all = Vec::new();
        for _ in 0..FIBERS {
            let (one, other) = connected();
            let counts = Counts(dropped.clone());
            let mut chance = seed.fork();
            let serve = move |stream: &mut TcpStream| {
                let _counts = &counts;
                let count = read_some(stream)?.len();
                match chance.below(4) {
                    0 => sinew::yield_now(),
                    1 => BOUND.with(|bound| *bound.borrow_mut() = Some(Bound::new(Log::new()))),
                    2 => sinew::sleep(Duration::from_micros(5)),
                    _ => {}
                }
                stream.write_all(&[0; 16][..count]).map_or_else(|error| Break(Err(error)), Continue)
            };
            let fiber = on(runtime).spawn_for_each_arrival(other, serve).unwrap();
            let mut chance = seed.fork();
            let client = runtime.spawn(move || {
                for _ in 0..chance.below(50) {
                    (0..chance.below(300)).for_each(|_| std::hint::spin_loop());
                    let sent = (&one).write(&[0; 3][..1 + chance.below(3)]);
                    if sent.is_err()
                        || chance.below(2) == 0 && !matches!((&one).read(&mut [0; 9]), Ok(1..))
                    {
                        return;
                    }
                }
            });
            let handle = fiber.fiber();
            let mut chance = seed.fork();
            let canceller = std::thread::spawn(move || {
                (0..chance.below(20_000)).for_each(|_| std::hint::spin_loop());
                if chance.below(2) == 0 {
                    handle.cancel();
                }
            });
            all.push((fiber, client, canceller));
        }
        for (fiber, client, canceller) in all {
            canceller.join().unwrap();
            client.join().unwrap();
            if let Err(payload) = fiber.join() {
                assert!(sinew::is_cancel(&*payload));
            }
        }
        assert_eq!(dropped.load(SeqCst), FIBERS);
    });
}

/// One fiber reads whenever there is data, and another writes all the time. Each rest registers
/// with the kernel anew, and must not forget the waiting writer.
#[test]
fn a_writer_goes_on_beside_a_resting_reader() {
    const PAIRS: usize = 16;
    const BLOCKS: usize = 300;
    on_each_with(2, |runtime| {
        let clients = Runtime::builder().carriers(1).build().unwrap();
        let writers: Vec<_> = (0..PAIRS)
            .map(|_| {
                let (one, other) = connected();
                let (one, other) = (Arc::new(one), Arc::new(other));
                let reads = |stream: &mut Arc<TcpStream>| match (&**stream).read(&mut [0; 1]) {
                    Ok(1) => Continue(()),
                    _ => Break(()),
                };
                drop(on(runtime).spawn_for_each_arrival(other.clone(), reads).unwrap());
                let (reader, writer) = (one.clone(), one);
                drop(clients.spawn(move || {
                    let mut buffer = vec![0; 1 << 14];
                    while let Ok(1..) = (&*reader).read(&mut buffer) {}
                }));
                drop(clients.spawn(move || {
                    while (&*writer).write_all(b"some bytes").is_ok() {
                        sinew::yield_now();
                    }
                }));
                runtime.spawn(move || {
                    let block = [0; 1 << 16];
                    (0..BLOCKS).for_each(|_| (&*other).write_all(&block).unwrap());
                    let _ = other.shutdown(std::net::Shutdown::Both);
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

/// A poller that no carrier uses any more watches nothing.
#[test]
fn a_runtime_that_was_abandoned_keeps_no_descriptor_from_others() {
    let _watch = watch::a_minute();
    for backend in all() {
        for births in [false, true] {
            let runtime = Runtime::builder().carriers(4).backend(backend).build().unwrap();
            let (mut one, other) = connected();
            let other = Arc::new(other);
            let (begun, go_on) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (told, may) = (begun.clone(), go_on.clone());
            let shared = other.clone();
            let serve = move |stream: &mut Arc<TcpStream>| {
                let _ = (&**stream).read(&mut [0; 1]);
                told.store(true, SeqCst);
                // Block the thread, so that the runtime cannot end.
                while !may.load(SeqCst) {
                    std::thread::yield_now();
                }
                if births {
                    drop(sinew::spawn_for_each_arrival(shared.clone(), |_| Break(())));
                    return Break(());
                }
                Continue(())
            };
            let fiber = on(&runtime).spawn_for_each_arrival(other.clone(), serve).unwrap();
            one.write_all(b"x").unwrap();
            while !begun.load(SeqCst) {
                std::thread::yield_now();
            }
            runtime.shutdown_timeout(Duration::from_millis(20)).unwrap_err();
            go_on.store(true, SeqCst);
            let _ = fiber.join();
            // Another runtime continues with the socket.
            let second = Runtime::builder().carriers(1).backend(backend).build().unwrap();
            let reader = second.spawn(move || (&*other).read(&mut [0; 1]).unwrap());
            until_it_rests(&reader);
            one.write_all(b"y").unwrap();
            assert_eq!(reader.join().unwrap(), 1, "{backend:?} {births}");
        }
    }
}
