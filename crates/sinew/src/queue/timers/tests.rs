use super::{Timed, Timers};
use sinew_testkit::Seed;
use std::cell::Cell;

#[repr(align(64))]
struct Item {
    waits: Cell<Option<u32>>,
    deadline: Cell<u64>,
}

impl Timed for Item {
    fn wait_number(&self) -> Option<u32> {
        self.waits.get()
    }
}

/// Compares random insertions, early ends and expiries with a plain list.
#[test]
fn the_earliest_live_one_comes_first() {
    let mut seed = Seed::from_env();
    let items: Vec<Item> =
        (0..300).map(|_| Item { waits: Cell::new(None), deadline: Cell::new(0) }).collect();
    let mut timers = Timers::new();
    let mut now = 0;
    let mut number = 0;
    for _ in 0..100_000 {
        let item = &items[seed.below(items.len())];
        match (seed.below(3), item.waits.get()) {
            (0 | 1, None) => {
                number = (number + 1) % (1 << 22);
                item.waits.set(Some(number));
                item.deadline.set(now + 1 + seed.number() % 1000);
                // SAFETY: the items outlive the timers.
                unsafe { timers.insert(item.deadline.get(), item, number) };
            }
            (0 | 1, Some(_)) => {
                item.waits.set(None);
                timers.leave();
            }
            _ => {
                now += seed.number() % 20;
                let mut last = 0;
                while let Some((_, expired)) = timers.pop_expired(now) {
                    // SAFETY: the items outlive the timers.
                    let expired = unsafe { &*expired };
                    assert!(expired.deadline.get() <= now && expired.deadline.get() >= last);
                    last = expired.deadline.get();
                    assert!(expired.waits.take().is_some(), "an ended wait has expired");
                }
                let late = items
                    .iter()
                    .any(|item| item.waits.get().is_some() && item.deadline.get() <= now);
                assert!(!late, "an item still waits after its deadline");
            }
        }
        let live = items.iter().filter(|item| item.waits.get().is_some()).count();
        assert!(timers.entries.len() <= 2 * live + 200, "stale entries pile up");
    }
}

#[test]
fn an_empty_heap_is_empty() {
    let mut timers = Timers::<Item>::new();
    assert_eq!(timers.earliest(), None);
    assert!(timers.pop_expired(u64::MAX).is_none());
    timers.leave();
}
