//! Models of posts that race with waiters.

use super::Futex;
use crate::clock::NEVER;
use crate::model::{
    DEADLINE, Tracked, check, check_within, deadline_passes, spawn, spawn_cancellable,
};
use std::sync::Arc;

struct Posted {
    futex: Futex,
    data: Tracked,
}

impl Posted {
    fn new() -> Arc<Posted> {
        Arc::new(Posted { futex: Futex::new(), data: Tracked::new(0) })
    }

    fn wait(&self, deadline: u64) -> bool {
        let reached = self.futex.wait_till(1, deadline);
        assert!(!reached || self.data.get() == 1);
        reached
    }
}

/// A waiter misses no post, and sees the data that was written before the post.
#[test]
fn a_post_is_not_missed() {
    check(|| {
        let posted = Posted::new();
        let theirs = posted.clone();
        let poster = spawn(move || {
            theirs.data.add(1);
            theirs.futex.post();
        });
        assert!(posted.wait(NEVER));
        poster.join().unwrap();
    });
}

/// A post wakes all waiters.
#[test]
fn a_post_wakes_all() {
    check(|| {
        let posted = Posted::new();
        let waiters = [(); 2].map(|()| {
            let posted = posted.clone();
            spawn(move || posted.wait(NEVER))
        });
        posted.data.add(1);
        posted.futex.post();
        waiters.into_iter().for_each(|waiter| assert!(waiter.join().unwrap()));
    });
}

/// Two calls of `post_one` wake two waiters.
#[test]
fn two_posts_wake_two() {
    check(|| {
        let posted = Posted::new();
        let waiters = [(); 2].map(|()| {
            let posted = posted.clone();
            spawn(move || posted.wait(NEVER))
        });
        posted.data.add(1);
        posted.futex.post_one();
        posted.futex.post_one();
        waiters.into_iter().for_each(|waiter| assert!(waiter.join().unwrap()));
    });
}

/// A waiter times out during a post. A second wait finds the counter.
#[test]
fn a_timeout_and_a_post() {
    check(|| {
        let posted = Posted::new();
        let theirs = posted.clone();
        let poster = spawn(move || {
            theirs.data.add(1);
            theirs.futex.post();
        });
        let timer = spawn(deadline_passes);
        if !posted.wait(DEADLINE) {
            assert!(posted.wait(NEVER));
        }
        poster.join().unwrap();
        timer.join().unwrap();
    });
}

/// `post_one` does not wake a waiter that has timed out: it wakes the other waiter.
#[test]
fn post_one_skips_a_waiter_that_timed_out() {
    check(|| {
        let posted = Posted::new();
        let theirs = posted.clone();
        let timed = spawn(move || theirs.wait(DEADLINE));
        let theirs = posted.clone();
        let other = spawn(move || theirs.wait(NEVER));
        deadline_passes();
        posted.data.add(1);
        posted.futex.post_one();
        if timed.join().unwrap() {
            // The timed waiter may have taken the post.
            posted.futex.post_one();
        }
        assert!(other.join().unwrap());
    });
}

/// `post_one` does not wake a cancelled waiter: it wakes the other waiter.
#[test]
fn post_one_skips_a_cancelled_waiter() {
    check(|| {
        let posted = Posted::new();
        let theirs = posted.clone();
        let (fiber, cancelled) = spawn_cancellable(move || theirs.wait(NEVER));
        let theirs = posted.clone();
        let other = spawn(move || theirs.wait(NEVER));
        fiber.cancel();
        posted.data.add(1);
        posted.futex.post_one();
        if cancelled.join().unwrap().is_some() {
            posted.futex.post_one();
        }
        assert!(other.join().unwrap());
    });
}
