//! A client that sends raw bytes, and checks responses strictly.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a client waits for anything, far longer than any server here takes.
const PATIENCE: Duration = Duration::from_secs(15);

/// One connection to a server.
pub(crate) struct Client {
    stream: TcpStream,
    /// Bytes that were received and not consumed.
    received: Vec<u8>,
    /// Whether the server has ended the connection.
    ended: bool,
    deadline: Instant,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended with the connection.
    pub(crate) is_last: bool,
}

/// The description of a wrong response.
pub(crate) type Complaint = String;

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let deadline = Instant::now() + PATIENCE;
        Client { stream, received: Vec::new(), ended: false, deadline }
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes. The server may have stopped reading.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Ends the output of the client.
    pub(crate) fn finish(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads the next response. `bare` says that it answers a `HEAD`.
    pub(crate) fn try_answer(&mut self, bare: bool) -> Result<Answer, Complaint> {
        loop {
            if let Some((answer, used)) = parse(&self.received, bare, self.ended)? {
                self.received.drain(..used);
                return Ok(answer);
            }
            if self.ended {
                return Err(format!("the connection ended within {:?}", Text(&self.received)));
            }
            self.receive()?;
        }
    }

    /// Reads the next response. Panics if there is none.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer(false).unwrap_or_else(|complaint| panic!("{complaint}"))
    }

    /// Reads the next response, to a `HEAD`. Panics if there is none.
    #[track_caller]
    pub(crate) fn bare_answer(&mut self) -> Answer {
        self.try_answer(true).unwrap_or_else(|complaint| panic!("{complaint}"))
    }

    /// Waits for the end of the connection. Fails if bytes come before it.
    pub(crate) fn try_end(&mut self) -> Result<(), Complaint> {
        while !self.ended {
            self.receive()?;
        }
        match &self.received[..] {
            [] => Ok(()),
            rest => Err(format!("{:?} came instead of the end", Text(rest))),
        }
    }

    /// Waits for the end of the connection. Panics if bytes come before it.
    #[track_caller]
    pub(crate) fn end(&mut self) {
        self.try_end().unwrap_or_else(|complaint| panic!("{complaint}"));
    }

    /// Reads all bytes until the connection ends.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while !self.ended {
            self.receive().unwrap_or_else(|complaint| panic!("{complaint}"));
        }
        std::mem::take(&mut self.received)
    }

    /// Reads the next `count` bytes.
    #[track_caller]
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            assert!(!self.ended, "the connection ended within {:?}", Text(&self.received));
            self.receive().unwrap_or_else(|complaint| panic!("{complaint}"));
        }
        self.received.drain(..count).collect()
    }

    fn receive(&mut self) -> Result<(), Complaint> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).unwrap();
        let mut room = [0; 16 * 1024];
        match self.stream.read(&mut room) {
            Ok(0) => self.ended = true,
            Ok(count) => self.received.extend_from_slice(&room[..count]),
            // After its last response, a server need not read any more, and may reset the
            // connection.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => self.ended = true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(format!("nothing came after {:?}: {error}", Text(&self.received)));
            }
        }
        Ok(())
    }
}

impl Answer {
    /// The values of a field.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for (found, value) in &self.fields {
            if found.eq_ignore_ascii_case(name) {
                values.push(&**value);
            }
        }
        values
    }

    /// The value of a field that occurs once at most.
    #[track_caller]
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let values = self.values(name);
        assert!(values.len() < 2, "{name} is there {} times", values.len());
        values.first().copied()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or("what is no text")
    }

    pub(crate) fn says_close(&self) -> bool {
        self.values("connection").contains(&"close")
    }
}

/// Parses the first response, and returns its length. `None` if it is incomplete.
fn parse(bytes: &[u8], bare: bool, ended: bool) -> Result<Option<(Answer, usize)>, Complaint> {
    let Some(end) = find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "the head is no text")?;
    let mut lines = head.split("\r\n");
    let status = status(lines.next().unwrap_or_default())?;
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(": ").ok_or(format!("{line:?} is no field"))?;
        fields.push((name.to_owned(), value.to_owned()));
    }
    let mut answer = Answer { status, fields, body: Vec::new(), is_last: false };
    let begin = end + 4;
    let length = answer.values("content-length");
    let coding = answer.values("transfer-encoding");
    if length.len() + coding.len() > 1 {
        return Err(format!("the length is told more than once in {head:?}"));
    }
    // A status that is not final may have a date. Every other response has one.
    if !(usize::from(status >= 200)..2).contains(&answer.values("date").len()) {
        return Err(format!("there is not one date in {head:?}"));
    }
    if bare || status < 200 || status == 204 || status == 304 {
        return Ok(Some((answer, begin)));
    }
    let rest = &bytes[begin..];
    if let Some(length) = length.first() {
        let length: usize = length.parse().map_err(|_| format!("{length:?} is no length"))?;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        answer.body = body.to_vec();
        Ok(Some((answer, begin + length)))
    } else if let Some(coding) = coding.first() {
        if *coding != "chunked" {
            return Err(format!("{coding:?} is no transfer coding"));
        }
        let Some((body, used)) = chunks(rest)? else { return Ok(None) };
        answer.body = body;
        Ok(Some((answer, begin + used)))
    } else if ended {
        answer.body = rest.to_vec();
        answer.is_last = true;
        Ok(Some((answer, bytes.len())))
    } else {
        Ok(None)
    }
}

fn status(line: &str) -> Result<u16, Complaint> {
    let rest = line.strip_prefix("HTTP/1.1 ").ok_or(format!("{line:?} is no status line"))?;
    let (digits, _) = rest.split_once(' ').ok_or(format!("{line:?} has no reason"))?;
    let status = digits.parse().map_err(|_| format!("{line:?} has no status"))?;
    if digits.len() == 3 { Ok(status) } else { Err(format!("{digits} is no status")) }
}

/// Decodes a chunked body without extensions and trailers, which the servers here do not send.
fn chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Complaint> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let Some(end) = find(&bytes[at..], b"\r\n") else { return Ok(None) };
        let line = Text(&bytes[at..at + end]).to_string();
        let size = usize::from_str_radix(&line, 16).map_err(|_| format!("{line:?} is no size"))?;
        at += end + 2;
        let Some(chunk) = bytes.get(at..at + size + 2) else { return Ok(None) };
        let (data, line_end) = chunk.split_at(size);
        if line_end != b"\r\n" {
            return Err(format!("a chunk ends with {:?}", Text(line_end)));
        }
        body.extend_from_slice(data);
        at += size + 2;
        if size == 0 {
            return Ok(Some((body, at)));
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Bytes that are mostly text.
pub(crate) struct Text<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.escape_ascii(), f)
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The beginning is enough to recognise a flood.
        let shown = &self.0[..self.0.len().min(600)];
        write!(f, "\"{}\"", shown.escape_ascii())
    }
}
