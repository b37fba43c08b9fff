//! What a fiber belongs to: the OS thread, or the runtime's fiber, on which it was made.
//!
//! A first-class fiber switches stacks under the feet of whoever runs it. Resumed by another flow
//! of control than the one it was made on, it would carry that flow's frames away: a runtime's
//! fiber would go on on a stack that its scheduler knows nothing of. So each suspended frame
//! carries its host as tag, and [`Fiber::resume`](crate::Fiber::resume) compares.
//!
//! The running host is read from the thread pointer register or asked from the runtime's hook;
//! neither is a variable of this crate.

use crate::{arch, hook};

/// A host as one word: the address of a thread's control block, or an odd number for a fiber of
/// the runtime above.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Host(usize);

impl Host {
    /// The host of the running code.
    #[inline(always)]
    pub(crate) fn current() -> Host {
        match hook::host() {
            None => Host(arch::thread_pointer()),
            Some(hook) => Host::of_runtime(hook),
        }
    }

    #[inline(never)]
    fn of_runtime(hook: hook::HostHook) -> Host {
        match hook() {
            // Thread control blocks are aligned, so odd words are free for the runtime's fibers.
            Some(id) => Host((id.get() as usize) << 1 | 1),
            None => Host(arch::thread_pointer()),
        }
    }

    /// Whether `self` is the running thread, and no runtime is there to be asked. One comparison:
    /// with a hook, the key has a bit that no tag has, so no tag is equal to the mixture.
    #[inline(always)]
    pub(crate) fn is_plain_thread(self) -> bool {
        self.0 == arch::thread_pointer() ^ hook::host_key()
    }

    /// Whether `self` is the host of the running code.
    #[inline(always)]
    pub(crate) fn is_current(self) -> bool {
        self.is_plain_thread() || self == Host::current()
    }

    #[inline(always)]
    pub(crate) fn from_tag(tag: usize) -> Host {
        Host(tag)
    }

    #[inline(always)]
    pub(crate) fn tag(self) -> usize {
        self.0
    }
}

impl core::fmt::Display for Host {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.0 & 1 == 1 {
            write!(f, "the runtime's fiber {}", self.0 >> 1)
        } else {
            write!(f, "the thread at {:#x}", self.0)
        }
    }
}
