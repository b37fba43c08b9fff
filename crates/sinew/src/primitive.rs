//! The only door to atomics: the standard library's, or loom's under a model. And a lock for the
//! few short sections that need one.

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

/// A cell that the two sides of a wait use, one after the other.
#[cfg(not(sinew_loom))]
pub(crate) use core::cell::Cell;
/// Lets another thread have the CPU.
#[cfg(not(sinew_loom))]
pub(crate) use std::thread::yield_now as yield_thread;

/// Atomics of protocols that rely on one order of all accesses that are SeqCst. Loom knows SeqCst
/// only in fences, and has one before each load of these.
#[cfg(not(sinew_loom))]
pub(crate) mod sc {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64};
}

/// Stores, then orders the store before every later load, as a store and a SeqCst fence do.
///
/// One exchange is cheaper than that pair on x86_64, and means the same where every access of the
/// protocol is SeqCst. Loom knows SeqCst only in fences.
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

    /// A lock for sections of a few instructions in which no user code runs and nothing waits.
    ///
    /// Whoever finds it taken spins, and soon lets the operating system run somebody else: the
    /// holder may have lost its CPU.
    #[derive(Debug, Default)]
    pub(crate) struct SpinLock<T> {
        locked: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: the value is reached by one holder of the lock at a time.
    unsafe impl<T: Send> Sync for SpinLock<T> {}

    pub(crate) struct SpinGuard<'a, T>(&'a SpinLock<T>);

    impl<T> SpinLock<T> {
        pub(crate) const fn new(value: T) -> Self {
            SpinLock { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }

        #[inline(always)]
        pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
            // ORDERING: Acquire: what the holder before wrote; pairs with the Release in `drop`.
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
                // Long enough for the other one to come and go a few times: if the lock changed hands
                // each time, so would the cache lines under it, which takes longer than the work.
                for _ in 0..pauses {
                    std::hint::spin_loop();
                }
                // ORDERING: as in `lock`.
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
            // SAFETY: the lock is held.
            unsafe { &*self.0.value.get() }
        }
    }

    impl<T> DerefMut for SpinGuard<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: the lock is held.
            unsafe { &mut *self.0.value.get() }
        }
    }

    impl<T> Drop for SpinGuard<'_, T> {
        #[inline(always)]
        fn drop(&mut self) {
            // ORDERING: Release: publishes what was written under the lock.
            self.0.locked.store(false, Ordering::Release);
        }
    }
}

/// A thread that sleeps on a word until it changes.
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
        // SAFETY: the word is alive; the kernel reads it and sleeps, or does not.
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

    /// Wakes whoever sleeps on the word.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn wake(word: *const u32) {
        // SAFETY: the address is that of a block, which is never unmapped.
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

    /// One lock for every word: slow, and right everywhere.
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

/// Something that other threads write to often, alone in its cache lines: two, which are fetched together.
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

/// Asks for a cache line that will be needed soon. Any address will do.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the same.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
