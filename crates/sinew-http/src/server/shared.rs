//! What all connections of a server share.

use super::counts::ServerMetrics;
use super::limits::Limits;
use crate::connection::Connection;
use crate::date;
use crate::handler::Handler;
use crate::log::{AccessEntry, Problem, contain};
use crate::message::outgoing::Outgoing;
use crate::message::response::Response;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use http::StatusCode;
use http::header::RETRY_AFTER;
use sinew::sync::{Permits, Semaphore};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Called for each response.
pub(crate) type AccessLog = Box<dyn Fn(&AccessEntry<'_>) + Send + Sync>;
/// Called for what goes wrong and nobody else is told.
pub(crate) type ProblemLog = Box<dyn Fn(&Problem<'_>) + Send + Sync>;

pub(crate) struct Shared {
    pub(crate) handler: Box<dyn Handler>,
    pub(crate) limits: Limits,
    pub(crate) local: SocketAddr,
    /// How many connections keep their stack while they wait for the next request.
    pub(crate) kept_stacks: usize,
    pub(crate) stack_size: Option<usize>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) problem_log: Option<ProblemLog>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::tls::Tls>,
    /// One permit for each connection that there may be.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) most: usize,
    pub(crate) file_room: FileRoom,
    /// Whether connections are to be closed as soon as they are idle.
    pub(super) closing: AtomicBool,
    /// Counts connections, to tell them apart.
    pub(super) numbers: AtomicU64,
    pub(super) open: Mutex<Open>,
    /// How many are open.
    pub(super) count: AtomicUsize,
    pub(crate) clock: Clock,
}

/// The memory of so many connections, which the allocator would keep when they are closed, is some megabytes.
const BURST: usize = 256;

/// Room for files that are being sent: each has a descriptor, as a connection has.
pub(crate) struct FileRoom {
    descriptors: Arc<Semaphore>,
    /// Files leave so many of them to connections.
    left: usize,
}

impl FileRoom {
    /// For a server whose connections have these `permits`, of which there are `most`.
    pub(super) fn new(limits: &Limits, permits: &Arc<Semaphore>, most: usize) -> FileRoom {
        match limits.descriptors_besides() {
            // The connections may take all descriptors that there are: files share them.
            None => FileRoom { descriptors: permits.clone(), left: most / 4 },
            Some(count) => FileRoom { descriptors: Arc::new(Semaphore::new(count)), left: 0 },
        }
    }

    /// Reserves the descriptor of the file that a response sends. If there is no room, the response becomes 503 and
    /// the file is closed.
    pub(crate) fn for_body_of(&self, response: &mut Response) -> Option<Permits<'_>> {
        if !matches!(response.body, Outgoing::File(..)) {
            return None;
        }
        // Others may take some in between: a few more or less do not matter.
        let permit = match self.descriptors.available() > self.left {
            true => self.descriptors.try_acquire(),
            false => None,
        };
        if permit.is_none() {
            let busy = Response::text("too many files are being sent\n");
            *response =
                busy.with_status(StatusCode::SERVICE_UNAVAILABLE).with_header(RETRY_AFTER, "1");
        }
        permit
    }
}

/// The connections of a server.
#[derive(Default)]
pub(super) struct Open {
    /// Those that are open, by their numbers.
    connections: HashMap<u64, Arc<Connection>>,
    /// How many were accepted, and what those have done that are closed.
    past: ServerMetrics,
    /// The most that were open at a time since the last burst.
    peak: usize,
}

impl Shared {
    /// Whether a connection that waits gives up its stack.
    pub(crate) fn defers(&self) -> bool {
        self.count.load(Ordering::Relaxed) > self.kept_stacks
    }

    /// Whether connections are encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    pub(crate) fn is_closing(&self) -> bool {
        // ORDERING: SeqCst, with the states of connections; see `Connection::rest`.
        self.closing.load(Ordering::SeqCst)
    }

    /// From now on, connections are closed when they are idle.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done so far.
    pub(crate) fn metrics(&self) -> ServerMetrics {
        let open = self.open();
        let mut sum = open.past;
        sum.connections = open.connections.len() as u64;
        open.connections.values().for_each(|connection| sum.add(&connection.counts.snapshot()));
        sum
    }

    pub(crate) fn enter(&self, connection: Arc<Connection>) {
        let mut open = self.open();
        open.connections.insert(connection.number, connection);
        open.peak = open.peak.max(open.connections.len());
        open.past.connections_total += 1;
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self, number: u64) {
        let mut open = self.open();
        let left = open.connections.remove(&number);
        if let Some(left) = &left {
            open.past.add(&left.counts.snapshot());
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        drop(open);
        // What it takes along is dropped without the lock.
        drop(left);
    }

    /// Those that are open at this moment.
    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        self.open().connections.values().cloned().collect()
    }

    /// Whether there are far fewer connections than there were: the next burst is told from this moment on.
    pub(super) fn ends_burst(&self) -> bool {
        let mut open = self.open();
        let count = open.connections.len();
        let ends = open.peak - count >= BURST && count <= open.peak / 2;
        if ends {
            open.peak = count;
            // The table was made for as many as there were.
            open.connections.shrink_to(2 * count);
        }
        ends
    }

    /// Those that have been idle for too long.
    pub(crate) fn expired(&self) -> Vec<Arc<Connection>> {
        let open = self.open();
        open.connections.values().filter(|connection| connection.has_expired()).cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn tell(&self, problem: &Problem<'_>) {
        if let Some(log) = &self.problem_log {
            contain(|| log(problem));
        }
    }
}

/// A clock that is looked at often and wound by one fiber: it is right within its period.
pub(crate) struct Clock {
    start: Instant,
    /// Milliseconds since the start.
    elapsed: AtomicU64,
    /// The second since 1970.
    second: AtomicU64,
    pub(crate) period: Duration,
}

impl Clock {
    /// One that is good for timeouts of this length.
    pub(crate) fn for_timeouts(shortest: Duration) -> Clock {
        let period = (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let (elapsed, second) = (AtomicU64::new(0), AtomicU64::new(date::now()));
        Clock { start: Instant::now(), elapsed, second, period }
    }

    pub(crate) fn wind(&self) {
        self.elapsed.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
        self.second.store(date::now(), Ordering::Relaxed);
    }

    pub(crate) fn elapsed(&self) -> u64 {
        self.elapsed.load(Ordering::Relaxed)
    }

    pub(crate) fn second(&self) -> u64 {
        self.second.load(Ordering::Relaxed)
    }
}
