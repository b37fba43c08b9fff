//! The runtime: many waiting fibers, a tree of fibers, and a cancelled fiber.

use sinew::Runtime;
use std::io::{self, Write};
use std::time::{Duration, Instant};

const SLEEPERS: u32 = 100_000;
const LEAVES: u64 = 1_000_000;

pub(super) fn show(out: &mut impl Write) -> io::Result<()> {
    let runtime = Runtime::builder().name("demo").build()?;
    writeln!(out, "== fibers on {} threads", runtime.handle().carriers())?;

    let start = Instant::now();
    runtime.run(|| {
        let naps = (0..SLEEPERS).map(|_| || sinew::sleep(Duration::from_millis(100)));
        assert!(sinew::run_all(naps).iter().all(Result::is_ok));
    });
    let time = start.elapsed().as_millis();
    writeln!(out, "{SLEEPERS} fibers slept for 100 ms each: {time} ms in all")?;

    let start = Instant::now();
    let sum = runtime.run(|| tree(0, LEAVES));
    assert_eq!(sum, LEAVES * (LEAVES - 1) / 2);
    let time = start.elapsed().as_millis();
    writeln!(out, "a tree of fibers with {LEAVES} leaves added up to {sum}: {time} ms")?;

    let fiber = runtime.spawn(sinew::park);
    fiber.cancel();
    let ended = fiber.join().is_err_and(|payload| sinew::is_cancel(&*payload));
    writeln!(out, "a fiber that waited for ever was cancelled: {ended}\n")
}

/// The sum of `count` numbers, from `first` on. Each inner node of the tree spawns ten fibers.
fn tree(first: u64, count: u64) -> u64 {
    if count == 1 {
        return first;
    }
    let part = count / 10;
    let children: Vec<_> =
        (0..10).map(|n| sinew::spawn(move || tree(first + n * part, part))).collect();
    children.into_iter().map(|child| child.join().expect("no child panics")).sum()
}
