//! The only door to atomics and locks: the standard library's, or loom's under a model. And what
//! the standard library has in no stable form.
//!
//! Under ThreadSanitizer the lock is one of our own: the slow path of the standard library's is
//! not instrumented, and what it synchronises would be reported as a race.

#[cfg(not(sinew_loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};

#[cfg(sinew_loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};

#[cfg(sinew_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(any(sinew_loom, sinew_tsan)))]
pub(crate) use std::sync::{Mutex, MutexGuard};
#[cfg(sinew_tsan)]
pub(crate) use visible::{Mutex, MutexGuard};

/// The lock of a `static`. Loom's cannot be one, because a model makes its locks anew for each run.
#[cfg(not(any(sinew_loom, sinew_tsan)))]
pub(crate) use std::sync::Mutex as StaticMutex;
#[cfg(any(sinew_loom, sinew_tsan))]
pub(crate) use visible::Mutex as StaticMutex;

/// Locks, whether or not a panic passed while the lock was held: what it guards here is valid
/// after each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A box, or an error where the heap has no memory for it.
pub(crate) fn try_box<T>(value: T) -> std::io::Result<Box<T>> {
    let layout = core::alloc::Layout::new::<T>();
    assert!(layout.size() > 0);
    // SAFETY: the size is not zero.
    let place = unsafe { std::alloc::alloc(layout) }.cast::<T>();
    if place.is_null() {
        return Err(std::io::ErrorKind::OutOfMemory.into());
    }
    // SAFETY: fresh memory of that layout, which the box will free with it.
    unsafe {
        place.write(value);
        Ok(Box::from_raw(place))
    }
}

#[cfg(any(sinew_loom, sinew_tsan))]
mod visible {
    use core::cell::UnsafeCell;
    use core::ops::{Deref, DerefMut};
    use std::sync::LockResult;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A lock all of whose operations ThreadSanitizer sees.
    #[derive(Debug)]
    pub(crate) struct Mutex<T> {
        locked: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: the value is reached by one holder of the lock at a time.
    unsafe impl<T: Send> Sync for Mutex<T> {}

    pub(crate) struct MutexGuard<'a, T>(&'a Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Mutex { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            // ORDERING: Acquire: what the holder before wrote; pairs with the Release in `drop`.
            while self.locked.swap(true, Ordering::Acquire) {
                std::thread::yield_now();
            }
            Ok(MutexGuard(self))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            // SAFETY: the lock is held.
            unsafe { &*self.0.value.get() }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: the lock is held.
            unsafe { &mut *self.0.value.get() }
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            // ORDERING: Release: publishes what was written under the lock.
            self.0.locked.store(false, Ordering::Release);
        }
    }
}
