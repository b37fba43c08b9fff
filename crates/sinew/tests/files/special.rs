//! FIFOs, terminals and devices.

use super::{Folder, on_each, until_it_waits};
use sinew::FiberState;
use sinew::fs::{self, File, OpenOptions};
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) fn make_fifo(folder: &Folder) -> PathBuf {
    let path = folder.file("fifo");
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a valid name.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    path
}

/// Returns both ends of a FIFO, each opened by a fiber that waits for the other.
pub(super) fn both_ends(path: &Path) -> (File, File) {
    let name = path.to_owned();
    let reader = sinew::spawn(move || File::open(name).unwrap());
    let writer = OpenOptions::new().write(true).open(path).unwrap();
    (reader.join().unwrap(), writer)
}

#[test]
fn opening_a_fifo_waits_for_the_other_side_and_others_run() {
    on_each(|| {
        let folder = Folder::on_disk();
        let path = make_fifo(&folder);
        let name = path.clone();
        let reader = sinew::spawn(move || File::open(name).unwrap());
        until_it_waits(&reader);
        for _ in 0..100 {
            sinew::yield_now();
            assert!(!reader.is_finished());
        }
        // The carrier was not blocked, or this line would never be reached.
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(b"through").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.join().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    });
}

#[test]
fn many_may_wait_for_the_other_sides_of_fifos() {
    on_each(|| {
        let folders: Vec<_> = (0..20).map(|_| Folder::on_disk()).collect();
        let paths: Vec<_> = folders.iter().map(make_fifo).collect();
        let begin = |path: &PathBuf| {
            let path = path.clone();
            sinew::spawn(|| fs::read(path).unwrap())
        };
        let readers: Vec<_> = paths.iter().map(begin).collect();
        readers.iter().for_each(until_it_waits);
        for path in paths.iter().rev() {
            fs::write(path, "x").unwrap();
        }
        readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap(), b"x"));
    });
}

#[test]
fn reading_a_fifo_waits_and_a_cancelled_reader_loses_nothing() {
    on_each(|| {
        let folder = Folder::on_disk();
        let (reader, mut writer) = both_ends(&make_fifo(&folder));
        for _ in 0..20 {
            let mut other = reader.try_clone().unwrap();
            let waiting = sinew::spawn(move || other.read(&mut [0; 10]).unwrap());
            until_it_waits(&waiting);
            waiting.cancel();
            assert!(sinew::is_cancel(&*waiting.join().unwrap_err()));
        }
        writer.write_all(b"all of it").unwrap();
        let mut buffer = [0; 20];
        assert_eq!((&reader).read(&mut buffer).unwrap(), 9);
        assert_eq!(&buffer[..9], b"all of it");
        assert_eq!((&reader).read(&mut []).unwrap(), 0);
        drop(writer);
        assert_eq!((&reader).read(&mut buffer).unwrap(), 0);
    });
}

/// More operations complete at once than a ring has room for.
#[test]
fn completions_that_do_not_fit_are_not_forgotten() {
    const READERS: usize = 3000;
    on_each(|| {
        let folder = Folder::on_disk();
        let (reader, mut writer) = both_ends(&make_fifo(&folder));
        let reader = Arc::new(reader);
        let waiting: Vec<_> = (0..READERS)
            .map(|_| {
                let reader = reader.clone();
                sinew::spawn(move || (&*reader).read(&mut [0]).unwrap())
            })
            .collect();
        waiting.iter().for_each(until_it_waits);
        writer.write_all(&[1; READERS]).unwrap();
        waiting.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap(), 1));
    });
}

#[test]
fn bytes_of_a_reader_that_gives_up_again_and_again_all_arrive() {
    on_each(|| {
        let folder = Folder::on_disk();
        let (mut reader, mut writer) = both_ends(&make_fifo(&folder));
        let sender = sinew::spawn(move || {
            for number in 0..5000_u32 {
                writer.write_all(&number.to_le_bytes()).unwrap();
                if number % 7 == 0 {
                    sinew::yield_now();
                }
            }
        });
        let mut received = Vec::new();
        let mut buffer = [0; 64];
        loop {
            let moment = std::time::Duration::from_micros(received.len() as u64 % 50);
            match sinew::timeout(moment, || reader.read(&mut buffer).unwrap()) {
                Ok(0) => break,
                Ok(count) => received.extend_from_slice(&buffer[..count]),
                Err(sinew::Elapsed) => {}
            }
        }
        sender.join().unwrap();
        let expected: Vec<_> = (0..5000_u32).flat_map(u32::to_le_bytes).collect();
        assert!(received == expected, "{} bytes", received.len());
    });
}

#[test]
fn writing_to_a_full_fifo_waits_and_can_be_cancelled() {
    on_each(|| {
        let folder = Folder::on_disk();
        let (mut reader, mut writer) = both_ends(&make_fifo(&folder));
        let full = sinew::spawn(move || {
            let mut total = 0;
            loop {
                total += writer.write(&[1; 4096]).unwrap();
                assert!(total <= 16 << 20, "a FIFO without end");
            }
        });
        until_it_waits(&full);
        // The writer sometimes lets other fibers run; at last it waits for good.
        while sinew::timeout(std::time::Duration::from_millis(1), || full.fiber().state())
            != Ok(FiberState::Suspended)
        {
            sinew::yield_now();
        }
        full.cancel();
        assert!(sinew::is_cancel(&*full.join().unwrap_err()));
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest.iter().all(|byte| *byte == 1) && rest.len() % 4096 == 0);
    });
}

#[test]
fn a_fifo_is_as_in_the_standard_library_otherwise() {
    on_each(|| {
        let folder = Folder::on_disk();
        let path = make_fifo(&folder);
        let (reader, mut writer) = both_ends(&path);
        for _ in 0..2 {
            // A FIFO has no positions, also after a read.
            let plain = std::fs::File::from(reader.try_clone().unwrap());
            let error = reader.read_at(&mut [0], 0).unwrap_err();
            assert_eq!(
                error.raw_os_error(),
                plain.read_at(&mut [0], 0).unwrap_err().raw_os_error()
            );
            writer.write_all(b"x").unwrap();
            (&reader).read_exact(&mut [0]).unwrap();
        }
        let flags = libc::O_NONBLOCK;
        let mut hasty = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
        for _ in 0..2 {
            let error = hasty.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        writer.write_all(b"y").unwrap();
        assert_eq!(hasty.read(&mut [0]).unwrap(), 1);
    });
}

#[test]
fn a_terminal_is_waited_for() {
    on_each(|| {
        let (mut master, mut slave) = (0, 0);
        let none = std::ptr::null_mut();
        // SAFETY: there are places for two descriptors; name and settings are null.
        let result =
            unsafe { libc::openpty(&mut master, &mut slave, none, none.cast(), none.cast()) };
        if result < 0 {
            println!("skipped: no terminals");
            return;
        }
        // SAFETY: fresh descriptors.
        let [mut master, slave] =
            [master, slave].map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        for _ in 0..3 {
            let mut other = slave.try_clone().unwrap();
            let waiting = sinew::spawn(move || other.read(&mut [0; 10]).unwrap());
            until_it_waits(&waiting);
            waiting.cancel();
            assert!(sinew::is_cancel(&*waiting.join().unwrap_err()));
        }
        let mut other = slave.try_clone().unwrap();
        let waiting = sinew::spawn(move || {
            let mut buffer = [0; 10];
            let count = other.read(&mut buffer).unwrap();
            buffer[..count].to_vec()
        });
        until_it_waits(&waiting);
        master.write_all(b"line\n").unwrap();
        assert_eq!(waiting.join().unwrap(), b"line\n");
    });
}

#[test]
fn devices() {
    on_each(|| {
        let mut buffer = [1; 5000];
        let zero = File::open("/dev/zero").unwrap();
        // A read may return only a page, if the thread is about to be interrupted.
        (&zero).read_exact(&mut buffer).unwrap();
        assert_eq!(buffer, [0; 5000]);
        buffer.fill(1);
        zero.read_exact_at(&mut buffer, 1 << 40).unwrap();
        assert_eq!(buffer, [0; 5000]);
        let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let errors = [
            (&full).write(b"x").unwrap_err(),
            full.write_at(b"x", 7).unwrap_err(),
            fs::write("/dev/full", "x").unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        let mut null = OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
        assert_eq!(null.write(&buffer).unwrap(), buffer.len());
        assert_eq!(null.read(&mut buffer).unwrap(), 0);
        assert_eq!(fs::read("/dev/null").unwrap(), b"");
        let status = fs::read_to_string("/proc/self/status").unwrap();
        assert!(status.contains(&format!("Pid:\t{}\n", std::process::id())), "{status}");
        let mut again = String::new();
        File::open("/proc/self/status").unwrap().read_to_string(&mut again).unwrap();
        assert!(again.contains("Pid:"));
    });
}
