//! HTTP on may's own server library.

use super::may_io;
use crate::http::{Answer, GREETING, json};
use crate::server::listen;
use may_minihttp::{HttpServer, HttpService, Request, Response};
use std::io;

pub(crate) const SETTINGS: &str = "0.1.11 on may 0.3.51, set_workers(2), set_worker_pin(false), 32 KiB stacks, a coroutine per \
     connection that waits with wait_io, httparse 1.10.1";

pub(crate) fn serve(answer: Answer) -> u16 {
    may_io::configure();
    // The library does not report a port that the kernel chose. So it gets a port that was free a
    // moment ago.
    let (listener, port) = listen();
    drop(listener);
    let server = HttpServer(Service(answer)).start(("127.0.0.1", port));
    drop(server.expect("the port can be listened at"));
    port
}

#[derive(Clone)]
struct Service(Answer);

impl HttpService for Service {
    fn call(&mut self, _: Request<'_, '_, '_>, response: &mut Response<'_>) -> io::Result<()> {
        match self.0 {
            Answer::Hello => response.header("Content-Type: text/plain").body(GREETING),
            Answer::Json => response.header("Content-Type: application/json").body_vec(json()),
        }
        Ok(())
    }
}
