//! The facts about each fiber in a snapshot, in dumps, and as JSON.

use sinew::inspect::{FiberInfo, WaitInfo};
use sinew::runtime::PinnedWait;
use sinew::sync::{Condvar, Mutex, Semaphore, channel};
use sinew::{Fiber, FiberBuilder, FiberState, JoinHandle, Runtime};
use sinew_testkit::child::child;
use sinew_testkit::watch;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn runtime() -> Runtime {
    Runtime::builder().carriers(2).pinned_wait(PinnedWait::Silent).build().unwrap()
}

fn info_of(fiber: &Fiber) -> Option<FiberInfo> {
    sinew::fibers().into_iter().find(|info| info.id() == fiber.id())
}

/// Returns the facts about a waiting fiber, as soon as they are as `wanted`.
fn once(fiber: &Fiber, wanted: impl Fn(&WaitInfo) -> bool) -> FiberInfo {
    let mut found = None;
    let find = || {
        found = info_of(fiber).filter(|info| info.wait.as_ref().is_some_and(&wanted));
        found.is_some()
    };
    sinew::wait_until(find);
    found.unwrap()
}

fn waiting(fiber: &Fiber) -> FiberInfo {
    once(fiber, |_| true)
}

/// Checks that the wait of a fiber that runs `wait` has about an hour left.
fn lasts_an_hour(runtime: &Runtime, name: &str, wait: impl FnOnce() + Send + 'static) {
    let fiber = FiberBuilder::new().name(name).runtime(runtime.handle()).spawn(wait).unwrap();
    // A pinned fiber is in its wait for a moment before its deadline is known.
    let info = once(&fiber.fiber(), |wait| wait.left.is_some());
    let left = info.wait.unwrap().left.unwrap();
    assert!(left <= HOUR && left > HOUR - Duration::from_secs(120), "{name}: {left:?}");
    fiber.cancel();
    fiber.join().unwrap_err();
}

#[test]
fn every_timed_wait_shows_its_remaining_time() {
    let _watch = watch::a_minute();
    let runtime = runtime();
    let lock = Arc::new(Mutex::new(()));
    let guard = lock.lock();
    let (sender, receiver) = channel::bounded::<u8>(1);
    let (ours, _theirs) = sinew::os::unix::net::UnixStream::pair().unwrap();
    let other = runtime.spawn(sinew::park);
    let joined = other.fiber();
    let theirs = lock.clone();
    lasts_an_hour(&runtime, "sleep", || sinew::sleep(HOUR));
    lasts_an_hour(&runtime, "park", || sinew::park_timeout(HOUR));
    lasts_an_hour(&runtime, "lock", move || drop(theirs.try_lock_for(HOUR)));
    lasts_an_hour(&runtime, "receive", move || _ = receiver.recv_timeout(HOUR));
    lasts_an_hour(&runtime, "join", move || _ = joined.wait_finished_timeout(HOUR));
    lasts_an_hour(&runtime, "predicate", || _ = sinew::wait_until_timeout(|| false, HOUR));
    lasts_an_hour(&runtime, "semaphore", || drop(Semaphore::new(0).acquire_timeout(1, HOUR)));
    lasts_an_hour(&runtime, "condvar", || {
        let lock = Mutex::new(());
        let _ = Condvar::new().wait_timeout(&mut lock.lock(), HOUR);
    });
    lasts_an_hour(&runtime, "socket", move || {
        ours.set_read_timeout(Some(HOUR)).unwrap();
        let _ = (&ours).read(&mut [0]);
    });
    drop((guard, sender));
    other.fiber().unpark();
    other.join().unwrap();
}

#[test]
fn the_nearest_deadline_around_a_wait_counts() {
    let _watch = watch::a_minute();
    let runtime = runtime();
    lasts_an_hour(&runtime, "scope", || _ = sinew::timeout(HOUR, sinew::park));
    lasts_an_hour(&runtime, "nearer", || _ = sinew::timeout(HOUR, || sinew::sleep(2 * HOUR)));
    lasts_an_hour(&runtime, "farther", || _ = sinew::timeout(2 * HOUR, || sinew::sleep(HOUR)));
}

#[test]
fn pinned_fibers_show_their_remaining_time() {
    let _watch = watch::a_minute();
    let runtime = runtime();
    lasts_an_hour(&runtime, "sleep", || sinew::pinned(|| sinew::sleep(HOUR)));
    lasts_an_hour(&runtime, "park", || sinew::pinned(|| sinew::park_timeout(HOUR)));
    lasts_an_hour(&runtime, "scope", || {
        let _ = sinew::timeout(HOUR, || sinew::pinned(sinew::park));
    });
    let (ours, _theirs) = sinew::os::unix::net::UnixStream::pair().unwrap();
    lasts_an_hour(&runtime, "socket", move || {
        ours.set_read_timeout(Some(HOUR)).unwrap();
        sinew::pinned(|| _ = (&ours).read(&mut [0]));
    });
}

#[test]
fn a_wait_without_a_deadline_has_no_limit() {
    let _watch = watch::a_minute();
    let runtime = runtime();
    for pinned in [false, true] {
        let second = Arc::new(AtomicBool::new(false));
        let begun = second.clone();
        let twice = move || {
            // A timed wait leaves nothing behind for the next one.
            sinew::park_timeout(Duration::from_micros(1));
            begun.store(true, Ordering::Relaxed);
            sinew::park();
        };
        let fiber = runtime.spawn(move || if pinned { sinew::pinned(twice) } else { twice() });
        sinew::wait_until(|| second.load(Ordering::Relaxed));
        assert_eq!(waiting(&fiber.fiber()).wait.unwrap().left, None);
        fiber.cancel();
        fiber.join().unwrap_err();
    }
}

#[test]
fn a_snapshot_shows_pinned_migratable_and_cancelled_fibers() {
    let _watch = watch::a_minute();
    let runtime = runtime();
    let facts = |fiber: &JoinHandle<()>| {
        let info = waiting(&fiber.fiber());
        (info.pinned, info.migratable, info.cancel_requested)
    };
    let plain = runtime.spawn(sinew::park);
    assert_eq!(facts(&plain), (false, false, false));
    let pinned = runtime.spawn(|| sinew::pinned(sinew::park));
    assert_eq!(facts(&pinned), (true, false, false));
    // SAFETY: the closure has nothing that belongs to a thread.
    let builder = unsafe { FiberBuilder::new().runtime(runtime.handle()).migratable() };
    let moves = builder.spawn(sinew::park).unwrap();
    assert_eq!(facts(&moves), (false, true, false));
    let masked = runtime.spawn(|| sinew::masked(sinew::park));
    assert_eq!(facts(&masked), (false, false, false));
    masked.cancel();
    assert_eq!(facts(&masked), (false, false, true));
    // Unpark all first: the pinned fiber blocks the carrier of others.
    let fibers = [plain, pinned, moves, masked];
    fibers.iter().for_each(|fiber| fiber.fiber().unpark());
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}

#[test]
fn a_fiber_is_not_pinned_after_its_region() {
    let _watch = watch::a_minute();
    let runtime = runtime();
    let fiber = runtime.spawn(|| {
        sinew::pinned(|| ());
        sinew::park();
    });
    assert!(!waiting(&fiber.fiber()).pinned);
    fiber.fiber().unpark();
    fiber.join().unwrap();
}

#[test]
fn dumps_show_pinned_migratable_and_cancelled_fibers() {
    // In a separate process, without fibers of other tests.
    child("dumps_show_pinned_migratable_and_cancelled_fibers", || {
        let _watch = watch::a_minute();
        let runtime = runtime();
        let named = |name: &str| FiberBuilder::new().name(name).runtime(runtime.handle());
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        // SAFETY: the closures have nothing that belongs to a thread.
        let moves = unsafe { named("moves").migratable() };
        let fibers = [
            moves.spawn(|| sinew::masked(|| sinew::park_timeout(HOUR))).unwrap(),
            named("pinned")
                .carrier(0)
                .spawn(move || {
                    sinew::pinned(|| while !seen.load(Ordering::Relaxed) {});
                })
                .unwrap(),
        ];
        sinew::wait_until(|| fibers[0].fiber().state() == FiberState::Suspended);
        sinew::wait_until(|| info_of(&fibers[1].fiber()).is_some_and(|info| info.pinned));
        fibers[0].cancel();
        let mut text = Vec::new();
        sinew::dump(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for part in [" ms old, migratable, cancel requested", " ms old, pinned", ", at most 3"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let mut json = Vec::new();
        sinew::inspect::dump_json(&mut json).unwrap();
        let json = String::from_utf8(json).unwrap();
        for part in [
            r#""pinned":false,"migratable":true,"cancel_requested":true,"wait":{"kind":"park""#,
            r#""pinned":true,"migratable":false,"cancel_requested":false,"wait":null"#,
            r#""left_us":35"#,
        ] {
            assert!(json.contains(part), "{part} in {json}");
        }
        done.store(true, Ordering::Relaxed);
        fibers[0].fiber().unpark();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    })
    .assert_success();
}
