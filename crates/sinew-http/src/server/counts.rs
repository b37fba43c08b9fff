//! How much a server has done.

use super::shared::Shared;
use core::sync::atomic::{AtomicU64, Ordering};
use http::StatusCode;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What a server has done so far; see [`ServerHandle::metrics`](crate::ServerHandle::metrics).
///
/// Nothing is counted that carriers share while requests are served: each connection has counts of its own,
/// which are added up when somebody asks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct ServerMetrics {
    /// Connections that are open.
    pub connections: u64,
    /// Connections that were accepted, ever.
    pub connections_total: u64,
    /// Requests that were received, ever: those whose head was understood.
    pub requests_total: u64,
    /// Responses, ever, by the first digit of their status: at 0 those of 1xx, of which there is the switch to another
    /// protocol, at 4 those of 5xx. What was refused before it was a request has a response, too.
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

/// What one connection has done. Changed by who serves it, one at a time.
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
        // Some are not of any of the classes that there are.
        if let Some(responses) = self.responses.get(usize::from(status.as_u16() / 100) - 1) {
            count(responses);
        }
    }

    /// What the connection adds to those of its server.
    pub(super) fn snapshot(&self) -> ServerMetrics {
        ServerMetrics {
            connections: 0,
            connections_total: 0,
            requests_total: self.requests(),
            responses_total: self.responses.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }
}

/// Counts one more; nobody else does at the same time.
fn count(counter: &AtomicU64) -> u64 {
    let number = 1 + counter.load(Ordering::Relaxed);
    counter.store(number, Ordering::Relaxed);
    number
}

/// The servers of the process, for its metrics.
static SERVERS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Has a server counted among those of the process, as long as it is there.
pub(super) fn register(server: &Arc<Shared>) {
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    servers.retain(|server| server.strong_count() > 0);
    servers.push(Arc::downgrade(server));
}

/// What the servers of the process have done, by their addresses.
pub(crate) fn of_all() -> BTreeMap<SocketAddr, ServerMetrics> {
    let servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut all = BTreeMap::<_, ServerMetrics>::new();
    for server in servers.iter().filter_map(Weak::upgrade) {
        all.entry(server.local).or_default().add(&server.metrics());
    }
    all
}
