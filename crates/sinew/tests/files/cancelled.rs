//! Fibers that are cancelled in the middle of an operation.

use super::special::{both_ends, make_fifo};
use super::{Folder, make_cold, on_each, pattern, until_it_waits};
use sinew::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

/// Memory that outlives its user, so that a late write to it can be detected.
struct Outliving(&'static [std::cell::UnsafeCell<u8>]);

// SAFETY: one fiber at a time uses the bytes: the next looks after the previous one has ended.
unsafe impl Send for Outliving {}
// SAFETY: one fiber at a time uses the bytes: the next looks after the previous one has ended.
unsafe impl Sync for Outliving {}

impl Outliving {
    fn new(size: usize) -> Outliving {
        Outliving((0..size).map(|_| 0.into()).collect::<Vec<_>>().leak())
    }

    /// # Safety
    /// No other code uses the bytes meanwhile.
    #[expect(clippy::mut_from_ref, reason = "cells")]
    unsafe fn bytes(&self) -> &mut [u8] {
        // SAFETY: a cell has the layout of its content, and the caller promised that no other code
        // uses the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr() as *mut u8, self.0.len()) }
    }
}

const MARK: u8 = 0xa5;

/// Fills the bytes when the fiber is unwound out of its frame.
struct Mark<'a>(&'a Outliving);

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        // SAFETY: the call that used the bytes has been left.
        unsafe { self.0.bytes() }.fill(MARK);
    }
}

#[test]
fn a_buffer_is_not_touched_after_a_cancelled_read_was_left() {
    on_each(|| {
        const SIZE: usize = 1 << 18;
        const ROUNDS: usize = 16;
        let folder = Folder::on_disk();
        let path = folder.file("cold");
        let expected = Arc::new(pattern(0, SIZE));
        std::fs::write(&path, &*expected).unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        let memory = Arc::new(Outliving::new(SIZE));
        let mut raised = 0;
        for round in 0..ROUNDS {
            make_cold(&path);
            let (theirs, bytes, expected_there) = (file.clone(), memory.clone(), expected.clone());
            let reader = sinew::spawn(move || {
                let mark = Mark(&bytes);
                // SAFETY: only this fiber uses the bytes until it has ended.
                let buffer = unsafe { mark.0.bytes() };
                let count = theirs.read_at(buffer, 0).unwrap();
                assert!(buffer[..count] == expected_there[..count]);
                std::mem::forget(mark);
                count
            });
            match round % 4 {
                0 => {
                    until_it_waits(&reader);
                }
                turns => (1..turns).for_each(|_| sinew::yield_now()),
            }
            reader.cancel();
            match reader.join() {
                Ok(count) => assert!(count > 0),
                Err(payload) => {
                    assert!(sinew::is_cancel(&*payload));
                    // SAFETY: the fiber has ended, or was cancelled before it began.
                    let bytes = unsafe { memory.bytes() };
                    let begun = bytes[0] == MARK;
                    raised += usize::from(begun);
                    // The kernel would complete a late write before these operations.
                    let mut other = vec![0; SIZE];
                    file.read_exact_at(&mut other, 0).unwrap();
                    file.sync_data().unwrap();
                    assert!(other == *expected);
                    assert!(!begun || bytes.iter().all(|byte| *byte == MARK), "round {round}");
                }
            }
            // SAFETY: the fiber has ended.
            unsafe { memory.bytes() }.fill(0);
        }
        println!("{raised} of {ROUNDS} were unwound out of a read");
    });
}

#[test]
fn a_buffer_is_not_touched_by_bytes_that_arrive_after_a_cancelled_read() {
    on_each(|| {
        let folder = Folder::on_disk();
        let (reader, mut writer) = both_ends(&make_fifo(&folder));
        let (reader, memory) = (Arc::new(reader), Arc::new(Outliving::new(64)));
        for _ in 0..20 {
            let (theirs, bytes) = (reader.clone(), memory.clone());
            let waiting = sinew::spawn(move || {
                let mark = Mark(&bytes);
                // SAFETY: only this fiber uses the bytes until it has ended.
                let buffer = unsafe { mark.0.bytes() };
                (&*theirs).read(buffer).unwrap()
            });
            until_it_waits(&waiting);
            waiting.cancel();
            assert!(sinew::is_cancel(&*waiting.join().unwrap_err()));
            writer.write_all(b"arrives").unwrap();
            let mut buffer = [0; 64];
            assert_eq!((&*reader).read(&mut buffer).unwrap(), 7);
            assert_eq!(&buffer[..7], b"arrives");
            // SAFETY: the fiber has ended.
            let bytes = unsafe { memory.bytes() };
            assert_eq!(bytes, [MARK; 64]);
            bytes.fill(0);
        }
    });
}

#[test]
fn a_cancelled_sync_is_done_or_was_not_begun() {
    on_each(|| {
        let folder = Folder::on_disk();
        let path = folder.file("synced");
        let file = Arc::new(File::create_new(&path).unwrap());
        for round in 0..20_u64 {
            file.write_all_at(&pattern(0, 1 << 16), round << 16).unwrap();
            let theirs = file.clone();
            let syncing = sinew::spawn(move || theirs.sync_all().unwrap());
            if round % 2 == 0 {
                until_it_waits(&syncing);
            }
            syncing.cancel();
            if let Err(payload) = syncing.join() {
                assert!(sinew::is_cancel(&*payload));
            }
        }
        // The ring still works.
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 20 << 16);
    });
}

#[test]
fn a_cancelled_write_writes_all_of_its_bytes_or_none() {
    on_each(|| {
        const SIZE: usize = 1 << 18;
        let folder = Folder::on_disk();
        let path = folder.file("written");
        let file = Arc::new(File::create_new(&path).unwrap());
        for round in 0..20 {
            file.set_len(0).unwrap();
            let theirs = file.clone();
            let writing = sinew::spawn(move || theirs.write_at(&vec![9; SIZE], 0).unwrap());
            if round % 2 == 0 {
                until_it_waits(&writing);
            } else {
                sinew::yield_now();
            }
            writing.cancel();
            let reported = writing.join().unwrap_or(0);
            assert_eq!(file.metadata().unwrap().len(), reported as u64, "round {round}");
            assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 9));
        }
    });
}

#[test]
fn a_cancelled_fiber_that_moves_leaves_its_read() {
    on_each(|| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let reader = Arc::new(File::from(std::os::fd::OwnedFd::from(reader)));
        for _ in 0..20 {
            let theirs = reader.clone();
            // SAFETY: the closure keeps nothing that belongs to a thread across its waits.
            let builder = unsafe { sinew::FiberBuilder::new().migratable() };
            let read = move || (&*theirs).read(&mut [0; 4]).unwrap();
            let waiting = builder.spawn(read).unwrap();
            until_it_waits(&waiting);
            waiting.cancel();
            assert!(sinew::is_cancel(&*waiting.join().unwrap_err()));
        }
        writer.write_all(b"left").unwrap();
        let mut buffer = [0; 4];
        (&*reader).read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"left");
    });
}
