//! A million guarded stacks at once, and the cost of each.

use sinew_context::FiberContext;
use sinew_context::stack::{Decay, GuardKind, StackCache, StackPool};
use sinew_testkit::child::child;
use sinew_testkit::memory;

const COUNT: usize = 1_000_000;

/// The most memory that a suspended fiber may take with one page touched, resident and in page
/// tables.
const BYTES_EACH: usize = 4_800;

#[test]
fn a_million_fibers_on_guarded_stacks_take_4800_bytes_each() {
    if cfg!(sinew_force_fallback) || cfg!(sinew_asan) || cfg!(sinew_tsan) {
        return; // two mappings for each stack, or shadow memory: other bounds hold there
    }
    if memory::available() < COUNT * BYTES_EACH * 5 / 4 {
        println!("skipped: a million stacks need {} MiB of memory", (COUNT * BYTES_EACH) >> 20);
        return;
    }
    let mut fibers: Vec<FiberContext> = Vec::with_capacity(COUNT);
    // Touch the vector's memory first, so that only stacks are counted.
    for place in fibers.spare_capacity_mut().iter_mut().step_by(512) {
        *place = std::mem::MaybeUninit::zeroed();
    }
    let pool = StackPool::new().unwrap();
    let stacks = StackCache::new(&pool);
    let before = (memory::resident(), memory::page_tables(), memory::mappings());
    for _ in 0..COUNT {
        let fiber =
            FiberContext::with_allocator(&stacks, |caller| caller.resume().unwrap()).unwrap();
        fibers.push(fiber.resume().unwrap());
    }
    let stats = pool.stats();
    if stats.mprotect_regions > 0 {
        println!("skipped: this kernel has no guards in place");
        return;
    }
    let resident = memory::resident() - before.0;
    let tables = memory::page_tables() - before.1;
    let each = (resident + tables).div_ceil(COUNT);
    println!("{each} bytes each: {} resident, {} in page tables", resident / COUNT, tables / COUNT);
    assert!(each <= BYTES_EACH, "{each} bytes");
    assert!(memory::mappings() - before.2 < 2000, "{} mappings", memory::mappings());
    assert_eq!(stats.in_use, COUNT);
    // All fibers are alive.
    for fiber in fibers {
        assert!(fiber.resume().is_none());
    }
}

#[test]
fn running_out_of_mappings_is_an_error_and_loses_no_fiber() {
    // In a separate process: other tests would find no mappings either.
    child("running_out_of_mappings_is_an_error_and_loses_no_fiber", use_mappings_up)
        .assert_success();
}

#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn use_mappings_up() {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let Ok(limit) = limit.trim().parse::<usize>() else {
        return;
    };
    if limit > 200_000 {
        println!("skipped: vm.max_map_count is {limit}");
        return;
    }
    let pool = StackPool::builder()
        .stack_size(16 * 1024)
        .guards(GuardKind::Mprotect)
        .decay(Decay::Manual)
        .build()
        .unwrap();
    let mut fibers = Vec::new();
    let error = loop {
        match FiberContext::with_allocator(&pool, |caller| caller) {
            Ok(fiber) => fibers.push(fiber),
            Err(error) => break error,
        }
        assert!(fibers.len() < limit, "the kernel should have refused");
    };
    assert!(error.to_string().contains("vm.max_map_count"), "{error}");
    assert!(fibers.len() > limit / 4, "{}", fibers.len());
    // The fibers that were made work, and after some are gone there is room again.
    fibers.truncate(fibers.len() / 2);
    pool.trim();
    fibers.push(FiberContext::with_allocator(&pool, |caller| caller).unwrap());
    for fiber in fibers {
        assert!(fiber.resume().is_none());
    }
}
