//! Waits: a cancellation, a timeout or a close ends them, and they use no processor.

use crate::backends::{as_fiber_and_thread, on_each, until_it_waits};
use crate::{Place, busy, fill};
use sinew::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use sinew_testkit::child::child;
use sinew_testkit::processor_time;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn a_cancelled_fiber_leaves_its_wait_and_later_data() {
    on_each(|runtime| {
        let (mut one, other) = UnixStream::pair().unwrap();
        let other = Arc::new(other);
        let read = |other: Arc<UnixStream>| move || (&*other).read_exact(&mut [0; 3]).unwrap();
        let fiber = runtime.spawn(read(other.clone()));
        until_it_waits(&fiber);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        one.write_all(b"abc").unwrap();
        runtime.run(read(other));

        let place = Place::new();
        let listener = Arc::new(UnixListener::bind(&place).unwrap());
        let accept = |listener: Arc<UnixListener>| move || listener.accept().map(drop).unwrap();
        let fiber = runtime.spawn(accept(listener.clone()));
        until_it_waits(&fiber);
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
        let _client = UnixStream::connect(&place).unwrap();
        runtime.run(accept(listener));
    });
}

#[test]
fn waits_end_at_their_timeout() {
    as_fiber_and_thread(|| {
        let timeout = Some(Duration::from_millis(3));
        let (mut one, _other) = UnixStream::pair().unwrap();
        one.set_read_timeout(timeout).unwrap();
        one.set_write_timeout(timeout).unwrap();
        assert_eq!(one.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(one.write_all(&[0; 1 << 22]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let std = std::os::unix::net::UnixStream::from(one);
        assert_eq!((&std).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(std.read_timeout().unwrap().is_some());
    });
}

#[test]
fn closing_ends_waits_of_fibers_and_threads() {
    on_each(|runtime| {
        let (one, _other) = UnixStream::pair().unwrap();
        let one = Arc::new(one);
        let read = |one: Arc<UnixStream>| move || (&*one).read(&mut [0]).unwrap_err().kind();
        let fiber = runtime.spawn(read(one.clone()));
        let thread = thread::spawn(read(one.clone()));
        until_it_waits(&fiber);
        one.close().unwrap();
        assert_eq!(fiber.join().unwrap(), ErrorKind::NotConnected);
        assert_eq!(thread.join().unwrap(), ErrorKind::NotConnected);

        let place = Place::new();
        let listener = Arc::new(UnixListener::bind(&place).unwrap());
        let accept = |listener: Arc<UnixListener>| move || listener.accept().unwrap_err().kind();
        let fiber = runtime.spawn(accept(listener.clone()));
        let thread = thread::spawn(accept(listener.clone()));
        until_it_waits(&fiber);
        listener.close().unwrap();
        assert_eq!(fiber.join().unwrap(), ErrorKind::NotConnected);
        assert_eq!(thread.join().unwrap(), ErrorKind::NotConnected);
    });
}

/// On a listener that was shut down, Linux returns "would block" to a non-blocking accept.
#[test]
#[cfg(target_os = "linux")]
fn copies_of_a_listener_that_is_closed_fail() {
    on_each(|runtime| {
        let place = Place::new();
        let listener = UnixListener::bind(&place).unwrap();
        let copy = Arc::new(listener.try_clone().unwrap());
        let accept = |copy: Arc<UnixListener>| move || copy.accept().unwrap_err().kind();
        let fiber = runtime.spawn(accept(copy.clone()));
        until_it_waits(&fiber);
        let thread = thread::spawn(accept(copy.clone()));
        listener.close().unwrap();
        assert_eq!(fiber.join().unwrap(), ErrorKind::InvalidInput);
        assert_eq!(thread.join().unwrap(), ErrorKind::InvalidInput);
        assert_eq!(runtime.run(accept(copy)), ErrorKind::InvalidInput);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn waits_for_peers_use_no_processor() {
    let outcome = child("waits::waits_for_peers_use_no_processor", || {
        on_each(|runtime| {
            let (listening, receiving) = (Place::new(), Place::new());
            let (listener, queue) = busy(&listening);
            let receiver = UnixDatagram::bind(&receiving).unwrap();
            let sender = Arc::new(UnixDatagram::unbound().unwrap());
            sender.set_nonblocking(true).unwrap();
            let filled = fill(|data| sender.send_to(data, &receiving));
            sender.set_nonblocking(false).unwrap();

            let path = listening.0.clone();
            let connecting = runtime.spawn(move || UnixStream::connect(path).map(drop).unwrap());
            let send = || {
                let (sender, path) = (sender.clone(), receiving.0.clone());
                move || sender.send_to(b"x", path).unwrap()
            };
            let sending = runtime.spawn(send());
            let thread = thread::spawn(send());
            until_it_waits(&connecting);
            until_it_waits(&sending);
            let before = processor_time();
            thread::sleep(Duration::from_millis(500));
            let used = processor_time() - before;
            assert!(used < Duration::from_millis(50), "{used:?}");

            queue.iter().for_each(|_| drop(listener.accept().unwrap()));
            (0..filled + 2).for_each(|_| assert_eq!(receiver.recv(&mut [0]).unwrap(), 1));
            connecting.join().unwrap();
            sending.join().unwrap();
            thread.join().unwrap();
        });
    });
    outcome.assert_success();
}
