//! Actions that run once, and values that are made once.
//!
//! [`Once`] is a flag and the lock of `raw`. [`OnceLock`] and [`LazyLock`] are built on [`Once`].

use super::raw::RawLock;
use crate::cancel::masked;
use crate::clock;
use crate::primitive::{AtomicBool, Ordering};
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// An action that runs once, however many callers request it.
///
/// Callers that arrive while the action runs wait for its end. If the action panics, or its fiber
/// is cancelled while it runs, the action counts as not run, and the next caller runs its own
/// action. There is no poisoning.
///
/// # Examples
/// ```
/// use sinew::sync::Once;
///
/// static START: Once = Once::new();
/// START.call_once(|| println!("once"));
/// START.call_once(|| unreachable!());
/// assert!(START.is_completed());
/// ```
#[derive(Debug)]
pub struct Once {
    done: AtomicBool,
    lock: RawLock,
}

impl Once {
    /// Creates a `Once` whose action has not run.
    ///
    /// # Examples
    /// ```
    /// assert!(!sinew::sync::Once::new().is_completed());
    /// ```
    pub const fn new() -> Once {
        Once { done: AtomicBool::new(false), lock: RawLock::new() }
    }

    /// Returns whether an action has run to its end.
    ///
    /// # Examples
    /// ```
    /// let once = sinew::sync::Once::new();
    /// once.call_once(|| ());
    /// assert!(once.is_completed());
    /// ```
    #[inline]
    pub fn is_completed(&self) -> bool {
        // ORDERING: Acquire shows the effects of the action; pairs with the Release in
        // `try_call_once`.
        self.done.load(Ordering::Acquire)
    }

    /// Runs `f`, unless an action has already run. When this returns, an action has run to its end.
    ///
    /// # Panics
    /// If `f` calls this `Once` again, which would be a deadlock.
    ///
    /// # Examples
    /// ```
    /// let (once, mut count) = (sinew::sync::Once::new(), 0);
    /// once.call_once(|| count += 1);
    /// once.call_once(|| count += 1);
    /// assert_eq!(count, 1);
    /// ```
    #[inline]
    #[track_caller]
    pub fn call_once(&self, f: impl FnOnce()) {
        if !self.is_completed() {
            let _ = self.try_call_once(|| {
                f();
                Ok::<(), core::convert::Infallible>(())
            });
        }
    }

    #[cold]
    #[track_caller]
    fn try_call_once<E>(&self, f: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        struct Unlock<'a>(&'a RawLock);
        impl Drop for Unlock<'_> {
            fn drop(&mut self) {
                // SAFETY: `try_call_once` locks before it makes this value.
                unsafe { self.0.unlock() };
            }
        }
        self.lock.lock(clock::NEVER);
        let _unlock = Unlock(&self.lock);
        if !self.is_completed() {
            f()?;
            // ORDERING: Release publishes the effects of the action; pairs with the Acquire in
            // `is_completed`.
            self.done.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Default for Once {
    fn default() -> Self {
        Once::new()
    }
}

/// A value that is written once.
///
/// Works like [`std::sync::OnceLock`], but a fiber that waits for the value is suspended.
///
/// # Examples
/// ```
/// use sinew::sync::OnceLock;
///
/// static ANSWER: OnceLock<u32> = OnceLock::new();
/// assert_eq!(ANSWER.get(), None);
/// assert_eq!(*ANSWER.get_or_init(|| 42), 42);
/// assert_eq!(ANSWER.set(7), Err(7));
/// ```
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: threads that share the cell get `&T`, which `T: Sync` allows. One thread may write the
// value and another may take it out or drop it, which `T: Send` allows.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: sending the cell sends the value.
unsafe impl<T: Send> Send for OnceLock<T> {}
impl<T: UnwindSafe + RefUnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Creates a cell without a value.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::sync::OnceLock::<u32>::new().get().is_none());
    /// ```
    pub const fn new() -> OnceLock<T> {
        OnceLock { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Returns the value, or `None` if no value was written yet.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::sync::OnceLock::from(7).get(), Some(&7));
    /// ```
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: the value was written before the `Once` completed, and does not change after
        // that.
        self.once.is_completed().then(|| unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Returns a mutable reference to the value, or `None` if no value was written yet.
    ///
    /// # Examples
    /// ```
    /// let mut value = sinew::sync::OnceLock::from(7);
    /// *value.get_mut().unwrap() += 1;
    /// assert_eq!(value.into_inner(), Some(8));
    /// ```
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: the value was written before the `Once` completed. `&mut self` excludes other
        // references.
        self.once.is_completed().then(|| unsafe { self.value.get_mut().assume_init_mut() })
    }

    /// Writes the value.
    ///
    /// # Errors
    /// Gives `value` back if the cell already has one.
    ///
    /// # Examples
    /// ```
    /// let value = sinew::sync::OnceLock::new();
    /// assert_eq!(value.set(1), Ok(()));
    /// assert_eq!(value.set(2), Err(2));
    /// ```
    #[track_caller]
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("`get_or_init` calls its closure at most once"));
        value.map_or(Ok(()), Err)
    }

    /// Returns the value, running `f` to make it if there is none.
    ///
    /// # Panics
    /// If `f` calls `set`, `get_or_init` or `get_or_try_init` of this cell, which would be a
    /// deadlock.
    ///
    /// # Examples
    /// ```
    /// let value = sinew::sync::OnceLock::new();
    /// assert_eq!(*value.get_or_init(|| 1), 1);
    /// assert_eq!(*value.get_or_init(|| 2), 1);
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        match self.get_or_try_init(|| Ok::<T, core::convert::Infallible>(f())) {
            Ok(value) => value,
        }
    }

    /// Returns the value, running `f` to make it if there is none. The cell stays empty if `f`
    /// fails.
    ///
    /// # Errors
    /// Returns the error of `f`.
    ///
    /// # Examples
    /// ```
    /// let value = sinew::sync::OnceLock::new();
    /// assert!(value.get_or_try_init(|| "no".parse::<u32>()).is_err());
    /// assert_eq!(*value.get_or_try_init(|| "7".parse::<u32>()).unwrap(), 7);
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_or_try_init<E>(&self, f: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if !self.once.is_completed() {
            self.once.try_call_once(|| {
                let value = f()?;
                // SAFETY: this runs once, under the lock of the `Once`; no other caller reads the
                // value before the `Once` completes.
                unsafe { (*self.value.get()).write(value) };
                Ok(())
            })?;
        }
        // SAFETY: the `Once` has completed, so the value was written and does not change.
        Ok(unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Takes the value out, leaving the cell empty.
    ///
    /// # Examples
    /// ```
    /// let mut value = sinew::sync::OnceLock::from(7);
    /// assert_eq!(value.take(), Some(7));
    /// assert_eq!(value.take(), None);
    /// ```
    pub fn take(&mut self) -> Option<T> {
        let done = core::mem::take(&mut self.once).is_completed();
        // SAFETY: the value was written. It is read once: `self.once` is new again, so the cell
        // counts as empty.
        done.then(|| unsafe { self.value.get_mut().assume_init_read() })
    }

    /// Consumes the cell and returns its value, if there is one.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::sync::OnceLock::from(7).into_inner(), Some(7));
    /// ```
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let once = OnceLock::new();
        let _ = once.set(value);
        once
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        self.get().cloned().map_or_else(OnceLock::new, OnceLock::from)
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}

/// A value that is made at its first use.
///
/// Works like [`std::sync::LazyLock`]. The function that makes the value can run only once, so it
/// is [masked](crate::masked): a cancellation does not cut it short.
///
/// # Examples
/// ```
/// use sinew::sync::LazyLock;
///
/// static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| "one two three".split(' ').collect());
/// assert_eq!(WORDS.len(), 3);
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    make: Cell<Option<F>>,
}

// SAFETY: `make` is touched only under the lock of the `Once`, by the one caller that makes the
// value. That caller may be another thread, which `F: Send` allows. For the value, see `OnceLock`.
unsafe impl<T: Send + Sync, F: Send> Sync for LazyLock<T, F> {}
impl<T: UnwindSafe + RefUnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// Creates a value that `make` makes at its first use.
    ///
    /// # Examples
    /// ```
    /// let value = sinew::sync::LazyLock::new(|| 6 * 7);
    /// assert_eq!(*value, 42);
    /// ```
    pub const fn new(make: F) -> LazyLock<T, F> {
        LazyLock { value: OnceLock::new(), make: Cell::new(Some(make)) }
    }

    /// Returns the value, making it if this is its first use.
    ///
    /// # Panics
    /// If the function that makes the value has panicked before, or if it uses the value itself.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::LazyLock;
    ///
    /// let value = LazyLock::new(|| 7);
    /// assert_eq!(*LazyLock::force(&value), 7);
    /// ```
    #[inline]
    #[track_caller]
    pub fn force(this: &LazyLock<T, F>) -> &T {
        this.value.get_or_init(|| {
            let make = this.make.take().expect("the function of this LazyLock has panicked before");
            masked(make)
        })
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;
    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyLock").field(&self.value.get()).finish()
    }
}
