//! The file that `file` reads: in memory, so that what is measured is the way there and back.

use crate::load::mix;
use std::fs::{File, OpenOptions, remove_file};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::OnceLock;

/// Bytes of a read, and blocks of the file: 256 MiB.
pub(crate) const BLOCK: usize = 4096;
const BLOCKS: u64 = 65_536;

/// Tasks that read at once, where it is not one.
pub(crate) const DEPTH: u64 = 16;

pub(crate) const MISSING: &str = "there is no tmpfs at /dev/shm";

/// Whether there is a file system in memory to put it.
pub(crate) fn is_possible() -> bool {
    Path::new("/dev/shm").is_dir()
}

/// The file, made when it is first asked for. It has no name any more, and vanishes with the process.
pub(crate) fn file() -> &'static File {
    static FILE: OnceLock<File> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = format!("/dev/shm/sinew-bench-{}", std::process::id());
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let mut file = made.expect("a file can be made in /dev/shm");
        let _ = remove_file(&path);
        // What is never written takes no memory, and reads faster.
        for number in 0..BLOCKS {
            file.write_all(&[number as u8 | 1; BLOCK]).expect("there is room in /dev/shm");
        }
        file
    })
}

/// The path by which other programs find it.
pub(crate) fn path() -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file().as_raw_fd())
}

/// Where blocks begin, at random.
pub(crate) struct Offsets(u64);

impl Offsets {
    pub(crate) fn new(seed: u64) -> Offsets {
        Offsets(mix(2 * seed + 1, 4))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = mix(self.0, 1);
        (self.0 >> 33) % BLOCKS * BLOCK as u64
    }
}
