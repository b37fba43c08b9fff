//! The file that the benchmark `file` reads. It lies in memory, so that the figures show the cost
//! of a request and not of a disk.

use crate::load::mix;
use std::fs::{File, OpenOptions, remove_file};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::OnceLock;

/// The bytes of a read and the number of blocks in the file, 256 MiB in all.
pub(crate) const BLOCK: usize = 4096;
const BLOCKS: u64 = 65_536;

/// The number of tasks that read at once in the rows with a depth above 1.
pub(crate) const DEPTH: u64 = 16;

pub(crate) const MISSING: &str = "there is no tmpfs at /dev/shm";

/// Returns whether the machine has a file system in memory.
pub(crate) fn is_possible() -> bool {
    Path::new("/dev/shm").is_dir()
}

/// Returns the file and makes it on the first call. The file has no name, so it vanishes with the
/// process.
pub(crate) fn file() -> &'static File {
    static FILE: OnceLock<File> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = format!("/dev/shm/sinew-bench-{}", std::process::id());
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let mut file = made.expect("a file can be made in /dev/shm");
        let _ = remove_file(&path);
        // Write every block: a hole takes no memory and reads faster.
        for number in 0..BLOCKS {
            file.write_all(&[number as u8 | 1; BLOCK]).expect("there is room in /dev/shm");
        }
        file
    })
}

/// Returns the path by which other programs open the file.
pub(crate) fn path() -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file().as_raw_fd())
}

/// The offsets of blocks, in a pseudo-random order.
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
