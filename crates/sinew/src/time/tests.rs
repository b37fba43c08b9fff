use super::*;
use crate::queue::low_bits;
use sinew_testkit::child::child;

#[test]
fn a_stale_timer_does_not_end_a_sleep() {
    // A runtime takes control blocks, and other unit tests rely on having them all.
    let outcome = child("time::tests::a_stale_timer_does_not_end_a_sleep", || {
        sleep_beside_a_stale_timer();
    });
    outcome.assert_success();
}

fn sleep_beside_a_stale_timer() {
    const LONG: Duration = Duration::from_millis(30);
    let runtime = crate::Runtime::builder().carriers(1).build().unwrap();
    let slept = runtime.run(|| {
        let sleeper = crate::spawn(|| {
            let start = Instant::now();
            sleep(LONG);
            start.elapsed()
        });
        let handle = sleeper.fiber();
        wait_until(|| handle.waits_for().is_some());
        let (owner, _) = current::fiber().unwrap();
        let control = handle.control();
        let epoch = control.wake.waiting().expect("the fiber sleeps");
        let carrier = owner.shared();
        let mut timers = carrier.timers.lock();
        // SAFETY: blocks are never unmapped.
        unsafe { timers.insert(clock::now() + 1, control, low_bits(epoch.number())) };
        carrier.earliest.store(0, crate::primitive::Ordering::Relaxed);
        drop(timers);
        sleeper.join().unwrap()
    });
    assert!(slept >= LONG, "{slept:?}");
}
