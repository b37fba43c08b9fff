//! An idle connection costs a little memory and no processor time.
#![allow(clippy::print_stdout, reason = "what was measured is printed, and processes talk")]

use crate::backends::all;
use sinew::net::{TcpListener, TcpStream};
use sinew::runtime::Backend;
use sinew::{FiberBuilder, Runtime};
use sinew_testkit::child::{child, child_with};
use sinew_testkit::processor_time;
use sinew_testkit::watch;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

mod backends;

/// Returns the resident memory of the process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Raises the limit of descriptors. Returns false, with a message, if `count` is not possible.
fn may_open(count: u64) -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: valid limits for this process.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = count.max(limit.rlim_cur).min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    if limit.rlim_cur < count {
        println!("skipped: needs {count} descriptors, and the hard limit is {}", limit.rlim_max);
    }
    limit.rlim_cur >= count
}

/// Half of the sockets wait in fibers that have started, half in unstarted ones.
#[test]
fn ten_thousand_idle_sockets_use_no_processor() {
    for backend in all() {
        let prepare = |command: &mut Command| {
            command.env("SINEW_IO", format!("{backend:?}").to_lowercase());
        };
        let name = "ten_thousand_idle_sockets_use_no_processor";
        let outcome = child_with(name, prepare, || {
            let _watch = watch::a_minute();
            if !may_open(10_100) {
                return;
            }
            let runtime = Runtime::builder().carriers(2).build().unwrap();
            let (mut fibers, mut armed) = (Vec::new(), Vec::new());
            for _ in 0..2500 {
                let (one, other) = UnixStream::pair().unwrap();
                let [one, other] = [one, other].map(|end| sinew::io::Async::new(end).unwrap());
                fibers.push(runtime.spawn(move || one.wait_readable()));
                let builder = FiberBuilder::new().runtime(runtime.handle());
                armed.push(builder.spawn_when_readable(other, |_| ()).unwrap());
            }
            let (ones, others): (Vec<_>, Vec<_>) =
                (0..2500).map(|_| UnixStream::pair().unwrap()).unzip();
            for one in ones {
                let one = sinew::io::Async::new(one).unwrap();
                fibers.push(runtime.spawn(move || one.wait_readable()));
            }
            for fiber in &fibers {
                sinew::wait_until(|| fiber.fiber().waits_for().is_some());
            }
            // The system has to tidy up after it opened this many sockets.
            let settled = Instant::now() + Duration::from_millis(100);
            sinew::sleep_deadline(settled);
            let before = processor_time();
            sinew::sleep(Duration::from_secs(2));
            let used = processor_time() - before;
            assert!(used < Duration::from_millis(20), "{used:?}: {}", threads());
            drop(others);
            std::process::exit(0);
        });
        outcome.assert_success();
        if std::env::var_os("SINEW_TEST_CHILD").is_none() && outcome.stdout.contains("skipped") {
            println!("{}", outcome.stdout);
        }
    }
}

/// More events happen at once than a queue of the kernel holds, while the carrier cannot poll. All
/// of them arrive; then the process is idle.
#[test]
fn a_flood_of_events_passes() {
    for backend in all() {
        let prepare = |command: &mut Command| {
            command.env("SINEW_IO", format!("{backend:?}").to_lowercase());
        };
        let outcome = child_with("a_flood_of_events_passes", prepare, || {
            let _watch = watch::a_minute();
            if !may_open(8200) {
                return;
            }
            let runtime = Runtime::builder().carriers(1).build().unwrap();
            let (ones, others): (Vec<_>, Vec<_>) =
                (0..4000).map(|_| UnixStream::pair().unwrap()).unzip();
            let others = Arc::new(others);
            let heard = Arc::new(AtomicUsize::new(0));
            for one in ones {
                let mut one = sinew::io::Async::new(one).unwrap();
                let heard = heard.clone();
                runtime.spawn(move || {
                    while one.read_exact(&mut [0]).is_ok() {
                        heard.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for flood in 1..=3 {
                let others = others.clone();
                let count = flood * others.len();
                runtime.run(move || {
                    others.iter().for_each(|mut other| other.write_all(b"x").unwrap());
                });
                sinew::wait_until(|| heard.load(Ordering::Relaxed) == count);
            }
            // Some fibers have just been woken and begin to wait again; at some time that ends.
            while {
                let before = processor_time();
                sinew::sleep(Duration::from_millis(200));
                processor_time() - before > Duration::from_millis(20)
            } {}
            std::process::exit(0);
        });
        outcome.assert_success();
    }
}

/// The bell rings when there is no room for its event. Later a fiber is submitted while the carrier
/// sleeps in a hook of the user's.
#[test]
fn a_flood_does_not_drown_the_bell() {
    child("a_flood_does_not_drown_the_bell", || {
        let _watch = watch::a_minute();
        if !may_open(1200) {
            return;
        }
        for backend in all() {
            // As many events as there is room for, and one less: the last event does not fit.
            for count in [511, 512] {
                flood_with_a_hook(backend, count);
            }
        }
    })
    .assert_success();
}

fn flood_with_a_hook(backend: Backend, count: usize) {
    let rests = Arc::new(AtomicUsize::new(0));
    let waker = Arc::new(Mutex::new(None));
    let (inside, gives) = (rests.clone(), waker.clone());
    let hook = move |idle: &sinew::runtime::Idle<'_>| {
        *gives.lock().unwrap() = Some(idle.waker());
        let fd = idle.as_fd().as_raw_fd();
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // Far longer than the test takes, unless the carrier misses its bell.
        let timeout = idle.timeout().map_or(30_000, |timeout| timeout.as_millis() as i32 + 1);
        inside.store(1, Ordering::Relaxed);
        // SAFETY: one valid entry.
        unsafe { libc::poll(&mut entry, 1, timeout) };
        inside.store(0, Ordering::Relaxed);
    };
    let builder = Runtime::builder().carriers(1).backend(backend);
    let runtime = builder.idle_hook(hook).build().unwrap();
    let (ones, others): (Vec<_>, Vec<_>) = (0..count).map(|_| UnixStream::pair().unwrap()).unzip();
    // All sockets are watched, and no fiber waits for them.
    let watched = runtime.run(move || {
        let ones: Vec<_> =
            ones.into_iter().map(|one| sinew::io::Async::new(one).unwrap()).collect();
        for one in &ones {
            assert!(!one.wait_readable_timeout(Duration::from_micros(10)).unwrap());
        }
        ones
    });
    sinew::wait_until(|| rests.load(Ordering::Relaxed) == 1);
    // The carrier does not poll, and its bell rings after all other events.
    let (busy, goes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let blocker = runtime.spawn({
        let (busy, goes) = (busy.clone(), goes.clone());
        move || {
            while goes.load(Ordering::Relaxed) == 0 {
                // The kernel reports when the thread returns from a system call.
                std::thread::sleep(Duration::from_millis(1));
                busy.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let until_reported = || {
        let before = busy.load(Ordering::Relaxed);
        sinew::wait_until(|| busy.load(Ordering::Relaxed) > before + 2);
    };
    until_reported();
    others.iter().for_each(|mut other| other.write_all(b"x").unwrap());
    until_reported();
    waker.lock().unwrap().take().expect("it has slept").wake();
    until_reported();
    goes.store(1, Ordering::Relaxed);
    blocker.join().unwrap();
    for _ in 0..100 {
        sinew::wait_until(|| rests.load(Ordering::Relaxed) == 1);
        let begun = Instant::now();
        runtime.spawn(|| ()).join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10), "deaf on {backend:?}");
    }
    drop(watched);
}

/// Returns the processor time of each thread of the process, in ticks, and where it is.
fn threads() -> String {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let about = |task: std::fs::DirEntry| {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let stat = read("stat");
        let times: Vec<_> = stat.split(' ').skip(13).take(2).map(str::to_owned).collect();
        format!("{} {} {}", read("comm").trim(), times.join("+"), read("wchan"))
    };
    tasks.map(|task| about(task.unwrap())).collect::<Vec<_>>().join("; ")
}

/// The kind of fibers that serve connections.
#[derive(Clone, Copy, Debug)]
enum Handlers {
    Started,
    Deferred,
}

const CONNECTIONS: usize = 18_000;

/// Serves in a separate process. Prints the address, the number of connections and their cost.
fn serve(handlers: Handlers) {
    let _watch = watch::watchdog(Duration::from_secs(180));
    if !may_open(CONNECTIONS as u64 + 200) {
        return;
    }
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("listens at {}", listener.local_addr().unwrap());
    let before = resident();
    let ready = Arc::new(AtomicUsize::new(0));
    let count = ready.clone();
    runtime.spawn(move || {
        for _ in 0..CONNECTIONS {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&[0]).unwrap();
            let answer = |mut stream: TcpStream| {
                let mut byte = [0];
                while stream.read(&mut byte).is_ok_and(|count| count > 0) {
                    stream.write_all(&[byte[0] + 1]).unwrap();
                }
            };
            match handlers {
                Handlers::Started => {
                    let count = count.clone();
                    drop(sinew::spawn(move || {
                        count.fetch_add(1, Ordering::Relaxed);
                        answer(stream);
                    }));
                }
                Handlers::Deferred => {
                    drop(sinew::spawn_when_readable(stream, answer));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    sinew::wait_until(|| ready.load(Ordering::Relaxed) == CONNECTIONS);
    sinew::sleep(Duration::from_millis(20));
    println!("bytes each: {}", (resident() - before) / CONNECTIONS);
    // Wait until the client has gone.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// Opens all connections and leaves them idle. Each answers afterwards.
fn stays_open(name: &str, handlers: Handlers, most: usize) {
    // There are not enough descriptors for two of these tests at once.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let (input, mut goes) = std::io::pipe().unwrap();
    let (output, says) = std::io::pipe().unwrap();
    // The client runs here, while this thread waits for the server to end.
    let client = std::thread::spawn(move || {
        let mut lines = BufReader::new(output).lines().map(Result::unwrap);
        let mut said = |what: &str| {
            lines.find_map(|line| line.split_once(what).map(|(_, rest)| rest.trim().to_owned()))
        };
        let Some(address) = said("listens at") else { return 0 };
        let address: SocketAddr = address.parse().unwrap();
        if !may_open(CONNECTIONS as u64 + 200) {
            goes.write_all(b"x").unwrap();
            return 0;
        }
        let mut streams: Vec<std::net::TcpStream> = Vec::new();
        while streams.len() < CONNECTIONS {
            // As many as the backlog of the listener takes.
            let first = streams.len();
            let more = (CONNECTIONS - first).min(64);
            streams.extend((0..more).map(|_| std::net::TcpStream::connect(address).unwrap()));
            streams[first..].iter_mut().for_each(|stream| stream.read_exact(&mut [0]).unwrap());
        }
        let bytes = said("bytes each:").unwrap().parse::<usize>().unwrap();
        streams.iter_mut().for_each(|stream| stream.write_all(&[7]).unwrap());
        for stream in &mut streams {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [8]);
        }
        goes.write_all(b"x").unwrap();
        bytes
    });
    let prepare = |command: &mut Command| {
        command.stdin(Stdio::from(input)).stdout(Stdio::from(says));
    };
    let outcome = child_with(name, prepare, || serve(handlers));
    outcome.assert_success();
    let bytes = client.join().unwrap();
    println!("{handlers:?}: {bytes} bytes for each of {CONNECTIONS} connections");
    assert!(bytes < most, "{bytes} bytes each");
}

/// Each fiber has a stack, and uses a few pages of it.
#[test]
fn eighteen_thousand_started_fibers_wait_and_answer() {
    stays_open("eighteen_thousand_started_fibers_wait_and_answer", Handlers::Started, 32 << 10);
}

#[test]
fn eighteen_thousand_fibers_that_have_not_started_wait_and_answer() {
    let name = "eighteen_thousand_fibers_that_have_not_started_wait_and_answer";
    stays_open(name, Handlers::Deferred, 2 << 10);
}

/// The slots of these numbers serve other sockets when the numbers are free again.
#[test]
fn numbers_serve_again_after_thousands_were_closed() {
    child("numbers_serve_again_after_thousands_were_closed", || {
        let _watch = watch::a_minute();
        if !may_open(4200) {
            return;
        }
        let runtime = Runtime::builder().carriers(2).build().unwrap();
        for _ in 0..3 {
            let (ones, others): (Vec<_>, Vec<_>) =
                (0..2000).map(|_| UnixStream::pair().unwrap()).unzip();
            let fibers: Vec<_> = ones
                .into_iter()
                .map(|one| {
                    let one = sinew::io::Async::new(one).unwrap();
                    let body = |mut one: sinew::io::Async<UnixStream>| {
                        one.read_exact(&mut [0]).unwrap();
                    };
                    let builder = FiberBuilder::new().runtime(runtime.handle());
                    builder.spawn_when_readable(one, body).unwrap()
                })
                .collect();
            others.iter().for_each(|mut other| other.write_all(b"x").unwrap());
            fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
        }
    })
    .assert_success();
}
