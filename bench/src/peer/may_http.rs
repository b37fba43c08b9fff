//! HTTP on may, by hand around httparse, as may's examples and may_minihttp do it.

use super::may_io;
use crate::http::certificate;
use crate::http::conversation::Conversation;
use crate::http::{Answer, date};
use may::io::WaitIo;
use may::net::TcpStream;
use rustls::{ServerConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream as Socket;

pub(crate) const SETTINGS: &str = "0.3.51, set_workers(2), set_worker_pin(false), 32 KiB stacks, \
     a coroutine per connection that waits with wait_io, httparse 1.10.1";
pub(crate) const TLS: &str = concat!(
    "0.3.51, set_workers(2), set_worker_pin(false), 64 KiB stacks, a coroutine per connection, \
     httparse 1.10.1, ",
    certificate::settings!()
);

/// The size of a stack for a TLS handshake, in words. The default, half of this, has been enough,
/// but inlining makes frames larger.
const TLS_STACK: usize = 64 * 1024 / size_of::<usize>();

pub(crate) fn serve(answer: Answer) -> u16 {
    serve_by(move |stream| converse(stream, answer))
}

pub(crate) fn serve_tls() -> u16 {
    may::config().set_stack_size(TLS_STACK);
    let config = certificate::config();
    serve_by(move |stream| {
        let connection = ServerConnection::new(config.clone()).expect("the config is complete");
        Conversation::new(Answer::Hello).hold(&mut StreamOwned::new(connection, stream));
    })
}

/// Serves each connection by calling `hold` in a coroutine. Starts to render the date before.
fn serve_by(hold: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    date::start();
    may_io::serve_by(hold)
}

/// Reads and writes the socket without may, which would try to read once more before it waits. A
/// read that does not fill the buffer has taken everything, and later bytes cause another event.
fn converse(mut stream: TcpStream, answer: Answer) {
    let mut conversation = Conversation::new(answer);
    loop {
        let room = conversation.room();
        let free = room.len();
        match stream.inner_mut().read(room) {
            Ok(0) => return,
            Ok(count) => {
                let Ok(answers) = conversation.answer(count) else { return };
                match write(stream.inner_mut(), answers) {
                    Ok(written) if written == answers.len() => {
                        if count < free {
                            stream.wait_io();
                        }
                    }
                    // The write may consume an event for reading, so the loop tries to read next.
                    Ok(written) => match stream.write_all(&answers[written..]) {
                        Ok(()) => {}
                        Err(_) => return,
                    },
                    Err(()) => return,
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stream.wait_io();
            }
            Err(_) => return,
        }
    }
}

/// Writes as many bytes as the socket takes now; returns their number.
fn write(socket: &mut Socket, bytes: &[u8]) -> Result<usize, ()> {
    match socket.write(bytes) {
        Ok(count) => Ok(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(_) => Err(()),
    }
}
