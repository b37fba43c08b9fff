//! A server: what it listens at, what it puts up with, and who answers.

mod accept;
pub(crate) mod counts;
mod handle;
mod limits;
pub(crate) mod shared;

pub use counts::ServerMetrics;
pub use handle::{ServerHandle, ShutdownError};
pub use limits::Limits;

use crate::handler::Handler;
use crate::log::{AccessEntry, Problem};
#[cfg(feature = "tls")]
use crate::tls::Tls;
use core::fmt;
use shared::{AccessLog, ProblemLog};
use sinew::{Handle, Runtime};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

/// A server that is yet to be started.
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

/// How many connections keep their stack while they wait, unless a server is told.
const KEPT_STACKS: usize = 256;

/// What a server listens at.
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

/// A second listener of a server, which runs and ends with it.
pub(crate) struct Side {
    pub(crate) at: At,
    /// Makes the handler for the address that the listener got.
    pub(crate) handler: fn(SocketAddr) -> Box<dyn Handler>,
}

/// Where the fibers of a server run.
enum On {
    /// The runtime of who starts it, or the default one.
    Current,
    Given(Handle),
    /// One of its own, with so many carriers.
    Own(usize),
}

impl Server {
    /// A server for an address: the first of several that can be listened at. Port 0 means any that is
    /// free, and [`ServerHandle::local_addr`] says which. What is wrong with the address is said when the
    /// server is started.
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

    /// A server for a socket that listens already: one that was inherited, or has options of its own.
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

    /// What it puts up with.
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

    /// Speaks TLS.
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

    /// Runs on a runtime of its own, with so many carriers, instead of that of who starts it.
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

    /// Runs on this runtime, instead of that of who starts it.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(2).name("web").build()?;
    /// let server = sinew_http::Server::bind("127.0.0.1:0").runtime(runtime.handle());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn runtime(mut self, runtime: &Handle) -> Server {
        self.runtime = On::Given(runtime.clone());
        self
    }

    /// The stack size of the fibers that serve connections, and call the handler: that of the runtime
    /// unless set, which is 256 KiB if that was not told otherwise. A handler that needs more ends the process,
    /// with a report.
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

    /// How many connections keep their stack while they wait for their next request: 256 unless set. When
    /// there are more, the fibers of those that wait rest: they have none, and cost about a kilobyte each. To go on
    /// from there takes a little longer than to wake up on a stack, as long as all stacks fit the cache, and less
    /// when they do not.
    /// Handlers do not notice. Connections that have not said anything never have a stack.
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

    /// Listens with so many sockets at the same address, over which the kernel spreads connections
    /// (`SO_REUSEPORT`): one unless set. More may accept faster where there are many carriers and short
    /// connections; but another process of the same user can then listen at the address, too.
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

    /// Calls `log` for each request that was answered, on the fiber of its connection. [`AccessEntry`] displays
    /// itself in the common log format. A `println!` waits when the pipe behind it is full, and the carrier waits
    /// with it; [`LineLog`](sinew::io::LineLog) drops lines instead.
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

    /// Calls `log` for failures that no caller learns of: connections that cannot be accepted, handshakes that
    /// fail, handlers that panic, requests that are refused.
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

    /// Listens, and answers with `handler`, on the runtime of the fiber that calls this, or on the default
    /// runtime if that is a plain thread, until somebody [shuts it down](ServerHandle::shutdown).
    ///
    /// # Errors
    /// If nobody can listen at the address: the message names it.
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

    /// The same, and waits for as long as the server runs, which is for ever if nothing but this call
    /// knows of it. A fiber that waits here and is cancelled leaves the server running.
    ///
    /// # Errors
    /// If nobody can listen at the address: the message names it.
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
    fn runtime(self) -> io::Result<(Handle, Option<Runtime>)> {
        match self {
            On::Current => match Handle::try_current() {
                Some(here) => Ok((here, None)),
                // What is spawned on a plain thread runs on the default runtime.
                None => match sinew::spawn(Handle::current).join() {
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
