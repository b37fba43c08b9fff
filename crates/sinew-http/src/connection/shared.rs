//! State that all connections of a server share: settings, the list of connections, and the clock.
//!
//! `handle` makes it and shuts it down. Each `connection` has a reference to it.

use super::Connection;
use super::counts::ServerMetrics;
use crate::date;
use crate::handler::Handler;
use crate::limits::Limits;
use crate::log::{AccessEntry, Problem, contain};
use crate::message::outgoing::Outgoing;
use crate::message::response::Response;
use crate::wire::line::Line;
use crate::wire::transport::Transport;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use http::StatusCode;
use http::header::RETRY_AFTER;
use sinew::sync::{Permits, Semaphore};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The log function for requests that were answered or cut off.
pub(crate) type AccessLog = Box<dyn Fn(&AccessEntry<'_>) + Send + Sync>;
/// The log function for failures that the server cannot return to a caller.
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
    /// One permit for each connection that may be open.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) most: usize,
    pub(crate) file_room: FileRoom,
    /// Whether connections are to be closed as soon as they are idle.
    pub(crate) closing: AtomicBool,
    /// Gives each connection its number.
    pub(crate) numbers: AtomicU64,
    pub(crate) open: Mutex<Open>,
    /// How many connections are open.
    pub(crate) count: AtomicUsize,
    pub(crate) clock: Clock,
}

/// How many connections have to close before memory is released. The allocator keeps some megabytes
/// for this number of connections.
const BURST: usize = 256;

/// The descriptors for files that are being sent.
pub(crate) struct FileRoom {
    descriptors: Arc<Semaphore>,
    /// Files leave at least this number of descriptors to connections.
    left: usize,
}

impl FileRoom {
    /// Reserves descriptors for a server of at most `most` connections, each of which holds one of
    /// `permits`.
    pub(crate) fn new(limits: &Limits, permits: &Arc<Semaphore>, most: usize) -> FileRoom {
        match limits.descriptors_besides() {
            // The connections may take all descriptors, so files share their permits.
            None => FileRoom { descriptors: permits.clone(), left: most / 4 },
            Some(count) => FileRoom { descriptors: Arc::new(Semaphore::new(count)), left: 0 },
        }
    }

    /// Reserves the descriptor of the file that a response sends. If no descriptor is free, the
    /// response becomes 503 and the file is closed.
    pub(crate) fn for_body_of(&self, response: &mut Response) -> Option<Permits<'_>> {
        if !matches!(response.body, Outgoing::File(..)) {
            return None;
        }
        // Other fibers may take permits in between. `left` need not be exact.
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
pub(crate) struct Open {
    /// The open connections, by number.
    connections: HashMap<u64, Arc<Connection>>,
    /// How many connections were accepted, and the counts of the closed ones.
    past: ServerMetrics,
    /// The highest number of open connections since the last burst ended.
    peak: usize,
}

impl Shared {
    /// Whether a waiting connection gives up its stack.
    pub(crate) fn defers(&self) -> bool {
        self.count.load(Ordering::Relaxed) > self.kept_stacks
    }

    /// Makes the transport of a new connection.
    pub(super) fn transport(&self, line: Arc<Line>) -> io::Result<Transport> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return Transport::encrypted(line, tls.config().clone());
        }
        Ok(Transport::Plain(line))
    }

    /// Whether connections are encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    pub(crate) fn is_closing(&self) -> bool {
        // ORDERING: SeqCst, after the serving fiber has changed the state of its connection; pairs
        // with the store in `begin_closing`. `Connection::rest` has the argument.
        self.closing.load(Ordering::SeqCst)
    }

    /// Makes connections close when they become idle.
    pub(crate) fn begin_closing(&self) {
        // ORDERING: SeqCst, before the shutdown looks at the states of connections; pairs with the
        // load in `is_closing`. `Connection::rest` has the argument.
        self.closing.store(true, Ordering::SeqCst);
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts so far.
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
        // Drop the connection, and all that it owns, without the lock.
        drop(left);
    }

    /// The connections that are open at this moment.
    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        self.open().connections.values().cloned().collect()
    }

    /// Whether a burst has ended: far fewer connections are open than at the peak. If so, the peak
    /// is reset to the present number.
    pub(crate) fn ends_burst(&self) -> bool {
        let mut open = self.open();
        let count = open.connections.len();
        let ends = open.peak - count >= BURST && count <= open.peak / 2;
        if ends {
            open.peak = count;
            // The table has grown to the size of the burst.
            open.connections.shrink_to(2 * count);
        }
        ends
    }

    /// The connections that have been idle for too long.
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

/// A cheap clock that one fiber winds. It lags by at most its period.
pub(crate) struct Clock {
    start: Instant,
    /// Milliseconds since the start.
    elapsed: AtomicU64,
    /// Seconds since 1970.
    second: AtomicU64,
    pub(crate) period: Duration,
}

impl Clock {
    /// Makes a clock with a period that suits timeouts of this length.
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
