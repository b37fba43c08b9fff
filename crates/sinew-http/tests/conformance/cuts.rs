//! Requests with random faults: their outcome does not depend on how the bytes are cut.

use crate::site::Site;
use crate::table::{Cut, send};
use sinew_http::Limits;
use sinew_testkit::Seed;

/// The requests before the faults.
const WHOLE: [&str; 6] = [
    "GET /a?b HTTP/1.1\r\nHost: a\r\nx: y\r\n\r\n",
    "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world",
    "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nC: d\r\n\r\n",
    "POST /unread HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "HEAD /d HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "OPTIONS http://a:80/e HTTP/1.1\r\nHost: a:80\r\nConnection: x, y\r\n\r\n",
];

/// The pieces that faults insert.
const PIECES: [&str; 26] = [
    "\r\n",
    "\r",
    "\n",
    "\r\n\r\n",
    " ",
    "\t",
    "\0",
    ":",
    ",",
    ";",
    "/",
    "0",
    "5",
    "f",
    "-",
    "=",
    "\"",
    "\u{e4}",
    "HTTP/1.1",
    "HTTP/2.0",
    "Content-Length: 3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: close\r\n",
    "Host: b\r\n",
    "0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// Two requests with up to three faults.
fn spoiled(seed: &mut Seed) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..2 {
        bytes.extend_from_slice(WHOLE[seed.below(WHOLE.len())].as_bytes());
    }
    for _ in 0..=seed.below(3) {
        let at = seed.below(bytes.len());
        let end = bytes.len().min(at + [0, 0, 1, 2, 9][seed.below(5)]);
        let piece = if seed.below(4) == 0 { "" } else { PIECES[seed.below(PIECES.len())] };
        bytes.splice(at..end, piece.bytes());
    }
    // A partial head is judged when a line of it is complete, so one more request follows.
    bytes.extend_from_slice(b"GET /end HTTP/1.1\r\nHost: a\r\n\r\n");
    bytes
}

/// The statuses that came back, and the requests that reached the handler.
fn outcome(site: &Site, bytes: &[u8], cut: Cut) -> (Vec<String>, Vec<String>) {
    let mut client = site.connect();
    send(&mut client, bytes, cut);
    client.finish();
    let received = String::from_utf8_lossy(&client.rest()).into_owned();
    let statuses = received.split("HTTP/1.1 ").skip(1).map(|text| text.chars().take(3).collect());
    (statuses.collect(), site.calls_of(client.local_addr()))
}

#[test]
fn the_outcome_of_a_request_does_not_depend_on_how_it_is_cut() {
    let _watch = sinew_testkit::watch::a_minute();
    let mut seed = Seed::from_env();
    for deferred in [true, false] {
        let site = Site::echoing(Limits::default(), deferred);
        std::thread::scope(|scope| {
            for _ in 0..10 {
                let mut seed = seed.fork();
                let site = &site;
                scope.spawn(move || (0..20).for_each(|_| compare(site, &mut seed)));
            }
        });
    }
}

fn compare(site: &Site, seed: &mut Seed) {
    let bytes = spoiled(seed);
    let whole = outcome(site, &bytes, Cut::Nowhere);
    for cut in [Cut::Everywhere, Cut::Somewhere(seed.number())] {
        let found = outcome(site, &bytes, cut);
        assert_eq!(whole, found, "\"{}\" ({cut:?})", bytes.escape_ascii());
    }
}
