//! More stack for a call.

use sinew_context::context::FRAME_LAYOUT;
use std::io;

/// Calls `f`: on another stack if there are fewer than `room` bytes left on that of the running fiber. It is
/// told where the fiber is suspended meanwhile, if it is.
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
        // It comes back when it has ended.
        drop(fiber.resume());
        io::Result::Ok(())
    });
    match (made, f) {
        // Without another stack it is tried here after all.
        (Err(_), Some(f)) => f(None),
        _ => result.expect("it has run to its end"),
    }
}
