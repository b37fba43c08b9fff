//! Models of an owner that sleeps, of threads that push, and of several takers.

use super::{Delivery, Inbox};
use crate::primitive::check as model;
use crate::primitive::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
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

/// Frees a node, and counts it.
fn free(entry: Delivery<Node>, count: &mut usize) {
    let (Delivery::Ready(node) | Delivery::Message(node)) = entry;
    // SAFETY: the thread that pushed the node has leaked it to the taker.
    drop(unsafe { Box::from_raw(node.cast_mut()) });
    *count += 1;
}

/// A thread pushes to a second list, which has no mark, and then looks for the mark of the owner's
/// inbox. The owner marks its inbox and then looks at the second list. Either the owner sees the
/// push, or the pusher removes the mark and rings.
#[test]
fn an_offer_is_seen_or_rings() {
    model(|| {
        let lists = Arc::new((Inbox::<Node>::new(), Inbox::<Node>::new()));
        let giver = {
            let lists = lists.clone();
            thread::spawn(move || {
                let (inbox, offers) = &*lists;
                // SAFETY: the node is leaked, and pushed once.
                let _ = unsafe { offers.push(Delivery::Ready(Box::leak(node()))) };
                fence(Ordering::SeqCst);
                inbox.is_parked() && inbox.unpark()
            })
        };
        let (inbox, offers) = &*lists;
        assert!(inbox.park());
        fence(Ordering::SeqCst);
        let seen = !offers.is_empty();
        let rings = giver.join().unwrap();
        assert!(seen || rings);
        let mut count = 0;
        offers.take(|offer| free(offer, &mut count));
        assert_eq!(count, 1);
    });
}

/// Two threads take while a third pushes: each entry goes to one of them.
#[test]
fn two_takers_share_a_list() {
    model(|| {
        let offers = Arc::new(Inbox::<Node>::new());
        let push = |offers: &Inbox<Node>| {
            // SAFETY: the node is leaked, and pushed once.
            let _ = unsafe { offers.push(Delivery::Ready(Box::leak(node()))) };
        };
        push(&offers);
        let taker = {
            let offers = offers.clone();
            thread::spawn(move || {
                let mut count = 0;
                offers.take(|offer| free(offer, &mut count));
                count
            })
        };
        let giver = {
            let offers = offers.clone();
            thread::spawn(move || push(&offers))
        };
        let mut count = 0;
        offers.take(|offer| free(offer, &mut count));
        giver.join().unwrap();
        count += taker.join().unwrap();
        offers.take(|offer| free(offer, &mut count));
        assert_eq!(count, 2);
    });
}
