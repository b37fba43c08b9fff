//! HTTP with a thread of the operating system for each connection.

use crate::http::conversation::Conversation;
use crate::http::{Answer, date};
use crate::server::listen;
use std::thread;

pub(crate) const SETTINGS: &str = "a thread per connection, blocking, httparse 1.10.1";

pub(crate) fn serve(answer: Answer) -> u16 {
    date::start();
    let (listener, port) = listen();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection can be accepted");
            stream.set_nodelay(true).expect("it is a TCP socket");
            thread::spawn(move || Conversation::new(answer).hold(&mut stream));
        }
    });
    port
}
