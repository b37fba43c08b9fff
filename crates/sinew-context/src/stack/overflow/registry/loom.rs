//! Models of the reader without the lock, against one writer.

use super::*;
use loom::sync::Arc;
use loom::thread;

fn single(start: usize) -> Span {
    Span { start, end: start + 65536, stride: 65536, guard: 4096 }
}

/// A span of another shape in the same bucket, so that a mixture of two spans is recognised.
const OTHER: Span = Span {
    start: CHUNK * (1 + BUCKETS),
    end: CHUNK * (1 + BUCKETS) + 131_072,
    stride: 131_072,
    guard: 8192,
};

/// Any walk finds a span that stays, whatever is inserted before it meanwhile.
#[test]
fn insert_hides_nothing() {
    loom::model(|| {
        let registry = Arc::new(Registry::new());
        registry.insert(single(CHUNK)).unwrap();
        let writer = {
            let registry = registry.clone();
            thread::spawn(move || registry.insert(OTHER).unwrap())
        };
        // Loom runs the writer first only if it sees this thread read a variable that the writer
        // changes, without an earlier read.
        registry.version.load(Ordering::Relaxed);
        // Use the result of one walk without checking the version: the writer may be interrupted
        // for good.
        let (found, complete) = registry.walk(CHUNK + 10, MAX_STEPS);
        assert_eq!((found, complete), (Some(single(CHUNK)), true));
        writer.join().unwrap();
        assert!(registry.find_unlocked(OTHER.start + 10).is_some());
    });
}

/// A walk that believes its result never reports a slot of a span that was absent throughout, nor a
/// mixture of two spans whose node was recycled during the walk.
#[test]
fn a_recycled_node_is_not_believed() {
    loom::model(|| {
        let registry = Arc::new(Registry::new());
        registry.insert(single(CHUNK)).unwrap();
        let writer = {
            let registry = registry.clone();
            thread::spawn(move || {
                registry.remove(CHUNK);
                registry.insert(OTHER).unwrap();
            })
        };
        // A result that no try could believe is a last resort, and may be anything.
        let (found, believed) = registry.find_believed(CHUNK + 10);
        if let Some(slot) = found.filter(|_| believed) {
            assert_eq!(slot, Slot { guard: CHUNK, low: CHUNK + 4096, high: CHUNK + 65536 });
        }
        writer.join().unwrap();
        assert_eq!(registry.find_unlocked(CHUNK + 10), None);
    });
}

/// A reader that sees the end of a change sees the change.
#[test]
fn an_even_version_publishes_the_change() {
    loom::model(|| {
        let registry = Arc::new(Registry::new());
        let writer = {
            let registry = registry.clone();
            thread::spawn(move || registry.insert(OTHER).unwrap())
        };
        if registry.version.load(Ordering::Acquire) == 2 {
            let (found, believed) = registry.find_believed(OTHER.start);
            assert!(believed && found.is_some());
        }
        writer.join().unwrap();
    });
}
