//! An HTTP server with nothing but epoll. It looks for the end of each request and for nothing else,
//! and what it answers has been prepared.

use super::epoll;
use crate::http::date::{self, Date};
use crate::http::{Answer, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

pub(crate) const SETTINGS: &str =
    "2 threads with an epoll each, edge-triggered; finds the end of a request, prepared response";

/// What ends a request.
const END: &[u8] = b"\r\n\r\n";

/// Responses that are prepared, to be written at once if so many requests came at once.
const PREPARED: usize = 16;

pub(crate) fn serve(answer: Answer) -> u16 {
    date::start();
    epoll::serve_by::<2, _>(move || {
        let mut responder = Responder::new(answer);
        move |stream: &TcpStream| responder.answer(stream)
    })
}

/// What a thread has to answer with.
struct Responder {
    answer: Answer,
    input: [u8; 4096],
    /// So many responses, one after the other, and the length of each.
    prepared: Vec<u8>,
    each: usize,
    /// The date in them.
    date: &'static Date,
    /// For each descriptor, how many bytes of [`END`] were the last that was read.
    matched: Vec<u8>,
}

impl Responder {
    fn new(answer: Answer) -> Responder {
        let (prepared, matched) = (Vec::new(), Vec::new());
        let mut new =
            Responder { answer, input: [0; 4096], prepared, each: 0, date: date::now(), matched };
        new.prepare();
        new
    }

    fn prepare(&mut self) {
        self.date = date::now();
        self.prepared.clear();
        for _ in 0..PREPARED {
            self.answer.append_to(&mut self.prepared);
        }
        self.each = self.prepared.len() / PREPARED;
    }

    /// Answers what has come. Returns false if the connection is to be closed: the client has, or
    /// does not take its answers.
    fn answer(&mut self, mut stream: &TcpStream) -> bool {
        let socket = stream.as_raw_fd() as usize;
        if self.matched.len() <= socket {
            self.matched.resize(socket + 1, 0);
        }
        loop {
            match stream.read(&mut self.input) {
                Ok(0) => break,
                Ok(count) => {
                    let requests = self.ends(socket, count);
                    if !self.write(stream, requests) {
                        break;
                    }
                    // Room that is not full holds all there was; more is another event.
                    if count < self.input.len() {
                        return true;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => break,
            }
        }
        self.matched[socket] = 0;
        false
    }

    /// How many requests end in what was read.
    fn ends(&mut self, socket: usize, read: usize) -> usize {
        let mut requests = 0;
        let mut matched = self.matched[socket] as usize;
        for byte in &self.input[..read] {
            matched = match *byte {
                byte if byte == END[matched] => matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            if matched == END.len() {
                requests += 1;
                matched = 0;
            }
        }
        self.matched[socket] = matched as u8;
        requests
    }

    fn write(&mut self, mut stream: &TcpStream, mut requests: usize) -> bool {
        if !std::ptr::eq(self.date, date::now()) {
            self.prepare();
        }
        while requests > 0 {
            let now = requests.min(PREPARED);
            if let Answer::Json = self.answer {
                self.serialise(now);
            }
            if stream.write_all(&self.prepared[..now * self.each]).is_err() {
                return false;
            }
            requests -= now;
        }
        true
    }

    /// The body is not prepared: it is made anew for each request, and has the same length always.
    fn serialise(&mut self, responses: usize) {
        for response in self.prepared.chunks_mut(self.each).take(responses) {
            let body = json();
            let head = response.len() - body.len();
            response[head..].copy_from_slice(&body);
        }
    }
}
