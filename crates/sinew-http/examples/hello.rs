//! The smallest server: `cargo run --release -p sinew-http --example hello`, then
//! `curl localhost:8080`.
//!
//! With `hello 127.0.0.1:8080 started`, connections keep their stack while they wait for the next
//! request.

use sinew_http::{Request, Response, Server};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:8080".into());
    let deferred = arguments.next().is_none_or(|word| word != "started");
    let server = Server::bind(&*address).kept_stacks(if deferred { 0 } else { usize::MAX });
    server.serve(|_: Request| Response::text("Hello, World!"))
}
