//! Servers that speak TLS.

use crate::client::Client;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sinew_http::{Limits, Request, Response, Server, ServerHandle, Tls};
use sinew_testkit::watch;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

mod client;

const LONG: Duration = Duration::from_secs(20);

struct Certificate {
    certificate: String,
    key: String,
}

fn certificate() -> Certificate {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    Certificate { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
}

fn serve(
    certificate: &Certificate,
    settings: impl FnOnce(Server) -> Server,
    handler: impl sinew_http::Handler,
) -> ServerHandle {
    let tls = Tls::from_pem(&certificate.certificate, &certificate.key).unwrap();
    settings(Server::bind("127.0.0.1:0").tls(tls)).start(handler).unwrap()
}

/// The configuration of a client that trusts the certificate.
fn trusting(certificate: &Certificate, protocols: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let der = CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap();
    roots.add(der).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

type Encrypted = StreamOwned<ClientConnection, TcpStream>;

fn connect(server: &ServerHandle, config: &Arc<ClientConfig>) -> Encrypted {
    let stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(config.clone(), name).unwrap(), stream)
}

fn echo(mut request: Request) -> std::io::Result<Response> {
    Ok(Response::new(request.body().read_all()?))
}

#[test]
fn requests_and_responses_of_all_sizes_pass() {
    let _watch = watch::a_minute();
    let certificate = certificate();
    let config = trusting(&certificate, &["http/1.1"]);
    for deferred in [true, false] {
        let server = serve(
            &certificate,
            |server| server.kept_stacks(if deferred { 0 } else { usize::MAX }),
            echo,
        );
        let mut client = Client::wrapping(connect(&server, &config));
        for len in [0, 1, 100, 4_096, 16_384, 16_385, 100_000, 3_000_000] {
            let body: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            assert!(client.post("/", &body).body == body, "{len}");
        }
        drop(client);
        server.shutdown(LONG).unwrap();
    }
}

/// Several requests in one record, and one request in several.
#[test]
fn records_and_requests_need_not_agree() {
    let _watch = watch::a_minute();
    let certificate = certificate();
    let config = trusting(&certificate, &[]);
    let server = serve(&certificate, |server| server, |request: Request| request.path().to_owned());
    let mut client = Client::wrapping(connect(&server, &config));
    let requests: String =
        (0..100).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(requests.as_bytes());
    for n in 0..100 {
        assert_eq!(client.answer("GET").body, format!("/{n}").as_bytes());
    }
    for piece in b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n".chunks(7) {
        client.send(piece);
    }
    assert_eq!(client.answer("GET").body, b"/slow");
    server.shutdown(LONG).unwrap();
}

/// The session has room for little more than one record of the largest size.
#[test]
fn records_of_the_largest_size_may_be_followed_by_small_ones() {
    let _watch = watch::a_minute();
    let certificate = certificate();
    let config = trusting(&certificate, &[]);
    let server = serve(&certificate, |server| server, echo);
    for large in [16_384, 16_000, 12_000] {
        let mut stream = connect(&server, &config);
        stream
            .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            .unwrap();
        for number in 0..20 {
            // Each write is a record of its own.
            stream.write_all(format!("{large:x}\r\n").as_bytes()).unwrap();
            stream.flush().unwrap();
            stream.write_all(&vec![b'a' + number; large]).unwrap();
            stream.flush().unwrap();
            stream.write_all(b"\r\n").unwrap();
            stream.flush().unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
        let answer = Client::wrapping(stream).answer("POST");
        assert_eq!((answer.status, answer.body.len()), (200, 20 * large));
    }
    server.shutdown(LONG).unwrap();
}

/// The bytes of an incomplete record do not count as received.
#[test]
fn a_client_that_sends_a_record_slowly_gets_408() {
    let _watch = watch::a_minute();
    let certificate = certificate();
    let config = trusting(&certificate, &[]);
    let limits = Limits::default().head_timeout(Duration::from_millis(300));
    let server = serve(&certificate, |server| server.limits(limits), echo);
    let mut stream = connect(&server, &config);
    stream.write_all(b"G").unwrap();
    stream.flush().unwrap();
    let mut raw = stream.sock.try_clone().unwrap();
    let trickle = thread::spawn(move || {
        let header = [0x17, 3, 3, 0x40, 0];
        for byte in header.into_iter().chain(std::iter::repeat(0)) {
            if raw.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(Client::wrapping(stream).answer("GET").status, 408);
    trickle.join().unwrap();
    server.shutdown(LONG).unwrap();
}

/// A part of a record gives the server nothing to read, and does not keep the connection open.
#[test]
fn a_partial_record_is_not_waited_for() {
    let _watch = watch::a_minute();
    let certificate = certificate();
    let config = trusting(&certificate, &[]);
    let limits = Limits::default().idle_timeout(Duration::from_millis(300));
    // A body that the handler does not read, and requests that are answered.
    let body = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";
    let request = |len: usize| {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        format!("{head}{}\r\n\r\n", "x".repeat(len - head.len() - 4)).into_bytes()
    };
    let requests = [request(8_000), request(8_384)].concat();
    for (first, kept) in [(&body[..], usize::MAX), (&requests, 0), (&requests, usize::MAX)] {
        let server = serve(
            &certificate,
            |server| server.limits(limits).kept_stacks(kept),
            |_: Request| "answered",
        );
        let mut stream = connect(&server, &config);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut client = Client::wrapping(stream);
        assert_eq!(client.answer("GET").body, b"answered");
        let mut stream = client.into_inner();
        // One record of the largest size, and a part of the next one. The server reads five pieces
        // of 4096 bytes; its session takes only a part of the last piece.
        let mut plain = first.to_vec();
        plain.resize(2 * 16_384, b'x');
        let mut records = Vec::new();
        for record in plain.chunks(16_384) {
            stream.conn.writer().write_all(record).unwrap();
            stream.conn.write_tls(&mut records).unwrap();
        }
        stream.sock.write_all(&records[..5 * 4096]).unwrap();
        let start = Instant::now();
        let _ = stream.read_to_end(&mut Vec::new());
        assert!(start.elapsed() < LONG / 2, "the server has not closed the connection");
        sinew::wait_until(|| server.connections() == 0);
        server.shutdown(LONG).unwrap();
    }
}

/// No record can follow a partial one.
#[test]
fn a_record_that_a_deadline_cuts_off_is_the_last() {
    let _watch = watch::a_minute();
    let certificate = certificate();
    let config = trusting(&certificate, &[]);
    let over = Arc::new(sinew::sync::Event::new());
    let told = over.clone();
    let server = serve(
        &certificate,
        |server| server,
        move |_: Request| {
            let told = told.clone();
            Response::stream(move |body| {
                let all = vec![b'x'; 64 << 20];
                assert!(
                    sinew::timeout(Duration::from_millis(50), || body.write_all(&all)).is_err()
                );
                told.set();
                Ok(())
            })
        },
    );
    let mut stream = connect(&server, &config);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    stream.flush().unwrap();
    over.wait();
    let start = Instant::now();
    let mut all = Vec::new();
    let error = stream.read_to_end(&mut all).unwrap_err();
    assert_ne!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    assert!(start.elapsed() < LONG / 2, "the server has not closed the connection");
    assert!(!all.ends_with(b"0\r\n\r\n"));
    server.shutdown(LONG).unwrap();
}

#[test]
fn the_protocol_is_negotiated() {
    let _watch = watch::a_minute();
    let certificate = certificate();
    let server = serve(
        &certificate,
        |server| server,
        |request: Request| {
            if request.is_secure() { "secure" } else { "not" }
        },
    );
    let mut stream = connect(&server, &trusting(&certificate, &["h2", "http/1.1"]));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    // This succeeds only if the server has announced the end.
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("secure"), "{answer}");
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    // A client that offers only unknown protocols gets an error.
    let mut stream = connect(&server, &trusting(&certificate, &["h2"]));
    assert!(stream.write_all(b"PRI * HTTP/2.0\r\n\r\n").and_then(|()| stream.flush()).is_err());
    server.shutdown(LONG).unwrap();
}

#[test]
fn a_client_without_a_handshake_is_not_waited_for() {
    let _watch = watch::a_minute();
    let certificate = certificate();
    let limits = Limits::default().head_timeout(Duration::from_millis(200));
    let server = serve(&certificate, |server| server.limits(limits), echo);
    // One client says nothing, one begins a record, one speaks plain HTTP.
    for bytes in [&b""[..], b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.local_addr()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() <= 7, "an alert at most: {answer:?}");
    }
    assert!(server.connections() <= 1);
    server.shutdown(LONG).unwrap();
}

/// No request has come yet.
#[test]
fn a_shutdown_does_not_wait_for_handshakes() {
    let _watch = watch::a_minute();
    let certificate = certificate();
    for round in 0..10 {
        let server = serve(&certificate, |server| server, echo);
        let clients: Vec<TcpStream> = (0..8)
            .map(|_| {
                let mut stream = TcpStream::connect(server.local_addr()).unwrap();
                stream.write_all(b"\x16").unwrap();
                stream
            })
            .collect();
        sinew::wait_until(|| server.connections() == clients.len());
        assert_eq!(server.shutdown(Duration::from_secs(2)), Ok(()), "round {round}");
    }
}

/// Without `close_notify`, a client has to take the end for an attack.
#[test]
fn idle_connections_that_are_closed_are_told_so() {
    let _watch = watch::a_minute();
    let certificate = certificate();
    let config = trusting(&certificate, &[]);
    for (kept_stacks, shuts_down) in
        [(0, true), (usize::MAX, true), (0, false), (usize::MAX, false)]
    {
        let timeout = if shuts_down { LONG } else { Duration::from_millis(100) };
        let limits = Limits::default().idle_timeout(timeout);
        let server =
            serve(&certificate, |server| server.limits(limits).kept_stacks(kept_stacks), echo);
        let mut stream = connect(&server, &config);
        stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"hi") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        if shuts_down {
            server.shutdown(LONG).unwrap();
        }
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "{kept_stacks} {shuts_down}");
        server.shutdown(LONG).unwrap();
    }
}

#[test]
fn invalid_certificates_are_refused() {
    let one = certificate();
    let other = certificate();
    let error =
        |certificate: &str, key: &str| Tls::from_pem(certificate, key).unwrap_err().to_string();
    assert!(error("", &one.key).contains("has no certificate"));
    assert!(error(&one.certificate, "").contains("has no private key"));
    assert!(error(&one.certificate, &other.key).contains("cannot be used"));
    let missing = Tls::from_pem_files("no/such.pem", "no/such.key").unwrap_err();
    assert!(missing.to_string().starts_with("no/such.pem: "), "{missing}");
    assert!(Tls::self_signed(["localhost", "127.0.0.1"]).is_ok());
    let error = Tls::self_signed(["häuschen"]).unwrap_err();
    assert!(error.to_string().contains("häuschen"), "{error}");
}

/// A fiber that wants to run every millisecond is hardly late while a thousand clients shake hands.
#[test]
fn a_thousand_handshakes_stall_no_other_fiber() {
    const CLIENTS: usize = 1_000;
    let _watch = watch::a_minute();
    let certificate = certificate();
    let config = trusting(&certificate, &[]);
    let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
    let server = serve(&certificate, |server| server.runtime(runtime.handle()), echo);
    let mut clients: Vec<Encrypted> = (0..CLIENTS).map(|_| connect(&server, &config)).collect();
    sinew::wait_until(|| server.connections() == CLIENTS);
    // All clients say hello before any is answered: the only carrier is kept busy.
    let (let_go, kept) = std::sync::mpsc::channel::<()>();
    let keeper = runtime.spawn(move || kept.recv());
    for client in &mut clients {
        client.conn.write_tls(&mut client.sock).unwrap();
    }
    let worst = Arc::new(AtomicU64::new(0));
    let heart = {
        let worst = worst.clone();
        runtime.spawn(move || {
            loop {
                let start = Instant::now();
                sinew::sleep(Duration::from_millis(1));
                let late = start.elapsed().saturating_sub(Duration::from_millis(1));
                worst.fetch_max(late.as_micros() as u64, Ordering::SeqCst);
            }
        })
    };
    let start = Instant::now();
    let_go.send(()).unwrap();
    keeper.join().unwrap().unwrap();
    let rest = clients.split_off(CLIENTS / 2);
    let finish = |clients: Vec<Encrypted>| {
        for client in clients {
            assert_eq!(Client::wrapping(client).post("/", b"x").body, b"x");
        }
    };
    let other = thread::spawn(move || finish(rest));
    finish(clients);
    other.join().unwrap();
    let took = start.elapsed();
    heart.fiber().cancel();
    let worst = Duration::from_micros(worst.load(Ordering::SeqCst));
    println!("{CLIENTS} handshakes took {took:?}; a fiber was late by {worst:?} at most");
    // If the fiber had to wait for all handshakes that compute, it would be late by some tenths of
    // the whole.
    assert!(worst < took / 4 + Duration::from_millis(20), "late by {worst:?} of {took:?}");
    server.shutdown(LONG).unwrap();
}
