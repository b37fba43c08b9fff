//! A connection's life: accepted, served in turns, closed.
//!
//! README.md of this folder has the protocol: the owner of a connection, and the parties that may
//! close it.
//!
//! Next: `session`, one turn of the serving fiber.

mod answer;
mod exchange;
mod held;
mod kit;
mod linger;
mod record;
mod sending;
mod session;
#[cfg(feature = "tls")]
mod tls;
pub(crate) mod transport;
pub(crate) mod wire;

use crate::log::Problem;
use crate::message::case::Origin;
use crate::server::counts::Counts;
use crate::server::shared::Shared;
use core::mem;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use core::time::Duration;
use session::{End, Session};
use sinew::io::Within;
use sinew::net::{Shutdown, TcpStream};
use sinew::sync::OwnedPermits;
use sinew::{Builder, Fiber, Handle};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use transport::Transport;

/// The state of a connection that the serving fiber shares with the clock fiber and with shutdowns.
/// The fields that every request touches lie together.
#[repr(C)]
pub(crate) struct Connection {
    stream: TcpStream,
    pub(crate) shared: Arc<Shared>,
    /// When the connection became idle, in milliseconds of the server's clock.
    idle_since: AtomicU64,
    state: AtomicU8,
    /// Whether a write stopped in its middle. Nothing may be written after it.
    is_torn: AtomicBool,
    /// Whether the next empty line is the tail of the previous request, and is skipped.
    may_skip_line: AtomicBool,
    /// Only the fiber that serves the connection changes them.
    pub(crate) counts: Counts,
    /// The fiber that serves the connection. Set by the accepting fiber or by itself, whichever
    /// comes first.
    fiber: OnceLock<Fiber>,
    pub(crate) origin: Origin,
    /// Identifies the connection within its server.
    pub(crate) number: u64,
}

/// Between requests. The serving fiber leaves this state to serve, others leave it to close. One
/// compare-exchange decides.
const IDLE: u8 = 0;
/// A request is being served.
const BUSY: u8 = 1;
/// Another party is closing the connection, not the serving fiber.
const CLOSING: u8 = 2;
/// The connection has left HTTP.
const UPGRADED: u8 = 3;
/// A TLS handshake is running. No request has begun.
#[cfg(feature = "tls")]
const GREETING: u8 = 4;
/// A part of a head has come, and the fiber waits for the rest.
const READING: u8 = 5;

/// How long a server that shuts down waits for the rest of a head.
pub(crate) const REST_OF_HEAD: Duration = Duration::from_secs(1);

impl Connection {
    /// Begins to serve a request. Returns false if the connection is being closed.
    fn begin(&self) -> bool {
        self.change(IDLE, BUSY)
    }

    /// Marks the connection idle. Returns false if the server is closing, so that no request may be
    /// awaited.
    fn rest(&self) -> bool {
        self.idle_since.store(self.shared.clock.elapsed(), Ordering::Relaxed);
        // ORDERING: SeqCst, before the SeqCst load of `closing`; pairs with `begin_closing` and
        // `close_if`, which set `closing` first and look at the state then. One of the two sides
        // sees the other.
        self.state.store(IDLE, Ordering::SeqCst);
        !self.shared.is_closing()
    }

    /// Begins to wait for the rest of a head. Returns false if the server is closing, so that the
    /// wait must be short.
    fn await_rest_of_head(&self) -> bool {
        // ORDERING: SeqCst, as in `rest`: this side changes the state and then loads `closing`; a
        // shutdown stores `closing` and then looks at the state. One of the two sides sees the
        // other.
        self.change(BUSY, READING);
        !self.shared.is_closing()
    }

    /// Ends the wait for the rest of a head. Returns false if a shutdown has closed the connection.
    fn has_more_of_head(&self) -> bool {
        self.change(READING, BUSY)
    }

    /// Begins a TLS handshake. Returns false if the connection is being closed.
    #[cfg(feature = "tls")]
    fn greet(&self) -> bool {
        self.change(IDLE, GREETING)
    }

    /// Ends a TLS handshake; a request may have come with its last bytes. Returns false if the
    /// connection is being closed.
    #[cfg(feature = "tls")]
    fn has_greeted(&self) -> bool {
        self.change(GREETING, BUSY)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Makes the serving fiber close the connection if it is idle. The fiber sees the end of the
    /// input.
    pub(crate) fn close_if_idle(&self) {
        self.close_if(IDLE);
    }

    /// Makes the serving fiber close the connection unless it is serving a request or reading a
    /// head. A connection that has left HTTP sees the end of its input.
    pub(crate) fn close_unless_busy(&self) {
        self.close_if(IDLE);
        #[cfg(feature = "tls")]
        self.close_if(GREETING);
        self.close_if_upgraded();
    }

    /// Makes the serving fiber give up if it still waits for the rest of a head.
    pub(crate) fn close_if_reading_head(&self) {
        self.close_if(READING);
    }

    fn close_if(&self, state: u8) {
        if self.change(state, CLOSING) {
            // Fails if the client has closed the connection; then the input has ended already.
            let _ = self.stream.shutdown(Shutdown::Read);
        }
    }

    /// Ends the input of a connection that has left HTTP.
    fn close_if_upgraded(&self) {
        if self.state.load(Ordering::SeqCst) == UPGRADED {
            let _ = self.stream.shutdown(Shutdown::Read);
        }
    }

    /// Closes both directions, whatever the connection's state.
    pub(crate) fn abort(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Cancels the serving fiber.
    pub(crate) fn cancel(&self) {
        if let Some(fiber) = self.fiber.get() {
            fiber.cancel();
        }
    }

    /// Whether the current fiber serves this connection.
    pub(crate) fn is_served_here(&self) -> bool {
        // A plain thread serves no connection.
        Handle::try_current().is_some()
            && self.fiber.get().is_some_and(|fiber| fiber.id() == sinew::current().id())
    }

    /// Reads within `limit`; fails with `TimedOut` after it.
    fn read_within(&self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        /// Removes the timeout, also if the read is unwound.
        struct Unlimited<'a>(&'a TcpStream);
        impl Drop for Unlimited<'_> {
            fn drop(&mut self) {
                let _ = self.0.set_read_timeout(None);
            }
        }
        // A socket refuses a timeout of zero.
        self.stream.set_read_timeout(Some(limit.max(Duration::from_micros(1))))?;
        let unlimited = Unlimited(&self.stream);
        let mut stream = unlimited.0;
        stream.read(buffer).map_err(transport::timed_out)
    }

    /// Calls `write` for something that is only useful as a whole. If `write` fails, or a deadline
    /// of the handler unwinds it, nothing more can be written to the connection.
    fn write_whole(&self, write: impl FnOnce(&TcpStream) -> io::Result<()>) -> io::Result<()> {
        /// Marks the connection as torn, unless it is forgotten.
        struct Torn<'a>(&'a AtomicBool);
        impl Drop for Torn<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        if self.is_torn.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let torn = Torn(&self.is_torn);
        write(&self.stream)?;
        mem::forget(torn);
        Ok(())
    }

    /// Whether the connection has been idle for too long.
    pub(crate) fn has_expired(&self) -> bool {
        let limits = &self.shared.limits;
        let limit = match self.counts.requests() {
            0 => limits.head_timeout,
            _ => limits.idle_timeout,
        };
        let idle_since = self.idle_since.load(Ordering::Relaxed);
        let idle = self.shared.clock.elapsed().saturating_sub(idle_since);
        self.state.load(Ordering::Relaxed) == IDLE && u128::from(idle) > limit.as_millis()
    }
}

/// The exclusive right to serve a connection. It exists as long as the connection is open.
pub(crate) struct Lease {
    transport: Transport,
    /// Declared last, to be dropped last: the server gets room for another connection after this
    /// one has released its descriptor.
    _permit: OwnedPermits,
}

impl Lease {
    fn connection(&self) -> &Connection {
        self.transport.connection()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let connection = self.connection();
        connection.shared.leave(connection.number);
        // A body or an upgraded stream that another fiber keeps must see the end. The descriptor is
        // closed when that fiber drops it.
        if self.transport.is_shared() {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Begins to serve an accepted connection: makes the fiber that waits for its first byte.
pub(crate) fn accepted(
    shared: &Arc<Shared>,
    (stream, peer): (TcpStream, SocketAddr),
    number: u64,
    permit: OwnedPermits,
) -> io::Result<()> {
    // Responses are sent whole, so Nagle's algorithm gains nothing.
    stream.set_nodelay(true)?;
    // Older kernels refuse, and then report larger steps only.
    let _ = transport::have_progress_reported(&stream);
    stream.set_write_timeout(Some(shared.limits.write_timeout))?;
    let origin = Origin { peer, local: stream.local_addr()?, is_secure: shared.is_secure() };
    let connection = Arc::new(Connection {
        stream,
        shared: shared.clone(),
        idle_since: AtomicU64::new(0),
        state: AtomicU8::new(IDLE),
        counts: Counts::default(),
        is_torn: AtomicBool::new(false),
        may_skip_line: AtomicBool::new(false),
        origin,
        fiber: OnceLock::new(),
        number,
    });
    let transport = Transport::new(&connection)?;
    shared.enter(connection.clone());
    let lease = Lease { transport, _permit: permit };
    if !connection.rest() {
        return Ok(());
    }
    let mut builder = Builder::new().name(format!("http {} <- {peer}", shared.local));
    if let Some(size) = shared.stack_size {
        builder = builder.stack_size(size);
    }
    let source = Within::new(lease, |lease| lease.transport.stream());
    // If the fiber cannot be made, the closure drops the lease, which closes the connection.
    let served = builder
        .spawn_whenever_readable(source, |source| serve(source.whole()))
        .inspect_err(|error| shared.tell(&Problem::Accept(error)));
    if let Ok(served) = served {
        connection.fiber.get_or_init(|| served.fiber());
    }
    Ok(())
}

/// Serves the requests that have come. Then either the fiber rests until the next request, or the
/// connection is closed.
fn serve(lease: &Lease) -> ControlFlow<()> {
    let connection = lease.connection();
    connection.fiber.get_or_init(sinew::current);
    match Session::hold(lease) {
        End::Idle if connection.rest() => ControlFlow::Continue(()),
        End::Idle => {
            lease.transport.take_leave();
            ControlFlow::Break(())
        }
        End::Close => ControlFlow::Break(()),
    }
}
