//! A model of a reader beside the writer.

use super::Recent;
use crate::primitive::check as model;
use loom::sync::Arc;
use loom::thread;

/// The reader returns only whole records, even if the writer overwrites a place meanwhile.
#[test]
fn no_record_is_torn() {
    model(|| {
        let recent = Arc::new(Recent::<2>::new(1).unwrap());
        let theirs = recent.clone();
        let writer = thread::spawn(move || (1..=3).for_each(|value| theirs.push([value, value])));
        for (number, [first, second]) in recent.read(0) {
            assert_eq!((first, second), (number + 1, number + 1));
        }
        writer.join().unwrap();
        assert_eq!(recent.read(0), [(2, [3, 3])]);
    });
}
