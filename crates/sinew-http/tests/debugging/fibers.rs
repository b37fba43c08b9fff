//! The page of fibers, and the JSON behind it.

use crate::metrics::parse;
use crate::{ask, get, runtime, spawn, start, wait_suspended, waits_for_the_tide};
use serde_json::Value;
use sinew::JoinHandle;
use sinew::sync::Mutex;
use sinew_http::debug::Access;
use sinew_testkit::watch::a_minute;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    assert!(waits["wait"]["owner"]["id"].is_u64(), "a thread holds the lock");
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
            None => assert!(Instant::now() < deadline, "the route does not show the deadlock"),
        }
    };
    let names: HashSet<&str> =
        told.as_array().unwrap().iter().filter_map(|member| member["name"].as_str()).collect();
    assert_eq!(names, HashSet::from(["stuck one", "stuck two"]));
    assert!(told.as_array().unwrap().iter().all(|member| member["wait"] == "lock"));
    let metrics = parse(&get(&server, "/metrics").body);
    assert!(metrics["sinew_deadlocks"][0].value >= 1.0);
    // Leave no deadlock to other tests.
    fibers.iter().for_each(JoinHandle::cancel);
    fibers.into_iter().for_each(|fiber| drop(fiber.join()));
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
