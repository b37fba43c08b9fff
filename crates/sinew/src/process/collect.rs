//! Reads several pipes to their ends at the same time.

use crate::io::attempt::take_turns;
use crate::io::{Interest, PipeReader, PollFd, poll};
use std::io::{self, Read};

/// Reads both pipes to their ends. A process that writes to both never waits for room in one of
/// them, as it would if they were read one after the other.
///
/// Raises the cancellation if the fiber is cancelled; the bytes that were read are lost then.
pub(super) fn collect(
    first: Option<&PipeReader>,
    second: Option<&PipeReader>,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let ends = [(first, &mut one), (second, &mut other)];
    let mut open: Vec<_> =
        ends.into_iter().filter_map(|(pipe, text)| Some((pipe?, text))).collect();
    // Kept from wait to wait, so that the pipes are watched throughout.
    let mut entries: Vec<_> =
        open.iter().map(|(pipe, _)| PollFd::new(*pipe, Interest::Readable)).collect();
    while !open.is_empty() {
        take_turns();
        let mut is_vain = true;
        for index in (0..open.len()).rev() {
            let (pipe, text) = &mut open[index];
            match read_some(pipe, text)? {
                Found::End => {
                    open.remove(index);
                    entries.remove(index);
                    is_vain = false;
                }
                Found::More => is_vain = false,
                Found::Nothing => {}
            }
        }
        if is_vain {
            poll(&mut entries, None)?;
        }
    }
    drop(open);
    Ok((one, other))
}

enum Found {
    /// There may be more.
    More,
    /// There is nothing more at this moment.
    Nothing,
    /// The pipe has ended.
    End,
}

/// The most bytes that are read from one pipe before the other pipe has its turn: the capacity of a
/// pipe.
const PORTION: u64 = 64 * 1024;

/// Appends the available bytes, up to a limit. Does not wait.
fn read_some(pipe: &PipeReader, text: &mut Vec<u8>) -> io::Result<Found> {
    let mut portion = pipe.io().get_ref().take(PORTION);
    match portion.read_to_end(text) {
        Ok(_) if portion.limit() > 0 => Ok(Found::End),
        Ok(_) => Ok(Found::More),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Found::Nothing),
        Err(error) => Err(error),
    }
}
