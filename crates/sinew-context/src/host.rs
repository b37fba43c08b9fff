//! The host of a fiber: the OS thread, or the runtime's fiber, that made it.
//!
//! Resuming a first-class fiber suspends the flow of control that resumes it, and hands that flow's
//! frames to the fiber as a value. If a flow other than the fiber's host resumed it, the fiber
//! would carry that flow's frames away: a runtime's fiber would continue on a stack that its
//! scheduler does not know. So each suspended frame carries its host as tag, and
//! [`FiberContext::resume`](crate::FiberContext::resume) compares the tag with the running host.
//!
//! The running host is read from the thread pointer register, or returned by the runtime's hook.
//! Neither is a variable of this crate. Next: `hook`, by which a runtime supplies its hosts.

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

    /// Whether `self` is the running thread and no host hook is set. One comparison is enough: when
    /// a hook is set, the key has a bit that no tag has, so no tag equals the thread pointer mixed
    /// with the key.
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
