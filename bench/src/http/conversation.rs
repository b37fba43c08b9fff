//! One connection of a server that is written by hand around httparse.
//!
//! The server passes in the bytes that it read and gets the responses that it has to write. The
//! buffers are kept for all requests. All requests that came with one read are answered with one
//! write.

use super::Answer;
use httparse::{Request, Status};
use std::io::{Read, Write};
use std::mem::MaybeUninit;

/// The most bytes of a request. A longer or malformed request ends the conversation.
const ROOM: usize = 2048;

/// The most header fields of a request.
const FIELDS: usize = 16;

pub(crate) struct Conversation {
    answer: Answer,
    input: Box<[u8; ROOM]>,
    /// Bytes of `input` that were read and not answered: less than a request.
    unanswered: usize,
    output: Vec<u8>,
}

/// The client sent a malformed request.
pub(crate) struct Nonsense;

impl Conversation {
    pub(crate) fn new(answer: Answer) -> Conversation {
        Conversation { answer, input: Box::new([0; ROOM]), unanswered: 0, output: Vec::new() }
    }

    /// Returns the free space to read into.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.input[self.unanswered..]
    }

    /// Takes `read` bytes that were read into [`Conversation::room`] and returns the bytes to
    /// write.
    pub(crate) fn answer(&mut self, read: usize) -> Result<&[u8], Nonsense> {
        let end = self.unanswered + read;
        let mut start = 0;
        self.output.clear();
        while let Some(len) = request(&self.input[start..end])? {
            self.answer.append_to(&mut self.output);
            start += len;
        }
        self.input.copy_within(start..end, 0);
        self.unanswered = end - start;
        if self.unanswered == ROOM { Err(Nonsense) } else { Ok(&self.output) }
    }

    /// Serves a stream whose reads and writes wait, until the stream ends.
    pub(crate) fn hold(mut self, stream: &mut (impl Read + Write)) {
        while let Ok(count @ 1..) = stream.read(self.room()) {
            let Ok(answers) = self.answer(count) else { return };
            if stream.write_all(answers).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    }
}

/// Returns the length of the request at the beginning of `input`, if it is complete. No request has
/// a body.
fn request(input: &[u8]) -> Result<Option<usize>, Nonsense> {
    if input.is_empty() {
        return Ok(None);
    }
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    match Request::new(&mut []).parse_with_uninit_headers(input, &mut fields) {
        Ok(Status::Complete(len)) => Ok(Some(len)),
        Ok(Status::Partial) => Ok(None),
        Err(_) => Err(Nonsense),
    }
}
