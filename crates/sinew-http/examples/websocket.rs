//! WebSockets by `tungstenite`, on fibers: `cargo run --release -p sinew-http --example websocket`,
//! then open the page that it prints, or use any WebSocket client at `/echo`.

use sinew_http::http::StatusCode;
use sinew_http::{Request, Response, Router, Server, Upgraded};
use std::io::Write;
use tungstenite::WebSocket;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::Role;

const PAGE: &str = r#"<!doctype html><title>echo</title>
<input id="text" autofocus placeholder="say something"><pre id="log"></pre>
<script>
const socket = new WebSocket(`ws://${location.host}/echo`);
socket.onmessage = event => log.textContent += event.data + "\n";
text.onchange = () => { socket.send(text.value); text.value = ""; };
</script>
"#;

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let router = Router::new().get("/", |_: Request| Response::html(PAGE)).get("/echo", echo);
    let server = Server::bind(&*address).start(router)?;
    writeln!(std::io::stdout(), "http://{}/", server.local_addr())?;
    server.wait();
    Ok(())
}

/// Agrees to speak WebSocket. [`converse`] then sends every message back.
fn echo(request: Request) -> Response {
    let is_websocket =
        request.header("upgrade").is_some_and(|to| to.eq_ignore_ascii_case("websocket"));
    let Some(key) = request.header("sec-websocket-key").filter(|_| is_websocket) else {
        return Response::text("this is for WebSockets\n")
            .with_status(StatusCode::UPGRADE_REQUIRED);
    };
    let accept = derive_accept_key(key.as_bytes());
    Response::upgrade(converse)
        .with_header("upgrade", "websocket")
        .with_header("sec-websocket-accept", accept)
}

/// Converses on the fiber that answered the request. Each read suspends that fiber.
fn converse(stream: Upgraded) {
    let mut socket = WebSocket::from_raw_socket(stream, Role::Server, None);
    while let Ok(message) = socket.read() {
        let is_data = message.is_text() || message.is_binary();
        if is_data && socket.send(message).is_err() {
            return;
        }
    }
}
