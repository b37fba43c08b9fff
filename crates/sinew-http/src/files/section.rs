//! A part of a file, as the body of a response.

use sinew::fs::File;
use std::io::{self, Read};

/// Reads a part of a file.
///
/// It reads at offsets rather than at the position of the file: the runtime does that with the
/// kernel's ring, while a read at the position needs a thread.
#[derive(Debug)]
pub(super) struct Section {
    file: File,
    at: u64,
    left: u64,
}

impl Section {
    /// Makes a section of the `len` bytes from `at`.
    pub(super) fn new(file: File, at: u64, len: u64) -> Section {
        Section { file, at, left: len }
    }

    /// How many bytes are left to read, if the file is long enough.
    pub(super) fn len(&self) -> u64 {
        self.left
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..room], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
