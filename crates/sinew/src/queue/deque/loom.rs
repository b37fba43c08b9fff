//! Models of an owner and thieves.

use super::{Deque, Steal};
use crate::primitive::check as model;
use loom::sync::Arc;
use loom::thread;
use std::ptr;

fn item(number: usize) -> *const usize {
    ptr::without_provenance(number)
}

fn steal_some(deque: &Deque<usize>, tries: usize) -> Vec<usize> {
    let mut taken = Vec::new();
    for _ in 0..tries {
        if let Steal::Taken(item) = deque.steal() {
            taken.push(item.addr());
        }
    }
    taken
}

fn check(mut all: Vec<usize>, deque: &Deque<usize>, count: usize) {
    // SAFETY: the model's threads have ended; this is the owner, and the deque has thieves.
    while let Some(item) = unsafe { deque.owner().pop(true) } {
        all.push(item.addr());
    }
    all.sort_unstable();
    assert_eq!(all, (1..=count).collect::<Vec<_>>());
}

/// The owner pushes and pops, one thief steals: each item is returned once.
#[test]
fn each_item_is_returned_once() {
    model(|| {
        let deque = Arc::new(Deque::<usize>::new(2));
        let thief = {
            let deque = deque.clone();
            thread::spawn(move || steal_some(&deque, 2))
        };
        let mut all = Vec::new();
        // SAFETY: this is the owner.
        unsafe {
            deque.owner().push(item(1));
            deque.owner().push(item(2));
            all.extend(deque.owner().pop(true).map(|item| item.addr()));
            all.extend(deque.owner().pop(true).map(|item| item.addr()));
        }
        all.extend(thief.join().unwrap());
        check(all, &deque, 2);
    });
}

/// Two thieves and an owner compete for the last item.
#[test]
fn one_of_three_gets_the_last() {
    model(|| {
        let deque = Arc::new(Deque::<usize>::new(2));
        // SAFETY: this is the owner.
        unsafe { deque.owner() }.push(item(1));
        let thieves: Vec<_> = (0..2)
            .map(|_| {
                let deque = deque.clone();
                thread::spawn(move || steal_some(&deque, 1))
            })
            .collect();
        // SAFETY: this is the owner.
        let mut all: Vec<usize> =
            unsafe { deque.owner().pop(true) }.map(|item| item.addr()).into_iter().collect();
        for thief in thieves {
            all.extend(thief.join().unwrap());
        }
        check(all, &deque, 1);
    });
}

/// The owner outgrows its buffer while a thief reads.
#[test]
fn a_thief_survives_growth() {
    model(|| {
        let deque = Arc::new(Deque::<usize>::new(1));
        let thief = {
            let deque = deque.clone();
            thread::spawn(move || steal_some(&deque, 2))
        };
        // SAFETY: this is the owner.
        unsafe {
            deque.owner().push(item(1));
            deque.owner().push(item(2));
            deque.owner().push(item(3));
        }
        let all = thief.join().unwrap();
        check(all, &deque, 3);
    });
}
