//! The debug routes: their content, and which clients may see them.

use serde_json::Value;
use sinew::sync::Mutex;
use sinew::{Builder, Fiber, JoinHandle, Runtime, State};
use sinew_http::debug::Access;
use sinew_http::{Request, Router, Server, ServerHandle};
use sinew_testkit::watch::a_minute;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        assert!(self.head.contains("content-type: application/json"), "{}", self.head);
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Sends a request with these header fields, and asks to close the connection.
fn ask(address: SocketAddr, method: &str, target: &str, fields: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("{method} {target} HTTP/1.1\r\n{fields}connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.into() }
}

fn get(server: &ServerHandle, target: &str) -> Answer {
    ask(server.local_addr(), "GET", target, "host: localhost\r\n")
}

fn start(runtime: &Runtime, access: Access) -> ServerHandle {
    let router = Router::new().get("/", |_: Request| "hello\n").debug(access);
    Server::bind("127.0.0.1:0").runtime(runtime.handle()).start(router).unwrap()
}

fn runtime(name: &str) -> Runtime {
    Runtime::builder().name(name).carriers(2).build().unwrap()
}

fn spawn(runtime: &Runtime, name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().runtime(runtime.handle()).name(name).spawn(f).unwrap()
}

fn wait_suspended(fiber: &Fiber) {
    assert!(sinew::wait_until(|| fiber.state() == State::Suspended, Some(Duration::from_secs(20))));
}

#[inline(never)]
fn waits_for_the_tide() {
    sinew::park();
}

/// The names of the listed fibers.
fn listed(view: &Value) -> Vec<&str> {
    let fibers = view["fibers"].as_array().unwrap();
    fibers.iter().map(|fiber| fiber["name"].as_str().unwrap_or_default()).collect()
}

#[test]
fn json_has_fibers_totals_and_carriers() {
    let _watchdog = a_minute();
    let runtime = runtime("shape");
    let server = start(&runtime, Access::Loopback);
    let lock = Arc::new(Mutex::new(()));
    let guard = lock.lock();
    let second = lock.clone();
    let waits = spawn(&runtime, "shape <b>&\"\\\n", move || drop(second.lock()));
    let joined = waits.fiber();
    let joins = spawn(&runtime, "shape joins", move || drop(waits.join()));
    let hour = Duration::from_secs(3600);
    let timed = spawn(&runtime, "shape timed", move || {
        sinew::masked(|| sinew::park_timeout(hour));
    });
    wait_suspended(&joined);
    wait_suspended(&joins.fiber());
    wait_suspended(&timed.fiber());
    timed.cancel();

    let view = get(&server, "/debug/fibers.json?filter=shape&limit=1000").json();
    assert!(view["time_ms"].as_u64().unwrap() > 1_600_000_000_000);
    assert_eq!(view["process"]["pid"], std::process::id());
    if cfg!(target_os = "linux") {
        for field in ["uptime_seconds", "start_seconds", "cpu_seconds", "resident_bytes"] {
            assert!(view["process"][field].as_f64().unwrap() >= 0.0, "{field}");
        }
    }
    let states: u64 =
        view["totals"]["states"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(view["totals"]["fibers"], states);
    assert!(view["totals"]["waits"]["lock"].as_u64().unwrap() >= 1);
    let runtimes = view["runtimes"].as_array().unwrap();
    let shape = runtimes.iter().find(|runtime| runtime["name"] == "shape").unwrap();
    assert_eq!(shape["carriers"].as_array().unwrap().len(), 2);
    for count in ["spawned", "switches", "io_events", "ready", "sleeps"] {
        assert!(shape["carriers"][0][count].is_u64(), "{count}");
    }
    assert!(shape["stacks_in_use"].as_u64().unwrap() >= 2);

    let fiber = |name: &str| {
        let fibers = view["fibers"].as_array().unwrap();
        fibers.iter().find(|fiber| fiber["name"] == name).unwrap()
    };
    let waits = fiber("shape <b>&\"\\\n");
    assert_eq!(waits["id"], joined.id().as_u64());
    assert_eq!((&waits["state"], &waits["runtime"]), (&"suspended".into(), &"shape".into()));
    assert_eq!(waits["wait"]["kind"], "lock");
    assert!(waits["wait"]["owner"]["id"].is_u64(), "a thread has it");
    assert!(waits["wait"]["since_us"].is_u64() && waits["age_ms"].is_u64());
    let (used, size) = (&waits["stack"]["used"], &waits["stack"]["size"]);
    assert!(used.as_u64().unwrap() < size.as_u64().unwrap());
    let joins = fiber("shape joins");
    assert_eq!(joins["wait"]["kind"], "join");
    assert_eq!(joins["wait"]["joins"]["id"], joined.id().as_u64());
    assert_eq!(joins["wait"]["joins"]["name"], "shape <b>&\"\\\n");
    assert!(joins["wait"]["left_us"].is_null());
    let facts = |fiber: &Value| {
        ["pinned", "migratable", "cancel_requested"].map(|fact| fiber[fact].as_bool().unwrap())
    };
    assert_eq!(facts(joins), [false, false, false]);
    let of_timed = fiber("shape timed");
    assert_eq!(facts(of_timed), [false, false, true]);
    let left = of_timed["wait"]["left_us"].as_u64().unwrap();
    assert!(left > 3_000_000_000 && left <= 3_600_000_000, "{left}");
    timed.fiber().unpark();
    // The answering fiber is in the list, and waits for the inspecting thread.
    let by = &view["answered_by"];
    let answers = view["fibers"].as_array().unwrap().iter().find(|fiber| fiber["id"] == *by);
    assert_eq!(answers.unwrap()["runtime"], "shape");
    drop(guard);
}

#[test]
fn fibers_are_filtered_sorted_and_paged() {
    let _watchdog = a_minute();
    let runtime = runtime("sorted");
    let server = start(&runtime, Access::Loopback);
    let fibers: Vec<_> =
        (0..20).map(|n| spawn(&runtime, &format!("Sorted-{n:02}"), waits_for_the_tide)).collect();
    fibers.iter().for_each(|fiber| wait_suspended(&fiber.fiber()));
    let view = |query: &str| get(&server, &format!("/debug/fibers.json?{query}")).json();

    let all = view("filter=sorted-");
    assert_eq!((&all["matched"], all["fibers"].as_array().unwrap().len()), (&20.into(), 20));
    assert!(all["totals"]["fibers"].as_u64().unwrap() > 20);
    assert!(listed(&all).is_sorted());

    let some = view("filter=sorted-&sort=-name&limit=3&offset=2");
    assert_eq!(listed(&some), ["Sorted-17", "Sorted-16", "Sorted-15"]);
    assert_eq!(some["matched"], 20);
    assert_eq!((&some["offset"], &some["limit"]), (&2.into(), &3.into()));
    assert_eq!(listed(&view("filter=sorted-&offset=20")), [""; 0]);
    assert_eq!(listed(&view("filter=sorted-&limit=0")), [""; 0]);

    assert_eq!(listed(&view("filter=sorted-07+wait:park")), ["Sorted-07"]);
    assert_eq!(listed(&view("filter=sorted-07+wait:lock")), [""; 0]);
    assert_eq!(view("filter=sorted-&state=suspended")["matched"], 20);
    assert_eq!(view("filter=sorted-&state=created")["matched"], 0);
    let id = fibers[5].fiber().id();
    assert!(listed(&view(&format!("filter={id}"))).contains(&"Sorted-05"));

    for sort in ["id", "state", "wait", "since", "carrier", "age", "waits", "stack"] {
        let up = view(&format!("filter=sorted-&sort={sort}"));
        let down = view(&format!("filter=sorted-&sort=-{sort}"));
        let names = |view| listed(view).into_iter().map(str::to_owned).collect::<HashSet<_>>();
        assert_eq!((names(&up).len(), names(&up)), (20, names(&down)), "{sort}");
    }
    let stacks = view("filter=sorted-&sort=-stack");
    let used = |fiber: &Value| fiber["stack"]["used"].as_u64().unwrap();
    assert!(stacks["fibers"].as_array().unwrap().is_sorted_by_key(|f| std::cmp::Reverse(used(f))));

    for (query, word) in [("limit=some", "limit"), ("state=tired", "tired"), ("sort=hue", "hue")] {
        let refused = get(&server, &format!("/debug/fibers.json?{query}"));
        assert_eq!(refused.status, 400);
        assert!(refused.body.contains(word), "{}", refused.body);
    }
}

#[test]
fn a_parked_fiber_is_in_its_function() {
    let _watchdog = a_minute();
    let runtime = runtime("parked");
    let server = start(&runtime, Access::Loopback);
    let fiber = spawn(&runtime, "tide", waits_for_the_tide);
    wait_suspended(&fiber.fiber());
    let target = format!("/debug/fibers/{}/backtrace", fiber.fiber().id());
    let answer = get(&server, &target);
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: text/plain"), "{}", answer.head);
    assert!(answer.head.contains("cache-control: no-store"), "{}", answer.head);
    let first = answer.body.lines().next().unwrap();
    assert!(first.contains("\"tide\", suspended: park for "), "{first}");
    if cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        assert!(answer.body.contains("waits_for_the_tide"), "{}", answer.body);
        let full = get(&server, &format!("{target}?full=1"));
        assert!(full.body.lines().count() > answer.body.lines().count());
    }
    let dump = get(&server, "/debug/dump");
    assert!(dump.body.contains("fiber \"tide\""), "{}", dump.body);
}

#[test]
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn a_fiber_that_runs_is_in_its_function() {
    #[inline(never)]
    fn turns_round(done: &AtomicBool) {
        while !done.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
    let _watchdog = a_minute();
    let (busy, served) = (runtime("busy"), runtime("served"));
    let server = start(&served, Access::Loopback);
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    let fiber = spawn(&busy, "turns", move || turns_round(&seen));
    assert!(sinew::wait_until(
        || fiber.fiber().state() == State::Running,
        Some(Duration::from_secs(20))
    ));
    let answer = get(&server, &format!("/debug/fibers/{}/backtrace", fiber.fiber().id()));
    done.store(true, Ordering::Relaxed);
    assert!(answer.body.contains("\"turns\", running"), "{}", answer.body);
    assert!(answer.body.contains("turns_round"), "{}", answer.body);
}

#[test]
fn a_fiber_that_is_not_there_is_not_found() {
    let _watchdog = a_minute();
    let runtime = runtime("missing");
    let server = start(&runtime, Access::Loopback);
    let ended = spawn(&runtime, "ended", || ());
    let id = ended.fiber().id().to_string();
    ended.join().unwrap();
    for id in [&*id, "18446744073709551615", "99999999999999999999", "seven", "-1"] {
        let answer = get(&server, &format!("/debug/fibers/{id}/backtrace"));
        assert_eq!(answer.status, 404);
        assert!(answer.body.contains(&format!("no fiber {id}")), "{}", answer.body);
    }
}

#[test]
fn the_fiber_that_answers_says_so() {
    let _watchdog = a_minute();
    let runtime = runtime("answers");
    let server = start(&runtime, Access::Loopback);
    // Only one connection, which keeps its stack, so that one fiber answers both requests.
    let router = Router::new().debug(Access::Loopback);
    let kept = Server::bind("127.0.0.1:0")
        .runtime(runtime.handle())
        .kept_stacks(usize::MAX)
        .start(router)
        .unwrap();
    let mut stream = TcpStream::connect(kept.local_addr()).unwrap();
    let mut ask = |target: &str| {
        write!(stream, "GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        read_one(&mut stream)
    };
    let view: Value = serde_json::from_str(&ask("/debug/fibers.json?limit=0")).unwrap();
    let target = format!("/debug/fibers/{}/backtrace", view["answered_by"]);
    let text = ask(&target);
    assert!(text.contains("this is the fiber that answers this request"), "{text}");
    assert!(!get(&server, &target).body.contains("this is the fiber"));
}

/// Reads the body of one response of known length.
fn read_one(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    let head = String::from_utf8(text).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

const TARGETS: [&str; 5] =
    ["/debug/fibers", "/debug/fibers.json", "/debug/fibers/1/backtrace", "/debug/dump", "/metrics"];

#[test]
fn foreign_hosts_and_forwarded_requests_are_refused() {
    let _watchdog = a_minute();
    let runtime = runtime("refused");
    let server = start(&runtime, Access::Loopback);
    let address = server.local_addr();
    for target in TARGETS {
        for fields in [
            "host: example.org\r\n",
            "host: localhost.example.org\r\n",
            "host: 192.0.2.1\r\n",
            "host: localhost\r\nx-forwarded-for: 192.0.2.1\r\n",
            "host: localhost\r\nforwarded: for=192.0.2.1\r\n",
        ] {
            let refused = ask(address, "GET", target, fields);
            assert_eq!(refused.status, 403, "{target} {fields}");
            assert!(refused.body.ends_with('\n') && refused.body.len() < 200, "{}", refused.body);
        }
        let absolute = format!("http://example.org{target}");
        assert_eq!(ask(address, "GET", &absolute, "host: localhost\r\n").status, 403);
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", &address.to_string()] {
        let answer = ask(address, "GET", "/metrics", &format!("host: {host}\r\n"));
        assert_eq!(answer.status, 200, "{host}");
    }
    // Other routes are not concerned.
    assert_eq!(ask(address, "GET", "/", "host: example.org\r\n").status, 200);
}

#[test]
fn other_machines_are_refused_unless_anyone_may_see() {
    let _watchdog = a_minute();
    let Some(here) = address_of_this_machine() else { return };
    let runtime = runtime("elsewhere");
    for (access, status) in [(Access::Loopback, 403), (Access::Anyone, 200)] {
        let router = Router::new().debug(access);
        let server = Server::bind((here, 0)).runtime(runtime.handle()).start(router).unwrap();
        let address = server.local_addr();
        let answer = ask(address, "GET", "/metrics", &format!("host: {address}\r\n"));
        assert_eq!(answer.status, status, "{access:?}");
        let answer = ask(address, "GET", "/debug/fibers", "host: example.org\r\n");
        assert_eq!(answer.status, status, "{access:?}");
    }
}

/// An address of this machine that is no loopback address, if there is one. Sends nothing.
fn address_of_this_machine() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[test]
fn a_plain_router_has_no_debug_routes() {
    let _watchdog = a_minute();
    let runtime = runtime("nothing");
    let router = Router::new().get("/", |_: Request| "hello\n");
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle()).start(router).unwrap();
    for target in TARGETS {
        assert_eq!(get(&server, target).status, 404, "{target}");
    }
}

fn with_admin(runtime: &Runtime, admin: &str) -> std::io::Result<ServerHandle> {
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle()).admin(admin);
    server.start(Router::new().get("/", |_: Request| "hello\n"))
}

#[test]
fn an_admin_listener_has_the_routes_and_the_server_has_not() {
    let _watchdog = a_minute();
    let runtime = runtime("admin");
    let server = with_admin(&runtime, "127.0.0.1:0").unwrap();
    let admin = server.admin_addr().unwrap();
    let host = "host: localhost\r\n";
    for target in ["/debug/fibers", "/debug/fibers.json", "/debug/dump", "/metrics"] {
        assert_eq!(ask(admin, "GET", target, host).status, 200, "{target}");
        assert_eq!(get(&server, target).status, 404, "{target}");
    }
    assert_eq!(get(&server, "/").status, 200);
    assert_eq!(ask(admin, "GET", "/", host).status, 404);
    // A foreign page may have given its own name the address of this machine.
    assert_eq!(ask(admin, "GET", "/metrics", "host: example.org\r\n").status, 403);
    let metrics = parse(&ask(admin, "GET", "/metrics", host).body);
    let served = &metrics["sinew_http_requests_total"];
    for address in [admin, server.local_addr()] {
        let address = address.to_string();
        assert!(served.iter().any(|sample| sample.labels["server"] == address), "{address}");
    }
}

/// So the admin listener can show the last requests.
#[test]
fn an_admin_listener_answers_until_the_last_request_is_done() {
    let _watchdog = a_minute();
    let runtime = runtime("until");
    let release = Arc::new(sinew::sync::Event::new());
    let released = release.clone();
    let (entered, enters) = sinew::sync::channel::bounded(1);
    let handler = move |_: Request| {
        entered.send(()).unwrap();
        released.wait();
        "done\n"
    };
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle()).admin("127.0.0.1:0");
    let server = server.start(handler).unwrap();
    let (local, admin) = (server.local_addr(), server.admin_addr().unwrap());
    std::thread::scope(|s| {
        let asks = s.spawn(move || ask(local, "GET", "/", "host: a\r\n").status);
        enters.recv().unwrap();
        let shuts = s.spawn(|| server.shutdown(Duration::from_secs(40)));
        // Once the shutdown has begun, the server accepts nothing more.
        let begun = || TcpStream::connect(local).is_err();
        assert!(sinew::wait_until(begun, Some(Duration::from_secs(20))));
        let view = ask(admin, "GET", "/debug/fibers.json", "host: localhost\r\n").json();
        assert!(view["totals"]["states"]["suspended"].as_u64().unwrap() >= 1, "{view}");
        release.set();
        assert_eq!(asks.join().unwrap(), 200);
        shuts.join().unwrap().unwrap();
    });
    assert!(TcpStream::connect(admin).is_err());
}

#[test]
fn an_admin_address_that_is_taken_fails_the_start_and_leaves_nothing() {
    let _watchdog = a_minute();
    let runtime = runtime("taken");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = with_admin(&runtime, &address).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&address), "{error}");
    let left = sinew::fibers();
    assert!(left.iter().all(|fiber| fiber.runtime.as_deref() != Some("taken")), "{left:?}");
    // A listening socket works, too.
    let server = Server::bind("127.0.0.1:0").runtime(runtime.handle()).admin_listener(taken);
    let server = server.start(|_: Request| "hello\n").unwrap();
    assert_eq!(server.admin_addr().unwrap().to_string(), address);
    drop(server);
}

#[test]
fn a_cancelled_shutdown_ends_the_admin_listener_too() {
    let _watchdog = a_minute();
    let runtime = runtime("cancelled");
    let server = Arc::new(
        Server::bind("127.0.0.1:0")
            .runtime(runtime.handle())
            .admin("127.0.0.1:0")
            .start(|_: Request| {
                sinew::park();
                "never\n"
            })
            .unwrap(),
    );
    let admin = server.admin_addr().unwrap();
    let mut client = TcpStream::connect(server.local_addr()).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let busy = || server.metrics().requests_total == 1;
    assert!(sinew::wait_until(busy, Some(Duration::from_secs(20))));
    let shuts = server.clone();
    let shutting = spawn(&runtime, "shuts down", move || {
        let _ = shuts.shutdown(Duration::from_secs(50));
    });
    let local = server.local_addr();
    let begun = || TcpStream::connect(local).is_err();
    assert!(sinew::wait_until(begun, Some(Duration::from_secs(20))));
    shutting.fiber().cancel();
    server.wait();
    let gone = || TcpStream::connect(admin).is_err();
    assert!(sinew::wait_until(gone, Some(Duration::from_secs(20))));
}

#[test]
fn the_page_is_whole_and_asks_no_other_host() {
    let _watchdog = a_minute();
    let runtime = runtime("page");
    let server = start(&runtime, Access::Loopback);
    let page = get(&server, "/debug/fibers");
    assert_eq!(page.status, 200);
    for field in ["content-type: text/html", "cache-control: no-store", "default-src 'none'"] {
        assert!(page.head.contains(field), "{field}: {}", page.head);
    }
    assert!(page.body.trim_end().ends_with("</html>"));
    // The only address allowed is the XML namespace of SVG.
    let addresses = page.body.match_indices("http://").chain(page.body.match_indices("https://"));
    for (at, _) in addresses {
        assert!(
            page.body[at..].starts_with("http://www.w3.org/2000/svg"),
            "{}",
            &page.body[at..at + 40]
        );
    }
    assert!(!page.body.contains("innerHTML") && !page.body.contains("insertAdjacentHTML"));
    let head = ask(server.local_addr(), "HEAD", "/debug/fibers", "host: localhost\r\n");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(ask(server.local_addr(), "POST", "/metrics", "host: localhost\r\n").status, 405);
}

#[test]
fn metrics_are_well_formed() {
    let _watchdog = a_minute();
    let name = "odd \"name\" \\ of\na runtime";
    let runtime = Runtime::builder().name(name).carriers(2).measure(true).build().unwrap();
    // Without a suffix, a second runtime of this name would have equal labels.
    let twin = Runtime::builder().name(name).carriers(1).build().unwrap();
    let server = start(&runtime, Access::Loopback);
    let fiber = spawn(&runtime, "waits", waits_for_the_tide);
    wait_suspended(&fiber.fiber());
    let answer = get(&server, "/metrics");
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
    let metrics = parse(&answer.body);

    let runtimes: HashSet<&str> =
        metrics["sinew_switches_total"].iter().map(|sample| &*sample.labels["runtime"]).collect();
    assert!(runtimes.contains(name) && runtimes.contains(&*format!("{name} (2)")), "{runtimes:?}");
    let of = |metric: &str, label: &str, value: &str| {
        let mine = |sample: &&Sample| {
            sample.labels["runtime"] == name && sample.labels.get(label).is_some_and(|v| v == value)
        };
        metrics[metric].iter().find(mine).unwrap().value
    };
    assert!(of("sinew_fibers", "state", "suspended") >= 1.0);
    assert!(of("sinew_waits", "kind", "park") >= 1.0);
    assert!(of("sinew_stacks", "state", "in_use") >= 1.0);
    assert!(of("sinew_switches_total", "carrier", "0") >= 0.0);
    // This request is still under way.
    let served = |metric: &str, status: Option<&str>| {
        let address = server.local_addr().to_string();
        let mine = |sample: &&Sample| {
            sample.labels["server"] == address
                && sample.labels.get("status").map(|status| &**status) == status
        };
        metrics[metric].iter().find(mine).unwrap().value
    };
    assert_eq!(served("sinew_http_connections", None), 1.0);
    assert_eq!(served("sinew_http_connections_total", None), 1.0);
    assert_eq!(served("sinew_http_requests_total", None), 1.0);
    assert_eq!(served("sinew_http_responses_total", Some("2xx")), 0.0);
    assert!(metrics["sinew_run_time_seconds"].len() > 3);
    assert!(metrics["sinew_latency_seconds"].len() > 3);
    if cfg!(target_os = "linux") {
        for name in [
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_cpu_seconds_total",
            "process_start_time_seconds",
        ] {
            assert!(metrics[name][0].value > 0.0, "{name}");
        }
    }
    drop(twin);
}

struct Sample {
    suffix: String,
    labels: HashMap<String, String>,
    value: f64,
}

/// Parses the text format. Panics if it is malformed.
fn parse(text: &str) -> HashMap<String, Vec<Sample>> {
    assert!(text.ends_with('\n'));
    let mut metrics: HashMap<String, Vec<Sample>> = HashMap::new();
    let mut kinds: HashMap<String, String> = HashMap::new();
    let (mut helped, mut current) = (String::new(), String::new());
    let mut seen = HashSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(is_name(name) && help.ends_with('.'), "{line}");
            helped = name.into();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, helped, "each TYPE follows its HELP");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(name.starts_with("sinew_") || name.starts_with("process_"), "{line}");
            assert!(kinds.insert(name.into(), kind.into()).is_none(), "{name} is there twice");
            metrics.insert(name.into(), Vec::new());
            current = name.into();
        } else {
            assert!(seen.insert(line[..line.rfind(' ').unwrap()].to_owned()), "twice: {line}");
            let (name, labels, value) = sample(line);
            let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("stray: {line}"));
            let histogram = kinds[&current] == "histogram";
            let allowed: &[&str] = if histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(allowed.contains(&suffix), "{line}");
            let suffix = suffix.to_owned();
            metrics.get_mut(&current).unwrap().push(Sample { suffix, labels, value });
        }
    }
    for (name, kind) in kinds.iter().filter(|(_, kind)| *kind == "histogram") {
        assert_eq!(kind, "histogram");
        check_histogram(&metrics[name]);
    }
    metrics
}

/// Checks that buckets grow, and that the last one counts everything.
fn check_histogram(samples: &[Sample]) {
    let (mut last_bound, mut last_count) = (f64::NEG_INFINITY, 0.0);
    let mut sums = 0;
    for sample in samples {
        match &*sample.suffix {
            "_bucket" => {
                let le = &sample.labels["le"];
                let bound = if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap() };
                assert!(bound > last_bound && sample.value >= last_count);
                (last_bound, last_count) = (bound, sample.value);
            }
            "_sum" => sums += 1,
            _ => {
                assert_eq!((last_bound, last_count), (f64::INFINITY, sample.value));
                (last_bound, last_count) = (f64::NEG_INFINITY, 0.0);
            }
        }
    }
    assert_eq!(sums, samples.iter().filter(|sample| sample.suffix == "_count").count());
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The name, the labels and the value of one line.
fn sample(line: &str) -> (&str, HashMap<String, String>, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = HashMap::new();
    if let Some(list) = rest.strip_prefix('{') {
        rest = list;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_name(label), "{line}");
            let mut value = String::new();
            let mut chars = after.char_indices();
            let close = loop {
                match chars.next().unwrap() {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        escaped @ ('\\' | '"') => escaped,
                        other => panic!("\\{other} in {line}"),
                    }),
                    (_, char) => value.push(char),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[close + 1..];
            match rest.as_bytes()[0] {
                b',' => rest = &rest[1..],
                b'}' => break,
                other => panic!("{other} in {line}"),
            }
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
    (name, labels, value)
}

#[test]
fn deadlocks_are_told() {
    let _watchdog = a_minute();
    let runtime = runtime("stuck");
    let server = start(&runtime, Access::Loopback);
    let locks = [Arc::new(Mutex::new(())), Arc::new(Mutex::new(()))];
    let both = Arc::new(sinew::sync::Barrier::new(2));
    let fibers: Vec<_> = [("stuck one", 0), ("stuck two", 1)]
        .map(|(name, index)| {
            let (first, second) = (locks[index].clone(), locks[1 - index].clone());
            let both = both.clone();
            spawn(&runtime, name, move || {
                let _first = first.lock();
                both.wait();
                let _second = second.lock();
            })
        })
        .into();
    let deadline = Instant::now() + Duration::from_secs(20);
    let told = loop {
        let view = get(&server, "/debug/fibers.json?limit=0").json();
        match view["deadlocks"].as_array().unwrap().first() {
            Some(members) => break members.clone(),
            None => assert!(Instant::now() < deadline, "the deadlock is not told"),
        }
    };
    let names: HashSet<&str> =
        told.as_array().unwrap().iter().filter_map(|member| member["name"].as_str()).collect();
    assert_eq!(names, HashSet::from(["stuck one", "stuck two"]));
    assert!(told.as_array().unwrap().iter().all(|member| member["wait"] == "lock"));
    let metrics = parse(&get(&server, "/metrics").body);
    assert!(metrics["sinew_deadlocks"][0].value >= 1.0);
    // Leaves no deadlock to other tests.
    fibers.iter().for_each(JoinHandle::cancel);
    fibers.into_iter().for_each(|fiber| drop(fiber.join()));
}

#[test]
fn ten_thousand_fibers_are_answered_soon() {
    let _watchdog = a_minute();
    let runtime = runtime("crowd");
    let server = start(&runtime, Access::Loopback);
    let fibers: Vec<_> = (0..10_000).map(|_| runtime.spawn(sinew::park)).collect();
    fibers.iter().for_each(|fiber| wait_suspended(&fiber.fiber()));
    for (target, most) in [
        ("/debug/fibers.json", 2),
        ("/debug/fibers.json?sort=-stack", 5),
        ("/debug/fibers.json?filter=crowd&sort=name", 5),
        ("/metrics", 2),
    ] {
        let start = Instant::now();
        let answer = get(&server, target);
        let took = start.elapsed();
        assert_eq!(answer.status, 200);
        // Test machines may be slow, and debug builds are.
        assert!(took < Duration::from_secs(most), "{target} took {took:?}");
        if target.contains("json") {
            let view = answer.json();
            assert!(view["totals"]["fibers"].as_u64().unwrap() >= 10_000);
            assert_eq!(view["fibers"].as_array().unwrap().len(), 500);
        }
    }
    fibers.iter().for_each(|fiber| fiber.fiber().unpark());
}

#[test]
fn other_fibers_go_on_while_many_are_looked_at() {
    let _watchdog = a_minute();
    let runtime = Runtime::builder().name("one").carriers(1).build().unwrap();
    let server = start(&runtime, Access::Loopback);
    let crowd: Vec<_> = (0..5000).map(|_| runtime.spawn(sinew::park)).collect();
    crowd.iter().for_each(|fiber| wait_suspended(&fiber.fiber()));
    let done = Arc::new(AtomicBool::new(false));
    let seen = done.clone();
    // On the only carrier, which also answers the requests.
    let longest = runtime.spawn(move || {
        let mut longest = Duration::ZERO;
        let mut last = Instant::now();
        while !seen.load(Ordering::Relaxed) {
            sinew::sleep(Duration::from_millis(1));
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        longest
    });
    let start = Instant::now();
    for _ in 0..3 {
        assert_eq!(get(&server, "/debug/dump").status, 200);
    }
    let took = start.elapsed();
    done.store(true, Ordering::Relaxed);
    let longest = longest.join().unwrap();
    assert!(longest < took / 3, "kept for {longest:?} of {took:?}");
    crowd.iter().for_each(|fiber| fiber.fiber().unpark());
}
