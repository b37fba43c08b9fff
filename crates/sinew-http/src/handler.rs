//! The trait of everything that answers requests.

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
    /// Answers one request. A panic is answered with 500, and closes the connection.
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
