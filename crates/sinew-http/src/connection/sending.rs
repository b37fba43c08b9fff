//! Sends the body of a response.

use super::session::Session;
use crate::message::outgoing::{BodyWriter, Delimiter, Outgoing};
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Session<'_> {
    /// Sends a body. `count` counts the bytes that were sent.
    pub(super) fn send(
        &mut self,
        body: Outgoing,
        delimiter: Delimiter,
        count: &mut u64,
    ) -> io::Result<()> {
        if let Outgoing::Whole(bytes) = &body {
            self.kit.writer.write(self.transport, bytes)?;
            *count = bytes.len() as u64;
            return Ok(());
        }
        let mut out = BodyWriter::new(&mut self.kit.writer, self.transport, delimiter, count);
        let made = catch_unwind(AssertUnwindSafe(|| match body {
            Outgoing::Whole(_) | Outgoing::Upgrade(_) => Ok(()),
            Outgoing::Reader(reader, _) | Outgoing::File(reader, _) => {
                copy(reader, &mut out, delimiter)
            }
            Outgoing::Stream(write) => write(&mut out),
        }));
        match made {
            Ok(Ok(())) => out.finish(),
            Ok(Err(error)) => {
                out.break_off();
                Err(error)
            }
            Err(payload) => {
                out.break_off();
                self.survive(payload, "the body of a response");
                // Fail although the gathered bytes were written: the body is not whole.
                Err(io::Error::other("the code that makes the body of a response panicked"))
            }
        }
    }
}

/// Copies a body from a reader.
fn copy(
    mut reader: Box<dyn Read + Send>,
    out: &mut BodyWriter<'_>,
    delimiter: Delimiter,
) -> io::Result<()> {
    let mut buffer = vec![0; 32 * 1024];
    let mut left = match delimiter {
        Delimiter::Length(length) => length,
        Delimiter::Chunks | Delimiter::Close => u64::MAX,
    };
    while left > 0 {
        let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = match reader.read(&mut buffer[..room]) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        out.write_all(&buffer[..count])?;
        // A short read means that the reader is slow: send its bytes as they come.
        if count < room {
            out.flush()?;
        }
        left -= count as u64;
    }
    Ok(())
}
