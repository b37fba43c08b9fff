//! An HTTP server on bare epoll. It looks only for the end of each request and answers with a
//! prepared response.

use super::epoll;
use crate::http::date::{self, Date};
use crate::http::{Answer, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

pub(crate) const SETTINGS: &str =
    "2 threads with an epoll each, edge-triggered; finds the end of a request, prepared response";

/// The end of a request.
const END: &[u8] = b"\r\n\r\n";

/// The number of prepared responses. One write sends as many of them as requests came with one
/// read.
const PREPARED: usize = 16;

pub(crate) fn serve(answer: Answer) -> u16 {
    date::start();
    epoll::serve_by::<2, _>(move || {
        let mut responder = Responder::new(answer);
        move |stream: &TcpStream| responder.answer(stream)
    })
}

/// The prepared responses and the read buffer of a thread.
struct Responder {
    answer: Answer,
    input: [u8; 4096],
    /// [`PREPARED`] responses, one after the other, and the length of each.
    prepared: Vec<u8>,
    each: usize,
    /// The date in the responses.
    date: &'static Date,
    /// For each descriptor, how many bytes of [`END`] the last read ended with.
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

    /// Answers all requests that have come. Returns false if the connection is to be closed: the
    /// client has closed it, or does not take its answers.
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
                    // A read that does not fill the buffer has taken everything. Later bytes cause
                    // another event.
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

    /// Returns how many requests end in the bytes that were read.
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

    /// Serialises the body anew for each response. Its length never changes.
    fn serialise(&mut self, responses: usize) {
        for response in self.prepared.chunks_mut(self.each).take(responses) {
            let body = json();
            let head = response.len() - body.len();
            response[head..].copy_from_slice(&body);
        }
    }
}
