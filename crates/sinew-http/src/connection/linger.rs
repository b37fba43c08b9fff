//! The end of a connection after its last response.

use super::transport::Transport;
use super::wire::Reader;
use core::time::Duration;
use std::io;
use std::time::Instant;

/// So long a connection that is closed with an answer is read from, that the answer arrives: what is not
/// read when a connection is closed makes the other end forget what it received.
const LINGERING: Duration = Duration::from_secs(2);
const LINGERED: usize = 1 << 20;

/// Ends a connection after its last response, so that the other end gets it.
pub(super) fn linger(reader: Option<Reader>, transport: &Transport) -> io::Result<()> {
    // Somebody else may still read.
    if reader.is_none() {
        return Ok(());
    }
    if transport.finish().is_err() {
        // It was closed from the other side.
        return Ok(());
    }
    let deadline = Instant::now() + LINGERING;
    let mut waste = [0; 2048];
    let mut total = 0;
    while total < LINGERED {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match transport.read_within(&mut waste, left) {
            Ok(count @ 1..) => total += count,
            Ok(0) | Err(_) => break,
        }
    }
    Ok(())
}
