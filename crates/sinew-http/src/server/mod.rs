//! A server: its addresses, its limits and its handler.
//!
//! [`Server`] collects the settings. `handle` starts and ends the server, `accept` accepts
//! connections, and `connection::shared` holds the state that the connections of a server share.
//!
//! Next: `connection`, which serves an accepted connection.

mod accept;
mod handle;

pub use handle::{ServerHandle, ShutdownError};

use crate::connection::shared::{AccessLog, ProblemLog};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::log::{AccessEntry, Problem};
#[cfg(feature = "tls")]
use crate::tls::Tls;
use core::fmt;
use sinew::{Runtime, RuntimeHandle};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

/// A server that has not been started.
///
/// # Examples
/// ```no_run
/// use sinew_http::{Request, Response, Server};
///
/// fn main() -> std::io::Result<()> {
///     Server::bind("127.0.0.1:8080").serve(|request: Request| {
///         Response::text(format!("you asked for {}\n", request.path()))
///     })
/// }
/// ```
pub struct Server {
    at: At,
    runtime: On,
    listeners: usize,
    pub(crate) side: Option<Side>,
    settings: Settings,
}

/// How a server treats its connections.
#[derive(Default)]
struct Settings {
    limits: Limits,
    /// [`KEPT_STACKS`] unless set.
    kept_stacks: Option<usize>,
    stack_size: Option<usize>,
    access_log: Option<AccessLog>,
    problem_log: Option<ProblemLog>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// How many waiting connections keep their stack by default.
const KEPT_STACKS: usize = 256;

/// Where a server listens.
#[derive(Debug)]
pub(crate) enum At {
    Addresses(io::Result<Vec<SocketAddr>>),
    Listener(TcpListener),
}

impl At {
    pub(crate) fn addresses(address: impl ToSocketAddrs) -> At {
        At::Addresses(address.to_socket_addrs().map(Iterator::collect))
    }
}

/// The admin listener of a server, which starts and ends with the server.
pub(crate) struct Side {
    pub(crate) at: At,
    /// Makes the handler, given the address that the listener got.
    pub(crate) handler: fn(SocketAddr) -> Box<dyn Handler>,
}

/// Where the fibers of a server run.
enum On {
    /// The runtime of the calling fiber, or the default runtime.
    Current,
    Given(RuntimeHandle),
    /// A runtime of the server's own, with this number of carriers.
    Own(usize),
}

impl Server {
    /// Makes a server for an address. If the address resolves to several, the server uses the first
    /// one at which it can listen. Port 0 means any free port; [`ServerHandle::local_addr`] returns
    /// the chosen port. [`start`](Self::start) reports a bad address.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Response, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0").start(|_: Request| Response::text("hello"))?;
    /// assert_ne!(server.local_addr().port(), 0);
    /// # server.shutdown(std::time::Duration::ZERO);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(address: impl ToSocketAddrs) -> Server {
        Server::at(At::addresses(address))
    }

    /// Makes a server for a listening socket, such as an inherited one or one with special options.
    ///
    /// # Examples
    /// ```
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let server = sinew_http::Server::from_listener(listener);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_listener(listener: TcpListener) -> Server {
        Server::at(At::Listener(listener))
    }

    fn at(at: At) -> Server {
        let settings = Settings::default();
        Server { at, runtime: On::Current, listeners: 1, side: None, settings }
    }

    /// Sets the limits for requests and connections.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Limits, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0").limits(Limits::default().body_size(1 << 30));
    /// ```
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Server {
        self.settings.limits = limits;
        self
    }

    /// Encrypts the connections with TLS.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Server, Tls};
    ///
    /// let server = Server::bind("127.0.0.1:0").tls(Tls::self_signed(["localhost"])?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Server {
        self.settings.tls = Some(tls);
        self
    }

    /// Runs the server on a runtime of its own with `count` carriers. By default the server runs on
    /// the runtime of the caller.
    ///
    /// # Examples
    /// ```
    /// let server = sinew_http::Server::bind("127.0.0.1:0").carriers(4);
    /// ```
    #[must_use]
    pub fn carriers(mut self, count: usize) -> Server {
        self.runtime = On::Own(count);
        self
    }

    /// Runs the server on this runtime. By default the server runs on the runtime of the caller.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(2).name("web").build()?;
    /// let server = sinew_http::Server::bind("127.0.0.1:0").runtime(runtime.handle());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn runtime(mut self, runtime: &RuntimeHandle) -> Server {
        self.runtime = On::Given(runtime.clone());
        self
    }

    /// Sets the stack size of the fibers that serve connections and call the handler. The default
    /// is the runtime's stack size, which is 256 KiB unless the runtime was built with another. A
    /// handler that overflows the stack ends the process, with a report.
    ///
    /// # Examples
    /// ```
    /// let server = sinew_http::Server::bind("127.0.0.1:0").stack_size(256 << 10);
    /// ```
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Server {
        self.settings.stack_size = Some(bytes);
        self
    }

    /// Sets how many connections keep their stack while they wait for their next request: 256 by
    /// default.
    ///
    /// When there are more connections, the fibers of the waiting ones rest: they have no stack,
    /// and cost about a kilobyte each. While all stacks fit the processor's cache, waking a resting
    /// fiber takes a little longer than waking a fiber that has kept its stack. When they do not
    /// fit, it takes less time. Handlers do not notice the difference. A connection on which
    /// nothing has come yet has no stack in any case.
    ///
    /// # Examples
    /// ```
    /// let frugal = sinew_http::Server::bind("127.0.0.1:0").kept_stacks(0);
    /// let generous = sinew_http::Server::bind("127.0.0.1:0").kept_stacks(usize::MAX);
    /// ```
    #[must_use]
    pub fn kept_stacks(mut self, count: usize) -> Server {
        self.settings.kept_stacks = Some(count);
        self
    }

    /// Listens with `count` sockets at one address. The kernel spreads connections over the sockets
    /// (`SO_REUSEPORT`). The default is one socket. More sockets may accept faster with many
    /// carriers and short connections, but then another process of the same user can listen at the
    /// address, too.
    ///
    /// # Examples
    /// ```
    /// let server = sinew_http::Server::bind("127.0.0.1:0").listeners(2);
    /// ```
    #[must_use]
    pub fn listeners(mut self, count: usize) -> Server {
        self.listeners = count.max(1);
        self
    }

    /// Calls `log` for each request that was answered or cut off, on the fiber of its connection.
    ///
    /// [`AccessEntry`] displays itself in the common log format. A `println!` blocks the carrier
    /// while the pipe behind standard output is full; [`LineLog`](sinew::io::LineLog) drops lines
    /// instead.
    ///
    /// # Examples
    /// ```
    /// use sinew::io::LineLog;
    ///
    /// let server = sinew_http::Server::bind("127.0.0.1:0").access_log(|entry| {
    ///     LineLog::stdout().write_line(entry);
    /// });
    /// ```
    #[must_use]
    pub fn access_log(mut self, log: impl Fn(&AccessEntry<'_>) + Send + Sync + 'static) -> Server {
        self.settings.access_log = Some(Box::new(log));
        self
    }

    /// Calls `log` for failures that the server cannot return to a caller: connections that cannot
    /// be accepted, handshakes that fail, handlers that panic, requests that are refused.
    ///
    /// # Examples
    /// ```
    /// use sinew::io::LineLog;
    ///
    /// let server = sinew_http::Server::bind("127.0.0.1:0").problem_log(|problem| {
    ///     LineLog::stderr().write_line(problem);
    /// });
    /// ```
    #[must_use]
    pub fn problem_log(mut self, log: impl Fn(&Problem<'_>) + Send + Sync + 'static) -> Server {
        self.settings.problem_log = Some(Box::new(log));
        self
    }

    /// Starts the server, which answers with `handler` until it is [shut
    /// down](ServerHandle::shutdown).
    ///
    /// The server runs on the runtime of the calling fiber, or on the default runtime if a plain
    /// thread calls this. [`carriers`](Self::carriers) and [`runtime`](Self::runtime) choose
    /// another one.
    ///
    /// # Errors
    /// If the server cannot listen at the address; the message names it. Also if its runtime or a
    /// fiber cannot be made.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Response, Server};
    /// use std::time::Duration;
    ///
    /// let server = Server::bind("127.0.0.1:0").start(|_: Request| Response::text("hello"))?;
    /// println!("http://{}/", server.local_addr());
    /// server.shutdown(Duration::from_secs(5)).expect("no request takes that long");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn start(self, handler: impl Handler) -> io::Result<ServerHandle> {
        handle::start(self, Box::new(handler))
    }

    /// Starts the server, and waits as long as the process lives. Use [`start`](Self::start) for a
    /// server that can be shut down. If the waiting fiber is cancelled, the server runs on.
    ///
    /// # Errors
    /// If the server cannot listen at the address; the message names it. Also if its runtime or a
    /// fiber cannot be made.
    ///
    /// # Examples
    /// ```no_run
    /// use sinew_http::{Request, Response, Server};
    ///
    /// Server::bind("127.0.0.1:8080").serve(|_: Request| Response::text("hello"))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn serve(self, handler: impl Handler) -> io::Result<()> {
        self.start(handler)?.wait();
        Ok(())
    }
}

impl On {
    fn runtime(self) -> io::Result<(RuntimeHandle, Option<Runtime>)> {
        match self {
            On::Current => match RuntimeHandle::try_current() {
                Some(here) => Ok((here, None)),
                // A fiber spawned from a plain thread runs on the default runtime.
                None => match sinew::spawn(RuntimeHandle::current).join() {
                    Ok(default) => Ok((default, None)),
                    Err(panic) => std::panic::resume_unwind(panic),
                },
            },
            On::Given(handle) => Ok((handle, None)),
            On::Own(carriers) => {
                let runtime = Runtime::builder().carriers(carriers).name("http").build()?;
                Ok((runtime.handle().clone(), Some(runtime)))
            }
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("at", &self.at)
            .field("limits", &self.settings.limits)
            .finish_non_exhaustive()
    }
}
