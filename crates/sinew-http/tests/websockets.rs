//! Upgraded connections, most of them WebSockets.

use crate::client::serve;
use sinew_http::{Request, Response, ServerHandle, Upgraded};
use sinew_testkit::watch;
use std::net::TcpStream;
use std::time::Duration;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::Role;
use tungstenite::{Message, WebSocket};

mod client;

const LONG: Duration = Duration::from_secs(20);

fn echo(request: Request) -> Response {
    let Some(key) = request.header("sec-websocket-key").filter(|_| request.is_upgrade()) else {
        return Response::text("this is for WebSockets\n");
    };
    let accept = derive_accept_key(key.as_bytes());
    Response::upgrade(converse).with_header("sec-websocket-accept", accept)
}

fn converse(stream: Upgraded) {
    let mut socket = WebSocket::from_raw_socket(stream, Role::Server, None);
    while let Ok(message) = socket.read() {
        if (message.is_text() || message.is_binary()) && socket.send(message).is_err() {
            return;
        }
    }
}

fn connect(server: &ServerHandle) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let url = format!("ws://{}/", server.local_addr());
    tungstenite::client(url, stream).unwrap().0
}

#[test]
fn messages_come_back() {
    let _watch = watch::a_minute();
    let server = serve(echo);
    let mut socket = connect(&server);
    for len in [0, 1, 125, 126, 65_535, 65_536, 1_000_000] {
        let message = Message::binary(vec![7; len]);
        socket.send(message.clone()).unwrap();
        assert_eq!(socket.read().unwrap(), message, "{len}");
    }
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
    drop(socket);
    server.shutdown(LONG).unwrap();
}

/// Bytes of the new protocol come together with the request.
#[test]
fn nothing_is_lost_between_the_protocols() {
    use std::io::{Read, Write};
    let _watch = watch::a_minute();
    let server = serve(|_: Request| {
        Response::upgrade(|mut stream| {
            let mut word = [0; 5];
            stream.read_exact(&mut word).unwrap();
            word.reverse();
            stream.write_all(&word).unwrap();
        })
    });
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
        .write_all(
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: words\r\n\r\nhello",
        )
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, rest) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(
        head.contains("\r\nupgrade: words") && head.contains("\r\nconnection: upgrade"),
        "{head}"
    );
    assert_eq!(rest, "olleh");
    server.shutdown(LONG).unwrap();
}

/// The server cannot know whether such a connection is idle. It ends the connection's input.
#[test]
fn a_shutdown_ends_conversations() {
    let _watch = watch::a_minute();
    let server = serve(echo);
    let mut socket = connect(&server);
    socket.send(Message::text("hello")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("hello"));
    server.shutdown(LONG).unwrap();
    assert!(socket.read().is_err());
}

/// Two hundred conversations run side by side.
#[test]
fn many_converse_at_the_same_time() {
    let _watch = watch::a_minute();
    let server = serve(echo);
    let mut sockets: Vec<_> = (0..200).map(|_| connect(&server)).collect();
    for round in 0..3 {
        for (number, socket) in sockets.iter_mut().enumerate() {
            socket.send(Message::text(format!("{round} {number}"))).unwrap();
        }
        for (number, socket) in sockets.iter_mut().enumerate() {
            assert_eq!(socket.read().unwrap(), Message::text(format!("{round} {number}")));
        }
    }
    drop(sockets);
    server.shutdown(LONG).unwrap();
}
