//! A stack overflow is reported with the fiber's name.

use sinew::FiberBuilder;
use sinew_testkit::child::child;

#[test]
fn an_overflow_names_the_fiber() {
    let outcome = child("an_overflow_names_the_fiber", || {
        let fiber = FiberBuilder::new()
            .name("deep")
            .stack_size(64 * 1024)
            .spawn(sinew_testkit::stack::overflow);
        drop(fiber.unwrap().join());
    });
    outcome.assert_died(libc::SIGSEGV, &["stack overflow in fiber \"deep\" (id ", "65536 bytes"]);
}

#[test]
fn an_overflow_of_an_ordinary_fiber_is_reported() {
    let outcome = child("an_overflow_of_an_ordinary_fiber_is_reported", || {
        sinew::run(|| {
            for _ in 0..10 {
                sinew::spawn(sinew::yield_now).join().unwrap();
            }
            drop(sinew::spawn(sinew_testkit::stack::overflow).join());
        });
    });
    outcome.assert_died(libc::SIGSEGV, &["stack overflow in fiber ", "262144 bytes"]);
}
