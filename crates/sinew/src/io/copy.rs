//! Copying from a reader to a writer.

use std::io::{self, Read, Write};

/// The size of the buffer, in bytes.
const ROOM: usize = 64 * 1024;

/// Copies everything from a reader to a writer. Returns the number of bytes copied.
///
/// Like `std::io::copy`, but with a larger buffer, of 64 KiB, so that the fiber waits less often.
/// The buffer is on the heap, not on the fiber's stack. Interrupted calls are tried again.
///
/// # Errors
/// If the reader or the writer fails. The bytes that were written before stay written.
///
/// # Examples
/// ```
/// let mut sink = Vec::new();
/// assert_eq!(sinew::io::copy(&mut &b"hello"[..], &mut sink)?, 5);
/// assert_eq!(sink, b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn copy<R, W>(reader: &mut R, writer: &mut W) -> io::Result<u64>
where
    R: Read + ?Sized,
    W: Write + ?Sized,
{
    let mut buffer = vec![0; ROOM].into_boxed_slice();
    let mut copied = 0;
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        writer.write_all(&buffer[..count])?;
        copied += count as u64;
    }
}
