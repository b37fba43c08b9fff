//! sinew's contenders in the suite `http`.

use crate::http::certificate;
use crate::http::{Answer, GREETING, json};
use crate::server::allow_files;
use sinew_http::{Request, Response, Server, Tls};

pub(crate) const DEFAULT: &str =
    "2 carriers, epoll, up to 256 waiting connections keep their stacks";
pub(crate) const STARTED: &str =
    "2 carriers, epoll, kept_stacks(usize::MAX): all connections keep their stacks";
pub(crate) const DEFERRED: &str = "2 carriers, epoll, kept_stacks(0): no stack while waiting";
pub(crate) const TLS: &str = concat!("2 carriers, epoll, ", certificate::settings!());

/// Serves with the default settings.
pub(crate) fn serve(answer: Answer) -> u16 {
    start(server(), answer)
}

/// Serves with at most `stacks` connections that keep their stacks while they wait for a request.
pub(crate) fn serve_keeping(stacks: usize) -> u16 {
    start(server().kept_stacks(stacks), Answer::Hello)
}

pub(crate) fn serve_tls() -> u16 {
    start(server().tls(Tls::from_config(certificate::config())), Answer::Hello)
}

fn server() -> Server {
    allow_files();
    Server::bind("127.0.0.1:0").carriers(2)
}

fn start(server: Server, answer: Answer) -> u16 {
    let handle = match answer {
        Answer::Hello => server.start(|_: Request| Response::text(GREETING)),
        Answer::Json => server.start(|_: Request| Response::json(json())),
    };
    let handle = handle.expect("the loopback address can be listened at");
    let port = handle.local_addr().port();
    // Keep the server running until the process ends.
    std::mem::forget(handle);
    port
}
