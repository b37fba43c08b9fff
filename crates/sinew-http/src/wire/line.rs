//! The socket of a connection, and whether a write to it stopped in its middle.

use super::transport::timed_out;
use core::mem;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use sinew::net::TcpStream;
use std::io::{self, Read};

/// The socket of one connection. The connection, its transport and its bodies share it.
pub(crate) struct Line {
    pub(crate) stream: TcpStream,
    /// Whether a write stopped in its middle. Nothing may be written after it.
    is_torn: AtomicBool,
}

impl Line {
    pub(crate) fn new(stream: TcpStream) -> Line {
        Line { stream, is_torn: AtomicBool::new(false) }
    }

    /// Reads within `limit`; fails with `TimedOut` after it.
    pub(super) fn read_within(&self, buffer: &mut [u8], limit: Duration) -> io::Result<usize> {
        /// Removes the timeout, also if the read is unwound.
        struct Unlimited<'a>(&'a TcpStream);
        impl Drop for Unlimited<'_> {
            fn drop(&mut self) {
                let _ = self.0.set_read_timeout(None);
            }
        }
        // A socket refuses a timeout of zero.
        self.stream.set_read_timeout(Some(limit.max(Duration::from_micros(1))))?;
        let unlimited = Unlimited(&self.stream);
        let mut stream = unlimited.0;
        stream.read(buffer).map_err(timed_out)
    }

    /// Calls `write` for something that is only useful as a whole. If `write` fails, or a deadline
    /// of the handler unwinds it, nothing more can be written to the connection.
    pub(super) fn write_whole(
        &self,
        write: impl FnOnce(&TcpStream) -> io::Result<()>,
    ) -> io::Result<()> {
        /// Marks the connection as torn, unless it is forgotten.
        struct Torn<'a>(&'a AtomicBool);
        impl Drop for Torn<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        if self.is_torn.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let torn = Torn(&self.is_torn);
        write(&self.stream)?;
        mem::forget(torn);
        Ok(())
    }
}
