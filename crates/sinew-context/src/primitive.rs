//! The atomics and locks of the parts that loom models: from the standard library, or from loom in
//! a model. `hook` and `stack::overflow` have statics that are set once, and use the standard
//! library directly. This module also holds small functions that the standard library has only in
//! unstable form.
//!
//! Under ThreadSanitizer the lock is one of our own. The slow path of the standard library's lock
//! is not instrumented, so ThreadSanitizer would report races of the data that the lock protects.

#[cfg(sinew_loom)]
use loom as backend;
#[cfg(not(sinew_loom))]
use std as backend;

pub(crate) use backend::hint::spin_loop;
pub(crate) use backend::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

#[cfg(not(sinew_tsan))]
pub(crate) use backend::sync::{Mutex, MutexGuard};
#[cfg(sinew_tsan)]
pub(crate) use visible::{Mutex, MutexGuard};

/// The lock of a `static`. Loom's lock cannot be static, because a model makes its locks anew for
/// each run.
#[cfg(not(sinew_tsan))]
pub(crate) use std::sync::Mutex as StaticMutex;
#[cfg(sinew_tsan)]
pub(crate) use visible::Mutex as StaticMutex;

/// Whether this crate is built for its models.
pub(crate) const IS_MODEL: bool = cfg!(sinew_loom);

/// Locks `mutex`, also after a panic while it was held: the data behind the locks of this crate is
/// valid after each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Boxes `value`, or returns an error if the heap has no memory for it.
pub(crate) fn try_box<T>(value: T) -> std::io::Result<Box<T>> {
    let layout = core::alloc::Layout::new::<T>();
    assert!(layout.size() > 0);
    // SAFETY: the size is not zero.
    let place = unsafe { std::alloc::alloc(layout) }.cast::<T>();
    if place.is_null() {
        return Err(std::io::ErrorKind::OutOfMemory.into());
    }
    // SAFETY: this is fresh memory of that layout, and the box will free it with that layout.
    unsafe {
        place.write(value);
        Ok(Box::from_raw(place))
    }
}

#[cfg(sinew_tsan)]
mod visible {
    use core::cell::UnsafeCell;
    use core::ops::{Deref, DerefMut};
    use std::sync::LockResult;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A lock with operations that ThreadSanitizer sees.
    #[derive(Debug)]
    pub(crate) struct Mutex<T> {
        locked: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: only the holder of the lock reaches the value.
    unsafe impl<T: Send> Sync for Mutex<T> {}

    pub(crate) struct MutexGuard<'a, T>(&'a Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Mutex { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            // ORDERING: Acquire makes the last holder's writes visible; pairs with the Release in
            // `drop`.
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
            // ORDERING: Release publishes the writes made under the lock; pairs with the Acquire in
            // `lock`.
            self.0.locked.store(false, Ordering::Release);
        }
    }
}
