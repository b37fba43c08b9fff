//! Model of the idle protocol: a carrier goes to sleep while work is published.
//!
//! A counter stands for the deques. A flag that is removed by an exchange stands for the mark in
//! the inbox. Another flag, which the sleeper finds set or not, stands for the bell.

use super::Idle;
use crate::primitive::check as model;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use loom::thread;

struct Crew {
    idle: Idle,
    waking: AtomicBool,
    parked: AtomicBool,
    rung: AtomicBool,
    work: AtomicUsize,
}

impl Crew {
    fn new() -> Arc<Crew> {
        Arc::new(Crew {
            idle: Idle::new(),
            waking: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            work: AtomicUsize::new(0),
        })
    }

    fn publish(&self) {
        self.work.fetch_add(1, Ordering::Release);
        if self.idle.wants_wake() {
            // `Crew::wake_one`.
            if self.waking.swap(true, Ordering::SeqCst) {
                return;
            }
            if self.parked.swap(false, Ordering::SeqCst) {
                self.rung.store(true, Ordering::SeqCst);
            } else {
                self.waking.store(false, Ordering::SeqCst);
            }
        }
    }

    /// `Owner::sleep` up to the sleep itself. Returns true if the carrier stays awake.
    fn try_sleep(&self) -> bool {
        self.idle.sleep();
        self.parked.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let seen = self.work.load(Ordering::Acquire) > 0;
        if seen {
            self.parked.swap(false, Ordering::SeqCst);
            self.idle.wake();
            self.waking.store(false, Ordering::SeqCst);
            let _ = self.idle.found();
        }
        seen
    }
}

/// A searcher goes to sleep while another carrier publishes: the searcher sees the work, or its
/// bell rings.
#[test]
fn published_work_is_seen_or_rings() {
    model(|| {
        let crew = Crew::new();
        crew.idle.search();
        let publisher = {
            let crew = crew.clone();
            thread::spawn(move || crew.publish())
        };
        let awake = crew.try_sleep();
        publisher.join().unwrap();
        assert!(awake || crew.rung.load(Ordering::SeqCst), "asleep with work to do");
    });
}

/// A searcher goes to sleep while two carriers publish: the searcher sees the work, or its bell
/// rings.
#[test]
fn two_publishers_wake_the_sleeper() {
    model(|| {
        let crew = Crew::new();
        crew.idle.search();
        let publishers: Vec<_> = (0..2)
            .map(|_| {
                let crew = crew.clone();
                thread::spawn(move || crew.publish())
            })
            .collect();
        let awake = crew.try_sleep();
        for publisher in publishers {
            publisher.join().unwrap();
        }
        assert!(awake || crew.rung.load(Ordering::SeqCst), "asleep with work to do");
    });
}

/// A publisher relies on a searcher that finds other work: as the last searcher it looks again.
#[test]
fn the_last_searcher_looks_again() {
    model(|| {
        let crew = Crew::new();
        crew.idle.search();
        // Another carrier sleeps.
        crew.idle.search();
        crew.idle.sleep();
        crew.parked.store(true, Ordering::SeqCst);
        let publisher = {
            let crew = crew.clone();
            thread::spawn(move || crew.publish())
        };
        // As in `main_loop` after a successful search.
        if crew.idle.found() && crew.work.load(Ordering::Acquire) > 0 && crew.idle.wants_wake() {
            crew.parked.swap(false, Ordering::SeqCst);
            crew.rung.store(true, Ordering::SeqCst);
        }
        publisher.join().unwrap();
        assert!(crew.rung.load(Ordering::SeqCst), "work that nobody looks for");
    });
}
