//! A view into the running program: its fibers, their backtraces, and metrics.
//!
//! [`Server::admin`](crate::Server::admin) serves these routes at an address of their own.
//! [`Router::debug`] adds them to a router, for programs that serve them elsewhere. A program that
//! calls neither has no such routes.
//!
//! | path | answer |
//! | --- | --- |
//! | `/debug/fibers` | a page that shows all fibers and carriers, and updates itself |
//! | `/debug/fibers.json` | the data of the page, for programs |
//! | `/debug/fibers/{id}/backtrace` | the backtrace of one fiber, as text; with `?full=1`, it includes the functions of sinew |
//! | `/debug/dump` | the backtraces of all fibers, as text: [`sinew::dump`] |
//! | `/metrics` | the metrics, in the text format of Prometheus |
//!
//! `/debug/fibers.json` sends 500 fibers unless its query says otherwise, and the totals of all
//! fibers:
//!
//! | parameter | meaning |
//! | --- | --- |
//! | `limit` | how many fibers to send, 10,000 at most |
//! | `offset` | how many fibers to skip at the beginning |
//! | `filter` | words, each of which must be the id, or occur in the name, the state, the runtime or the kind of the wait; `wait:lock` matches only the kind of the wait |
//! | `state` | `created`, `runnable`, `running`, `suspended`, `yielded` or `interrupted` |
//! | `sort` | `id`, `name`, `state`, `wait`, `since`, `carrier`, `age`, `waits` or `stack`; `-age` sorts in reverse |
//!
//! The response is an object with these fields. Unknown values are null.
//!
//! - `time_ms`: milliseconds since 1970;
//! - `process`: the process id, and the time and memory that the process has used;
//! - `totals`: fibers by state and by kind of wait;
//! - `runtimes`: for each runtime its counts, and the counts of its `carriers`;
//! - `deadlocks`: lists of fibers in which each fiber waits for the next, and the last for the
//!   first;
//! - `answered_by`: the fiber that answers the request;
//! - `matched`: how many fibers match the query;
//! - `fibers`: for each fiber its `id`, `name`, `state`, `runtime`, `carrier`, `age_ms`, number of
//!   `waits`, `stack` and `wait`. The `wait` has a `kind`, an `address` and `since_us`; its `owner`
//!   or `joins` is the fiber that this one waits for.
//!
//! Inspection stops no fiber: it runs on a thread outside of the runtime, while the fibers keep
//! running. The one exception is the backtrace of a running fiber, which stops that fiber for some
//! microseconds.

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

/// The content security policy: the page may run its own scripts, and send requests to its own
/// server only.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

impl Router {
    /// Adds the routes that show the state of the program; [`debug`](crate::debug) lists them.
    ///
    /// The routes reveal names, addresses and functions of the program, so `access` has to say
    /// which clients may see them. Do not add them to a router that answers strangers, or that
    /// stands behind a proxy: [`Server::admin`](crate::Server::admin) serves them at an address of
    /// their own.
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

/// Makes a handler that answers clients with access, and forbids caching.
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
