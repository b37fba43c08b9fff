//! A read that returns fewer bytes than requested means that nothing is left, until more arrives.

use crate::backends::on_each;
use sinew::net::{TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

mod backends;

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Lets `reader` read the sent bytes, with a buffer that is always larger.
fn exchange(reader: &mut TcpStream, writer: &mut TcpStream) {
    let mut buffer = [0; 8];
    for _ in 0..3 {
        writer.write_all(b"x").unwrap();
        assert_eq!(reader.read(&mut buffer).unwrap(), 1);
    }
}

#[test]
fn short_reads_of_a_thread_do_not_spin() {
    on_each(|_| {
        let (mut one, mut other) = connected();
        exchange(&mut one, &mut other);
    });
}

#[test]
fn short_reads_of_a_fiber_that_never_waited() {
    on_each(|runtime| {
        runtime.run(|| {
            let (mut one, mut other) = connected();
            exchange(&mut one, &mut other);
        });
    });
}

#[test]
fn a_thread_goes_on_where_a_fiber_has_read() {
    on_each(|runtime| {
        let (mut one, mut other) = runtime.run(|| {
            let (mut one, mut other) = connected();
            exchange(&mut one, &mut other);
            (one, other)
        });
        exchange(&mut one, &mut other);
        runtime.run(move || exchange(&mut one, &mut other));
    });
}

#[test]
fn a_nonblocking_socket_finds_bytes_after_a_short_read() {
    let check = || {
        let (mut one, mut other) = connected();
        one.set_nonblocking(true).unwrap();
        let mut buffer = [0; 8];
        for _ in 0..3 {
            other.write_all(b"x").unwrap();
            assert_eq!(one.read(&mut buffer).unwrap(), 1);
            assert_eq!(one.read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    };
    on_each(|runtime| {
        check();
        runtime.run(check);
    });
}

#[test]
fn a_read_without_time_left_finds_available_bytes() {
    on_each(|runtime| {
        runtime.run(|| {
            let (mut one, mut other) = connected();
            one.set_read_timeout(Some(Duration::from_nanos(1))).unwrap();
            exchange(&mut one, &mut other);
        });
    });
}
