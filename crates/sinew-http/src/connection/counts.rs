//! Counts of connections, requests and responses.

use super::shared::Shared;
use core::sync::atomic::{AtomicU64, Ordering};
use http::StatusCode;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The counts of a server; see [`ServerHandle::metrics`](crate::ServerHandle::metrics).
///
/// Serving a request touches no counter that carriers share. Each connection has its own counts,
/// and reading the metrics adds them up.
///
/// # Examples
/// ```
/// use sinew_http::{Request, Response, Server, http::StatusCode};
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
/// let server = Server::bind("127.0.0.1:0").start(|request: Request| match request.path() {
///     "/" => Response::text("hello"),
///     _ => Response::empty(StatusCode::NOT_FOUND),
/// })?;
/// get(server.local_addr(), "/")?;
/// get(server.local_addr(), "/missing")?;
/// let metrics = server.metrics();
/// assert_eq!((metrics.connections_total, metrics.requests_total), (2, 2));
/// assert_eq!(metrics.responses_total, [0, 1, 0, 1, 0]); // one 2xx, and one 4xx
/// # let _ = server.shutdown(std::time::Duration::ZERO);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct ServerMetrics {
    /// Connections that are open.
    pub connections: u64,
    /// Connections that were accepted since the server started.
    pub connections_total: u64,
    /// Requests with a well-formed head, since the server started.
    pub requests_total: u64,
    /// Responses since the server started, by the first digit of their status: index 0 counts 1xx,
    /// index 4 counts 5xx. The only counted 1xx is a switch to another protocol. Error responses
    /// to malformed requests count, too.
    pub responses_total: [u64; 5],
}

impl ServerMetrics {
    pub(crate) fn add(&mut self, other: &ServerMetrics) {
        self.connections += other.connections;
        self.connections_total += other.connections_total;
        self.requests_total += other.requests_total;
        for (mine, others) in self.responses_total.iter_mut().zip(other.responses_total) {
            *mine += others;
        }
    }
}

/// The counts of one connection. Only the fiber that serves the connection changes them.
#[derive(Default)]
pub(crate) struct Counts {
    requests: AtomicU64,
    responses: [AtomicU64; 5],
}

impl Counts {
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Counts a request; returns its number.
    pub(crate) fn count_request(&self) -> u64 {
        count(&self.requests)
    }

    pub(crate) fn count_response(&self, status: StatusCode) {
        // Statuses of 600 and above belong to no class, and are not counted.
        if let Some(responses) = self.responses.get(usize::from(status.as_u16() / 100) - 1) {
            count(responses);
        }
    }

    /// The part of the server's metrics that this connection contributes.
    pub(super) fn snapshot(&self) -> ServerMetrics {
        ServerMetrics {
            connections: 0,
            connections_total: 0,
            requests_total: self.requests(),
            responses_total: self.responses.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }
}

/// Adds one. A load and a store suffice, because each counter has one writer at a time.
fn count(counter: &AtomicU64) -> u64 {
    let number = 1 + counter.load(Ordering::Relaxed);
    counter.store(number, Ordering::Relaxed);
    number
}

/// The servers of the process, for its metrics.
static SERVERS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Includes a server in the metrics of the process, as long as the server exists.
pub(crate) fn register(server: &Arc<Shared>) {
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    servers.retain(|server| server.strong_count() > 0);
    servers.push(Arc::downgrade(server));
}

/// The metrics of all servers of the process, by address.
pub(crate) fn of_all() -> BTreeMap<SocketAddr, ServerMetrics> {
    let servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut all = BTreeMap::<_, ServerMetrics>::new();
    for server in servers.iter().filter_map(Weak::upgrade) {
        all.entry(server.local).or_default().add(&server.metrics());
    }
    all
}
