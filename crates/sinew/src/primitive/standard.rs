//! The standard library's atomics, a spin lock and a futex: what the runtime stands on.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// A cell that the waiter and the waker use in turn.
pub(crate) use core::cell::Cell;
/// Lets another thread have the CPU.
pub(crate) use std::thread::yield_now as yield_thread;

/// Whether this is the backend of the models.
pub(crate) const IS_MODEL: bool = false;

/// Atomics of protocols that rely on a total order of all SeqCst accesses.
pub(crate) mod sc {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64};
}

/// Stores `value`, and orders the store before every later load, as a store and a SeqCst fence do.
///
/// On x86_64 one exchange is cheaper than that pair. The exchange has the same effect if every
/// access of the protocol is SeqCst.
#[inline(always)]
pub(crate) fn store_then_fence(word: &AtomicUsize, value: usize) {
    word.swap(value, Ordering::SeqCst);
}

/// Defines a static. In a model, each execution has its own copy.
macro_rules! execution_static {
    (static $name:ident: $type:ty = $value:expr;) => {
        static $name: $type = $value;
    };
}
pub(crate) use execution_static;

/// A lock for sections of a few instructions, without user code and without waits.
///
/// A thread that finds the lock taken spins for a short time. Then it yields its CPU, because
/// the kernel may have suspended the holder.
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
            // Pause long enough for the other thread to lock and unlock a few times. If the
            // lock changed hands each time, the cache lines of its value would move each time,
            // and moving them takes longer than the work under the lock.
            for _ in 0..pauses {
                std::hint::spin_loop();
            }
            // ORDERING: Acquire shows what the previous holder wrote; pairs with the Release in
            // `drop`.
            if !self.locked.load(Ordering::Relaxed) && !self.locked.swap(true, Ordering::Acquire) {
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

/// Threads that sleep on a word until it changes.
pub(crate) mod futex {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    use core::time::Duration;

    /// Sleeps while the word is `expected`, at most for `timeout`. May return early. The caller
    /// keeps the word alive during the call.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn wait(word: *const u32, expected: u32, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos() as _,
        });
        let timeout = timeout.as_ref().map_or(core::ptr::null(), |timeout| &raw const *timeout);
        // SAFETY: callers keep the word alive during the call. The kernel only reads it, and
        // answers a bad address with an error.
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
            // SAFETY: callers keep the word alive during the call, and it is part of an atomic.
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
