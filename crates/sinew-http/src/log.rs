//! The reports of a server to its user: answered requests, and failures.

use core::fmt;
use core::time::Duration;
use http::{Method, StatusCode};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::SystemTime;

/// A request that was answered or cut off; see [`Server::access_log`](crate::Server::access_log).
///
/// It displays itself in the common log format, followed by the duration:
/// `127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] "GET / HTTP/1.1" 200 13 71us`
///
/// # Examples
/// ```
/// use sinew_http::{Request, Server};
///
/// # fn get(at: std::net::SocketAddr, target: &str) -> std::io::Result<String> {
/// #     use std::io::{Read, Write};
/// #     let mut stream = std::net::TcpStream::connect(at)?;
/// #     write!(stream, "GET {target} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")?;
/// #     let mut answer = String::new();
/// #     stream.read_to_string(&mut answer)?;
/// #     Ok(answer)
/// # }
/// #
/// let (sender, lines) = std::sync::mpsc::channel();
/// let server = Server::bind("127.0.0.1:0")
///     .access_log(move |entry| {
///         assert_eq!(entry.status, 200);
///         sender.send(entry.to_string()).unwrap();
///     })
///     .start(|_: Request| "hello")?;
/// get(server.local_addr(), "/greeting")?;
/// assert!(lines.recv().unwrap().contains("\"GET /greeting HTTP/1.1\" 200 5 "));
/// # let _ = server.shutdown(std::time::Duration::ZERO);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct AccessEntry<'a> {
    /// The address of the client.
    pub peer: SocketAddr,
    /// The method, if the request was understood.
    pub method: Option<&'a Method>,
    /// The request target, as it was sent; `-` if the request was not understood.
    pub target: &'a str,
    /// The version of HTTP that the client used.
    pub version: http::Version,
    /// The status of the response; 503 if the request was cut off before there was a response.
    pub status: StatusCode,
    /// How many bytes of the body were sent, or gathered to be sent.
    pub bytes: u64,
    /// Whether all of the response was sent, or gathered to be sent.
    pub complete: bool,
    /// The time from the end of the head until the response was handed to the kernel, or gathered
    /// to be sent with the next one.
    pub duration: Duration,
}

impl fmt::Display for AccessEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.method.map_or("-", Method::as_str);
        write!(f, "{} - - [", self.peer.ip())?;
        write_time(f, SystemTime::now())?;
        // The target may contain a quote, which would end the request in the log line.
        let target = self.target.replace('"', "%22");
        write!(f, "] \"{method} {target} {:?}\"", self.version)?;
        write!(f, " {} {} {:?}", self.status.as_u16(), self.bytes, Rounded(self.duration))?;
        if self.complete { Ok(()) } else { f.write_str(" cut off") }
    }
}

/// Calls a log function of the user. Contains its panic, which the panic hook has already reported.
/// A cancellation goes on unwinding.
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f))
        && sinew::is_cancel(&*payload)
    {
        resume_unwind(payload);
    }
}

/// Displays a duration with few digits.
struct Rounded(Duration);

impl fmt::Debug for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_micros() {
            micros @ 0..10_000 => write!(f, "{micros}us"),
            micros => write!(f, "{}ms", micros / 1000),
        }
    }
}

/// Writes `06/Nov/1994:08:49:37 +0000`, made from `Sun, 06 Nov 1994 08:49:37 GMT`.
fn write_time(f: &mut fmt::Formatter<'_>, time: SystemTime) -> fmt::Result {
    let text = httpdate::fmt_http_date(time);
    let mut words = text.split(' ').skip(1);
    let mut next = || words.next().unwrap_or("-");
    write!(f, "{}/{}/{}:{} +0000", next(), next(), next(), next())
}

/// A failure that the server cannot return to a caller; see
/// [`Server::problem_log`](crate::Server::problem_log).
///
/// # Examples
/// ```
/// use sinew_http::{Problem, Request, Server};
///
/// # fn get(at: std::net::SocketAddr, target: &str) -> std::io::Result<String> {
/// #     use std::io::{Read, Write};
/// #     let mut stream = std::net::TcpStream::connect(at)?;
/// #     write!(stream, "GET {target} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")?;
/// #     let mut answer = String::new();
/// #     stream.read_to_string(&mut answer)?;
/// #     Ok(answer)
/// # }
/// #
/// let (sender, failures) = std::sync::mpsc::channel();
/// let server = Server::bind("127.0.0.1:0")
///     .problem_log(move |problem| match problem {
///         Problem::Handler(_, target, error) => {
///             sender.send(format!("{target}: {error}")).unwrap();
///         }
///         other => println!("{other}"), // one line, for a log
///     })
///     .start(|_: Request| Err::<&str, _>(std::io::Error::other("the disk is full")))?;
/// assert!(get(server.local_addr(), "/save")?.starts_with("HTTP/1.1 500 "));
/// assert_eq!(failures.recv().unwrap(), "/save: the disk is full");
/// # let _ = server.shutdown(std::time::Duration::ZERO);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem<'a> {
    /// A connection could not be accepted, or its fiber could not be made: descriptors or memory
    /// may be used up. The server goes on with the next connection.
    Accept(&'a io::Error),
    /// A TLS handshake with this peer failed.
    Handshake(SocketAddr, &'a io::Error),
    /// A handler panicked, for this peer and request target. The client got 500.
    ///
    /// Also reported if code that makes the body of a response panics, or the closure of an
    /// [upgrade](crate::Response::upgrade). Then a description of that code takes the place of the
    /// target. In each case the server closes the connection.
    Panic(SocketAddr, &'a str),
    /// A handler returned an error, for this peer and request target. The client got 500.
    Handler(SocketAddr, &'a str, &'a io::Error),
    /// A response could not be sent, or its body could not be made.
    Response(SocketAddr, &'a io::Error),
    /// A request of this peer was refused, with this status and reason.
    Refused(SocketAddr, StatusCode, &'a str),
}

impl fmt::Display for Problem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Accept(error) => write!(f, "cannot accept a connection: {error}"),
            Problem::Handshake(peer, error) => write!(f, "{peer}: TLS handshake failed: {error}"),
            Problem::Panic(peer, target) => {
                write!(f, "{peer}: the handler panicked while it served {target}")
            }
            Problem::Handler(peer, target, error) => {
                write!(f, "{peer}: the handler failed while it served {target}: {error}")
            }
            Problem::Response(peer, error) => {
                write!(f, "{peer}: the response was cut off: {error}")
            }
            Problem::Refused(peer, status, reason) => {
                write!(f, "{peer}: the request was refused with {status}: {reason}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_the_common_log_format() {
        let entry = AccessEntry {
            peer: ([127, 0, 0, 1], 7000).into(),
            method: Some(&Method::GET),
            target: "/a\"?b",
            version: http::Version::HTTP_11,
            status: StatusCode::OK,
            bytes: 13,
            complete: true,
            duration: Duration::from_micros(71),
        };
        let text = entry.to_string();
        assert!(text.starts_with("127.0.0.1 - - ["), "{text}");
        assert!(text.ends_with("] \"GET /a%22?b HTTP/1.1\" 200 13 71us"), "{text}");
    }
}
