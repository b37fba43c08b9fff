//! `ureq` over the sockets of fibers.

use crate::client::{serve, serve_with};
use sinew_http::client::ureq::{Agent, Error};
use sinew_http::client::{agent, agent_with};
use sinew_http::http::StatusCode;
use sinew_http::{Request, Response, Router};
use sinew_testkit::watch;
use std::io::Read;
use std::time::{Duration, Instant};

mod client;

const LONG: Duration = Duration::from_secs(20);

fn echo(mut request: Request) -> std::io::Result<Response> {
    Ok(Response::new(request.body().read_all()?))
}

#[test]
fn bodies_go_there_and_come_back() {
    let _watch = watch::a_minute();
    let server = serve(echo);
    let url = format!("http://{}/", server.local_addr());
    let ask = move || {
        let agent = agent();
        for len in [0, 1, 10_000, 1_000_000] {
            let body = vec![b'x'; len];
            let mut answer = agent.post(&url).send(&body[..]).unwrap();
            assert_eq!(answer.body_mut().read_to_vec().unwrap(), body);
        }
    };
    // On a fiber, and on a thread.
    sinew::run(ask.clone());
    ask();
    server.shutdown(LONG).unwrap();
}

/// A hundred fibers on one carrier wait for answers at the same time.
#[test]
fn a_fiber_that_waits_for_an_answer_does_not_keep_the_carrier() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| {
        sinew::sleep(Duration::from_millis(300));
        "late"
    });
    let url = format!("http://{}/", server.local_addr());
    let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
    let start = Instant::now();
    runtime.run(move || {
        let agent = agent();
        let fibers: Vec<_> = (0..100)
            .map(|_| {
                let (agent, url) = (agent.clone(), url.clone());
                sinew::spawn(move || {
                    agent.get(&url).call().unwrap().body_mut().read_to_string().unwrap()
                })
            })
            .collect();
        for fiber in fibers {
            assert_eq!(fiber.join().unwrap(), "late");
        }
    });
    // One after the other, they would take thirty seconds.
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    server.shutdown(LONG).unwrap();
}

#[test]
fn redirects_are_followed_and_statuses_told() {
    let _watch = watch::a_minute();
    let server = serve(
        Router::new()
            .get("/old", |_: Request| {
                Response::empty(StatusCode::FOUND).with_header("location", "/new")
            })
            .get("/new", |_: Request| "new"),
    );
    let url = format!("http://{}", server.local_addr());
    sinew::run(move || {
        let agent = agent();
        let mut answer = agent.get(format!("{url}/old")).call().unwrap();
        assert_eq!(answer.body_mut().read_to_string().unwrap(), "new");
        let error = agent.get(format!("{url}/none")).call().unwrap_err();
        assert!(matches!(error, Error::StatusCode(404)), "{error}");
    });
    server.shutdown(LONG).unwrap();
}

#[test]
fn connections_are_used_again_unless_they_were_closed() {
    let _watch = watch::a_minute();
    let server = serve_with(|server| server, |request: Request| request.peer_addr().to_string());
    let address = server.local_addr();
    let url = format!("http://{address}/");
    sinew::run(move || {
        let agent = agent();
        let ask = || agent.get(&url).call().unwrap().body_mut().read_to_string().unwrap();
        assert_eq!(ask(), ask());
        // Another server takes the address.
        server.shutdown(LONG).unwrap();
        let server = sinew_http::Server::bind(address).start(|_: Request| "another").unwrap();
        assert_eq!(ask(), "another");
        server.shutdown(LONG).unwrap();
    });
}

#[test]
fn timeouts_and_refusals_are_told() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| {
        sinew::sleep(Duration::from_secs(3600));
        ""
    });
    let url = format!("http://{}/", server.local_addr());
    sinew::run(move || {
        let limit = Some(Duration::from_millis(100));
        let agent = agent_with(Agent::config_builder().timeout_global(limit).build());
        assert!(matches!(agent.get(&url).call().unwrap_err(), Error::Timeout(_)));
        // One host resolves but refuses, the other does not resolve.
        assert!(agent.get("http://localhost:1/").call().is_err());
        assert!(agent.get("http://no-such-host.invalid/").call().is_err());
    });
    let _ = server.shutdown(Duration::ZERO);
}

#[test]
fn a_fiber_that_is_cancelled_stops_asking() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| {
        Response::stream(|body| {
            use std::io::Write;
            body.write_all(b"x")?;
            body.flush()?;
            sinew::park();
            Ok(())
        })
    });
    let url = format!("http://{}/", server.local_addr());
    let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
    let fiber = runtime.spawn(move || {
        let mut answer = agent().get(&url).call().unwrap();
        let mut reader = answer.body_mut().as_reader();
        reader.read_exact(&mut [0]).unwrap();
        reader.read_exact(&mut [0])
    });
    sinew::wait_until(|| fiber.fiber().waits_for() == Some(sinew::WaitKind::Readable));
    fiber.fiber().cancel();
    assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    let _ = server.shutdown(Duration::ZERO);
}
