//! Closing a socket that others use: they learn that it was closed, and nothing else.

use crate::backends::on_each;
use sinew::net::{TcpListener, TcpStream, UdpSocket};
use std::io::{ErrorKind, Read};
use std::sync::{Arc, Barrier};
use std::thread;

mod backends;

const ROUNDS: usize = 300;

#[test]
fn a_reader_never_takes_the_closing_for_the_end() {
    on_each(|runtime| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for _ in 0..ROUNDS {
            let stream = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let _other = listener.accept().unwrap();
            let start = Arc::new(Barrier::new(2));
            let read = |stream: Arc<TcpStream>| {
                move || (&*stream).read(&mut [0]).map_err(|error| error.kind())
            };
            let fiber = runtime.spawn(read(stream.clone()));
            let thread = thread::spawn({
                let (start, read) = (start.clone(), read(stream.clone()));
                move || {
                    start.wait();
                    read()
                }
            });
            start.wait();
            stream.close().unwrap();
            assert_eq!(fiber.join().unwrap(), Err(ErrorKind::NotConnected));
            assert_eq!(thread.join().unwrap(), Err(ErrorKind::NotConnected));
        }
    });
}

#[test]
fn a_receiver_never_takes_the_closing_for_a_datagram() {
    on_each(|runtime| {
        for _ in 0..ROUNDS {
            let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
            let start = Arc::new(Barrier::new(2));
            let receive = |socket: Arc<UdpSocket>| {
                move || socket.recv(&mut [0]).map_err(|error| error.kind())
            };
            let fiber = runtime.spawn(receive(socket.clone()));
            let thread = thread::spawn({
                let (start, receive) = (start.clone(), receive(socket.clone()));
                move || {
                    start.wait();
                    receive()
                }
            });
            start.wait();
            socket.close().unwrap();
            assert_eq!(fiber.join().unwrap(), Err(ErrorKind::NotConnected));
            assert_eq!(thread.join().unwrap(), Err(ErrorKind::NotConnected));
        }
    });
}
