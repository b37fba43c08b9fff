//! Connections under stress: opened, used and ended in every way at once, on every backend.
//!
//! A *round* is one backend with one or two carriers. In it, clients and servers of all kinds meet
//! at one listener. The first bytes of a client announce its plan, and every byte that arrives is
//! checked. At the end of a round no fiber is left, and no more descriptors are open than before.
#![allow(clippy::print_stdout, reason = "what was done is printed")]

use super::{patience, seconds};
use sinew::io::{Interest, PollFd};
use sinew::net::{Shutdown, TcpListener, TcpStream};
use sinew::runtime::{Backend, PinnedWait};
use sinew::{FiberBuilder, JoinHandle, Runtime};
use sinew_testkit::Seed;
use sinew_testkit::child::child_with;
use socket2::SockRef;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The plan of a connection, known to both sides: how many bytes go there and back, and which.
#[derive(Clone, Copy)]
struct Plan {
    bytes: u32,
    salt: u8,
}

impl Plan {
    fn byte(self, index: u32) -> u8 {
        self.salt.wrapping_add((index as u8).wrapping_mul(31)).wrapping_add((index >> 8) as u8)
    }

    fn encode(self) -> [u8; 5] {
        let [a, b, c, d] = self.bytes.to_le_bytes();
        [a, b, c, d, self.salt]
    }

    fn decode([a, b, c, d, salt]: [u8; 5]) -> Plan {
        Plan { bytes: u32::from_le_bytes([a, b, c, d]), salt }
    }
}

/// The state that the members of a round share.
struct Round {
    address: SocketAddr,
    listener: TcpListener,
    /// Connections that came to a good end.
    complete: AtomicU64,
    /// Connections that were ended on purpose, or by a cancellation.
    broken: AtomicU64,
}

#[test]
fn connections_keep_their_promises() {
    let seed = Seed::number_of("SINEW_STRESS_SEED");
    let prepare = |command: &mut std::process::Command| {
        command.env("SINEW_STRESS_SEED", seed.to_string());
    };
    // In a separate process, so that descriptors can be counted.
    let outcome = child_with("io::connections_keep_their_promises", prepare, || {
        let _patience = patience();
        storm(&mut Seed::new(Seed::number_of("SINEW_STRESS_SEED")));
    });
    println!("SINEW_STRESS_SEED={seed}\n{}", outcome.stdout);
    outcome.assert_success();
}

fn storm(seed: &mut Seed) {
    let backends = [Backend::Epoll, Backend::Kqueue, Backend::Uring, Backend::Poll];
    let backends = backends.into_iter().filter(|backend| backend.is_supported());
    let settings: Vec<_> = backends.flat_map(|backend| [(backend, 1), (backend, 2)]).collect();
    // Start the default runtime before the first count; fibers that threads spawn use it.
    sinew::run(|| ());
    let length = seconds() / settings.len() as u32;
    for (backend, carriers) in settings {
        let builder = Runtime::builder().carriers(carriers).backend(backend);
        let runtime = builder.pinned_wait(PinnedWait::Silent).build().unwrap();
        // Pollers are made when they are first used, and kept.
        bout(&runtime, seed, Duration::ZERO);
        let before = open_descriptors();
        let (complete, broken) = bout(&runtime, seed, length);
        let leaks = || open_descriptors().saturating_sub(before + carriers);
        // Descriptors that the kernel has not finished closing are not leaks.
        let none_left = sinew::wait_until_timeout(|| leaks() == 0, Duration::from_secs(5));
        assert!(none_left, "{} descriptors were left", leaks());
        runtime.shutdown_timeout(Duration::from_secs(30)).unwrap();
        println!("{backend:?} with {carriers}: {complete} complete, {broken} broken");
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Runs one round. Returns how many connections were complete and broken.
fn bout(runtime: &Runtime, seed: &mut Seed, length: Duration) -> (u64, u64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let round = Arc::new(Round {
        address: listener.local_addr().unwrap(),
        listener,
        complete: AtomicU64::new(0),
        broken: AtomicU64::new(0),
    });
    let servers: Vec<_> = (0..3)
        .map(|index| {
            let (round, seed, handle) = (round.clone(), seed.fork(), runtime.handle().clone());
            let work = move || accept_all(&round, seed, &handle);
            match index {
                0 => Ok(thread::spawn(work)),
                _ => Err(runtime.spawn(work)),
            }
        })
        .collect();
    let end = Instant::now() + length;
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (round, mut seed) = (round.clone(), seed.fork());
            thread::spawn(move || {
                while Instant::now() < end {
                    client(&round, &mut seed);
                }
            })
        })
        .collect();
    loop {
        let clients: Vec<_> = (0..24)
            .map(|_| {
                let (round, mut seed) = (round.clone(), seed.fork());
                spawn_any(runtime, &mut seed.clone(), move || client(&round, &mut seed))
            })
            .collect();
        for (index, client) in clients.into_iter().enumerate() {
            if index % 5 == 0 {
                (0..seed.below(3000)).for_each(|_| std::hint::spin_loop());
                client.cancel();
            }
            ended(client);
        }
        if Instant::now() >= end {
            break;
        }
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    round.listener.close().unwrap();
    for server in servers {
        let handlers = match server {
            Ok(thread) => thread.join().unwrap(),
            Err(fiber) => fiber.join().unwrap(),
        };
        handlers.into_iter().for_each(ended);
    }
    (round.complete.load(Ordering::Relaxed), round.broken.load(Ordering::Relaxed))
}

/// Waits for the end of a fiber, which may have been cancelled but must not have panicked.
fn ended(fiber: JoinHandle<()>) {
    if let Err(payload) = fiber.join() {
        assert!(sinew::is_cancel(&*payload), "a fiber panicked");
    }
}

fn spawn_any(
    runtime: &Runtime,
    seed: &mut Seed,
    work: impl FnOnce() + Send + 'static,
) -> JoinHandle<()> {
    let builder = FiberBuilder::new().runtime(runtime.handle());
    let builder = match seed.below(3) {
        // SAFETY: the closures keep nothing that belongs to the thread across a wait.
        0 => unsafe { builder.migratable() },
        _ => builder,
    };
    builder.spawn(work).unwrap()
}

/// Accepts until the listener is closed. Returns the serving fibers.
fn accept_all(
    round: &Arc<Round>,
    mut seed: Seed,
    runtime: &sinew::RuntimeHandle,
) -> Vec<JoinHandle<()>> {
    let mut handlers: Vec<JoinHandle<()>> = Vec::new();
    loop {
        let (stream, _) = match round.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::NotConnected => return handlers,
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) => panic!("accept: {error}"),
        };
        let (theirs, chance) = (round.clone(), seed.fork());
        let serve = move |stream: TcpStream| serve(&theirs, stream, chance);
        let builder = FiberBuilder::new().runtime(runtime);
        let handler = match seed.below(4) {
            0 => builder.spawn(move || serve(stream)),
            1 => builder.spawn_when_readable(stream, serve),
            _ => builder.spawn_for_each_arrival(stream, resting(round.clone(), seed.fork())),
        };
        let handler = handler.unwrap();
        if seed.below(16) == 0 {
            handler.cancel();
        }
        handlers.retain(|handler| !handler.is_finished());
        handlers.push(handler);
    }
}

/// Whether this error may end a connection early.
fn is_broken(error: &io::Error) -> bool {
    use ErrorKind::{
        BrokenPipe, ConnectionReset, NotConnected, TimedOut, UnexpectedEof, WouldBlock,
    };
    let kinds = [BrokenPipe, ConnectionReset, NotConnected, TimedOut, UnexpectedEof, WouldBlock];
    kinds.contains(&error.kind())
}

/// Serves a connection: sends back the bytes that the client has announced.
fn serve(round: &Round, stream: TcpStream, mut seed: Seed) {
    let result = (|| {
        let mut first = [0; 5];
        (&stream).read_exact(&mut first)?;
        let plan = Plan::decode(first);
        receive(&stream, plan, &mut seed)?;
        send(&stream, plan, &mut seed)?;
        stream.shutdown(Shutdown::Write)
    })();
    if let Err(error) = result {
        assert!(is_broken(&error), "server: {error}");
        round.broken.fetch_add(1, Ordering::Relaxed);
    }
}

/// Serves a connection in many calls: each reads some bytes, and the fiber rests in between.
fn resting(
    round: Arc<Round>,
    mut seed: Seed,
) -> impl FnMut(&mut TcpStream) -> ControlFlow<()> + Send {
    let mut first = Vec::new();
    let mut index = 0;
    let mut step = move |mut stream: &TcpStream| -> io::Result<ControlFlow<()>> {
        let mut buffer = vec![0; 1 + seed.below(3000)];
        // A read must not take bytes of the data together with the plan.
        let most = if first.len() < 5 { 5 - first.len() } else { buffer.len() };
        let most = most.min(buffer.len());
        let count = stream.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        match <[u8; 5]>::try_from(&first[..]) {
            Err(_) => first.extend_from_slice(&buffer[..count]),
            Ok(begin) => {
                let plan = Plan::decode(begin);
                for byte in &buffer[..count] {
                    assert_eq!(*byte, plan.byte(index), "a wrong byte after {index}");
                    index += 1;
                }
            }
        }
        match seed.below(8) {
            0 => sinew::yield_now(),
            1 => sinew::sleep(Duration::from_micros(5)),
            _ => {}
        }
        match <[u8; 5]>::try_from(&first[..]).map(Plan::decode) {
            Ok(plan) if index == plan.bytes => {
                send(stream, plan, &mut seed)?;
                stream.shutdown(Shutdown::Write)?;
                Ok(ControlFlow::Break(()))
            }
            _ => Ok(ControlFlow::Continue(())),
        }
    };
    move |stream| {
        step(stream).unwrap_or_else(|error| {
            assert!(is_broken(&error), "server: {error}");
            round.broken.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Break(())
        })
    }
}

fn send(mut stream: &TcpStream, plan: Plan, seed: &mut Seed) -> io::Result<()> {
    let bytes: Vec<_> = (0..plan.bytes).map(|index| plan.byte(index)).collect();
    let mut sent = 0;
    while sent < bytes.len() {
        let end = bytes.len().min(sent + 1 + seed.below(4000));
        let count = stream.write(&bytes[sent..end])?;
        assert!(count > 0);
        sent += count;
    }
    Ok(())
}

/// Reads all announced bytes, in one of several ways.
fn receive(mut stream: &TcpStream, plan: Plan, seed: &mut Seed) -> io::Result<()> {
    let mut buffer = vec![0; 1 + seed.below(3000)];
    let mut index = 0;
    while index < plan.bytes {
        match seed.below(12) {
            0 => sinew::io::wait_readable(stream)?,
            1 => {
                let mut entries = [PollFd::new(stream, Interest::Readable)];
                assert_eq!(sinew::io::poll(&mut entries, None)?, 1);
            }
            2 => {
                let limit = Duration::from_micros(seed.below(200) as u64);
                let _ = sinew::timeout(limit, || stream.peek(&mut [0]));
            }
            3 => sinew::yield_now(),
            4 => _ = sinew::blocking(|| sinew::io::is_readable(stream))?,
            _ => {}
        }
        let most = buffer.len().min((plan.bytes - index) as usize);
        let count = match seed.below(8) {
            0 => sinew::masked(|| stream.read(&mut buffer[..most]))?,
            _ => stream.read(&mut buffer[..most])?,
        };
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        for byte in &buffer[..count] {
            assert_eq!(*byte, plan.byte(index), "a wrong byte after {index}");
            index += 1;
        }
    }
    Ok(())
}

/// Opens a connection, and uses and ends it in some way.
fn client(round: &Round, seed: &mut Seed) {
    /// Counts a connection, however it is left.
    struct Counts<'a>(&'a Round, bool);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            let counter = if self.1 { &self.0.complete } else { &self.0.broken };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut counts = Counts(round, false);
    let limit = Duration::from_secs(20);
    let Ok(stream) = TcpStream::connect_timeout(&round.address, limit) else { return };
    let most = 1 << seed.below(16);
    let plan = Plan { bytes: seed.below(most) as u32, salt: seed.number() as u8 };
    let way = seed.below(10);
    let result = (|| {
        if way == 0 {
            // Sends nothing.
            return Ok(false);
        }
        if way == 1 {
            stream.set_read_timeout(Some(Duration::from_micros(50)))?;
        }
        if way == 2 {
            // Breaks off in the middle, with an error for the other side.
            (&stream).write_all(&plan.encode())?;
            send(&stream, Plan { bytes: plan.bytes / 2, ..plan }, seed)?;
            SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
            return Ok(false);
        }
        (&stream).write_all(&plan.encode())?;
        match way {
            3 => {
                // A copy writes on a thread, while this fiber reads.
                let copy = stream.try_clone()?;
                let mut chance = seed.fork();
                let writer = thread::spawn(move || send(&copy, plan, &mut chance));
                let result = receive(&stream, plan, seed);
                // A fiber that is cancelled leaves the thread alone.
                sinew::blocking(|| writer.join().unwrap())?;
                result?;
            }
            4 => {
                let stream = Arc::new(stream);
                let (theirs, mut chance) = (stream.clone(), seed.fork());
                let writer = sinew::spawn(move || send(&theirs, plan, &mut chance));
                receive(&stream, plan, seed)?;
                writer.join().unwrap()?;
                stream.close()?;
                return Ok(true);
            }
            5 => {
                // Another fiber closes the connection while this one reads.
                let stream = Arc::new(stream);
                let theirs = stream.clone();
                let closer = sinew::spawn(move || theirs.close());
                let result = send(&stream, plan, seed).and_then(|()| receive(&stream, plan, seed));
                closer.join().unwrap()?;
                return result.map(|()| false);
            }
            _ => {
                send(&stream, plan, seed)?;
                stream.shutdown(Shutdown::Write)?;
                receive(&stream, plan, seed)?;
                assert_eq!((&stream).read(&mut [0])?, 0, "more than was announced");
            }
        }
        Ok(true)
    })();
    match result {
        Ok(complete) => counts.1 = complete,
        Err(error) => assert!(is_broken(&error), "client: {error}"),
    }
}
