//! The methods that `Mutex` and `FairMutex` only forward, written once.
//!
//! [`mutex`] writes the methods of a mutex, most of which forward to `lock_api`. [`raw_mutex`]
//! writes the traits through which `lock_api` calls the algorithm. Next: `mutex`.

/// Implements the traits of `lock_api` for `$Raw`, a lock without data that wraps `$Algorithm`.
///
/// The algorithm admits one holder at a time. It has the methods of `RawLock` for writers; `lock`
/// and `try_lock` return true only if the caller holds the lock.
macro_rules! raw_mutex {
    ($Raw:ident($Algorithm:ident)) => {
        // SAFETY: the algorithm admits one holder at a time, as its module explains.
        unsafe impl lock_api::RawMutex for $Raw {
            const INIT: $Raw = $Raw($Algorithm::new());
            type GuardMarker = lock_api::GuardNoSend;

            #[inline]
            #[track_caller]
            fn lock(&self) {
                self.0.lock_anyhow();
            }

            #[inline]
            fn try_lock(&self) -> bool {
                self.0.try_lock()
            }

            #[inline]
            unsafe fn unlock(&self) {
                // SAFETY: the caller holds the lock.
                unsafe { self.0.unlock() };
            }

            fn is_locked(&self) -> bool {
                self.0.is_locked()
            }
        }

        // SAFETY: `unlock_fair` also leaves the lock with at most one holder.
        unsafe impl lock_api::RawMutexFair for $Raw {
            unsafe fn unlock_fair(&self) {
                // SAFETY: the caller holds the lock.
                unsafe { self.0.unlock_fair() };
            }
        }

        // SAFETY: both functions return true only if the caller holds the lock.
        unsafe impl lock_api::RawMutexTimed for $Raw {
            type Duration = core::time::Duration;
            type Instant = std::time::Instant;

            #[track_caller]
            fn try_lock_for(&self, timeout: core::time::Duration) -> bool {
                self.0.try_lock() || self.0.lock($crate::sync::moment(timeout))
            }

            #[track_caller]
            fn try_lock_until(&self, timeout: std::time::Instant) -> bool {
                self.0.try_lock() || self.0.lock($crate::clock::at(timeout))
            }
        }
    };
}

/// Implements the methods and traits of `$Mutex`, a mutex with data whose guard is `$Guard`. They
/// use its lock without data, `$Raw`. `$until` says what [`lock`](super::Mutex::lock) waits for.
macro_rules! mutex {
    ($Mutex:ident($Raw:ident) with $Guard:ident, waits until $until:literal) => {
        impl<T> $Mutex<T> {
            /// Creates an unlocked mutex.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("use sinew::sync::", stringify!($Mutex), ";")]
            ///
            #[doc = concat!("static COUNT: ", stringify!($Mutex), "<u32> =")]
            #[doc = concat!("    ", stringify!($Mutex), "::new(0);")]
            /// *COUNT.lock() += 1;
            /// ```
            pub const fn new(value: T) -> $Mutex<T> {
                $Mutex(lock_api::Mutex::new(value))
            }

            /// Consumes the mutex and returns its data.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let mutex = sinew::sync::", stringify!($Mutex), "::new(7);")]
            /// assert_eq!(mutex.into_inner(), 7);
            /// ```
            pub fn into_inner(self) -> T {
                self.0.into_inner()
            }
        }

        impl<T: ?Sized> $Mutex<T> {
            #[doc = concat!("Locks the mutex, waiting until ", $until, ".")]
            ///
            /// # Panics
            /// If the caller already holds the lock.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let mutex = sinew::sync::", stringify!($Mutex), "::new(7);")]
            /// *mutex.lock() += 1;
            /// assert_eq!(mutex.into_inner(), 8);
            /// ```
            #[inline]
            #[track_caller]
            pub fn lock(&self) -> $Guard<'_, T> {
                // SAFETY: `lock` with deadline `NEVER` returns only when the caller holds the lock;
                // a cancelled wait unwinds before the guard is made.
                unsafe {
                    self.0.raw().0.lock($crate::clock::NEVER);
                    self.0.make_guard_unchecked()
                }
            }

            /// Locks the mutex if it is free. Does not wait.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let mutex = sinew::sync::", stringify!($Mutex), "::new(7);")]
            /// let guard = mutex.lock();
            /// assert!(mutex.try_lock().is_none());
            /// ```
            #[inline]
            pub fn try_lock(&self) -> Option<$Guard<'_, T>> {
                self.0.try_lock()
            }

            #[doc = concat!("Locks the mutex, waiting at most `timeout` until ", $until, ".")]
            /// Returns `None` if the time runs out first.
            ///
            /// # Panics
            /// If the caller already holds the lock.
            ///
            /// # Examples
            /// ```
            /// use std::time::Duration;
            ///
            #[doc = concat!("let mutex = sinew::sync::", stringify!($Mutex), "::new(7);")]
            /// assert!(mutex.try_lock_for(Duration::from_millis(1)).is_some());
            /// ```
            #[track_caller]
            pub fn try_lock_for(&self, timeout: core::time::Duration) -> Option<$Guard<'_, T>> {
                self.0.try_lock_for(timeout)
            }

            #[doc = concat!("Locks the mutex, waiting until ", $until, ", or until `deadline`.")]
            /// Returns `None` if the deadline passes first.
            ///
            /// # Panics
            /// If the caller already holds the lock.
            ///
            /// # Examples
            /// ```
            /// use std::time::Instant;
            ///
            #[doc = concat!("let mutex = sinew::sync::", stringify!($Mutex), "::new(7);")]
            /// assert!(mutex.try_lock_until(Instant::now()).is_some());
            /// ```
            #[track_caller]
            pub fn try_lock_until(&self, deadline: std::time::Instant) -> Option<$Guard<'_, T>> {
                self.0.try_lock_until(deadline)
            }

            /// Returns a mutable reference to the data. Does not lock: `&mut self` excludes other
            /// users.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("let mut mutex = sinew::sync::", stringify!($Mutex), "::new(7);")]
            /// *mutex.get_mut() += 1;
            /// ```
            pub fn get_mut(&mut self) -> &mut T {
                self.0.get_mut()
            }
        }

        impl<T: ?Sized + core::fmt::Debug> core::fmt::Debug for $Mutex<T> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<T> From<T> for $Mutex<T> {
            fn from(value: T) -> Self {
                $Mutex::new(value)
            }
        }

        impl<T: ?Sized> core::ops::Deref for $Mutex<T> {
            type Target = lock_api::Mutex<$Raw, T>;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}

pub(super) use {mutex, raw_mutex};
