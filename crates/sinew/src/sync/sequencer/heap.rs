//! A pairing heap of places, by their tokens. It belongs to the combiner.

use super::place::{Link, Node};
use core::ptr;

/// Makes one heap of two.
pub(super) fn meld(a: Link, b: Link) -> Link {
    // SAFETY: nodes in the heap stay until they were told, and belong to the combiner.
    let (first, second) = match unsafe { (a.as_ref(), b.as_ref()) } {
        (Some(a), Some(b)) => (a, b),
        (Some(one), None) | (None, Some(one)) => {
            one.next.set(ptr::null());
            one.previous.set(ptr::null());
            return one;
        }
        (None, None) => return ptr::null(),
    };
    let (top, below) =
        if second.token.get() < first.token.get() { (second, first) } else { (first, second) };
    let child = top.child.get();
    below.next.set(child);
    below.previous.set(top);
    // SAFETY: the same.
    if let Some(child) = unsafe { child.as_ref() } {
        child.previous.set(below);
    }
    top.child.set(below);
    top.next.set(ptr::null());
    top.previous.set(ptr::null());
    top
}

/// Makes one heap of siblings: in pairs, then all of them.
pub(super) fn merge_pairs(mut first: Link) -> Link {
    let mut pairs: Link = ptr::null();
    // SAFETY: as in `meld`.
    while let Some(one) = unsafe { first.as_ref() } {
        let other = one.next.get();
        // SAFETY: the same.
        first = unsafe { other.as_ref() }.map_or(ptr::null(), |other| other.next.get());
        let pair = meld(one, other);
        // SAFETY: the same; a pair is not null.
        unsafe { (*pair).next.set(pairs) };
        pairs = pair;
    }
    let mut root = ptr::null();
    // SAFETY: the same.
    while let Some(pair) = unsafe { pairs.as_ref() } {
        pairs = pair.next.get();
        root = meld(root, pair);
    }
    root
}

/// Takes a node that is not the root away from its parent and siblings.
pub(super) fn cut(node: &Node) {
    let (previous, next) = (node.previous.get(), node.next.get());
    // SAFETY: as in `meld`.
    unsafe {
        if let Some(previous) = previous.as_ref() {
            if ptr::eq(previous.child.get(), node) {
                previous.child.set(next);
            } else {
                previous.next.set(next);
            }
        }
        if let Some(next) = next.as_ref() {
            next.previous.set(previous);
        }
    }
}
