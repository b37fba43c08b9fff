//! A thread of the operating system for each connection.

use crate::client::{ROOM, compute_if_asked};
use crate::server::listen;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

pub(crate) const SERVER: &str = "a thread per connection, blocking";

pub(crate) fn serve() -> u16 {
    let (listener, port) = listen();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection can be accepted");
            stream.set_nodelay(true).expect("it is a TCP socket");
            thread::spawn(move || echo(stream));
        }
    });
    port
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; ROOM];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        compute_if_asked(&buffer);
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}
