//! Fibers in fibers, many at once, and deep.

use sinew_context::FiberContext;
use sinew_context::stack::StackPool;
use sinew_testkit::Seed;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

#[test]
fn fibers_nest() {
    fn nest(pool: &StackPool, depth: u32) -> u32 {
        if depth == 0 {
            return 0;
        }
        let sum = Rc::new(Cell::new(0));
        let fiber = FiberContext::with_allocator(pool, {
            let (sum, pool) = (sum.clone(), pool.clone());
            move |caller| {
                sum.set(nest(&pool, depth - 1) + depth);
                caller
            }
        });
        assert!(fiber.unwrap().resume().is_none());
        sum.get()
    }
    let pool = StackPool::new().unwrap();
    assert_eq!(nest(&pool, 500), 500 * 501 / 2);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn ten_thousand_nested_drops() {
    let pool = StackPool::builder().stack_size(64 * 1024).build().unwrap();
    let dropped = Rc::new(Cell::new(0));
    struct Count(Rc<Cell<usize>>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    // Each fiber holds the next on its suspended stack.
    let mut chain: Option<FiberContext> = None;
    for _ in 0..10_000 {
        let held = chain.take();
        let count = Count(dropped.clone());
        let fiber = FiberContext::with_allocator(&pool, move |caller| {
            let _held = held;
            let _count = count;
            caller.resume().unwrap()
        });
        chain = fiber.unwrap().resume();
    }
    drop(chain);
    assert_eq!(dropped.get(), 10_000);
    assert_eq!(pool.stats().in_use, 0);
    assert!(!std::thread::panicking());
}

#[test]
fn panics_in_nested_fibers_are_caught_where_they_belong() {
    fn level(depth: u32, log: Rc<RefCell<Vec<u32>>>) {
        let fiber = FiberContext::new({
            let log = log.clone();
            move |caller| {
                let result = catch_unwind(AssertUnwindSafe(|| {
                    if depth < 20 {
                        level(depth + 1, log.clone());
                    }
                    std::panic::resume_unwind(Box::new(depth));
                }));
                let value = *result.unwrap_err().downcast::<u32>().unwrap();
                assert_eq!(value, depth);
                log.borrow_mut().push(value);
                caller
            }
        });
        assert!(fiber.unwrap().resume().is_none());
    }
    let log = Rc::default();
    level(0, Rc::clone(&log));
    assert_eq!(*log.borrow(), (0..=20).rev().collect::<Vec<_>>());
}

#[test]
fn floating_point_and_vector_values_survive_switches() {
    let fibers: Vec<FiberContext> = (0..50)
        .map(|number| {
            let fiber = FiberContext::new(move |mut caller| {
                let mut values = [0.0_f64; 16];
                for (index, value) in values.iter_mut().enumerate() {
                    *value = f64::from(number) * 100.0 + index as f64;
                }
                let (mut sum, mut product) = (0.0, 1.0_f64);
                for round in 0..20 {
                    sum += values[round % 16];
                    product = (product * 1.01 + f64::from(number)) % 1000.0;
                    caller = caller.resume().unwrap();
                }
                let mut expected = 1.0_f64;
                for _ in 0..20 {
                    expected = (expected * 1.01 + f64::from(number)) % 1000.0;
                }
                assert_eq!(product, expected);
                assert_eq!(sum, (0..20).map(|round| values[round % 16]).sum::<f64>());
                caller
            });
            fiber.unwrap()
        })
        .collect();
    let mut fibers: Vec<Option<FiberContext>> = fibers.into_iter().map(Some).collect();
    while fibers.iter().any(Option::is_some) {
        for fiber in &mut fibers {
            *fiber = fiber.take().and_then(FiberContext::resume);
        }
    }
}

/// Fibers resume, drop, make and end each other at random. The test counts the values that they
/// hold, to detect a value that is dropped twice or never.
#[test]
fn a_crowd_that_does_anything_at_random_drops_everything_once() {
    struct World {
        suspended: RefCell<Vec<FiberContext>>,
        main: Cell<Option<FiberContext>>,
        seed: RefCell<Seed>,
        pool: StackPool,
        alive: Cell<isize>,
        steps: Cell<usize>,
    }
    struct Alive(Rc<World>);
    impl Alive {
        fn new(world: &Rc<World>) -> Alive {
            world.alive.set(world.alive.get() + 1);
            Alive(world.clone())
        }
    }
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.alive.set(self.0.alive.get() - 1);
        }
    }
    impl World {
        fn below(&self, end: usize) -> usize {
            self.seed.borrow_mut().below(end)
        }
        fn take_any(&self) -> Option<FiberContext> {
            let len = self.suspended.borrow().len();
            (len > 0).then(|| {
                let index = self.below(len);
                self.suspended.borrow_mut().swap_remove(index)
            })
        }
        fn keep(&self, fiber: Option<FiberContext>) {
            // Keep the thread's own value apart: if it were dropped, the test would hang.
            match fiber {
                Some(fiber) if fiber.is_thread() => self.main.set(Some(fiber)),
                Some(fiber) => self.suspended.borrow_mut().push(fiber),
                None => {}
            }
        }
    }
    fn spawn(world: &Rc<World>) -> FiberContext {
        let captured = Alive::new(world);
        let owner = world.clone();
        let fiber = FiberContext::with_entry(&world.pool, move |from| {
            let _captured = captured;
            owner.keep(from);
            live(&owner)
        });
        fiber.unwrap()
    }
    fn live(world: &Rc<World>) -> FiberContext {
        let _local = Alive::new(world);
        loop {
            world.steps.set(world.steps.get() + 1);
            if world.steps.get() > 20_000 {
                return world.main.take().expect("main waits");
            }
            match world.below(10) {
                0 | 1 if world.suspended.borrow().len() < 100 => {
                    let fiber = spawn(world);
                    world.keep(Some(fiber));
                }
                2 => drop(world.take_any()),
                3 => {
                    if let Some(next) = world.take_any() {
                        return next;
                    }
                }
                4 => {
                    if let Some(next) = world.take_any() {
                        sinew_context::unwind(next);
                    }
                }
                5 => {
                    if let Some(next) = world.take_any() {
                        let owner = world.clone();
                        let from = next.resume_with(move |from| {
                            owner.keep(Some(from));
                            None
                        });
                        world.keep(from);
                    }
                }
                6 => {
                    let caught = catch_unwind(AssertUnwindSafe(|| {
                        let _deeper = Alive::new(world);
                        std::panic::resume_unwind(Box::new("caught"));
                    }));
                    assert!(caught.is_err());
                }
                _ => {
                    if let Some(next) = world.take_any() {
                        let from = next.resume();
                        world.keep(from);
                    }
                }
            }
        }
    }
    for _ in 0..5 {
        let world = Rc::new(World {
            suspended: RefCell::default(),
            main: Cell::new(None),
            seed: RefCell::new(Seed::from_env()),
            pool: StackPool::new().unwrap(),
            alive: Cell::new(0),
            steps: Cell::new(0),
        });
        let last = spawn(&world).resume();
        world.keep(last);
        // Dropping one fiber may drop or keep others; continue until none is left.
        while let Some(fiber) = world.take_any() {
            drop(fiber);
        }
        assert_eq!(world.alive.get(), 0);
        assert_eq!(world.pool.stats().in_use, 0);
        assert!(world.steps.get() > 20_000);
    }
}
