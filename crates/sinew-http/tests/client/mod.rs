//! A simple, strict client.

#![allow(dead_code, reason = "each test uses some of it")]

use sinew_http::{Handler, Server, ServerHandle};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Starts a server on a free port.
pub(crate) fn serve(handler: impl Handler) -> ServerHandle {
    serve_with(|server| server, handler)
}

/// Starts a server on a free port, with settings.
pub(crate) fn serve_with(
    settings: impl FnOnce(Server) -> Server,
    handler: impl Handler,
) -> ServerHandle {
    settings(Server::bind("127.0.0.1:0")).start(handler).unwrap()
}

pub(crate) struct Client<S: Read + Write> {
    stream: BufReader<S>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| &**value)
    }
}

impl Client<TcpStream> {
    pub(crate) fn new(address: SocketAddr) -> Client<TcpStream> {
        Client::over(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn over(stream: TcpStream) -> Client<TcpStream> {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.stream.get_ref().local_addr().unwrap()
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn wrapping(stream: S) -> Client<S> {
        Client { stream: BufReader::new(stream) }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream.into_inner()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
        self.stream.get_mut().flush().unwrap();
    }

    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes());
        self.answer("GET")
    }

    pub(crate) fn post(&mut self, target: &str, body: &[u8]) -> Answer {
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.send(&[head.as_bytes(), body].concat());
        self.answer("POST")
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "a line ends with CR and LF: {line:?}");
        line.truncate(line.len() - 2);
        line
    }

    /// Reads the answer to a request with this method.
    pub(crate) fn answer(&mut self, method: &str) -> Answer {
        let line = self.line();
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {line:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").unwrap();
            headers.push((name.to_owned(), value.to_owned()));
        }
        let mut answer = Answer { status, headers, body: Vec::new() };
        let bodiless = method == "HEAD" || status < 200 || status == 204 || status == 304;
        if !bodiless {
            answer.body = self.body(&answer);
        }
        answer
    }

    fn body(&mut self, answer: &Answer) -> Vec<u8> {
        let mut body = Vec::new();
        if let Some(length) = answer.header("content-length") {
            body.resize(length.parse().unwrap(), 0);
            self.stream.read_exact(&mut body).unwrap();
        } else if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(&self.line(), 16).unwrap();
                let before = body.len();
                body.resize(before + size, 0);
                self.stream.read_exact(&mut body[before..]).unwrap();
                assert_eq!(self.line(), "");
                if size == 0 {
                    break;
                }
            }
        } else {
            self.stream.read_to_end(&mut body).unwrap();
        }
        body
    }

    /// Waits for the server to close the connection. Returns false if bytes come instead.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
