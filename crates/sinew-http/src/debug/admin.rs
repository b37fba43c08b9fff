//! Serves the debug routes at a listener of their own.
//!
//! A reverse proxy on this machine connects from a loopback address, and may name a loopback host.
//! So a request that it forwards looks like the request of a local program. The proxy forwards
//! requests to the port of the server only, so it does not reach routes at another port.

use super::Access;
use crate::handler::Handler;
use crate::router::Router;
use crate::server::{At, Server, Side};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

impl Server {
    /// Serves the [debug routes](crate::debug) at an address of their own, as plain HTTP. The
    /// handler of the server never sees these requests. Port 0 means any free port;
    /// [`ServerHandle::admin_addr`](crate::ServerHandle::admin_addr) returns it.
    ///
    /// At a loopback address, only programs on this machine get answers ([`Access::Loopback`]). At
    /// any other address, every client that can reach it gets answers ([`Access::Anyone`]): the
    /// routes reveal names, addresses and functions of the program.
    ///
    /// If the server cannot listen at the address, [`start`](Server::start) fails and nothing is
    /// served.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0")
    ///     .admin("127.0.0.1:0")
    ///     .start(|_: Request| "hello\n")?;
    /// println!("see http://{}/debug/fibers", server.admin_addr().unwrap());
    /// # server.shutdown(std::time::Duration::ZERO);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn admin(self, address: impl ToSocketAddrs) -> Server {
        self.with_admin(At::addresses(address))
    }

    /// Serves the debug routes at a listening socket, like [`admin`](Server::admin) at an address.
    ///
    /// # Examples
    /// ```
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let server = sinew_http::Server::bind("127.0.0.1:0").admin_listener(listener);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn admin_listener(self, listener: TcpListener) -> Server {
        self.with_admin(At::Listener(listener))
    }

    fn with_admin(mut self, at: At) -> Server {
        self.side = Some(Side { at, handler });
        self
    }
}

/// The debug routes, open to the clients that may reach this address.
fn handler(local: SocketAddr) -> Box<dyn Handler> {
    let access = match local.ip().to_canonical().is_loopback() {
        true => Access::Loopback,
        false => Access::Anyone,
    };
    Box::new(Router::new().debug(access))
}
