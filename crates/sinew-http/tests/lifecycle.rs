//! The life of a server: start, service and end.

use crate::client::{Client, serve, serve_with};
use sinew::sync::{Event, Semaphore};
use sinew_http::http::StatusCode;
use sinew_http::{Limits, Problem, Request, RequestContext, Response, Server};
use sinew_testkit::watch;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

mod client;

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::bind(address).start(|_: Request| "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().starts_with(&format!("cannot listen at {address}: ")), "{error}");
}

#[test]
fn bad_settings_fail_the_start() {
    assert!(Server::bind("no such address").start(|_: Request| "").is_err());
    let server = Server::bind("127.0.0.1:0").stack_size(7);
    let error = server.start(|_: Request| "").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[test]
fn a_server_that_is_shut_down_cannot_be_reached() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| "hello");
    let address = server.local_addr();
    assert_eq!(Client::new(address).get("/").body, b"hello");
    server.shutdown(LONG).unwrap();
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // A second shutdown succeeds, and another server can take the address.
    server.shutdown(LONG).unwrap();
    server.wait();
    let again = Server::bind(address).start(|_: Request| "again").unwrap();
    assert_eq!(Client::new(address).get("/").body, b"again");
    again.shutdown(LONG).unwrap();
}

#[test]
fn a_shutdown_wakes_the_waiter() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| "");
    sinew::scope(|s| {
        let waiter = s.spawn(|| server.wait());
        server.shutdown(LONG).unwrap();
        waiter.join().unwrap();
    });
}

#[test]
fn requests_in_flight_are_finished_and_idle_connections_closed() {
    let _watch = watch::a_minute();
    for deferred in [true, false] {
        let (begun, go_on) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let server = {
            let (begun, go_on) = (begun.clone(), go_on.clone());
            serve_with(
                |server| server.kept_stacks(if deferred { 0 } else { usize::MAX }),
                move |request: Request| {
                    if request.path() == "/slow" {
                        begun.set();
                        go_on.wait();
                    }
                    "done"
                },
            )
        };
        let address = server.local_addr();
        let mut idle = Client::new(address);
        let mut silent = TcpStream::connect(address).unwrap();
        assert_eq!(idle.get("/").body, b"done");
        let slow = thread::spawn(move || Client::new(address).get("/slow"));
        begun.wait();
        thread::scope(|s| {
            let shutdown = s.spawn(|| server.shutdown(LONG));
            // Idle connections are closed while the other request goes on.
            assert!(idle.is_closed());
            assert_eq!(silent.read(&mut [0]).unwrap(), 0);
            assert!(!shutdown.is_finished());
            go_on.set();
            shutdown.join().unwrap().unwrap();
        });
        let answer = slow.join().unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, &b"done"[..]));
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(server.connections(), 0);
    }
}

/// A connection on which one request was answered, and the beginning of the next has been received.
fn with_half_a_head(address: std::net::SocketAddr) -> Client<TcpStream> {
    let mut client = Client::new(address);
    // The beginning comes with the request before it, so the connection is never idle in between.
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /half HTTP/1.1\r\nHo");
    assert_eq!(client.answer("GET").status, 200);
    client
}

#[test]
fn half_a_head_does_not_hold_up_a_shutdown() {
    let _watch = watch::a_minute();
    for deferred in [true, false] {
        let server = serve_with(
            |server| {
                let limits = Limits::default().head_timeout(Duration::from_secs(50));
                server.kept_stacks(if deferred { 0 } else { usize::MAX }).limits(limits)
            },
            |_: Request| "done",
        );
        let mut client = with_half_a_head(server.local_addr());
        let begun = Instant::now();
        server.shutdown(Duration::from_secs(50)).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
        // Not by force: the client gets an answer.
        assert_eq!(client.answer("GET").status, 408);
        assert!(client.is_closed());
    }
}

/// The client has a second for the rest. On a busy machine this thread may be too late to send it,
/// so it tries several times.
#[test]
fn the_rest_of_a_head_is_waited_for_a_little_when_a_server_ends() {
    let _watch = watch::a_minute();
    let is_served = || {
        let server = serve(|_: Request| "done");
        let address = server.local_addr();
        let mut client = with_half_a_head(address);
        thread::scope(|s| {
            let shutdown = s.spawn(|| server.shutdown(LONG));
            // Once the shutdown has begun, the server accepts nothing more.
            while TcpStream::connect(address).is_ok() {}
            client.send(b"st: a\r\n\r\n");
            let answer = client.answer("GET");
            shutdown.join().unwrap().unwrap();
            assert_eq!(answer.header("connection"), Some("close"));
            answer.status == 200
        })
    };
    assert!((0..10).any(|_| is_served()));
}

#[test]
fn requests_that_take_too_long_are_cancelled() {
    let _watch = watch::a_minute();
    let unwound = Arc::new(AtomicUsize::new(0));
    let (begun, count) = (Arc::new(Event::new()), unwound.clone());
    let server = {
        let begun = begun.clone();
        serve(move |_: Request| {
            struct Count(Arc<AtomicUsize>);
            impl Drop for Count {
                fn drop(&mut self) {
                    self.0.fetch_add(1, Ordering::SeqCst);
                }
            }
            let _count = Count(count.clone());
            begun.set();
            sinew::park();
            ""
        })
    };
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    begun.wait();
    let error = server.shutdown(Duration::from_millis(10)).unwrap_err();
    assert_eq!(error.unfinished, 1);
    assert_eq!(unwound.load(Ordering::SeqCst), 1);
    assert_eq!(server.connections(), 0);
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn there_are_no_more_connections_than_are_allowed() {
    let _watch = watch::a_minute();
    let (most, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let turn = Arc::new(Semaphore::new(0));
    let server = {
        let (most, now, turn) = (most.clone(), now.clone(), turn.clone());
        serve_with(
            |server| server.limits(Limits::default().connections(2)),
            move |_: Request| {
                most.fetch_max(1 + now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                turn.acquire().forget();
                now.fetch_sub(1, Ordering::SeqCst);
                Response::text("").with_header("connection", "close")
            },
        )
    };
    let address = server.local_addr();
    let clients: Vec<_> =
        (0..6).map(|_| thread::spawn(move || Client::new(address).get("/").status)).collect();
    sinew::wait_until(|| now.load(Ordering::SeqCst) == 2, None);
    assert_eq!(server.connections(), 2);
    turn.add(6);
    for client in clients {
        assert_eq!(client.join().unwrap(), 200);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    server.shutdown(LONG).unwrap();
}

#[test]
fn only_idle_connections_are_closed() {
    let _watch = watch::a_minute();
    for deferred in [true, false] {
        let limits = Limits::default().idle_timeout(Duration::from_millis(200));
        let server = serve_with(
            |server| server.kept_stacks(if deferred { 0 } else { usize::MAX }).limits(limits),
            |request: Request| {
                if request.path() == "/slow" {
                    sinew::sleep(Duration::from_millis(600));
                }
                "done"
            },
        );
        let mut client = Client::new(server.local_addr());
        assert_eq!(client.get("/slow").body, b"done");
        assert_eq!(client.get("/").body, b"done");
        assert!(client.is_closed());
        server.shutdown(LONG).unwrap();
    }
}

#[test]
fn a_silent_client_is_not_waited_for() {
    let _watch = watch::a_minute();
    let limits = Limits::default().head_timeout(Duration::from_millis(200));
    let server = serve_with(|server| server.limits(limits), |_: Request| "");
    let mut stream = TcpStream::connect(server.local_addr()).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    server.shutdown(LONG).unwrap();
}

/// The head comes byte by byte, each in good time.
#[test]
fn a_client_that_sends_a_head_slowly_gets_408() {
    let _watch = watch::a_minute();
    let limits = Limits::default().head_timeout(Duration::from_millis(300));
    let server = serve_with(|server| server.limits(limits), |_: Request| "");
    let stream = TcpStream::connect(server.local_addr()).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let trickle = thread::spawn(move || {
        for byte in b"GET / HTTP/1.1\r\nHost: a\r\nX: ".iter().chain(std::iter::repeat(&b'x')) {
            if writer.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let answer = Client::over(stream).answer("GET");
    assert_eq!(answer.status, 408);
    trickle.join().unwrap();
    server.shutdown(LONG).unwrap();
}

#[test]
fn a_panic_closes_its_connection_and_no_other() {
    let _watch = watch::a_minute();
    let problems = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let problems = problems.clone();
        serve_with(
            move |server| {
                server.problem_log(move |problem| {
                    if let Problem::Panic(..) = problem {
                        problems.lock().unwrap().push(problem.to_string());
                    }
                })
            },
            |request: Request| {
                assert_ne!(request.path(), "/bad", "this is a test");
                "fine"
            },
        )
    };
    let mut other = Client::new(server.local_addr());
    assert_eq!(other.get("/").body, b"fine");
    let mut client = Client::new(server.local_addr());
    let answer = client.get("/bad");
    assert_eq!((answer.status, answer.header("connection")), (500, Some("close")));
    assert!(client.is_closed());
    assert_eq!(other.get("/").body, b"fine");
    let problems = problems.lock().unwrap();
    assert!(problems.len() == 1 && problems[0].contains("/bad"), "{problems:?}");
    server.shutdown(LONG).unwrap();
}

/// A log that panics ends neither the connection nor the server.
#[test]
fn a_log_that_panics_ends_nothing() {
    let _watch = watch::a_minute();
    let server = serve_with(
        |server| {
            let server = server.access_log(|_| panic!("this is a test"));
            server.problem_log(|_| panic!("this is a test"))
        },
        |_: Request| "fine",
    );
    for _ in 0..3 {
        let mut client = Client::new(server.local_addr());
        assert_eq!(client.get("/").body, b"fine");
        assert_eq!(client.get("/").body, b"fine");
        client.send(b"nonsense\r\n\r\n");
        assert_eq!(client.answer("GET").status, 400);
    }
    server.shutdown(LONG).unwrap();
}

#[test]
fn the_owner_is_told_why_a_handler_failed_and_the_client_is_not() {
    let _watch = watch::a_minute();
    let problems = Arc::new(Mutex::new(Vec::new()));
    let told = problems.clone();
    let server = serve_with(
        move |server| {
            server.problem_log(move |problem| told.lock().unwrap().push(problem.to_string()))
        },
        |_: Request| -> std::io::Result<Response> {
            Err(std::io::Error::new(ErrorKind::NotFound, "the database has gone"))
        },
    );
    let answer = Client::new(server.local_addr()).get("/why");
    assert_eq!(answer.status, 500);
    assert!(!String::from_utf8_lossy(&answer.body).contains("database"));
    let problems = problems.lock().unwrap();
    assert!(problems.len() == 1 && problems[0].contains("database has gone"), "{problems:?}");
    assert!(problems[0].contains("/why"), "{problems:?}");
    server.shutdown(LONG).unwrap();
}

/// The handler passes on the cancellation of another fiber; it is not cancelled itself.
#[test]
fn the_cancellation_of_another_fiber_is_a_panic_like_others() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| {
        let child = sinew::spawn(sinew::park);
        child.fiber().cancel();
        if let Err(payload) = child.join() {
            std::panic::resume_unwind(payload);
        }
        "not cancelled"
    });
    assert_eq!(Client::new(server.local_addr()).get("/").status, 500);
    server.shutdown(LONG).unwrap();
}

#[test]
fn a_handler_may_shut_the_server_down() {
    let _watch = watch::a_minute();
    let handle = Arc::new(std::sync::OnceLock::<sinew_http::ServerHandle>::new());
    let theirs = handle.clone();
    let server = serve(move |_: Request| match theirs.get().unwrap().shutdown(LONG) {
        Ok(()) => "done".to_owned(),
        Err(error) => error.to_string(),
    });
    let address = server.local_addr();
    let _ = handle.set(server);
    let server = handle.get().unwrap();
    let client = thread::spawn(move || Client::new(address).get("/quit").body);
    server.wait();
    assert_eq!(client.join().unwrap(), b"done");
    server.shutdown(LONG).unwrap();
    assert_eq!(server.connections(), 0);
}

/// A kept body does not keep the client waiting.
#[test]
fn a_body_that_went_elsewhere_does_not_keep_a_connection_that_failed() {
    let _watch = watch::a_minute();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let server = serve(move |request: Request| {
        keep.lock().unwrap().push(request.into_body());
        Response::stream(|_| Err(std::io::Error::other("this is a test")))
    });
    let mut client = Client::new(server.local_addr());
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nsome");
    let mut stream = client.into_inner();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.starts_with(b"HTTP/1.1 200 ") && !rest.ends_with(b"0\r\n\r\n"));
    assert_eq!(kept.lock().unwrap().len(), 1);
    sinew::wait_until(|| server.connections() == 0, None);
    let body = &mut kept.lock().unwrap()[0];
    assert!(body.read_to_end(&mut Vec::new()).is_err());
    server.shutdown(LONG).unwrap();
}

/// Without a reset, the client would take the end of the connection for the end of the body.
#[test]
fn a_body_of_the_old_protocol_that_is_cut_off_ends_with_a_reset() {
    let _watch = watch::a_minute();
    for flushes in [true, false] {
        let server = serve(move |_: Request| {
            Response::stream(move |body| {
                body.write_all(b"hello")?;
                if flushes {
                    body.flush()?;
                }
                Err(std::io::Error::other("this is a test"))
            })
        });
        let mut client = Client::new(server.local_addr());
        client.send(b"GET / HTTP/1.0\r\n\r\n");
        let error = client.into_inner().read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        server.shutdown(LONG).unwrap();
    }
}

/// Each byte comes in good time, but the whole body would take hours.
#[test]
fn a_client_that_sends_a_body_slowly_gets_408() {
    let _watch = watch::a_minute();
    let limits = Limits::default().body_timeout(Duration::from_millis(300)).body_rate(1 << 20);
    let server = serve_with(
        |server| server.limits(limits),
        |mut request: Request| request.body().read_all().map(Response::new),
    );
    let stream = TcpStream::connect(server.local_addr()).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let trickle = thread::spawn(move || {
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
        let mut sent = writer.write_all(head);
        while sent.is_ok() {
            sent = writer.write_all(b"x");
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(Client::over(stream).answer("POST").status, 408);
    trickle.join().unwrap();
    server.shutdown(LONG).unwrap();
}

#[test]
fn any_number_of_connections_can_be_allowed() {
    let _watch = watch::a_minute();
    for most in [0, 1, usize::MAX] {
        let limits = Limits::default().connections(most);
        let server = serve_with(|server| server.limits(limits), |_: Request| "hello");
        assert_eq!(Client::new(server.local_addr()).get("/").body, b"hello");
        server.shutdown(LONG).unwrap();
    }
}

#[test]
fn a_socket_that_listens_already_will_do() {
    let _watch = watch::a_minute();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::from_listener(listener).start(|_: Request| "hello").unwrap();
    assert_eq!(server.local_addr(), address);
    assert_eq!(Client::new(address).get("/").body, b"hello");
    server.shutdown(LONG).unwrap();
}

/// A route that guards a path guards every spelling of it.
#[test]
fn a_path_that_is_encoded_leads_to_the_same_handler() {
    let _watch = watch::a_minute();
    let router = sinew_http::Router::new()
        .get("/admin/{*rest}", |_: Request| StatusCode::FORBIDDEN)
        .any("/{*rest}", |request: Request| request.param("rest").unwrap_or_default().to_owned());
    let server = serve(router);
    let mut client = Client::new(server.local_addr());
    assert_eq!(client.get("/admin/secret").status, 403);
    assert_eq!(client.get("/%61dmin/%73ecret").status, 403);
    assert_eq!(client.get("/%2561dmin/secret").body, b"%61dmin/secret");
    // An escape that appears only after other escapes are decoded is malformed.
    for path in ["/%%361dmin/secret", "/%6%31dmin/secret", "/admin%%32fsecret"] {
        assert_eq!(Client::new(server.local_addr()).get(path).status, 400, "{path}");
    }
    server.shutdown(LONG).unwrap();
}

#[test]
fn fibers_are_named_after_both_ends() {
    let _watch = watch::a_minute();
    let server = serve(|_: Request| sinew::current().name().unwrap_or_default().to_owned());
    let address = server.local_addr();
    let mut client = Client::new(address);
    let expected = format!("http {address} <- {}", client.local_addr());
    assert_eq!(client.get("/").body, expected.as_bytes());
    assert!(sinew::fibers().iter().any(|info| info.name() == Some(&expected)));
    let accepts = format!("http {address} accept");
    assert!(sinew::fibers().iter().any(|info| info.name() == Some(&accepts)));
    server.shutdown(LONG).unwrap();
}

#[test]
fn code_far_from_the_handler_knows_the_request() {
    let _watch = watch::a_minute();
    fn far() -> String {
        let context = RequestContext::current().unwrap();
        format!("{} {} {}", context.number(), context.method(), context.target())
    }
    let server = serve(|_: Request| {
        let context = RequestContext::current().unwrap();
        let near = far();
        // A fiber that works for the request has no context until it enters one.
        let child = sinew::spawn(move || {
            assert!(RequestContext::current().is_none());
            context.enter(far)
        });
        assert_eq!(child.join().unwrap(), near);
        near
    });
    let mut client = Client::new(server.local_addr());
    assert_eq!(client.get("/a?b").body, b"1 GET /a?b");
    assert_eq!(client.get("/c").body, b"2 GET /c");
    server.shutdown(LONG).unwrap();
}

#[test]
fn a_server_has_as_many_carriers_as_it_is_told() {
    let _watch = watch::a_minute();
    let server = serve_with(
        |server| server.carriers(3),
        |_: Request| sinew::Handle::current().carriers().to_string(),
    );
    assert_eq!(Client::new(server.local_addr()).get("/").body, b"3");
    server.shutdown(LONG).unwrap();
    let runtime = sinew::Runtime::builder().carriers(1).name("mine").build().unwrap();
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle());
    let server = server.start(|_: Request| sinew::Handle::current().name().to_owned()).unwrap();
    assert_eq!(Client::new(server.local_addr()).get("/").body, b"mine");
    server.shutdown(LONG).unwrap();
}

#[test]
fn several_sockets_listen_at_one_address() {
    let _watch = watch::a_minute();
    let server = serve_with(|server| server.listeners(3), |_: Request| "hello");
    for _ in 0..50 {
        assert_eq!(Client::new(server.local_addr()).get("/").body, b"hello");
    }
    server.shutdown(LONG).unwrap();
}

/// A listener without a waiting connection takes no room from the others.
#[test]
fn every_allowed_connection_has_room_however_many_listeners_there_are() {
    let _watch = watch::a_minute();
    for (listeners, most) in [(2, 1), (4, 4), (8, 3)] {
        let server = serve_with(
            |server| server.listeners(listeners).limits(Limits::default().connections(most)),
            |_: Request| "hello",
        );
        for _ in 0..8 {
            let mut clients = Vec::new();
            for _ in 0..most {
                let mut client = Client::new(server.local_addr());
                assert_eq!(client.get("/").body, b"hello");
                clients.push(client);
            }
        }
        server.shutdown(LONG).unwrap();
    }
}

/// A request that is answered during a shutdown gets the current date.
#[test]
fn time_goes_on_while_a_server_ends() {
    let _watch = watch::a_minute();
    let (begun, go_on) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let server = {
        let (begun, go_on) = (begun.clone(), go_on.clone());
        serve(move |_: Request| {
            begun.set();
            go_on.wait();
            "done"
        })
    };
    let mut client = Client::new(server.local_addr());
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    begun.wait();
    let early = httpdate::parse_http_date(&httpdate::fmt_http_date(SystemTime::now())).unwrap();
    sinew::scope(|s| {
        let ending = s.spawn(|| server.shutdown(LONG));
        // The clock of a server is right within a second.
        sinew::wait_until(|| early.elapsed().unwrap_or_default() >= Duration::from_secs(3), None);
        go_on.set();
        ending.join().unwrap().unwrap();
    });
    let answer = client.answer("GET");
    let date = httpdate::parse_http_date(answer.header("date").unwrap()).unwrap();
    assert!(date > early, "{date:?} is not after {early:?}");
}

#[test]
fn each_request_is_logged() {
    let _watch = watch::a_minute();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let lines = lines.clone();
        serve_with(
            move |server| {
                server.access_log(move |entry| lines.lock().unwrap().push(entry.to_string()))
            },
            |request: Request| (StatusCode::IM_A_TEAPOT, request.path().to_owned()),
        )
    };
    let mut client = Client::new(server.local_addr());
    client.get("/one");
    client.get("/two?x");
    client.send(b"nonsense\r\n\r\n");
    assert_eq!(client.answer("GET").status, 400);
    server.shutdown(LONG).unwrap();
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("\"GET /one HTTP/1.1\" 418 4 "), "{lines:?}");
    assert!(lines[1].contains("\"GET /two?x HTTP/1.1\" 418 4 "), "{lines:?}");
    assert!(lines[2].contains("\"- - HTTP/1.1\" 400 "), "{lines:?}");
}

#[test]
fn connections_requests_and_responses_are_counted() {
    let _watch = watch::a_minute();
    for kept in [0, usize::MAX] {
        let server = serve_with(
            |server| server.kept_stacks(kept),
            |request: Request| match request.path() {
                "/panics" => panic!("this is a test"),
                "/moved" => Response::redirect("/"),
                path => Response::text(path.to_owned()),
            },
        );
        let mut clients: Vec<_> = (0..3).map(|_| Client::new(server.local_addr())).collect();
        for client in &mut clients {
            client.get("/");
            client.get("/moved");
        }
        // Two requests at once, a malformed one, and one that ends its connection.
        clients[0].send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!([clients[0].answer("GET").status, clients[0].answer("GET").status], [200; 2]);
        clients[1].send(b"nonsense\r\n\r\n");
        assert_eq!(clients[1].answer("GET").status, 400);
        assert_eq!(clients[2].get("/panics").status, 500);
        clients.truncate(1);
        // The counts of closed connections remain.
        sinew::wait_until(|| server.connections() == 1, None);
        let metrics = server.metrics();
        assert_eq!((metrics.connections, metrics.connections_total), (1, 3));
        assert_eq!(metrics.requests_total, 9);
        assert_eq!(metrics.responses_total, [0, 5, 3, 1, 1]);
        server.shutdown(LONG).unwrap();
        assert_eq!(server.metrics().requests_total, 9);
    }
}

/// Unfinished requests are logged, too, with the number of bytes sent.
#[test]
fn requests_that_are_cut_off_are_logged() {
    let _watch = watch::a_minute();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let begun = Arc::new(Semaphore::new(0));
    let server = {
        let (lines, begun) = (lines.clone(), begun.clone());
        serve_with(
            move |server| {
                server.access_log(move |entry| {
                    lines.lock().unwrap().push(entry.to_string());
                    panic!("a log that panics ends nothing");
                })
            },
            move |request: Request| {
                if request.path() == "/waits" {
                    begun.add(1);
                    sinew::park();
                }
                let begun = begun.clone();
                Response::stream(move |body| {
                    body.write_all(b"hello")?;
                    begun.add(1);
                    sinew::park();
                    Ok(())
                })
            },
        )
    };
    let mut clients: Vec<_> =
        (0..2).map(|_| TcpStream::connect(server.local_addr()).unwrap()).collect();
    clients[0].write_all(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    clients[1].write_all(b"GET /streams HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    drop(begun.acquire_many(2));
    assert_eq!(server.shutdown(Duration::ZERO).unwrap_err().unfinished, 2);
    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
    lines.sort_by_key(|line: &String| line.contains("/waits"));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("\"GET /streams HTTP/1.1\" 200 5 "), "{lines:?}");
    assert!(lines[1].contains("\"GET /waits HTTP/1.1\" 503 0 "), "{lines:?}");
    assert!(lines.iter().all(|line| line.ends_with(" cut off")), "{lines:?}");
}

/// When a runtime ends, its connections end, and their descriptors are closed.
#[test]
fn a_runtime_that_goes_takes_its_server_along() {
    let _watch = watch::a_minute();
    let runtime = sinew::Runtime::builder().carriers(1).build().unwrap();
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle());
    let server = server.start(|_: Request| "hello").unwrap();
    let mut client = Client::new(server.local_addr());
    assert_eq!(client.get("/").body, b"hello");
    drop(runtime);
    assert!(client.is_closed());
    assert_eq!(server.connections(), 0);
}

/// Many fibers serve many connections, which come and go.
#[test]
fn nothing_is_lost_among_many() {
    let _watch = watch::a_minute();
    for deferred in [true, false] {
        let server = serve_with(
            |server| server.carriers(2).kept_stacks(if deferred { 0 } else { usize::MAX }),
            |mut request: Request| -> std::io::Result<Response> {
                let body = request.body().read_all()?;
                sinew::yield_now();
                Ok(Response::new(body))
            },
        );
        let address = server.local_addr();
        let clients: Vec<_> = (0..8)
            .map(|number| {
                thread::spawn(move || {
                    for round in 0..20 {
                        let mut client = Client::new(address);
                        for n in 0..20 {
                            let body = format!("{number} {round} {n}").repeat(1 + n * n);
                            assert_eq!(client.post("/", body.as_bytes()).body, body.as_bytes());
                        }
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        server.shutdown(LONG).unwrap();
        assert_eq!(server.connections(), 0);
    }
}
