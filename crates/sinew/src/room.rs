//! More stack for a call.

use sinew_context::context::FRAME_LAYOUT;
use std::io;

/// Calls `f`, on another stack if the running fiber has fewer than `room` bytes left on its own. On
/// another stack, `f` gets the address at which the fiber is suspended meanwhile.
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
        _ => result.expect("it has run to its end"),
    }
}
