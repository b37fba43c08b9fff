//! The only place that imports atomics: the standard library's, or loom's in a model. Also a lock
//! for the few short sections that need one.
//!
//! This is the first module of the order: it uses no other. Next: `fiber` and `queue`.
//! `primitive::model` has the types for models.

#[cfg(not(sinew_loom))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(sinew_loom)]
mod model;
#[cfg(sinew_loom)]
pub(crate) use loom::thread::yield_now as yield_thread;
#[cfg(sinew_loom)]
pub(crate) use model::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Cell, Ordering, SpinLock, check,
    check_within, fence, sc,
};

/// A cell that the waiter and the waker use in turn.
#[cfg(not(sinew_loom))]
pub(crate) use core::cell::Cell;
/// Lets another thread have the CPU.
#[cfg(not(sinew_loom))]
pub(crate) use std::thread::yield_now as yield_thread;

/// Atomics of protocols that rely on a total order of all SeqCst accesses. Loom supports SeqCst
/// only in fences, so in models each SeqCst load of these has a fence before it.
#[cfg(not(sinew_loom))]
pub(crate) mod sc {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64};
}

/// Stores `value`, and orders the store before every later load, as a store and a SeqCst fence do.
///
/// On x86_64 one exchange is cheaper than that pair, and it means the same if every access of the
/// protocol is SeqCst. Loom supports SeqCst only in fences.
#[inline(always)]
pub(crate) fn store_then_fence(word: &AtomicUsize, value: usize) {
    #[cfg(not(sinew_loom))]
    word.swap(value, Ordering::SeqCst);
    #[cfg(sinew_loom)]
    {
        word.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

#[cfg(not(sinew_loom))]
pub(crate) use spin::SpinLock;

#[cfg(not(sinew_loom))]
mod spin {
    use core::cell::UnsafeCell;
    use core::ops::{Deref, DerefMut};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A lock for sections of a few instructions, without user code and without waits.
    ///
    /// A thread that finds the lock taken spins, and soon yields its CPU: the holder may have lost
    /// its own.
    #[derive(Debug, Default)]
    pub(crate) struct SpinLock<T> {
        locked: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: only the holder of the lock reaches the value.
    unsafe impl<T: Send> Sync for SpinLock<T> {}

    pub(crate) struct SpinGuard<'a, T>(&'a SpinLock<T>);

    impl<T> SpinLock<T> {
        pub(crate) const fn new(value: T) -> Self {
            SpinLock { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }

        #[inline(always)]
        pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
            // ORDERING: Acquire shows what the previous holder wrote; pairs with the Release in
            // `drop`.
            if self.locked.swap(true, Ordering::Acquire) {
                self.lock_contended();
            }
            SpinGuard(self)
        }

        #[cold]
        #[inline(never)]
        fn lock_contended(&self) {
            let mut pauses = 4;
            let mut tries = 0_u32;
            loop {
                // Long enough for the other thread to lock and unlock a few times. If the lock
                // changed hands each time, the cache lines under it would, too, and moving them
                // takes longer than the work.
                for _ in 0..pauses {
                    std::hint::spin_loop();
                }
                // ORDERING: Acquire, as in `lock`.
                if !self.locked.load(Ordering::Relaxed)
                    && !self.locked.swap(true, Ordering::Acquire)
                {
                    return;
                }
                pauses = (2 * pauses).min(32);
                tries += 1;
                if tries.is_multiple_of(8) {
                    std::thread::yield_now();
                }
            }
        }
    }

    impl<T> Deref for SpinGuard<'_, T> {
        type Target = T;
        #[inline(always)]
        fn deref(&self) -> &T {
            // SAFETY: the guard holds the lock.
            unsafe { &*self.0.value.get() }
        }
    }

    impl<T> DerefMut for SpinGuard<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: the guard holds the lock.
            unsafe { &mut *self.0.value.get() }
        }
    }

    impl<T> Drop for SpinGuard<'_, T> {
        #[inline(always)]
        fn drop(&mut self) {
            // ORDERING: Release publishes the writes under the lock; pairs with the Acquire in
            // `lock`.
            self.0.locked.store(false, Ordering::Release);
        }
    }
}

/// Threads that sleep on a word until it changes.
#[cfg(not(sinew_loom))]
pub(crate) mod futex {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    use core::time::Duration;

    /// Sleeps while the word is `expected`, at most for `timeout`. May return early.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn wait(word: *const u32, expected: u32, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos() as _,
        });
        let timeout = timeout.as_ref().map_or(core::ptr::null(), |timeout| &raw const *timeout);
        // SAFETY: the word is alive. The kernel only reads it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected,
                timeout,
            );
        }
    }

    /// Wakes all threads that sleep on the word.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn wake(word: *const u32) {
        // SAFETY: the kernel uses the address only as a key, and does not read the word.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                libc::c_int::MAX,
            );
        }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) use portable::{wait, wake};

    /// One lock for all words: slow, and correct on every system.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    mod portable {
        use core::sync::atomic::{AtomicU32, Ordering};
        use core::time::Duration;
        use std::sync::{Condvar, Mutex, PoisonError};

        static LOCK: Mutex<()> = Mutex::new(());
        static CHANGED: Condvar = Condvar::new();

        pub(crate) fn wait(word: *const u32, expected: u32, timeout: Option<Duration>) {
            let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the word is alive, and part of an atomic.
            if unsafe { &*word.cast::<AtomicU32>() }.load(Ordering::Acquire) != expected {
                return;
            }
            match timeout {
                None => drop(CHANGED.wait(guard)),
                Some(timeout) => drop(CHANGED.wait_timeout(guard, timeout)),
            }
        }

        pub(crate) fn wake(_word: *const u32) {
            drop(LOCK.lock().unwrap_or_else(PoisonError::into_inner));
            CHANGED.notify_all();
        }
    }
}

/// A value that other threads write often, alone in its cache lines: two lines, since the CPU
/// fetches pairs.
#[repr(align(128))]
pub(crate) struct Alone<T>(T);

impl<T> Alone<T> {
    pub(crate) const fn new(value: T) -> Alone<T> {
        Alone(value)
    }
}

impl<T> core::ops::Deref for Alone<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Prefetches a cache line that will be needed soon. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch changes nothing and never faults.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
