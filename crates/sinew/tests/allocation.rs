//! Once warm, the heap is left alone.

use sinew::Runtime;
use sinew::sync::channel;
use sinew_testkit::watch;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local!(static COUNTED: Cell<bool> = const { Cell::new(false) });

// SAFETY: passes everything on.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations on this carrier's thread while `work` runs, when it has run often enough for every
/// list to have its size.
fn allocations(work: impl Fn()) -> u64 {
    for _ in 0..100 {
        work();
    }
    COUNTED.set(true);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    work();
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    COUNTED.set(false);
    after - before
}

#[test]
fn warm_operations_do_not_allocate() {
    let _watch = watch::a_minute();
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    runtime.run(|| {
        let me = sinew::current();
        let check = |name: &str, work: &dyn Fn()| {
            assert_eq!(allocations(work), 0, "{name} allocates");
        };
        check("yield", &|| (0..100).for_each(|_| sinew::yield_now()));
        check("sleep", &|| (0..3).for_each(|_| sinew::sleep(Duration::from_micros(10))));
        check("park", &|| {
            for _ in 0..100 {
                me.unpark();
                sinew::park();
            }
        });
        check("park_timeout", &|| sinew::park_timeout(Duration::from_micros(10)));
        check("spawn and join", &|| {
            for n in 0..100_u64 {
                assert_eq!(sinew::spawn(move || n).join().unwrap(), n);
            }
        });
        check("a hundred at a time", &|| {
            let fibers: [_; 100] = std::array::from_fn(|n| {
                sinew::spawn(move || {
                    sinew::yield_now();
                    n
                })
            });
            fibers
                .into_iter()
                .enumerate()
                .for_each(|(n, fiber)| assert_eq!(fiber.join().unwrap(), n));
        });
        check("park and wake of another", &|| {
            let me = sinew::current();
            let other = sinew::spawn(move || {
                for _ in 0..10 {
                    sinew::park();
                    me.unpark();
                }
            });
            for _ in 0..10 {
                other.fiber().unpark();
                sinew::park();
            }
            other.join().unwrap();
        });
        check("scope", &|| {
            let total = AtomicU64::new(0);
            sinew::scope(|s| {
                for _ in 0..10 {
                    s.spawn(|| total.fetch_add(1, Ordering::Relaxed));
                }
            });
            assert_eq!(total.into_inner(), 10);
        });
        check("join with a timeout", &|| {
            let fiber = sinew::spawn(|| sinew::sleep(Duration::from_micros(10)));
            fiber.join_timeout(Duration::from_secs(10)).unwrap().unwrap();
        });
        check("timeout", &|| {
            sinew::timeout(Duration::from_secs(10), || sinew::yield_now()).unwrap();
        });
        let (sender, receiver) = channel::bounded(0);
        let (unused, never) = channel::bounded::<u64>(0);
        check("select", &|| {
            let sender = sender.clone();
            let other = sinew::spawn(move || (0..100).for_each(|n| sender.send(n).unwrap()));
            for expected in 0..100_u64 {
                sinew::select! {
                    send(unused, 0) -> _ => unreachable!(),
                    recv(receiver) -> message => assert_eq!(message, Ok(expected)),
                    recv(never) -> _ => unreachable!(),
                }
            }
            other.join().unwrap();
        });
        check("wait_finished", &|| {
            let fiber = sinew::spawn(sinew::yield_now);
            assert!(fiber.fiber().wait_finished(None));
        });
    });
}
