//! Limits of the process: locked memory, addresses, descriptors, threads.
//!
//! Each case sets a limit in a separate process.

use sinew_context::FiberContext;
use sinew_context::stack::{ProtectedFixedSize, StackAllocator, StackPool};
use sinew_testkit::child::child;
use sinew_testkit::memory::page_size;

const KIB: usize = 1024;

fn set_limit(which: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: a valid limit for this process.
    assert_eq!(unsafe { libc::setrlimit(which, &limit) }, 0);
}

#[test]
fn locked_memory_is_guarded_by_mprotect() {
    let outcome = child("locked_memory_is_guarded_by_mprotect", || {
        // A region made before the lock keeps its guards; a region made after it must fall back.
        let early = StackPool::builder().stack_size(64 * KIB).build().unwrap();
        let kept = early.allocate().unwrap();
        let before = early.stats().mprotect_regions;
        // SAFETY: affects only this process.
        if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
            println!("skipped: memory cannot be locked here");
            return;
        }
        let late = StackPool::builder().stack_size(64 * KIB).build().unwrap();
        let fiber = FiberContext::with_allocator(&late, |caller| caller.resume().unwrap()).unwrap();
        let fiber = fiber.resume().unwrap();
        assert_eq!(late.stats().mprotect_regions, 1);
        assert!(fiber.resume().is_none());
        assert_eq!(early.stats().mprotect_regions, before);
        drop(kept);
    });
    outcome.assert_success();
}

#[test]
fn running_out_of_addresses_is_an_error_and_existing_fibers_go_on() {
    child("running_out_of_addresses_is_an_error_and_existing_fibers_go_on", || {
        let pool = StackPool::new().unwrap();
        let first = FiberContext::with_allocator(&pool, |caller| caller.resume().unwrap()).unwrap();
        let first = first.resume().unwrap();
        set_limit(libc::RLIMIT_AS, 256 << 20);
        let mut fibers = Vec::new();
        let error = loop {
            match FiberContext::with_allocator(&pool, |caller| caller) {
                Ok(fiber) => fibers.push(fiber),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("ulimit -v"), "{error}");
        // The pool tried smaller regions before it gave up.
        assert!(fibers.len() > 100, "{}", fibers.len());
        fibers.truncate(10);
        fibers.push(FiberContext::with_allocator(&pool, |caller| caller).unwrap());
        assert!(fibers.into_iter().all(|fiber| fiber.resume().is_none()));
        assert!(first.resume().is_none());
        let single = ProtectedFixedSize::new(512 << 20).unwrap().allocate();
        assert_eq!(single.unwrap_err().kind(), std::io::ErrorKind::OutOfMemory);
    })
    .assert_success();
}

#[test]
fn without_descriptors_the_high_water_mark_is_still_known() {
    child("without_descriptors_the_high_water_mark_is_still_known", || {
        let stack = ProtectedFixedSize::new(256 * KIB).unwrap().allocate().unwrap();
        set_limit(libc::RLIMIT_NOFILE, 0);
        // SAFETY: inside the stack, which nothing uses.
        unsafe { stack.high().sub(100_000).write(1) };
        let mark = stack.high_water_mark().unwrap();
        assert!((100_000..100_000 + page_size()).contains(&mark), "{mark}");
    })
    .assert_success();
}

#[test]
fn without_threads_memory_stays_warm_and_everything_works() {
    child("without_threads_memory_stays_warm_and_everything_works", || {
        // SAFETY: no preconditions. The limit applies to ordinary users; root is exempt.
        if unsafe { libc::getuid() } == 0 && unsafe { libc::setuid(65_534) } != 0 {
            println!("skipped: cannot become an ordinary user");
            return;
        }
        set_limit(libc::RLIMIT_NPROC, 0);
        assert!(std::thread::Builder::new().spawn(|| ()).is_err());
        let pool = StackPool::new().unwrap();
        for _ in 0..10 {
            let fiber = FiberContext::with_allocator(&pool, |caller| caller);
            assert!(fiber.unwrap().resume().is_none());
        }
        assert_eq!(pool.stats().warm, 1);
        pool.trim();
        assert_eq!(pool.stats().warm, 0);
    })
    .assert_success();
}

#[test]
fn running_out_of_heap_is_an_error_and_loses_no_stack() {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::sync::atomic::{AtomicIsize, Ordering};

    /// Refuses allocations once `LEFT` has run down.
    struct Limited;
    static LEFT: AtomicIsize = AtomicIsize::new(isize::MAX);
    // SAFETY: passes every call to the system allocator, or refuses.
    unsafe impl GlobalAlloc for Limited {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if LEFT.load(Ordering::Relaxed) < isize::MAX
                && LEFT.fetch_sub(1, Ordering::Relaxed) <= 0
            {
                return std::ptr::null_mut();
            }
            // SAFETY: the caller keeps the contract of `alloc`.
            unsafe { System.alloc(layout) }
        }
        unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
            // SAFETY: the caller keeps the contract of `dealloc`.
            unsafe { System.dealloc(place, layout) };
        }
    }
    #[global_allocator]
    static HEAP: Limited = Limited;

    child("running_out_of_heap_is_an_error_and_loses_no_stack", || {
        let pool = StackPool::builder().decay(sinew_context::stack::Decay::Manual).build().unwrap();
        let cache = sinew_context::stack::StackCache::new(&pool);
        let single = ProtectedFixedSize::default();
        let allocators: [&dyn StackAllocator; 3] = [&pool, &cache, &single];
        for allocator in allocators {
            // Refuse the first allocation, then the second, and so on until `allocate` succeeds.
            for refused in 0.. {
                LEFT.store(refused, Ordering::Relaxed);
                let result = allocator.allocate();
                LEFT.store(isize::MAX, Ordering::Relaxed);
                match result {
                    Ok(stack) => {
                        // Giving the stack back needs no memory.
                        LEFT.store(0, Ordering::Relaxed);
                        drop(stack);
                        LEFT.store(isize::MAX, Ordering::Relaxed);
                        break;
                    }
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory),
                }
            }
            let fiber = FiberContext::with_allocator(allocator, |caller| caller).unwrap();
            assert!(fiber.resume().is_none());
        }
        assert_eq!(pool.stats().in_use, cache.len());
    })
    .assert_success();
}
