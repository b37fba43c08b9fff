//! Models of an owner that sleeps, and of threads that push.

use super::{Delivery, Inbox};
use crate::primitive::check as model;
use crate::primitive::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use crate::queue::Linked;
use loom::sync::Arc;
use loom::thread;

#[repr(align(64))]
struct Node {
    link: AtomicPtr<Node>,
    message: AtomicPtr<Node>,
    value: AtomicUsize,
}

// SAFETY: the models put each link into one list at a time.
unsafe impl Linked for Node {
    fn link(&self) -> &AtomicPtr<Node> {
        &self.link
    }
    fn message_link(&self) -> &AtomicPtr<Node> {
        &self.message
    }
}

fn node() -> Box<Node> {
    Box::new(Node {
        link: AtomicPtr::new(std::ptr::null_mut()),
        message: AtomicPtr::new(std::ptr::null_mut()),
        value: AtomicUsize::new(0),
    })
}

/// Two threads push while the owner parks: either parking fails, or one pusher is told to ring. No
/// entry is lost, and a pusher's earlier writes are seen.
#[test]
fn a_push_is_taken_or_rings() {
    model(|| {
        let inbox = Arc::new(Inbox::<Node>::new());
        let rings = Arc::new(AtomicUsize::new(0));
        let pushers: Vec<_> = [false, true]
            .map(|message| {
                let (inbox, rings) = (inbox.clone(), rings.clone());
                thread::spawn(move || {
                    let node = Box::leak(node());
                    node.value.store(7, Ordering::Relaxed);
                    let entry = if message {
                        Delivery::Message(&raw const *node)
                    } else {
                        Delivery::Ready(&raw const *node)
                    };
                    // SAFETY: the node is leaked, and pushed once.
                    if unsafe { inbox.push(entry) } {
                        rings.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .into();
        let mut taken = 0;
        let mut take = || {
            inbox.take(|entry| {
                let (Delivery::Ready(node) | Delivery::Message(node)) = entry;
                // SAFETY: the thread that pushed the node has leaked it to us.
                let node = unsafe { Box::from_raw(node.cast_mut()) };
                assert_eq!(node.value.load(Ordering::Relaxed), 7);
                taken += 1;
            });
        };
        let parked = inbox.park();
        if !parked {
            take();
        }
        for pusher in pushers {
            pusher.join().unwrap();
        }
        if parked {
            // Both pushes came after the mark, and exactly one of them rings.
            assert_eq!(rings.load(Ordering::Relaxed), 1);
        } else {
            assert_eq!(rings.load(Ordering::Relaxed), 0);
        }
        take();
        assert_eq!(taken, 2);
    });
}

/// A pusher and a thread that wants the owner to search: exactly one of them removes the mark.
#[test]
fn one_removes_the_mark() {
    model(|| {
        let inbox = Arc::new(Inbox::<Node>::new());
        let rung = Arc::new(AtomicBool::new(false));
        assert!(inbox.park());
        let other = {
            let (inbox, rung) = (inbox.clone(), rung.clone());
            thread::spawn(move || {
                let node = Box::leak(node());
                // SAFETY: the node is leaked, and pushed once.
                if unsafe { inbox.push(Delivery::Ready(&raw const *node)) } {
                    assert!(!rung.swap(true, Ordering::AcqRel));
                }
            })
        };
        if inbox.unpark() {
            assert!(!rung.swap(true, Ordering::AcqRel));
        }
        other.join().unwrap();
        assert!(rung.load(Ordering::Acquire));
        inbox.take(|entry| {
            if let Delivery::Ready(node) = entry {
                // SAFETY: the thread that pushed the node has leaked it to us.
                drop(unsafe { Box::from_raw(node.cast_mut()) });
            }
        });
    });
}
