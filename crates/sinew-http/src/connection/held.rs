//! Sends gathered responses when the handler of the next request waits.
//!
//! Responses to pipelined requests are gathered, to be sent together. While a handler runs, the
//! gathered bytes are in a [`ContextSlot`]. When the fiber is suspended, the hook of the slot sends
//! as many of them as the kernel takes at once.

use crate::wire::transport::Transport;
use core::cell::Cell;
use core::mem;
use sinew::ContextSlot;
use std::rc::Rc;

/// The bytes to send if the fiber is suspended.
struct Held {
    transport: Transport,
    bytes: Vec<u8>,
    /// Whether the handler has begun. The first call of the hook comes from entering the slot.
    begun: bool,
    /// Whether the handler has ended. The last call of the hook comes from leaving the slot.
    ended: Rc<Cell<bool>>,
}

static HELD: ContextSlot<Held> = ContextSlot::new(Held::at_switch);

impl Held {
    fn at_switch(&mut self) {
        if mem::replace(&mut self.begun, true) && !self.ended.get() && !self.bytes.is_empty() {
            // An error here comes back at the next write, which can report it.
            let sent = self.transport.write_at_once(&self.bytes).unwrap_or(0);
            self.bytes.drain(..sent);
        }
    }
}

/// Runs `f` while `bytes` are held; returns the bytes that have not been sent. `f` must not unwind.
pub(super) fn holding<R>(
    transport: &Transport,
    bytes: Vec<u8>,
    f: impl FnOnce() -> R,
) -> (R, Vec<u8>) {
    let ended = Rc::new(Cell::new(false));
    let held = Held { transport: transport.clone(), bytes, begun: false, ended: ended.clone() };
    let (result, held) = HELD.enter(held, || {
        let result = f();
        ended.set(true);
        result
    });
    (result, held.bytes)
}
