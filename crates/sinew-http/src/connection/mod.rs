//! A connection's life: accepted, served in turns, closed.
//!
//! README.md of this folder describes the protocol between the fiber that serves a connection and
//! the parties that may close it.
//!
//! Next: `session`, one turn of the serving fiber.

mod answer;
pub(crate) mod counts;
mod exchange;
mod held;
mod kit;
mod linger;
mod record;
mod sending;
mod session;
pub(crate) mod shared;

use crate::log::Problem;
use crate::message::case::Origin;
use crate::wire::line::Line;
use crate::wire::transport::{Transport, have_progress_reported};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use core::time::Duration;
use counts::Counts;
use session::{End, Session};
use shared::Shared;
use sinew::io::Within;
use sinew::net::{Shutdown, TcpStream};
use sinew::sync::OwnedPermits;
use sinew::{Fiber, FiberBuilder, RuntimeHandle};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// The state of a connection that the serving fiber shares with the clock fiber and with shutdowns.
/// The fields that every request touches lie together.
#[repr(C)]
pub(crate) struct Connection {
    line: Arc<Line>,
    pub(crate) shared: Arc<Shared>,
    /// When the connection became idle, in milliseconds of the server's clock.
    idle_since: AtomicU64,
    /// One of the states below, from [`IDLE`] to [`READING`].
    state: AtomicU8,
    /// Whether the next empty line is the tail of the previous request, and is skipped.
    may_skip_line: AtomicBool,
    /// Only the fiber that serves the connection changes the counts.
    pub(crate) counts: Counts,
    /// The fiber that serves the connection. The accepting fiber or the serving fiber sets it,
    /// whichever comes first.
    fiber: OnceLock<Fiber>,
    pub(crate) origin: Origin,
    /// Identifies the connection within its server.
    pub(crate) number: u64,
}

/// Between requests. The serving fiber leaves this state to serve; the clock fiber and shutdowns
/// leave it to close. One compare-exchange decides.
const IDLE: u8 = 0;
/// A request is being served.
const BUSY: u8 = 1;
/// The clock fiber or a shutdown has decided to close the connection. The serving fiber closes it.
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

    /// Marks the connection idle. Returns false if the server is closing; then the fiber must not
    /// wait for another request.
    fn rest(&self) -> bool {
        self.idle_since.store(self.shared.clock.elapsed(), Ordering::Relaxed);
        // ORDERING: SeqCst, before the SeqCst load of `closing`; pairs with a shutdown, which
        // stores `closing` (`begin_closing`) and then looks at the state (`close_if`). One of the
        // two sides sees the other.
        self.state.store(IDLE, Ordering::SeqCst);
        !self.shared.is_closing()
    }

    /// Begins to wait for the rest of a head. Returns false if the server is closing; then the wait
    /// must be short.
    fn await_rest_of_head(&self) -> bool {
        // ORDERING: SeqCst, as in `rest`: this side changes the state and then loads `closing`; a
        // shutdown stores `closing` and then looks at the state. One of the two sides sees the
        // other.
        self.change(BUSY, READING);
        !self.shared.is_closing()
    }

    /// Ends the wait for the rest of a head. Returns false if a shutdown has decided to close the
    /// connection.
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

    /// Changes the state if it is `from`. Returns false if it is not.
    fn change(&self, from: u8, to: u8) -> bool {
        // ORDERING: SeqCst, in one order with `closing`; `rest` has the argument.
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
            let _ = self.line.stream.shutdown(Shutdown::Read);
        }
    }

    /// Ends the input of a connection that has left HTTP.
    fn close_if_upgraded(&self) {
        // ORDERING: SeqCst, after the store of `closing`; pairs with the store in
        // `Session::upgrade`.
        if self.state.load(Ordering::SeqCst) == UPGRADED {
            let _ = self.line.stream.shutdown(Shutdown::Read);
        }
    }

    /// Closes both directions, whatever the connection's state.
    pub(crate) fn abort(&self) {
        let _ = self.line.stream.shutdown(Shutdown::Both);
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
        RuntimeHandle::try_current().is_some()
            && self.fiber.get().is_some_and(|fiber| fiber.id() == sinew::current().id())
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

/// The exclusive right to serve a connection. Dropping it closes the connection.
pub(crate) struct Lease {
    connection: Arc<Connection>,
    transport: Transport,
    /// Declared last, to be dropped last: the server gets room for another connection after this
    /// one has released its descriptor.
    _permit: OwnedPermits,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let connection = &*self.connection;
        connection.shared.leave(connection.number);
        // A body or an upgraded stream that another fiber keeps must see the end. The descriptor is
        // closed when that fiber drops it.
        if self.transport.is_shared() {
            let _ = connection.line.stream.shutdown(Shutdown::Both);
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
    // Older kernels refuse this, and report only larger steps.
    let _ = have_progress_reported(&stream);
    stream.set_write_timeout(Some(shared.limits.write_timeout))?;
    let origin = Origin { peer, local: stream.local_addr()?, is_secure: shared.is_secure() };
    let line = Arc::new(Line::new(stream));
    let transport = shared.transport(line.clone())?;
    let connection = Arc::new(Connection {
        line,
        shared: shared.clone(),
        idle_since: AtomicU64::new(0),
        state: AtomicU8::new(IDLE),
        counts: Counts::default(),
        may_skip_line: AtomicBool::new(false),
        origin,
        fiber: OnceLock::new(),
        number,
    });
    shared.enter(connection.clone());
    let lease = Lease { connection: connection.clone(), transport, _permit: permit };
    if !connection.rest() {
        return Ok(());
    }
    let mut builder = FiberBuilder::new().name(format!("http {} <- {peer}", shared.local));
    if let Some(size) = shared.stack_size {
        builder = builder.stack_size(size);
    }
    let source = Within::new(lease, |lease| lease.transport.stream());
    // If the fiber cannot be made, the call drops `source` and the lease in it, which closes the
    // connection.
    let served = builder
        .spawn_for_each_arrival(source, |source| serve(source.whole()))
        .inspect_err(|error| shared.tell(&Problem::Accept(error)));
    if let Ok(served) = served {
        connection.fiber.get_or_init(|| served.fiber());
    }
    Ok(())
}

/// Serves the requests that have come. Then either the fiber rests until the next request, or the
/// connection is closed.
fn serve(lease: &Lease) -> ControlFlow<()> {
    let connection = &*lease.connection;
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
