//! Ends a connection after its last response.

use crate::wire::buffers::Reader;
use crate::wire::transport::Transport;
use core::time::Duration;
use std::io;
use std::time::Instant;

/// How long, and for how many bytes, the server drains a connection after its last response. If
/// unread input is left at the close, the kernel sends a reset, and the client may discard a
/// response that it has received.
const LINGERING: Duration = Duration::from_secs(2);
const LINGERED: usize = 1 << 20;

/// Ends the output, then drains the input, so that the client gets the last response.
pub(super) fn linger(reader: Option<Reader>, transport: &Transport) -> io::Result<()> {
    // A body has the reader, and another fiber may still read that body.
    if reader.is_none() {
        return Ok(());
    }
    if transport.finish().is_err() {
        // The client has closed the connection.
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
