//! Spawning, joining, yielding, sleeping.

use sinew::Runtime;
use std::time::Duration;

#[test]
fn a_fiber_returns_its_result() {
    assert_eq!(sinew::run(|| sinew::spawn(|| 7).join().unwrap()), 7);
}

#[test]
fn a_thread_joins_a_fiber() {
    assert_eq!(sinew::spawn(|| 7).join().unwrap(), 7);
}

#[test]
fn many_fibers_yield_and_end() {
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let sum = runtime.run(|| {
        let fibers: Vec<_> = (0..1000_u64)
            .map(|n| {
                sinew::spawn(move || {
                    for _ in 0..100 {
                        sinew::yield_now();
                    }
                    n
                })
            })
            .collect();
        fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<u64>()
    });
    assert_eq!(sum, 499_500);
}

#[test]
fn sleepers_wake() {
    sinew::run(|| {
        let fibers: Vec<_> = (0..100_u64)
            .map(|n| sinew::spawn(move || sinew::sleep(Duration::from_micros(n * 50))))
            .collect();
        for fiber in fibers {
            fiber.join().unwrap();
        }
    });
}

#[test]
fn cancelled_in_park() {
    sinew::run(|| {
        let fiber = sinew::spawn(|| sinew::park());
        for _ in 0..10 {
            sinew::yield_now();
        }
        fiber.cancel();
        assert!(sinew::is_cancel(&*fiber.join().unwrap_err()));
    });
}
