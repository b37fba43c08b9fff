//! A server that tells what its handler was asked for.

use crate::client::Client;
use sinew_http::http::{Method, StatusCode};
use sinew_http::{IntoResponse, Limits, Request, Response, Server, ServerHandle};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server, and the requests that its handler got.
pub(crate) struct Site {
    server: ServerHandle,
    calls: Arc<Calls>,
}

/// Method and target of the requests of each client.
type Calls = Mutex<HashMap<SocketAddr, Vec<String>>>;

impl Site {
    /// One with the handler [`echo`].
    pub(crate) fn echoing(limits: Limits, deferred: bool) -> Site {
        Site::start(limits, deferred, echo)
    }

    /// One with another handler.
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

    /// What the handler was asked for by a client, which does not ask for anything more.
    pub(crate) fn calls_of(&self, client: SocketAddr) -> Vec<String> {
        self.calls.lock().unwrap().remove(&client).unwrap_or_default()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.shutdown(Duration::from_millis(100));
    }
}

/// Runs a test against a server of each kind, at the same time: one that has fibers for requests only, and
/// one that has them for connections.
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

/// Tells what was received: `GET /path?query [body]`, and the values of fields that are called `x`.
///
/// A path that begins with `/unread` leaves the body alone, and one with `/last` ends the connection.
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
