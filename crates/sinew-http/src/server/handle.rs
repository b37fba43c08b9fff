//! A running server, and its shutdown.

use super::{KEPT_STACKS, Limits, Server, Settings, accept};
use crate::connection::REST_OF_HEAD;
use crate::connection::counts::{self, ServerMetrics};
use crate::connection::shared::{Clock, FileRoom, Shared};
use crate::handler::Handler;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use core::time::Duration;
use sinew::net::TcpListener;
use sinew::sync::{Event, Semaphore};
use sinew::{Fiber, FiberBuilder, Runtime, RuntimeHandle};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// A running server.
///
/// If the handle is dropped, the server keeps running, and so does the server's own runtime if it
/// has one.
///
/// # Examples
/// ```
/// use sinew_http::{Request, Server};
/// use std::time::Duration;
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
/// let server = Server::bind("127.0.0.1:0").start(|_: Request| "hello")?;
/// assert!(get(server.local_addr(), "/")?.ends_with("hello"));
/// server.shutdown(Duration::from_secs(60)).expect("the requests have ended");
/// assert!(get(server.local_addr(), "/").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ServerHandle {
    shared: Arc<Shared>,
    /// The fibers that accept connections.
    accepting: Vec<Fiber>,
    /// The fiber that winds the clock.
    clock: Fiber,
    over: Event,
    /// The admin server, which ends after the requests of the main one.
    side: Option<Box<ServerHandle>>,
    runtime: Option<Runtime>,
}

/// How many connections the admin server serves at a time. Few clients look at it at a time.
const MOST_AT_SIDE: usize = 64;

/// How long a shutdown waits for the fibers that it has cancelled to end, and for the admin server.
const NOTICING: Duration = Duration::from_secs(1);

pub(super) fn start(server: Server, handler: Box<dyn Handler>) -> io::Result<ServerHandle> {
    let (on, runtime) = server.runtime.runtime()?;
    if let Some(size) = server.settings.stack_size {
        // Report a bad stack size here rather than when a connection comes.
        drop(FiberBuilder::new().runtime(&on).stack_size(size).build(|| ())?);
    }
    let listeners = accept::listen(server.at, server.listeners)?;
    // Bind both addresses before serving either: after an error, nothing is left running.
    let side = match server.side {
        Some(side) => Some((accept::listen(side.at, 1)?, side.handler)),
        None => None,
    };
    let mut handle = launch(server.settings, &on, listeners, handler)?;
    handle.runtime = runtime;
    if let Some((listeners, handler)) = side {
        match launch_side(&on, listeners, handler) {
            Ok(side) => handle.side = Some(Box::new(side)),
            Err(error) => {
                // Close the connections that came meanwhile. The caller gets the error of the admin
                // server.
                let _ = handle.shutdown(Duration::ZERO);
                return Err(error);
            }
        }
    }
    Ok(handle)
}

fn launch_side(
    on: &RuntimeHandle,
    listeners: Vec<TcpListener>,
    handler: fn(SocketAddr) -> Box<dyn Handler>,
) -> io::Result<ServerHandle> {
    let handler = handler(listeners[0].local_addr()?);
    let limits = Limits::default().connections(MOST_AT_SIDE);
    launch(Settings { limits, ..Settings::default() }, on, listeners, handler)
}

/// Serves the connections that arrive at `listeners`.
fn launch(
    settings: Settings,
    on: &RuntimeHandle,
    listeners: Vec<TcpListener>,
    handler: Box<dyn Handler>,
) -> io::Result<ServerHandle> {
    let local = listeners[0].local_addr()?;
    let limits = settings.limits;
    let most = limits.most_connections();
    let room = Arc::new(Semaphore::new(most));
    let shared = Arc::new(Shared {
        handler,
        limits,
        local,
        kept_stacks: settings.kept_stacks.unwrap_or(KEPT_STACKS),
        stack_size: settings.stack_size,
        access_log: settings.access_log,
        problem_log: settings.problem_log,
        #[cfg(feature = "tls")]
        tls: settings.tls,
        file_room: FileRoom::new(&limits, &room, most),
        room,
        most,
        numbers: AtomicU64::new(0),
        closing: AtomicBool::new(false),
        open: Mutex::default(),
        count: AtomicUsize::new(0),
        clock: Clock::for_timeouts(limits.idle_timeout.min(limits.head_timeout)),
    });
    counts::register(&shared);
    let spawn = |name: String, f: Box<dyn FnOnce() + Send>| -> io::Result<Fiber> {
        Ok(FiberBuilder::new().runtime(on).name(name).spawn(f)?.fiber())
    };
    // The clock comes first: after an error in the loop, it is the only fiber beside those in
    // `accepting`.
    let wound = shared.clone();
    let clock = spawn(format!("http {local} clock"), Box::new(move || tend(&wound)))?;
    let mut accepting = Vec::new();
    for listener in listeners {
        let shared = shared.clone();
        let accept = move || accept::accept(&listener, &shared);
        match spawn(format!("http {local} accept"), Box::new(accept)) {
            Ok(fiber) => accepting.push(fiber),
            Err(error) => {
                accepting.iter().chain([&clock]).for_each(Fiber::cancel);
                return Err(error);
            }
        }
    }
    let over = Event::new();
    Ok(ServerHandle { shared, accepting, clock, over, side: None, runtime: None })
}

/// Winds the clock, and closes connections that have been idle for too long, until the fiber is
/// cancelled. Releases memory after a burst of connections.
fn tend(shared: &Shared) {
    loop {
        sinew::sleep(shared.clock.period);
        shared.clock.wind();
        for connection in shared.expired() {
            connection.close_if_idle();
        }
        if shared.ends_burst() {
            sinew::blocking(sinew::release_free_memory);
        }
    }
}

impl ServerHandle {
    /// Returns the address that the server listens at.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Response, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0").start(|_: Request| Response::text("hello"))?;
    /// assert!(server.local_addr().ip().is_loopback());
    /// # server.shutdown(std::time::Duration::ZERO);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local
    }

    /// Returns the address of the admin listener, if [`Server::admin`](crate::Server::admin) was
    /// called.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Response, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0")
    ///     .admin("127.0.0.1:0")
    ///     .start(|_: Request| Response::text("hello"))?;
    /// let admin = server.admin_addr().expect("the server was given an address for it");
    /// println!("see http://{admin}/debug/fibers");
    /// # server.shutdown(std::time::Duration::ZERO);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.side.as_ref().map(|side| side.local_addr())
    }

    /// Returns the number of open connections.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Response, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0").start(|_: Request| Response::text("hello"))?;
    /// assert_eq!(server.connections(), 0);
    /// # server.shutdown(std::time::Duration::ZERO);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connections(&self) -> usize {
        self.shared.count()
    }

    /// Returns the counts of connections, requests and responses so far. The [debug
    /// routes](crate::Router::debug) report the counts of all servers of the process, in the
    /// metrics for Prometheus.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Response, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0").start(|_: Request| Response::text("hello"))?;
    /// assert_eq!(server.metrics().requests_total, 0);
    /// # server.shutdown(std::time::Duration::ZERO);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn metrics(&self) -> ServerMetrics {
        self.shared.metrics()
    }

    /// Shuts the server down, waiting at most `patience` for requests to finish.
    ///
    /// The server stops accepting and closes idle connections. It waits for every request whose
    /// head has been received. When `patience` is over, it cancels the remaining requests and
    /// closes their connections. A client that has sent a part of a head gets a second or two for
    /// the rest, within [`Limits::head_timeout`](crate::Limits::head_timeout).
    ///
    /// A handler may call this function; the shutdown does not wait for the connection of that
    /// handler. The [admin listener](crate::Server::admin) answers until the requests have ended.
    ///
    /// # Errors
    /// If requests had to be cancelled; the error says how many connections were closed by force.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Response, Server};
    /// use std::time::Duration;
    ///
    /// let server = Server::bind("127.0.0.1:0").start(|_: Request| Response::text("hello"))?;
    /// server.shutdown(Duration::from_secs(10)).expect("no request is under way");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(&self, patience: Duration) -> Result<(), ShutdownError> {
        /// Ends the admin server and the clock, and wakes the callers of
        /// [`wait`](ServerHandle::wait). This also happens if the caller of `shutdown` is cancelled
        /// while it waits for requests.
        struct Over<'a>(&'a ServerHandle);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                if let Some(side) = &self.0.side {
                    side.stop();
                }
                self.0.clock.cancel();
                self.0.over.set();
            }
        }
        let _over = Over(self);
        let shared = &self.shared;
        shared.begin_closing();
        for fiber in &self.accepting {
            fiber.cancel();
        }
        for fiber in &self.accepting {
            fiber.wait_finished();
        }
        let connections = shared.connections();
        for connection in &connections {
            connection.close_unless_busy();
        }
        // Each open connection holds a permit. A handler does not wait for its own connection's
        // permit.
        let own = connections.iter().any(|connection| connection.is_served_here());
        let others = shared.most - usize::from(own);
        // Drop the references: a descriptor is closed when its last reference goes.
        drop(connections);
        // A client that has sent a part of a head may never send the rest. It gets one second; the
        // full patience is for requests that are being served.
        let first = patience.min(REST_OF_HEAD);
        let mut ended = shared.room.acquire_timeout(others, first).is_some();
        if !ended && patience > first {
            shared.connections().iter().for_each(|connection| connection.close_if_reading_head());
            ended = shared.room.acquire_timeout(others, patience - first).is_some();
        }
        let ended = if ended { Ok(()) } else { self.end_by_force(others) };
        // The admin server ends last, so that it can show the remaining requests.
        if let Some(side) = &self.side {
            let _ = side.shutdown(NOTICING);
        }
        ended
    }

    /// Ends the server at once, without waiting until its fibers have ended.
    fn stop(&self) {
        self.shared.begin_closing();
        self.accepting.iter().for_each(Fiber::cancel);
        let connections = self.shared.connections();
        connections.iter().for_each(|connection| connection.abort());
        connections.iter().for_each(|connection| connection.cancel());
        self.clock.cancel();
    }

    fn end_by_force(&self, others: usize) -> Result<(), ShutdownError> {
        let shared = &self.shared;
        let mut connections = shared.connections();
        connections.retain(|connection| !connection.is_served_here());
        connections.iter().for_each(|connection| connection.abort());
        connections.iter().for_each(|connection| connection.cancel());
        let _ = shared.room.acquire_timeout(others, NOTICING);
        match connections.len() {
            0 => Ok(()),
            unfinished => Err(ShutdownError { unfinished }),
        }
    }

    /// Waits until the server has been [shut down](Self::shutdown).
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Response, Server};
    /// use std::time::Duration;
    ///
    /// let server = Server::bind("127.0.0.1:0").start(|_: Request| Response::text("hello"))?;
    /// sinew::scope(|s| {
    ///     s.spawn(|| server.shutdown(Duration::from_secs(1)));
    ///     server.wait();
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait(&self) {
        self.over.wait();
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        if !self.over.is_set() {
            std::mem::forget(self.runtime.take());
        }
    }
}

/// The error of a shutdown that cancelled requests.
///
/// # Examples
/// ```
/// use sinew_http::{Request, Server};
/// use std::io::Write;
/// use std::time::Duration;
///
/// let server = Server::bind("127.0.0.1:0").start(|_: Request| {
///     sinew::sleep(Duration::from_secs(3600));
///     "late"
/// })?;
/// let mut client = sinew::net::TcpStream::connect(server.local_addr())?;
/// client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")?;
/// sinew::wait_until(|| server.metrics().requests_total == 1);
/// let error = server.shutdown(Duration::ZERO).unwrap_err(); // has cancelled the handler
/// assert_eq!(error.unfinished, 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ShutdownError {
    /// The number of connections that were closed by force.
    pub unfinished: usize,
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} connections were still in use, and were closed", self.unfinished)
    }
}

impl std::error::Error for ShutdownError {}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("local_addr", &self.local_addr())
            .field("connections", &self.connections())
            .finish_non_exhaustive()
    }
}
