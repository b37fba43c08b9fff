//! Requests about thousands of fibers.

use crate::{get, runtime, start, wait_suspended};
use sinew::Runtime;
use sinew_http::debug::Access;
use sinew_testkit::watch::a_minute;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
    // The fiber runs on the only carrier, which also answers the requests.
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
