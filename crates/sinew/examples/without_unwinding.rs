//! A program that works without unwinding. With `panic = "abort"`, a cancelled fiber has to ask
//! whether it was cancelled, and cancellation does not end its waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn main() {
    let runtime = sinew::Runtime::builder().carriers(2).build().expect("the carriers start");
    let began = Arc::new(AtomicBool::new(false));
    let theirs = began.clone();
    let fiber = runtime.spawn(move || {
        theirs.store(true, Ordering::Release);
        let mut naps = 0;
        while !sinew::is_cancelled() {
            // With unwinding, the mask keeps a cancellation from ending the nap early. Without
            // unwinding, no cancellation does.
            sinew::masked(|| sinew::sleep(Duration::from_millis(1)));
            naps += 1;
        }
        naps
    });
    sinew::wait_until(|| began.load(Ordering::Acquire));
    fiber.cancel();
    assert!(fiber.join().expect("the fiber has returned") > 0);
    assert_eq!(runtime.spawn(|| 6 * 7).join().expect("the fiber has returned"), 42);
    runtime.shutdown_timeout(Duration::from_secs(10)).expect("every fiber has ended");
}
