//! Drops a suspended fiber, which runs the destructors on its stack.
//!
//! Under `panic = "abort"` nothing can be unwound, and the process ends with a message instead.

use sinew_context::FiberContext;

struct Noisy;

impl Drop for Noisy {
    #[expect(clippy::print_stdout, reason = "an example shows what happens")]
    fn drop(&mut self) {
        println!("dropped on the fiber's stack");
    }
}

fn main() -> std::io::Result<()> {
    let fiber = FiberContext::new(|caller| {
        let _noisy = Noisy;
        caller.resume().expect("the caller comes back or drops us")
    })?;
    let suspended = fiber.resume();
    drop(suspended);
    Ok(())
}
