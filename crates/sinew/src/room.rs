//! More stack for a call: a second stack when the running fiber's own stack is nearly full.
//!
//! The panic hook (`runtime::hooks`) and `inspect` call code of unknown depth this way. The second
//! stack belongs to a first-class fiber of `sinew-context`, and lives as long as the call.

use sinew_context::context::FRAME_LAYOUT;
use std::io;

/// Calls `f`, on another stack if the running fiber has fewer than `room` bytes left on its own. On
/// the fiber's own stack, `f` gets `None`. On another stack, `f` gets the address of the fiber's
/// saved registers, where a backtrace of the fiber begins.
pub(crate) fn with_room<R>(room: usize, f: impl FnOnce(Option<usize>) -> R) -> R {
    if sinew_context::stack::remaining().is_none_or(|left| left >= room) {
        return f(None);
    }
    let (mut f, mut result) = (Some(f), None);
    let made = sinew_context::scope(|scope| {
        let fiber = scope.fiber(|caller| {
            let place = caller.registers().stack - FRAME_LAYOUT.size;
            result = f.take().map(|f| f(Some(place)));
            caller
        })?;
        // The other fiber switches back when it has ended.
        drop(fiber.resume());
        io::Result::Ok(())
    });
    match (made, f) {
        // There is no other stack, so call `f` here after all.
        (Err(_), Some(f)) => f(None),
        _ => result.expect("the other fiber has run `f` to its end"),
    }
}
