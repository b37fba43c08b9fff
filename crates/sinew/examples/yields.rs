//! Two fibers of one carrier yield to each other as often as the first argument says, for counting
//! instructions.

/// Runs both fibers.
fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let yields = move || (0..count).for_each(|_: u64| sinew::yield_now());
    let runtime = sinew::Runtime::builder().carriers(1).build().expect("the carrier starts");
    runtime.run(move || {
        let other = sinew::spawn(yields);
        yields();
        other.join().expect("the other fiber does not panic");
    });
}
