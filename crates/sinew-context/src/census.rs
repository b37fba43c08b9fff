//! The number of first-class fibers that each thread has started and that have not ended.
//!
//! A suspended fiber may have lent a thread-local of its thread to code that runs elsewhere: its
//! frames are inside `LocalKey::with`, and a thread of a `std::thread::scope` reads the value. A
//! forgotten fiber stays suspended for good, so a thread that has one must not destroy its
//! thread-locals. A runtime calls [`live_fibers`] before it lets one of its threads end.
//!
//! The count says how many fibers there are, not which fiber runs. It is a plain word of the
//! thread, since almost every fiber ends on the thread that started it. A runtime that moves its
//! fibers between threads may move a suspended first-class fiber along. Such a fiber is still
//! counted on the thread that started it. When the fiber ends elsewhere, it is entered in the table
//! [`ENDED_ELSEWHERE`], and the counting thread subtracts it the next time it looks.

use crate::arch;
use crate::primitive::StaticMutex;
use std::collections::BTreeMap;
use std::sync::PoisonError;

// SAFETY: the symbol names this crate and its version, so no other code uses it.
crate::thread_word!(unsafe started, concat!("sinew_context_started_", env!("CARGO_PKG_VERSION")));

/// The number of fibers that ended on another thread than the one that counts them. The key is the
/// thread pointer of the counting thread.
///
/// Only threads of a runtime have entries, because only a runtime moves fibers. Such a thread calls
/// [`live_fibers`] before it ends, which removes its entry. So a later thread with an equal pointer
/// finds no entry.
static ENDED_ELSEWHERE: StaticMutex<BTreeMap<usize, usize>> = StaticMutex::new(BTreeMap::new());

/// The thread that counts a started fiber. Kept in the fiber's first frame.
#[derive(Clone, Copy)]
pub(crate) struct CountedBy(usize);

impl CountedBy {
    /// Counts a fiber that starts on this thread.
    // Not `inline(always)`: in a debug build that would make the first frame of every fiber larger.
    #[inline]
    pub(crate) fn this_thread() -> CountedBy {
        set(get() + 1);
        CountedBy(arch::thread_pointer())
    }

    /// Subtracts a fiber that ends from the count.
    #[inline]
    pub(crate) fn ended(self) {
        if self.0 == arch::thread_pointer() {
            set(get() - 1);
        } else {
            self.ended_elsewhere();
        }
    }

    #[cold]
    #[inline(never)]
    fn ended_elsewhere(self) {
        with_elsewhere(|table| *table.entry(self.0).or_default() += 1);
    }
}

fn with_elsewhere<R>(f: impl FnOnce(&mut BTreeMap<usize, usize>) -> R) -> R {
    // The table is valid after each step, so a panic while it was locked does no harm.
    f(&mut ENDED_ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner))
}

#[inline(always)]
fn get() -> usize {
    started::get().addr()
}

#[inline(always)]
fn set(count: usize) {
    started::set(core::ptr::without_provenance(count));
}

/// Returns how many first-class fibers have started on this thread and have not ended: suspended
/// fibers, forgotten fibers, the running fiber, and fibers that wait for the running one.
///
/// A thread should end its fibers before it returns. While a fiber is suspended inside
/// `LocalKey::with`, the destructors of the thread's locals would destroy a value that is still
/// borrowed; `docs/soundness.md` states the condition.
///
/// # Examples
/// ```
/// use sinew_context::{FiberContext, live_fibers};
///
/// let fiber = FiberContext::new(|caller| caller.resume().unwrap())?;
/// assert_eq!(live_fibers(), 0); // it has not started
/// let suspended = fiber.resume().unwrap();
/// assert_eq!(live_fibers(), 1);
/// drop(suspended);
/// assert_eq!(live_fibers(), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn live_fibers() -> usize {
    if get() > 0
        && let Some(elsewhere) = with_elsewhere(|table| table.remove(&arch::thread_pointer()))
    {
        set(get() - elsewhere);
    }
    get()
}
