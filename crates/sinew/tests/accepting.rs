//! Accepting connections, also when all descriptors are in use.

use crate::backends::{Who, all, on_each, on_each_with, until_it_waits};
use sinew::Runtime;
use sinew::net::{TcpListener, TcpStream};
use sinew_testkit::child::{child, child_with};
use sinew_testkit::processor_time;
use sinew_testkit::watch;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

mod backends;

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

#[test]
fn many_fibers_accept_from_one_listener() {
    const CONNECTIONS: usize = 60;
    on_each(|runtime| {
        let listener = Arc::new(listener());
        let address = listener.local_addr().unwrap();
        let taken = Arc::new(AtomicUsize::new(0));
        let acceptors: Vec<_> = (0..6)
            .map(|index| {
                let (listener, taken) = (listener.clone(), taken.clone());
                Who::POLITE[index % 3].start(runtime, move || {
                    loop {
                        match listener.accept() {
                            Ok((mut stream, _)) => {
                                stream.write_all(b"x").unwrap();
                                taken.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(error) => return error.kind(),
                        }
                    }
                })
            })
            .collect();
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                runtime.spawn(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    let mut all = Vec::new();
                    stream.read_to_end(&mut all).unwrap();
                    all
                })
            })
            .collect();
        for client in clients {
            assert_eq!(client.join().unwrap(), b"x");
        }
        assert_eq!(taken.load(Ordering::SeqCst), CONNECTIONS);
        listener.close().unwrap();
        for acceptor in acceptors {
            assert_eq!(acceptor.end(), ErrorKind::NotConnected);
        }
    });
}

#[test]
fn incoming_goes_on_after_a_cancellation() {
    on_each(|runtime| {
        let listener = Arc::new(listener());
        let address = listener.local_addr().unwrap();
        let theirs = listener.clone();
        let accepts = runtime.spawn(move || theirs.incoming().map(Result::unwrap).count());
        until_it_waits(&accepts);
        accepts.cancel();
        assert!(sinew::is_cancel(&*accepts.join().unwrap_err()));
        let _client = TcpStream::connect(address).unwrap();
        runtime.run(move || assert!(listener.incoming().next().unwrap().is_ok()));
    });
}

#[test]
fn incoming_ends_when_the_listener_is_closed() {
    on_each(|runtime| {
        let listener = Arc::new(listener());
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = runtime.spawn({
            let listener = listener.clone();
            move || listener.incoming().map(Result::unwrap).count()
        });
        until_it_waits(&server);
        listener.close().unwrap();
        assert_eq!(server.join().unwrap(), 1);
        assert!(listener.incoming().next().is_none());
    });
}

/// More clients connect at once than the standard library's backlog holds.
#[test]
fn the_backlog_is_as_long_as_the_system_allows() {
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let count = allowed.trim().parse().unwrap_or(128).min(600);
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let at_once = Duration::from_millis(900);
    for _ in 0..count {
        // A client that does not fit into the backlog would try again after a second.
        drop(std::net::TcpStream::connect_timeout(&address, at_once).unwrap());
    }
}

#[test]
fn a_nonblocking_listener_returns_would_block() {
    on_each_with(1, |runtime| {
        runtime.run(|| {
            let listener = listener();
            listener.set_nonblocking(true).unwrap();
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            sinew::wait_until(|| listener.accept().is_ok());
        });
    });
}

fn set_descriptors(count: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: valid limits for this process; the hard limit stays.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = count.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

/// Uses up all remaining descriptors until the result is dropped.
fn use_up() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn without_descriptors_a_loop_of_accepts_paces_itself_and_recovers() {
    for backend in all() {
        let name = "without_descriptors_a_loop_of_accepts_paces_itself_and_recovers";
        let prepare = |command: &mut std::process::Command| {
            command.env("SINEW_IO", format!("{backend:?}").to_lowercase());
        };
        // Each backend in a separate process: a runtime that ends gives descriptors back.
        let outcome = child_with(name, prepare, || {
            let _watch = watch::a_minute();
            set_descriptors(256);
            starve(&Runtime::builder().carriers(1).build().unwrap());
        });
        outcome.assert_success();
    }
}

/// Takes all descriptors away from a server that accepts, and gives them back.
fn starve(runtime: &Runtime) {
    let listener = Arc::new(listener());
    let address = listener.local_addr().unwrap();
    let (errors, accepted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let server = {
        let (listener, errors, accepted) = (listener.clone(), errors.clone(), accepted.clone());
        runtime.spawn(move || {
            loop {
                match listener.accept() {
                    Ok(_) => _ = accepted.fetch_add(1, Ordering::SeqCst),
                    Err(error) if error.kind() == ErrorKind::NotConnected => return,
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                        errors.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        })
    };
    until_it_waits(&server);
    let mut all = use_up();
    // Leave one for the client and none for the server.
    drop(all.pop());
    let client = TcpStream::connect(address).unwrap();
    let end = Instant::now() + Duration::from_millis(500);
    let before = processor_time();
    sinew::wait_until(|| Instant::now() >= end);
    let (failed, used) = (errors.load(Ordering::SeqCst), processor_time() - before);
    let taken = accepted.load(Ordering::SeqCst);
    assert!(failed > 0 && failed < 20, "{failed} errors in half a second, {taken} accepted");
    assert!(used < Duration::from_millis(100), "{used:?} in half a second");
    assert_eq!(taken, 0);
    drop(all);
    sinew::wait_until(|| accepted.load(Ordering::SeqCst) == 1);
    drop(client);
    // The server accepts as quickly as before.
    for count in 2..6 {
        let _client = TcpStream::connect(address).unwrap();
        sinew::wait_until(|| accepted.load(Ordering::SeqCst) == count);
    }
    listener.close().unwrap();
    server.join().unwrap();
}

#[test]
fn a_server_that_has_to_pace_itself_can_be_cancelled() {
    child("a_server_that_has_to_pace_itself_can_be_cancelled", || {
        let _watch = watch::a_minute();
        set_descriptors(256);
        let runtime = Runtime::builder().carriers(1).build().unwrap();
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let failed = Arc::new(AtomicBool::new(false));
        let theirs = failed.clone();
        let server = runtime.spawn(move || {
            loop {
                if listener.accept().is_err() {
                    theirs.store(true, Ordering::SeqCst);
                }
            }
        });
        until_it_waits(&server);
        let mut all = use_up();
        drop(all.pop());
        let _client = TcpStream::connect(address).unwrap();
        sinew::wait_until(|| failed.load(Ordering::SeqCst));
        server.cancel();
        assert!(sinew::is_cancel(&*server.join().unwrap_err() as _));
    })
    .assert_success();
}
