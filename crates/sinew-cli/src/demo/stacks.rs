//! Many guarded stacks at once, each with a fiber suspended on it.

use sinew_context::FiberContext;
use sinew_context::stack::{StackCache, StackPool};
use std::fs::read_to_string;
use std::io::{self, Write};
use std::time::Instant;

/// An upper estimate of the bytes that a suspended fiber takes. It tells beforehand how many fit.
const BYTES_EACH: usize = 5_000;

pub(super) fn show(out: &mut impl Write, wanted: usize) -> io::Result<()> {
    let count = wanted.min(available() / 10 * 8 / BYTES_EACH);
    writeln!(out, "== {count} fibers, each suspended on a guarded stack of 256 KiB")?;
    if count < wanted {
        writeln!(out, "({wanted} were requested; the free memory holds no more)")?;
    }
    let before = (status("VmRSS"), status("VmPTE"));
    let pool = StackPool::new()?;
    let stacks = StackCache::new(&pool);
    let mut fibers = Vec::with_capacity(count);

    let start = Instant::now();
    for number in 0..count {
        let fiber = FiberContext::with_allocator(&stacks, move |caller| {
            let caller = caller.resume().expect("the caller is suspended");
            assert!(std::hint::black_box(number) < usize::MAX);
            caller
        })?;
        fibers.push(fiber.resume().expect("the fiber is suspended"));
    }
    let made = start.elapsed();
    let resident = status("VmRSS").saturating_sub(before.0 + fibers.capacity() * 8);
    let tables = status("VmPTE").saturating_sub(before.1);
    let stats = pool.stats();
    let each = |total: usize| total as f64 / count as f64;
    writeln!(
        out,
        "made in {made:.1?}: {:.2} us each; {:.0} bytes each resident, {:.0} in page tables",
        made.as_micros() as f64 / count as f64,
        each(resident),
        each(tables),
    )?;
    let mappings = read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count());
    let limit = read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    writeln!(
        out,
        "{} regions of {:.1} GiB in all; {mappings} mappings of the {} that the kernel allows",
        stats.regions,
        stats.reserved_bytes as f64 / (1_u64 << 30) as f64,
        limit.trim(),
    )?;
    let start = Instant::now();
    let ended = fibers.into_iter().filter_map(FiberContext::resume).count() == 0;
    assert!(ended, "every fiber has ended");
    writeln!(out, "resumed and ended in {:.1?}", start.elapsed())
}

/// A figure of this process in bytes; zero where the system does not report it.
fn status(field: &str) -> usize {
    kib("/proc/self/status", field)
}

/// The free memory of the machine in bytes; unlimited where the system does not report it.
fn available() -> usize {
    match kib("/proc/meminfo", "MemAvailable") {
        0 => usize::MAX,
        bytes => bytes,
    }
}

fn kib(file: &str, field: &str) -> usize {
    let text = read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    number.unwrap_or(0) * 1024
}
