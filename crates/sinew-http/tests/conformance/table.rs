//! Tables of requests and expected answers.
//!
//! In the bytes of a row, `|` stands for CR and LF. After each row, the client sends a request for
//! `/probe` that asks to close the connection. The server answers it if and only if the connection
//! was to stay open. So a server that takes too many or too few bytes for a request is found out.
//!
//! Each row is sent at once, byte by byte, and cut at random places, to servers of both kinds.

use crate::client::{Answer, Client, Complaint, Text};
use crate::site::Site;
use sinew_http::Limits;
use sinew_testkit::Seed;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A claim about the behaviour of a server.
pub(crate) struct Case {
    claim: String,
    sent: Vec<u8>,
    expected: Vec<Expected>,
    /// How many requests reach the handler.
    calls: usize,
    /// Whether another request is served afterwards.
    stays_open: bool,
}

struct Expected {
    status: u16,
    /// `None` matches any body.
    body: Option<String>,
    /// Whether it answers a `HEAD`.
    bare: bool,
}

/// The request that is sent after each case.
const PROBE: &[u8] = b"GET /probe HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// No request for a target that begins like this may reach a handler.
const NEVER: &str = "/smuggled";

/// Requests that are served with these bodies. The connection stays open.
pub(crate) fn served(claim: &str, sent: impl Wire, bodies: &[&str]) -> Case {
    let expected = bodies.iter().map(|body| Expected {
        status: 200,
        body: Some((*body).to_owned()),
        bare: false,
    });
    Case {
        claim: claim.to_owned(),
        sent: sent.wire(),
        expected: expected.collect(),
        calls: bodies.len(),
        stays_open: true,
    }
}

/// Requests that are served with these bodies, after which the connection is closed.
pub(crate) fn last(claim: &str, sent: impl Wire, bodies: &[&str]) -> Case {
    Case { stays_open: false, ..served(claim, sent, bodies) }
}

/// A request that is answered with this status before it reaches the handler. Then the connection
/// is closed.
pub(crate) fn refused(claim: &str, status: u16, sent: impl Wire) -> Case {
    let expected = vec![Expected { status, body: None, bare: false }];
    Case { claim: claim.to_owned(), sent: sent.wire(), expected, calls: 0, stays_open: false }
}

/// A request that is answered with this status because the handler fails to read its body. Then the
/// connection is closed.
pub(crate) fn refused_within(claim: &str, status: u16, sent: impl Wire) -> Case {
    Case { calls: 1, ..refused(claim, status, sent) }
}

impl Case {
    /// Adds answers before the listed ones.
    pub(crate) fn after(mut self, bodies: &[&str]) -> Case {
        let before = served("", "", bodies);
        self.calls += before.calls;
        self.expected.splice(0..0, before.expected);
        self
    }

    /// Marks the first request as a `HEAD`.
    pub(crate) fn bare(mut self) -> Case {
        self.expected[0].bare = true;
        self.expected[0].body = Some(String::new());
        self
    }
}

/// The bytes of a row.
pub(crate) trait Wire {
    fn wire(self) -> Vec<u8>;
}

impl Wire for &str {
    fn wire(self) -> Vec<u8> {
        self.replace('|', "\r\n").into_bytes()
    }
}

impl Wire for String {
    fn wire(self) -> Vec<u8> {
        self.as_str().wire()
    }
}

/// Bytes are sent as they are.
impl<const N: usize> Wire for &[u8; N] {
    fn wire(self) -> Vec<u8> {
        self.to_vec()
    }
}

/// How the bytes are cut.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    Nowhere,
    /// After each byte, or into 512 pieces if there are many bytes.
    Everywhere,
    /// In random places, chosen by this seed.
    Somewhere(u64),
}

/// Sends each row in each way. Panics with all claims that are not true, each once.
pub(crate) fn check(limits: Limits, cases: &[Case]) {
    let _watch = sinew_testkit::watch::a_minute();
    let mut seed = Seed::from_env();
    let mut runs = Vec::new();
    for case in cases {
        let somewhere = [(); 4].map(|()| Cut::Somewhere(seed.number()));
        let cuts = [Cut::Nowhere, Cut::Everywhere].into_iter().chain(somewhere);
        runs.extend(cuts.map(|cut| (case, cut)));
    }
    let mut wrong = Vec::new();
    for deferred in [true, false] {
        let site = Site::echoing(limits, deferred);
        wrong.extend(run_all(&site, &runs));
    }
    wrong.sort_by_key(|(claim, _)| *claim);
    wrong.dedup_by_key(|(claim, _)| *claim);
    let told: String =
        wrong.iter().map(|(claim, complaint)| format!("\n  {claim}: {complaint}")).collect();
    assert!(wrong.is_empty(), "{} of {} are not true:{told}", wrong.len(), cases.len());
}

/// The claims that are not true, with reasons.
fn run_all<'a>(site: &Site, runs: &[(&'a Case, Cut)]) -> Vec<(&'a str, Complaint)> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some((case, cut)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(complaint) = case.run(site, *cut) {
                        let complaint = format!("{complaint} (cut: {cut:?})");
                        wrong.lock().unwrap().push((&*case.claim, complaint));
                    }
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

impl Case {
    fn run(&self, site: &Site, cut: Cut) -> Result<(), Complaint> {
        let mut client = site.connect();
        let address = client.local_addr();
        let sent = [&self.sent[..], PROBE].concat();
        send(&mut client, &sent, cut);
        let answered = self.check_answers(&mut client);
        let calls = site.calls_of(address);
        answered?;
        if let Some(call) = calls.iter().find(|call| call.contains(NEVER)) {
            return Err(format!("the handler got {call}"));
        }
        match self.calls + usize::from(self.stays_open) {
            expected if expected == calls.len() => Ok(()),
            expected => Err(format!("the handler got {calls:?} instead of {expected}")),
        }
    }

    fn check_answers(&self, client: &mut Client) -> Result<(), Complaint> {
        let mut closes = false;
        for expected in &self.expected {
            let answer = client.try_answer(expected.bare)?;
            expected.check(&answer)?;
            closes = answer.says_close();
        }
        if self.stays_open {
            let answer = client.try_answer(false)?;
            if answer.text() != "GET /probe []" {
                return Err(format!("the next request was answered with {answer:?}"));
            }
        } else if !closes {
            return Err("the last answer does not say that it is the last".into());
        }
        client.try_end()
    }
}

impl Expected {
    fn check(&self, answer: &Answer) -> Result<(), Complaint> {
        let is_body = self.body.as_ref().is_none_or(|body| *body == answer.text());
        if answer.status == self.status && is_body {
            return Ok(());
        }
        let (status, body) = (answer.status, Text(&answer.body));
        Err(format!("{status} {body:?} came instead of {} {:?}", self.status, self.body))
    }
}

/// Sends bytes in pieces.
pub(crate) fn send(client: &mut Client, bytes: &[u8], cut: Cut) {
    let mut left = bytes;
    let mut seed = match cut {
        Cut::Nowhere => return client.send(bytes),
        Cut::Everywhere => None,
        Cut::Somewhere(seed) => Some(Seed::new(seed)),
    };
    // Long messages are not sent byte by byte, which would take time and show nothing new.
    let least = 1 + bytes.len() / 512;
    while !left.is_empty() {
        let count = match &mut seed {
            None => least,
            Some(seed) => 1 + seed.below(bytes.len()),
        };
        let (piece, rest) = left.split_at(count.min(left.len()));
        client.send(piece);
        // After this pause, the server most likely sees the piece alone. No harm is done if it does
        // not.
        std::thread::sleep(Duration::from_micros(50));
        left = rest;
    }
}
