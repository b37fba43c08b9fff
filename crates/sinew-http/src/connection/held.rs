//! Responses that wait for the next one, to be sent together, but not for a handler that waits.
//!
//! While a handler runs, what was gathered before it is where the fiber's switches find it: the first time
//! that the fiber is suspended, it is sent, as far as the kernel takes it at once.

use super::transport::Transport;
use core::cell::Cell;
use core::mem;
use sinew::ContextSlot;
use std::rc::Rc;

/// What is sent if the fiber is suspended.
struct Held {
    transport: Transport,
    bytes: Vec<u8>,
    /// Whether the handler has begun: the hook of the slot is called at that moment, too.
    begun: bool,
    /// Whether it has ended: the same.
    ended: Rc<Cell<bool>>,
}

static HELD: ContextSlot<Held> = ContextSlot::new(Held::at_switch);

impl Held {
    fn at_switch(&mut self) {
        if mem::replace(&mut self.begun, true) && !self.ended.get() && !self.bytes.is_empty() {
            // What fails here fails again, when somebody can be told.
            let sent = self.transport.write_at_once(&self.bytes).unwrap_or(0);
            self.bytes.drain(..sent);
        }
    }
}

/// Runs `f`, which does not unwind, while `bytes` wait; returns what has not been sent of them.
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
