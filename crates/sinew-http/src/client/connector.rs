//! Opens connections for `ureq`.

use core::fmt;
use core::time::Duration;
use sinew::net::{Shutdown, TcpStream};
use std::io::{self, Read, Write};
use std::sync::{Arc, Weak};
use std::time::Instant;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, ShutdownHandle,
    Transport,
};
use ureq::{Error, Timeout};

/// Connects `ureq` through the sockets of fibers.
///
/// # Examples
/// A client without TLS:
/// ```
/// use sinew_http::client::ureq::unversioned::transport::Connector;
/// use sinew_http::client::ureq::{Agent, config::Config};
/// use sinew_http::client::{FiberConnector, FiberResolver};
/// use sinew_http::{Request, Server};
///
/// let connector = ().chain(FiberConnector::default());
/// let agent = Agent::with_parts(Config::default(), connector, FiberResolver::default());
/// let server = Server::bind("127.0.0.1:0").start(|_: Request| "hello")?;
/// let url = format!("http://{}/", server.local_addr());
/// assert_eq!(agent.get(&url).call()?.body_mut().read_to_string()?, "hello");
/// # let _ = server.shutdown(std::time::Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Default, Debug)]
pub struct FiberConnector(());

impl<In: Transport> Connector<In> for FiberConnector {
    type Out = Either<In, FiberTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if chained.is_some() {
            // The connector before this one has connected to a proxy.
            return Ok(chained.map(Either::A));
        }
        let stream = connect(details)?;
        stream.set_nodelay(details.config.no_delay())?;
        let (input, output) =
            (details.config.input_buffer_size(), details.config.output_buffer_size());
        let stream = Arc::new(Stream(stream));
        let transport = FiberTransport { stream, buffers: LazyBuffers::new(input, output) };
        let weak: Weak<dyn ShutdownHandle> = Arc::<Stream>::downgrade(&transport.stream);
        (details.register_shutdown)(weak)?;
        Ok(Some(Either::B(transport)))
    }
}

/// Connects to the first address that answers.
fn connect(details: &ConnectionDetails<'_>) -> Result<TcpStream, Error> {
    let mut problem = Error::ConnectionFailed;
    let deadline = limit(details.timeout).map(|limit| Instant::now() + limit);
    for (tried, address) in details.addrs.iter().enumerate() {
        let connected = match deadline {
            // Each address gets an equal share of the time that is left.
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Error::Timeout(details.timeout.reason));
                }
                let share = left / (details.addrs.len() - tried) as u32;
                TcpStream::connect_timeout(address, share.max(Duration::from_micros(1)))
            }
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                problem = Error::Timeout(Timeout::Connect);
            }
            Err(error) => problem = error.into(),
        }
    }
    Err(problem)
}

/// The duration of a timeout; `None` if there is no limit.
fn limit(timeout: NextTimeout) -> Option<Duration> {
    // Sockets refuse a timeout of zero.
    timeout.not_zero().map(|limit| (*limit).max(Duration::from_micros(1)))
}

/// A connection of `ureq` on which fibers wait.
#[doc(hidden)] // an associated type names it
pub struct FiberTransport {
    stream: Arc<Stream>,
    buffers: LazyBuffers,
}

struct Stream(TcpStream);

impl ShutdownHandle for Stream {
    fn shutdown(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Transport for FiberTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        let mut stream = &self.stream.0;
        stream.set_write_timeout(limit(timeout))?;
        let written = stream.write_all(&self.buffers.output()[..amount]);
        written.map_err(|error| explain(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        let mut stream = &self.stream.0;
        stream.set_read_timeout(limit(timeout))?;
        let count = stream
            .read(self.buffers.input_append_buf())
            .map_err(|error| explain(error, timeout))?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        // A reusable connection has no unread input, and has not ended.
        matches!(sinew::io::is_readable(&self.stream.0), Ok(false))
    }
}

fn explain(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

impl fmt::Debug for FiberTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FiberTransport").field("stream", &self.stream.0).finish_non_exhaustive()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
