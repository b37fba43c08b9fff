//! The stack of the thread itself, for what needs a large one.

use super::measure;
use crate::cancel;
use crate::carrier::current;
use crate::park;

/// Calls `f` on the stack of the thread, from a fiber of a manager, and goes straight on with its result: no other
/// fiber runs in between. Anywhere else it calls `f` at once, on the caller's own stack.
///
/// For work that needs more stack than a fiber has. There the thread is a plain thread: waits block it, with all
/// fibers. [Fiber-locals](crate::fiber_local) are those of the fiber. A panic of `f` goes on in the caller.
///
/// A fiber of a [`Runtime`](crate::Runtime) stays on its stack too. The thread of a carrier has no main context: code on
/// its stack is no fiber, so a wait there would block every fiber of the carrier, and a wait for one of them would
/// never end. The owner of a loop takes that into account; a program that spawns fibers does not know
/// with which neighbours its fiber shares the carrier. In a runtime, use a larger stack
/// ([`Builder::stack_size`](crate::Builder::stack_size)), of which only the pages that are touched take memory, or
/// [`blocking`](crate::blocking()), which calls a closure on the stack of another thread while the fiber waits.
///
/// # Panics
/// In a hook, where a fiber cannot be left.
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController, on_fiber, run_in_main_context};
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new().stack_size(16 * 1024))?;
/// manager.add_task(|| {
///     let large = run_in_main_context(|| {
///         assert!(!on_fiber());
///         std::hint::black_box([1_u8; 256 * 1024]).iter().map(|&one| u64::from(one)).sum::<u64>()
///     });
///     assert_eq!(large, 256 * 1024);
/// });
/// controller.run();
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn run_in_main_context<R>(f: impl FnOnce() -> R) -> R {
    match measure::unmeasured(|| park::on_root(f)) {
        Ok(result) => result,
        Err(payload) => cancel::pass_on(payload),
    }
}

/// Whether the running code is in a fiber, of a manager or of a runtime, and not on the main context.
///
/// # Examples
/// ```
/// assert!(!sinew::manager::on_fiber());
/// assert!(sinew::run(sinew::manager::on_fiber));
/// ```
pub fn on_fiber() -> bool {
    current::fiber().is_some()
}
