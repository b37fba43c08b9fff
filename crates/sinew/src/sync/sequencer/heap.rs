//! A pairing heap of places, ordered by their tokens. Only the combiner of a sequencer uses it.
//!
//! The children of a node are in a list that is linked in both directions; `previous` of the first
//! child is the parent. The heap allocates nothing, because the links are fields of the places.

use super::place::{Link, Node};
use core::ptr;

/// Merges two heaps into one.
pub(super) fn meld(a: Link, b: Link) -> Link {
    // SAFETY: nodes in the heap stay in place until they are told, and only the combiner uses their
    // links.
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
    // SAFETY: `child` is a node in the heap.
    if let Some(child) = unsafe { child.as_ref() } {
        child.previous.set(below);
    }
    top.child.set(below);
    top.next.set(ptr::null());
    top.previous.set(ptr::null());
    top
}

/// Merges siblings into one heap: first neighbours in pairs, then all pairs.
pub(super) fn merge_pairs(mut first: Link) -> Link {
    let mut pairs: Link = ptr::null();
    // SAFETY: the siblings are nodes in the heap, as in `meld`.
    while let Some(one) = unsafe { first.as_ref() } {
        let other = one.next.get();
        // SAFETY: `other` is null or a sibling in the heap.
        first = unsafe { other.as_ref() }.map_or(ptr::null(), |other| other.next.get());
        let pair = meld(one, other);
        // SAFETY: `one` is not null, so `meld` returns a node.
        unsafe { (*pair).next.set(pairs) };
        pairs = pair;
    }
    let mut root = ptr::null();
    // SAFETY: `pairs` is a list of nodes of the heap.
    while let Some(pair) = unsafe { pairs.as_ref() } {
        pairs = pair.next.get();
        root = meld(root, pair);
    }
    root
}

/// Unlinks a node that is not the root from its parent and siblings. The node keeps its children.
pub(super) fn cut(node: &Node) {
    let (previous, next) = (node.previous.get(), node.next.get());
    // SAFETY: parents and siblings are nodes in the heap, as in `meld`.
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
