//! Models of an event that comes between an attempt and the wait after it.

use super::{Gate, Tick};
use crate::fiber::WaitKind;
use crate::model::{DEADLINE, check, check_within, deadline_passes, spawn, spawn_cancellable};
use crate::park::list::{Begin, Ended, List, Terms, Wakes, wait_in};
use crate::primitive::{AtomicBool, AtomicU32, Ordering, SpinLock};
use std::sync::Arc;

/// A descriptor with one direction. `data` stands for the kernel.
struct Slot {
    gate: Gate,
    waiters: SpinLock<List<()>>,
    data: AtomicBool,
}

impl Slot {
    fn new() -> Arc<Slot> {
        Arc::new(Slot {
            gate: Gate(AtomicU32::new(0)),
            waiters: SpinLock::new(List::new()),
            data: AtomicBool::new(false),
        })
    }

    /// Makes data available, and reports it.
    fn arrive(&self) {
        self.data.store(true, Ordering::Relaxed);
        self.report();
    }

    fn report(&self) {
        let claimed = {
            let mut list = self.waiters.lock();
            self.gate.advance();
            let mut claimed = Vec::new();
            while let Some((one, ())) = list.grant_one(|()| ()) {
                claimed.push(one);
            }
            claimed
        };
        claimed.into_iter().for_each(|claimed| claimed.resume());
    }

    /// Waits for an event. Returns false if the deadline passed.
    fn wait(&self, tick: Tick, deadline: u64) -> bool {
        let terms = Terms { kind: WaitKind::Event, address: 0, deadline, must: false };
        let ended = wait_in(
            Begin::Anew,
            &self.waiters,
            terms,
            &(),
            |node| {
                let mut list = self.waiters.lock();
                // SAFETY: the node is new, and `wait_in` takes it out before it is freed.
                (!unsafe { self.gate.enter(tick, &mut list, node) }).then_some(())
            },
            |list, node| {
                if let Some(node) = node {
                    list.remove(node);
                }
                Wakes::none()
            },
        );
        !matches!(ended, Ended::TimedOut)
    }

    /// Tries until there is data. Returns false if the deadline passed.
    fn read(&self, deadline: u64) -> bool {
        loop {
            let tick = self.gate.tick();
            if self.data.load(Ordering::Relaxed) {
                return true;
            }
            if !self.wait(tick, deadline) {
                return false;
            }
        }
    }
}

#[test]
fn data_that_arrives_after_the_attempt_is_not_missed() {
    check(|| {
        let slot = Slot::new();
        let theirs = slot.clone();
        let kernel = spawn(move || theirs.arrive());
        assert!(slot.read(crate::clock::NEVER));
        kernel.join().unwrap();
    });
}

#[test]
fn two_readers_are_both_told() {
    check_within(2, || {
        let slot = Slot::new();
        let readers = [(); 2].map(|()| {
            let slot = slot.clone();
            spawn(move || slot.read(crate::clock::NEVER))
        });
        slot.arrive();
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap()));
    });
}

/// An old event that is harvested late may wake the reader in vain, and does nothing else.
#[test]
fn a_late_event_does_no_harm() {
    check_within(2, || {
        let slot = Slot::new();
        let (late, theirs) = (slot.clone(), slot.clone());
        let harvester = spawn(move || late.report());
        let kernel = spawn(move || theirs.arrive());
        assert!(slot.read(crate::clock::NEVER));
        harvester.join().unwrap();
        kernel.join().unwrap();
    });
}

#[test]
fn a_deadline_and_an_event_end_one_wait() {
    check_within(2, || {
        let slot = Slot::new();
        let theirs = slot.clone();
        let kernel = spawn(move || theirs.arrive());
        let clock = spawn(deadline_passes);
        let in_time = slot.read(DEADLINE);
        kernel.join().unwrap();
        clock.join().unwrap();
        assert!(in_time || slot.read(DEADLINE));
        assert!(slot.waiters.lock().first().is_none());
    });
}

#[test]
fn a_cancelled_reader_leaves_the_list() {
    check_within(2, || {
        let slot = Slot::new();
        let (theirs, reader) = (slot.clone(), slot.clone());
        let (who, fiber) = spawn_cancellable(move || reader.read(crate::clock::NEVER));
        let kernel = spawn(move || theirs.arrive());
        who.cancel();
        kernel.join().unwrap();
        let _ = fiber.join();
        assert!(slot.waiters.lock().first().is_none());
    });
}
