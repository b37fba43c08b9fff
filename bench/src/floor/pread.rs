//! Reads blocks of a file with `pread`, one after the other.

use crate::file::{BLOCK, Offsets, file};
use crate::measure::{Lap, Timed};
use std::os::unix::fs::FileExt;

pub(crate) const SETTINGS: &str = "a thread calls pread, one after the other";

pub(crate) fn read() -> Timed {
    let file = file();
    let mut offsets = Offsets::new(1);
    let mut block = [0; BLOCK];
    Box::new(move |count| {
        Lap::run(count, || {
            for _ in 0..count {
                file.read_exact_at(&mut block, offsets.next()).expect("the file is that large");
            }
        })
    })
}
