//! The trait that every handler implements.

use crate::message::request::Request;
use crate::message::response::{IntoResponse, Response};

/// Answers requests: a function, or a [`Router`](crate::Router).
///
/// A handler runs on the fiber of the connection. It may wait in any way that fibers can: sleep,
/// lock, read files, ask other servers.
///
/// # Examples
/// ```
/// use sinew_http::{Handler, Request, Response};
///
/// struct Counter(std::sync::atomic::AtomicU64);
///
/// impl Handler for Counter {
///     fn handle(&self, _request: Request) -> Response {
///         let count = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         Response::text(format!("{count}\n"))
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. If the handler panics, the client gets 500, and the server closes the
    /// connection.
    ///
    /// # Examples
    /// A handler around another one:
    /// ```
    /// use sinew_http::{Handler, Request, Response, Server};
    ///
    /// struct Signed<H>(H);
    ///
    /// impl<H: Handler> Handler for Signed<H> {
    ///     fn handle(&self, request: Request) -> Response {
    ///         self.0.handle(request).with_header("server", "sinew")
    ///     }
    /// }
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
    /// let server = Server::bind("127.0.0.1:0").start(Signed(|_: Request| "hello"))?;
    /// assert!(get(server.local_addr(), "/")?.contains("\r\nserver: sinew\r\n"));
    /// # let _ = server.shutdown(std::time::Duration::ZERO);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn handle(&self, request: Request) -> Response;
}

impl<F, R> Handler for F
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn handle(&self, request: Request) -> Response {
        self(request).into_response()
    }
}
