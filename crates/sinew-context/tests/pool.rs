//! The pool: reuse, limits, decay, and the end of the pool.

use sinew_context::FiberContext;
use sinew_context::stack::{Decay, Stack, StackAllocator, StackCache, StackPool};
use sinew_testkit::child::child;
use sinew_testkit::{Seed, memory};
use std::io;
use std::time::{Duration, Instant};

const KIB: usize = 1024;

fn manual() -> StackPool {
    StackPool::builder().decay(Decay::Manual).build().unwrap()
}

#[test]
fn the_last_stack_given_back_is_the_first_handed_out() {
    let pool = manual();
    let stacks: Vec<Stack> = (0..5).map(|_| pool.allocate().unwrap()).collect();
    let order: Vec<usize> = stacks.iter().map(|stack| stack.range().start).collect();
    drop(stacks);
    let again: Vec<Stack> = (0..5).map(|_| pool.allocate().unwrap()).collect();
    let reused: Vec<usize> = again.iter().rev().map(|stack| stack.range().start).collect();
    assert_eq!(order, reused);
    assert_eq!(pool.stats().reused, 5);
}

#[test]
fn a_reused_stack_keeps_its_memory_until_it_decays() {
    let pool = manual();
    let stack = pool.allocate().unwrap();
    // SAFETY: the stack is unused.
    unsafe { stack.low().add(4096).write(42) };
    drop(stack);
    let read = |stack: &Stack| {
        // SAFETY: the stack is unused.
        unsafe { stack.low().add(4096).read() }
    };
    let stack = pool.allocate().unwrap();
    assert_eq!(read(&stack), 42);
    // Keeps the region mapped while the other stack is cold.
    let other = pool.allocate().unwrap();
    drop(stack);
    pool.decay();
    assert_eq!(pool.stats().warm, 1, "it was in use since the pass before");
    pool.decay();
    assert_eq!((pool.stats().warm, pool.stats().cold), (0, 1));
    let stack = pool.allocate().unwrap();
    assert_eq!(read(&stack), 0);
    drop((stack, other));
}

#[test]
fn the_limit_is_an_error_and_ends_when_a_stack_comes_back() {
    let pool = StackPool::builder().max_stacks(3).build().unwrap();
    let mut stacks: Vec<Stack> = (0..3).map(|_| pool.allocate().unwrap()).collect();
    let error = pool.allocate().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    assert!(error.to_string().contains("all 3 stacks"), "{error}");
    let fiber = FiberContext::with_allocator(&pool, |caller| caller);
    assert!(fiber.unwrap_err().to_string().contains("raise `max_stacks`"));
    stacks.pop();
    assert!(pool.allocate().is_ok());
}

#[test]
fn more_than_max_warm_is_given_back_at_once() {
    let pool = StackPool::builder().max_warm(2).decay(Decay::Manual).build().unwrap();
    let stacks: Vec<Stack> = (0..10).map(|_| pool.allocate().unwrap()).collect();
    drop(stacks);
    assert_eq!((pool.stats().warm, pool.stats().cold), (2, 8));
}

#[test]
fn trim_unmaps_all_free_stacks() {
    let pool = manual();
    let stacks: Vec<Stack> = (0..500).map(|_| pool.allocate().unwrap()).collect();
    assert!(pool.stats().regions >= 2);
    drop(stacks);
    pool.trim();
    let stats = pool.stats();
    assert_eq!((stats.regions, stats.reserved_bytes, stats.warm, stats.cold), (0, 0, 0, 0));
    assert!(pool.allocate().is_ok(), "and starts again");
}

#[test]
fn a_retired_pool_keeps_no_memory_beside_a_stack_in_use() {
    let pool = manual();
    let kept = pool.allocate().unwrap();
    let mut before: Vec<Stack> = (0..8).map(|_| pool.allocate().unwrap()).collect();
    let touched: Vec<*mut u8> =
        before.iter().map(|stack| stack.low().as_ptr().wrapping_add(4096)).collect();
    for &byte in &touched {
        // SAFETY: the stack is unused.
        unsafe { byte.write(42) };
    }
    let after = before.split_off(4);
    drop(before);
    pool.retire();
    drop(after);
    assert!(pool.stats().regions > 0, "the region of the stack in use stays");
    for byte in touched {
        // SAFETY: the region is still mapped.
        assert_eq!(unsafe { byte.read() }, 0);
    }
    drop(kept);
}

#[test]
fn a_region_with_a_stack_in_use_stays() {
    let pool = manual();
    let mut stacks: Vec<Stack> = (0..500).map(|_| pool.allocate().unwrap()).collect();
    let kept = stacks.swap_remove(0);
    drop(stacks);
    pool.trim();
    assert_eq!(pool.stats().regions, 1);
    // SAFETY: the stack is ours.
    unsafe { kept.low().write(1) };
}

#[test]
fn a_stack_outlives_its_pool() {
    let pool = manual();
    let stack = pool.allocate().unwrap();
    let others: Vec<Stack> = (0..300).map(|_| pool.allocate().unwrap()).collect();
    drop(others);
    drop(pool);
    // SAFETY: the stack is ours, and the pool's core lives as long as the stack is out.
    unsafe { stack.low().write_bytes(1, stack.size() - 16) };
}

#[test]
fn a_cache_outlives_its_pool_and_its_stacks_outlive_the_cache() {
    let pool = manual();
    let cache = StackCache::new(&pool);
    let stack = cache.allocate().unwrap();
    drop(pool);
    let second = cache.allocate().unwrap();
    drop(second);
    drop(cache);
    // SAFETY: the stack is ours.
    unsafe { stack.low().write_bytes(1, stack.size() - 16) };
}

#[test]
fn a_cache_gives_back_stacks_beyond_its_capacity() {
    let pool = manual();
    let cache = StackCache::with_capacity(&pool, 8);
    let stacks: Vec<Stack> = (0..20).map(|_| cache.allocate().unwrap()).collect();
    drop(stacks);
    assert!(cache.len() <= 8);
    assert_eq!(pool.stats().in_use, cache.len());
    cache.flush();
    assert!(cache.is_empty());
    assert_eq!(pool.stats().in_use, 0);
    let tiny = StackCache::with_capacity(&pool, 0);
    drop(tiny.allocate().unwrap());
    assert!(tiny.is_empty());
}

#[test]
fn a_burst_is_given_back_within_five_seconds() {
    if cfg!(sinew_asan) || cfg!(sinew_tsan) {
        return; // shadow memory counts as resident too
    }
    // In a separate process, so that no other test uses its memory.
    child("a_burst_is_given_back_within_five_seconds", burst).assert_success();
}

fn burst() {
    let pool = StackPool::new().unwrap();
    // Run a first round, so that the memory that the process always needs is counted before.
    drop((0..10).map(|_| pool.allocate().unwrap()).collect::<Vec<_>>());
    let before = memory::resident();
    let burst: Vec<Stack> = (0..4000)
        .map(|_| {
            let stack = pool.allocate().unwrap();
            // SAFETY: the stack is unused. A fiber with deep calls would touch this much.
            unsafe { stack.high().sub(32 * KIB).write_bytes(1, 16 * KIB) };
            stack
        })
        .collect();
    let during = memory::resident();
    assert!(during > before + 4000 * 16 * KIB, "{before} {during}");
    drop(burst);
    let start = Instant::now();
    let mut after = during;
    // Polls for an effect of the pool's own thread, up to the promised bound.
    while start.elapsed() < Duration::from_secs(5) {
        after = memory::resident();
        if after <= before + before / 5 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{before} bytes before the burst, {during} during it, {after} after five seconds");
}

#[test]
fn steady_use_is_not_decayed() {
    let pool = manual();
    // Between two passes ten stacks are in use at once.
    for _ in 0..20 {
        let stacks: Vec<Stack> = (0..10).map(|_| pool.allocate().unwrap()).collect();
        drop(stacks);
        pool.decay();
    }
    assert_eq!(pool.stats().warm, 10);
    assert_eq!(pool.stats().decayed, 0);
}

#[test]
fn threads_take_and_give_while_decay_runs() {
    let pool = StackPool::builder()
        .stack_size(16 * KIB)
        .decay(Decay::Background(Duration::from_millis(1)))
        .build()
        .unwrap();
    let seed = Seed::from_env();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let pool = &pool;
            let mut seed = seed.clone();
            scope.spawn(move || {
                for _ in 0..thread {
                    seed.number();
                }
                let mut held: Vec<(Stack, u8)> = Vec::new();
                for step in 0..3000_usize {
                    let mark = (step % 251) as u8 + 1;
                    if seed.below(2) == 0 && held.len() < 64 {
                        let stack = pool.allocate().unwrap();
                        // SAFETY: the stack is ours and unused.
                        unsafe { stack.low().write_bytes(mark, 64) };
                        held.push((stack, mark));
                    } else if !held.is_empty() {
                        let (stack, mark) = held.swap_remove(seed.below(held.len()));
                        // SAFETY: the stack is ours, and no other code may have written there.
                        assert_eq!(unsafe { stack.low().add(63).read() }, mark);
                    }
                    if seed.below(200) == 0 {
                        pool.trim();
                    }
                }
            });
        }
    });
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn bad_settings_are_errors() {
    let zero = StackPool::builder().decay(Decay::Background(Duration::ZERO)).build();
    assert!(zero.unwrap_err().to_string().contains("decay interval of zero"));
}
