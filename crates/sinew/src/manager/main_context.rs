//! Calls from a fiber of a manager to the main context: the thread's own, large stack.

use super::measure;
use crate::carrier::current;
use crate::carrier::embed::on_root::on_root;
use crate::park::raise;

/// Calls `f` on the thread's own stack, from a fiber of a manager. The fiber goes on with the
/// result at once: no other fiber runs in between. Anywhere else this calls `f` on the caller's own
/// stack.
///
/// Use it for work that needs more stack than a fiber has. `f` runs on a plain thread: a wait in it
/// blocks the thread, and all fibers of the manager. `f` sees the
/// [fiber-locals](crate::fiber_local) of the calling fiber. A panic of `f` goes on in the caller.
///
/// A fiber of a [`Runtime`](crate::Runtime) also calls `f` on its own stack, because the thread of
/// a carrier has no main context. Code on the carrier's stack is not a fiber: a wait there would
/// block every fiber of the carrier, and a wait for one of these fibers would never end. The owner
/// of a loop can take that into account. A program that spawns fibers in a runtime cannot, because
/// it does not know which other fibers share the carrier. In a runtime, use a larger stack
/// ([`FiberBuilder::stack_size`](crate::FiberBuilder::stack_size)), of which only the touched pages
/// take memory, or [`blocking`](crate::blocking()), which calls a closure on another thread's stack
/// while the fiber waits.
///
/// # Panics
/// In a hook or a predicate, where the fiber cannot be suspended.
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
    match measure::unmeasured(|| on_root(f)) {
        Ok(result) => result,
        Err(payload) => raise::pass_on(payload),
    }
}

/// Returns whether the running code is in a fiber, of a manager or of a runtime. Returns false on
/// the main context and on a plain thread.
///
/// # Examples
/// ```
/// assert!(!sinew::manager::on_fiber());
/// assert!(sinew::run(sinew::manager::on_fiber));
/// ```
pub fn on_fiber() -> bool {
    current::fiber().is_some()
}
