//! A server that records the requests which reach its handler.

use crate::client::Client;
use sinew_http::http::{Method, StatusCode};
use sinew_http::{IntoResponse, Limits, Request, Response, Server, ServerHandle};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server, and the requests that reached its handler.
pub(crate) struct Site {
    server: ServerHandle,
    calls: Arc<Calls>,
}

/// Method and target of the requests of each client.
type Calls = Mutex<HashMap<SocketAddr, Vec<String>>>;

impl Site {
    /// Starts a site with the handler [`echo`].
    pub(crate) fn echoing(limits: Limits, deferred: bool) -> Site {
        Site::start(limits, deferred, echo)
    }

    /// Starts a site with another handler.
    pub(crate) fn start<R: IntoResponse>(
        limits: Limits,
        deferred: bool,
        handler: impl Fn(Request) -> R + Send + Sync + 'static,
    ) -> Site {
        let calls = Arc::new(Calls::default());
        let record = calls.clone();
        let handler = move |request: Request| {
            let call = format!("{} {}", request.method(), request.uri());
            record.lock().unwrap().entry(request.peer_addr()).or_default().push(call);
            handler(request)
        };
        let server = Server::bind("127.0.0.1:0")
            .carriers(1)
            .kept_stacks(if deferred { 0 } else { usize::MAX })
            .limits(limits);
        Site { server: server.start(handler).unwrap(), calls }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.server.local_addr())
    }

    pub(crate) fn server(&self) -> &ServerHandle {
        &self.server
    }

    /// The requests of a client that reached the handler. Call it after the client's last request.
    pub(crate) fn calls_of(&self, client: SocketAddr) -> Vec<String> {
        self.calls.lock().unwrap().remove(&client).unwrap_or_default()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.shutdown(Duration::from_millis(100));
    }
}

/// Runs a test against servers of both kinds, at the same time: in one, waiting connections give up
/// their stacks; in the other, they keep them.
pub(crate) fn on_both<R: IntoResponse>(
    limits: Limits,
    handler: impl Fn(Request) -> R + Send + Sync + Copy + 'static,
    test: impl Fn(&Site) + Sync,
) {
    let _watch = sinew_testkit::watch::a_minute();
    std::thread::scope(|scope| {
        for deferred in [true, false] {
            let test = &test;
            scope.spawn(move || test(&Site::start(limits, deferred, handler)));
        }
    });
}

/// Answers with the received request: `GET /path?query [body]`, and the values of fields named `x`.
///
/// A path that begins with `/unread` leaves the body unread. A path that begins with `/last` ends
/// the connection.
pub(crate) fn echo(mut request: Request) -> io::Result<Response> {
    if request.method() == Method::CONNECT {
        return Ok(StatusCode::METHOD_NOT_ALLOWED.into_response());
    }
    let mut text = format!("{} {}", request.method(), request.path());
    if let Some(query) = request.query() {
        text += &format!("?{query}");
    }
    if request.path().starts_with("/unread") {
        return Ok(Response::text(text));
    }
    let body = request.body().read_all()?;
    text += &format!(" [{}]", String::from_utf8_lossy(&body));
    for value in request.headers().get_all("x") {
        text += &format!(" x={}", value.as_bytes().escape_ascii());
    }
    let response = Response::text(text);
    let is_last = request.path().starts_with("/last");
    Ok(if is_last { response.with_header("connection", "close") } else { response })
}
