//! A connection's life.
//!
//! README.md of this folder has the protocol: who owns what, and who may close.

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

/// What is known of a connection, by who serves it and by others. What each request touches lies together.
#[repr(C)]
pub(crate) struct Connection {
    stream: TcpStream,
    pub(crate) shared: Arc<Shared>,
    /// When it became idle, by the clock of the server.
    idle_since: AtomicU64,
    state: AtomicU8,
    /// Whether something was written in part, so that nothing that comes after it would be understood.
    is_torn: AtomicBool,
    /// Whether an empty line that comes next belongs to what was received before.
    may_skip_line: AtomicBool,
    /// What was done so far. Changed by who serves it.
    pub(crate) counts: Counts,
    /// The one that serves it, as soon as anybody can know.
    fiber: OnceLock<Fiber>,
    pub(crate) origin: Origin,
    /// Tells it from others of its server.
    pub(crate) number: u64,
}

/// Between requests. Whoever changes this may do what it says: serve a request, or close the connection.
const IDLE: u8 = 0;
/// A request is being served.
const BUSY: u8 = 1;
/// It is being closed by somebody who does not serve it.
const CLOSING: u8 = 2;
/// It has left HTTP.
const UPGRADED: u8 = 3;
/// Keys are agreed upon: no request has begun.
#[cfg(feature = "tls")]
const GREETING: u8 = 4;
/// A part of a head has come, and the rest is waited for.
const READING: u8 = 5;

/// How long a server that ends waits for the rest of a head.
pub(crate) const REST_OF_HEAD: Duration = Duration::from_secs(1);

impl Connection {
    /// Begins to serve a request; false if the connection is being closed.
    fn begin(&self) -> bool {
        self.change(IDLE, BUSY)
    }

    /// Waits for the next request from now on; false if it is not to be waited for.
    fn rest(&self) -> bool {
        self.idle_since.store(self.shared.clock.elapsed(), Ordering::Relaxed);
        // ORDERING: SeqCst, as is the look at `closing` after it: who closes all connections sets that
        // first, and looks at this then. One of the two sees the other.
        self.state.store(IDLE, Ordering::SeqCst);
        !self.shared.is_closing()
    }

    /// Waits for the rest of a head from now on; false if the server is closing, so that this is not to take long.
    fn await_rest_of_head(&self) -> bool {
        // ORDERING: SeqCst, as in `rest`: this side changes the state and then looks at `closing`, the side that
        // closes does it the other way round. One of the two sees the other.
        self.change(BUSY, READING);
        !self.shared.is_closing()
    }

    /// Goes on with a head, or what there is of it; false if the rest is not waited for any more.
    fn has_more_of_head(&self) -> bool {
        self.change(READING, BUSY)
    }

    /// Begins to agree upon keys; false if the connection is being closed.
    #[cfg(feature = "tls")]
    fn greet(&self) -> bool {
        self.change(IDLE, GREETING)
    }

    /// May have received a request, together with the last of the greeting; false if the connection is being closed.
    #[cfg(feature = "tls")]
    fn has_greeted(&self) -> bool {
        self.change(GREETING, BUSY)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Has it closed by who serves it, if it is idle: that one finds the end of what comes.
    pub(crate) fn close_if_idle(&self) {
        self.close_if(IDLE);
    }

    /// The same if no request is being served, as far as anybody knows: one that has left HTTP may be idle.
    pub(crate) fn close_unless_busy(&self) {
        self.close_if(IDLE);
        #[cfg(feature = "tls")]
        self.close_if(GREETING);
        self.close_if_upgraded();
    }

    /// Has who serves it give up if it still waits for the rest of a head.
    pub(crate) fn close_if_reading_head(&self) {
        self.close_if(READING);
    }

    fn close_if(&self, state: u8) {
        if self.change(state, CLOSING) {
            // It may have been closed by the other end: then the end is there already.
            let _ = self.stream.shutdown(Shutdown::Read);
        }
    }

    /// Has one that has left HTTP find the end of what comes.
    fn close_if_upgraded(&self) {
        if self.state.load(Ordering::SeqCst) == UPGRADED {
            let _ = self.stream.shutdown(Shutdown::Read);
        }
    }

    /// Closes it, whatever it does.
    pub(crate) fn abort(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Ends what its fiber does.
    pub(crate) fn cancel(&self) {
        if let Some(fiber) = self.fiber.get() {
            fiber.cancel();
        }
    }

    /// Whether the present fiber serves it.
    pub(crate) fn is_served_here(&self) -> bool {
        // A plain thread serves none.
        Handle::try_current().is_some()
            && self.fiber.get().is_some_and(|fiber| fiber.id() == sinew::current().id())
    }

    /// Reads what comes within `limit`; fails with `TimedOut` then.
    fn read_within(&self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        /// Takes the limit back, also if the read is unwound.
        struct Unlimited<'a>(&'a TcpStream);
        impl Drop for Unlimited<'_> {
            fn drop(&mut self) {
                let _ = self.0.set_read_timeout(None);
            }
        }
        // None at all is no timeout.
        self.stream.set_read_timeout(Some(limit.max(Duration::from_micros(1))))?;
        let unlimited = Unlimited(&self.stream);
        let mut stream = unlimited.0;
        stream.read(buffer).map_err(transport::timed_out)
    }

    /// Has `write` write something as a whole. If it fails, or is unwound by a deadline of the handler's, it is the
    /// last that is written.
    fn write_whole(&self, write: impl FnOnce(&TcpStream) -> io::Result<()>) -> io::Result<()> {
        /// Says that not all was written, unless it is forgotten.
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

    /// Whether it has been idle for too long.
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

/// The right to serve a connection, which somebody has as long as it is open.
pub(crate) struct Lease {
    transport: Transport,
    /// The last to go: another one may be accepted when this one has closed its descriptor.
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
        // A body or an upgraded connection that went elsewhere is at its end; the descriptor is closed when
        // that one is dropped.
        if self.transport.is_shared() {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Begins to serve a connection that was just accepted.
pub(crate) fn accepted(
    shared: &Arc<Shared>,
    (stream, peer): (TcpStream, SocketAddr),
    number: u64,
    permit: OwnedPermits,
) -> io::Result<()> {
    // Responses are sent whole: nothing is gained by waiting for more.
    stream.set_nodelay(true)?;
    // A kernel that does not know how reports larger steps.
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
    // If there can be no such fiber, the connection is closed with what did not run.
    let served = builder
        .spawn_whenever_readable(source, |source| serve(source.whole()))
        .inspect_err(|error| shared.tell(&Problem::Accept(error)));
    if let Ok(served) = served {
        connection.fiber.get_or_init(|| served.fiber());
    }
    Ok(())
}

/// Serves what there is. Then the fiber rests until the next request, or the connection is closed.
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
