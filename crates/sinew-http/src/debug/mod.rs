//! A look into the program that serves: its fibers, where they are, and what it counts.
//!
//! [`Server::admin`](crate::Server::admin) serves these routes at an address of their own. [`Router::debug`]
//! adds them to a router, for programs that serve them elsewhere. Without either there are none.
//!
//! | path | answer |
//! | --- | --- |
//! | `/debug/fibers` | a page that shows all fibers and carriers, and goes on doing so |
//! | `/debug/fibers.json` | the same for programs |
//! | `/debug/fibers/{id}/backtrace` | where one fiber is, as text; with `?full=1`, in the functions of sinew as well |
//! | `/debug/dump` | where all fibers are, as text: [`sinew::dump`] |
//! | `/metrics` | what is counted, in the text format of Prometheus |
//!
//! `/debug/fibers.json` sends 500 fibers unless its query says otherwise, and the totals of all:
//!
//! | parameter | meaning |
//! | --- | --- |
//! | `limit` | how many fibers to send, 10,000 at most |
//! | `offset` | how many of them to leave out at the beginning |
//! | `filter` | words, all of which must be in the name, the id, the state, the runtime or the kind of the wait; `wait:lock` is a kind of wait and nothing else |
//! | `state` | `created`, `runnable`, `running` or `suspended` |
//! | `sort` | `id`, `name`, `state`, `wait`, `since`, `carrier`, `age`, `waits` or `stack`; `-age` is the reverse |
//!
//! It is an object with `time_ms`, `process`, `totals` (fibers by state and by what they wait for), `runtimes`
//! (each with the counts of its `carriers`), `deadlocks` (each a list of who waits for the next), the fiber that it
//! was `answered_by`, how many `matched`, and `fibers`: of each its `id`, `name`, `state`, `runtime`, `carrier`, `age_ms`,
//! number of `waits`, `stack` and `wait`, which has a `kind`, an `address`, `since_us`, and who is meant by `owner` or
//! `joins`. What is not known is null.
//!
//! Nobody has to wait for it: the fibers go on while they are looked at, and the work is done on a thread
//! outside of the runtime. A fiber that runs is stopped for some microseconds if its backtrace is asked for.

mod access;
mod admin;
mod backtrace;
mod exposition;
mod fibers;
mod metrics;
mod process;
mod query;
mod runtimes;
mod words;

pub use access::Access;

use crate::handler::Handler;
use crate::message::request::Request;
use crate::message::response::Response;
use crate::router::Router;
use http::StatusCode;
use query::Query;

/// What the page may do: run what it contains, and ask the server that it is from.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

impl Router {
    /// Adds routes that show what the program does: see [`debug`](crate::debug) for which.
    ///
    /// They tell names, addresses and functions of the program, so it has to be said who may see them. A router
    /// that answers strangers, or stands behind a proxy, should not have them:
    /// [`Server::admin`](crate::Server::admin) serves them at an address of their own.
    ///
    /// # Panics
    /// If one of the paths is in use already.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Router, Server, debug::Access};
    ///
    /// let router = Router::new().get("/health", |_: sinew_http::Request| "well\n").debug(Access::Loopback);
    /// let server = Server::bind("127.0.0.1:0").start(router)?;
    /// println!("see http://{}/debug/fibers", server.local_addr());
    /// # server.shutdown(std::time::Duration::ZERO);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn debug(self, access: Access) -> Router {
        self.get("/debug/fibers", guarded(access, page))
            .get("/debug/fibers.json", guarded(access, fibers_as_json))
            .get("/debug/fibers/{id}/backtrace", guarded(access, backtrace::of_request))
            .get("/debug/dump", guarded(access, dump))
            .get("/debug", guarded(access, |_| Response::redirect("/debug/fibers")))
            .get("/debug/", guarded(access, |_| Response::redirect("/debug/fibers")))
            .get("/metrics", guarded(access, metrics_as_text))
    }
}

/// A handler that answers those who have access. What it says is true for a moment only.
fn guarded(access: Access, answer: fn(&Request) -> Response) -> impl Handler {
    move |request: Request| {
        let response = match access.check(&request) {
            Ok(()) => answer(&request),
            Err(reason) => Response::text(format!("{reason}\n")).with_status(StatusCode::FORBIDDEN),
        };
        response
            .with_header("cache-control", "no-store")
            .with_header("x-content-type-options", "nosniff")
    }
}

fn page(_: &Request) -> Response {
    Response::html(include_str!("page.html"))
        .with_header("content-security-policy", POLICY)
        .with_header("referrer-policy", "no-referrer")
}

fn fibers_as_json(request: &Request) -> Response {
    let query = match Query::of(request) {
        Ok(query) => query,
        Err(reason) => {
            return Response::text(format!("{reason}\n")).with_status(StatusCode::BAD_REQUEST);
        }
    };
    let asks = sinew::current().id();
    match sinew::blocking(|| serde_json::to_vec(&fibers::look(&query, asks))) {
        Ok(json) => Response::json(json),
        Err(error) => {
            Response::text(format!("{error}\n")).with_status(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

fn dump(_: &Request) -> Response {
    let mut text = Vec::new();
    match sinew::blocking(|| sinew::dump(&mut text)) {
        Ok(()) => Response::text(text),
        Err(error) => {
            Response::text(format!("{error}\n")).with_status(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

fn metrics_as_text(_: &Request) -> Response {
    Response::text(sinew::blocking(metrics::text))
        .with_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
}
