//! The allocators: sizes, errors, guards, high-water marks.

use sinew_context::FiberContext;
use sinew_context::stack::{
    DEFAULT_GUARD_SIZE, DEFAULT_STACK_SIZE, FixedSize, GuardKind, ProtectedFixedSize, Segmented,
    Stack, StackAllocator, StackCache, StackPool,
};
use sinew_testkit::memory::page_size as page;
use sinew_testkit::stack::burn;
use std::io;

const KIB: usize = 1024;

type Construct = fn(usize) -> io::Result<()>;

/// Every constructor that takes a size.
fn constructors() -> Vec<(&'static str, Construct)> {
    vec![
        ("protected", |size| ProtectedFixedSize::new(size).map(drop)),
        // SAFETY: no fiber is made on it.
        ("fixed", |size| unsafe { FixedSize::new(size) }.map(drop)),
        ("segmented", |size| Segmented::new(size).map(drop)),
        ("pool", |size| StackPool::builder().stack_size(size).build().map(drop)),
    ]
}

#[test]
fn bad_sizes_are_errors_that_name_the_size() {
    for (name, construct) in constructors() {
        for (size, text) in [
            (0, "0 is below the minimum of"),
            (3000, "3000 is below the minimum of"),
            (page() + 1, "is not a multiple of the page size"),
            (100_001, "100001 is not a multiple of the page size"),
            (usize::MAX, "is above the maximum of"),
            (usize::MAX - page() + 1, "is above the maximum of 68719476736 bytes"),
        ] {
            let error = construct(size).expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name} {size}");
            assert!(error.to_string().contains(text), "{name} {size}: {error}");
        }
        construct(64 * KIB).expect(name);
    }
    assert!(Segmented::with_limit(128 * KIB, 64 * KIB).is_err());
}

#[test]
fn guards_that_c_code_would_step_over_are_errors() {
    let constructors: [fn(usize) -> io::Result<()>; 2] = [
        |guard| StackPool::builder().guard_size(guard).build().map(drop),
        |guard| ProtectedFixedSize::with_guard(64 * KIB, guard).map(drop),
    ];
    for construct in constructors {
        for guard in [0, 4096, 60 * KIB] {
            let error = construct(guard).unwrap_err().to_string();
            assert!(error.contains(&format!("guard size {guard} is below the minimum")), "{error}");
        }
        assert!(construct(64 * KIB + 1).unwrap_err().to_string().contains("multiple of the page"));
        construct((64 * KIB).max(page())).unwrap();
    }
}

#[test]
fn trimming_a_stack_of_odd_size_leaves_its_neighbours_alone() {
    use std::ptr::NonNull;
    unsafe fn keep(_: NonNull<u8>, _: usize, _: *const ()) {}
    let map = ProtectedFixedSize::new(64 * KIB.max(page())).unwrap().allocate().unwrap();
    // SAFETY: the lower part of an unused stack serves as a stack.
    unsafe {
        let size = 4 * page() + 64;
        let neighbour = map.low().add(size);
        neighbour.write(42);
        let mut inner = Stack::from_raw(map.low(), size, 0, std::ptr::null(), keep).unwrap();
        inner.trim();
        assert_eq!(neighbour.read(), 42);
    }
}

#[test]
fn a_closure_that_does_not_fit_is_given_back_with_the_stack() {
    let small = ProtectedFixedSize::new(page().max(16 * KIB)).unwrap();
    let large = [7_u8; 40 * KIB];
    let error = FiberContext::on_stack(small.allocate().unwrap(), move |caller| {
        assert_eq!(large[39 * KIB], 7);
        caller
    })
    .unwrap_err();
    assert_eq!(error.error().kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("the closure has 40960 bytes"), "{error}");
    let (stack, f) = error.into_parts();
    assert_eq!(stack.size(), page().max(16 * KIB));
    let roomy = ProtectedFixedSize::new(4 * KIB * KIB).unwrap().allocate().unwrap();
    assert!(FiberContext::on_stack(roomy, f).unwrap().resume().is_none());
    // The constructors that allocate report this error too.
    let error = FiberContext::with_allocator(&small, move |caller| {
        assert_eq!(large[1], 7);
        caller
    });
    assert!(error.unwrap_err().to_string().contains("box the captured values"));
}

#[test]
fn a_pointer_to_an_allocator_is_an_allocator() {
    let pool = StackPool::new().unwrap();
    let allocators: [Box<dyn StackAllocator>; 4] = [
        Box::new(std::rc::Rc::new(StackCache::new(&pool))),
        Box::new(std::sync::Arc::new(pool.clone())),
        Box::new(ProtectedFixedSize::default()),
        Box::new(Box::new(pool.clone()) as Box<dyn StackAllocator>),
    ];
    for allocator in allocators {
        assert!(
            FiberContext::with_allocator(&allocator, |caller| caller).unwrap().resume().is_none()
        );
    }
}

#[test]
fn a_closure_that_leaves_no_room_for_its_own_call_is_an_error() {
    // It would fit at the top of the stack, but the call moves it on the stack once more.
    std::thread::Builder::new()
        .stack_size(16 * KIB * KIB)
        .spawn(|| {
            let large = [7_u8; 150 * KIB];
            let f = move |caller: FiberContext| {
                assert_eq!(large[149 * KIB], 7);
                caller
            };
            let stack = ProtectedFixedSize::default().allocate().unwrap();
            let (_, f) = FiberContext::on_stack(stack, f).unwrap_err().into_parts();
            let roomy = ProtectedFixedSize::new(2 * KIB * KIB).unwrap();
            assert!(FiberContext::with_allocator(&roomy, f).unwrap().resume().is_none());
        })
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn closures_with_a_large_alignment_are_aligned() {
    #[repr(align(256))]
    struct Aligned(u8);
    let value = Aligned(5);
    let fiber = FiberContext::new(move |caller| {
        assert!((&raw const value).addr().is_multiple_of(256));
        assert_eq!(value.0, 5);
        caller
    });
    assert!(fiber.unwrap().resume().is_none());
}

fn allocators() -> Vec<(&'static str, Box<dyn StackAllocator>)> {
    let pool = StackPool::new().unwrap();
    vec![
        ("protected", Box::new(ProtectedFixedSize::default())),
        // SAFETY: the fibers below use little.
        ("fixed", Box::new(unsafe { FixedSize::new(DEFAULT_STACK_SIZE) }.unwrap())),
        ("segmented", Box::new(Segmented::new(64 * KIB).unwrap())),
        ("cache", Box::new(StackCache::new(&pool))),
        ("pool", Box::new(pool)),
    ]
}

#[test]
fn every_allocator_carries_fibers() {
    for (name, allocator) in allocators() {
        let mut fibers = Vec::new();
        for number in 0..50_u64 {
            let fiber = FiberContext::with_allocator(&*allocator, move |caller| {
                let mut local = [number; 512];
                let caller = caller.resume().unwrap();
                local[100] += 1;
                assert_eq!(local.iter().sum::<u64>(), number * 512 + 1);
                caller
            });
            fibers.push(fiber.expect(name).resume().expect(name));
        }
        for fiber in fibers {
            assert!(fiber.resume().is_none(), "{name}");
        }
    }
}

#[test]
fn stacks_are_writable_to_the_last_byte_and_do_not_overlap() {
    for (name, allocator) in allocators() {
        let mut stacks: Vec<Stack> = (0..20).map(|_| allocator.allocate().expect(name)).collect();
        for (index, stack) in stacks.iter_mut().enumerate() {
            let words = stack.size() / 8 - 2;
            // SAFETY: the stack is ours and unused; its owner words are left alone.
            unsafe { stack.low().write_bytes(index as u8, words * 8) };
        }
        stacks.sort_by_key(|stack| stack.range().start);
        for pair in stacks.windows(2) {
            assert!(pair[0].range().end <= pair[1].range().start - pair[1].guard_size(), "{name}");
        }
    }
}

#[test]
fn the_high_water_mark_is_right_within_a_page() {
    // The mark of a fresh stack with one touched byte, at a known distance from the end.
    let mut stack = ProtectedFixedSize::new(DEFAULT_STACK_SIZE).unwrap().allocate().unwrap();
    let base = stack.high_water_mark().expect("Linux tells");
    assert!(base <= page(), "only the owner words are touched: {base}");
    for used in [1, page(), page() + 1, 100_000, DEFAULT_STACK_SIZE - 1, DEFAULT_STACK_SIZE] {
        stack.trim();
        // SAFETY: inside the stack, which nothing uses.
        unsafe { stack.high().sub(used).write(1) };
        let mark = stack.high_water_mark().unwrap();
        assert!(mark >= used && mark < used + page(), "touched {used}, mark {mark}");
    }
    // A byte that was only skipped over does not count; a deeper touched byte does.
    stack.trim();
    // SAFETY: inside the stack, which nothing uses.
    unsafe { stack.low().add(5 * page()).write(1) };
    assert_eq!(stack.high_water_mark(), Some(DEFAULT_STACK_SIZE - 5 * page()));
}

#[test]
#[cfg_attr(sinew_asan, ignore = "AddressSanitizer keeps frames off the stack")]
fn a_fibers_high_water_mark_grows_with_its_use_and_trim_lowers_it() {
    for deep in [30 * KIB, 100 * KIB, 200 * KIB] {
        let fiber = FiberContext::new(move |caller| {
            burn(deep);
            let caller = caller.resume().unwrap();
            caller.resume().unwrap()
        });
        let fiber = fiber.unwrap().resume().unwrap();
        let mark = fiber.stack_high_water_mark().unwrap();
        assert!(mark >= deep, "{deep} {mark}");
        fiber.trim();
        let trimmed = fiber.stack_high_water_mark().unwrap();
        assert!(trimmed < fiber.stack_used().unwrap() + page(), "{trimmed}");
        // The fiber goes on as if nothing had happened.
        assert!(fiber.resume().unwrap().resume().is_none());
    }
}

#[test]
#[cfg_attr(sinew_asan, ignore = "AddressSanitizer keeps frames off the stack")]
fn a_segmented_stack_grows_far_beyond_its_start() {
    let stacks = Segmented::new(16 * KIB).unwrap();
    let fiber = FiberContext::with_allocator(&stacks, |caller| {
        burn(32 * KIB * KIB);
        caller.resume().unwrap()
    });
    let fiber = fiber.unwrap();
    assert!(fiber.stack_high_water_mark().unwrap() >= 16 * KIB, "the start is there at once");
    let fiber = fiber.resume().unwrap();
    assert!(fiber.stack_high_water_mark().unwrap() > 32 * KIB * KIB);
    let before = sinew_testkit::memory::resident();
    fiber.trim();
    assert!(sinew_testkit::memory::resident() + 24 * KIB * KIB < before, "given back");
    assert!(fiber.resume().is_none());
}

#[test]
fn a_million_bytes_of_frame_fit_where_there_is_room() {
    #[inline(never)]
    fn large() -> u8 {
        let frame = std::hint::black_box([3_u8; 1_000_000]);
        frame[123_456]
    }
    let stacks = ProtectedFixedSize::new(4 * KIB * KIB).unwrap();
    let fiber = FiberContext::with_allocator(&stacks, |caller| {
        assert_eq!(large(), 3);
        caller
    });
    assert!(fiber.unwrap().resume().is_none());
}

#[test]
fn sleeping_fibers_stay_in_one_page_and_begin_in_different_cache_lines() {
    let pool = StackPool::new().unwrap();
    let mut lines = std::collections::HashSet::new();
    let mut deepest = 0;
    let fibers: Vec<FiberContext> = (0..1000)
        .map(|_| {
            let fiber = FiberContext::with_allocator(&pool, |caller| caller.resume().unwrap());
            let fiber = fiber.unwrap().resume().unwrap();
            let used = fiber.stack_used().unwrap();
            lines.insert(used / 64);
            deepest = deepest.max(used);
            fiber
        })
        .collect();
    assert!(lines.len() >= 32, "{} different lines", lines.len());
    if !cfg!(debug_assertions) && !cfg!(sinew_asan) && !cfg!(sinew_tsan) {
        assert!(deepest <= page(), "{deepest} bytes");
    }
    drop(fibers);
}

#[test]
fn a_users_allocator_gets_its_stack_back() {
    use std::alloc::{Layout, alloc, dealloc};
    use std::cell::Cell;
    use std::ptr::NonNull;

    struct Counting(Cell<usize>);
    const LAYOUT: Layout = match Layout::from_size_align(256 * KIB, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!(),
    };
    // SAFETY: each block is handed out once.
    unsafe impl StackAllocator for Counting {
        fn allocate(&self) -> io::Result<Stack> {
            // SAFETY: a fresh block. `free` receives a pointer to the counter, which outlives the
            // stack here.
            unsafe {
                let low = NonNull::new(alloc(LAYOUT)).unwrap();
                low.as_ptr().expose_provenance();
                let owner = (&raw const self.0).cast();
                Stack::from_raw(low, LAYOUT.size(), 0, owner, free)
            }
        }
    }
    unsafe fn free(low: NonNull<u8>, _: usize, owner: *const ()) {
        // SAFETY: `allocate` made the block, and `owner` is the counter.
        unsafe {
            dealloc(low.as_ptr(), LAYOUT);
            let count = &*owner.cast::<Cell<usize>>();
            count.set(count.get() + 1);
        }
    }
    let allocator = Counting(Cell::new(0));
    for round in 1..=3 {
        let fiber = FiberContext::with_allocator(&allocator, |caller| caller.resume().unwrap());
        drop(fiber.unwrap().resume());
        assert_eq!(allocator.0.get(), round);
    }
}

#[test]
fn guards_of_both_kinds_can_be_asked_for() {
    for kind in [GuardKind::InPlace, GuardKind::Mprotect] {
        let pool = StackPool::builder().guards(kind).build().unwrap();
        let stack = match pool.allocate() {
            Ok(stack) => stack,
            // Kernels before 6.13.
            Err(error) if kind == GuardKind::InPlace => {
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(stack.guard_size(), DEFAULT_GUARD_SIZE.max(page()));
        let stats = pool.stats();
        let forced = cfg!(sinew_force_fallback);
        let expected = usize::from(kind == GuardKind::Mprotect || forced);
        assert_eq!(stats.mprotect_regions, expected);
    }
}
