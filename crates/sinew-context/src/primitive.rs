//! The only door to atomics and locks: the standard library's, or loom's under a model.

#[cfg(not(sinew_loom))]
pub(crate) use std::hint::spin_loop;
#[cfg(not(sinew_loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};

#[cfg(sinew_loom)]
pub(crate) use loom::hint::spin_loop;
#[cfg(sinew_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};

/// Locks, whether or not a panic passed while the lock was held: what it guards here is valid
/// after each step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
