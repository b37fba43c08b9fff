//! Values that each fiber has for itself.
//!
//! They are kept with the fiber's other rare things, found by the address of their key. Outside of
//! fibers they are the thread's, kept with its proxy. A value is made when it is first asked for,
//! and dropped when the fiber or thread ends.
//!
//! Values do not move: the list is of pointers. `set` puts a value on its own stack frame in the
//! place of what was there, for as long as its closure runs.

use crate::carrier::current;
use crate::fiber::{Control, FiberRef};
use crate::report;
use core::cell::{Cell, UnsafeCell};
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How often values that destructors make anew are dropped, before they are leaked.
const ROUNDS: usize = 16;

struct Slot {
    /// The key's address.
    key: *const (),
    /// Null while it is being made.
    value: *mut (),
    /// Drops what the slot owns: not a value of `set`.
    drop: unsafe fn(*mut ()),
    /// Copies the value for a child.
    inherit: Option<CopyFn>,
}

/// Copies a value, given its key's address.
type CopyFn = unsafe fn(key: *const (), value: *const ()) -> Inherited;

/// A copy of a value, on its way to a child.
pub(crate) struct Inherited(Slot);

// SAFETY: only values that are `Send` are given to another fiber: `inheriting` and the builder ask.
unsafe impl Send for Inherited {}

/// A fiber's values.
pub(crate) struct Locals {
    slots: UnsafeCell<Vec<Slot>>,
    /// How many of them children inherit.
    inheriting: Cell<usize>,
}

impl Locals {
    pub(crate) const fn new() -> Locals {
        Locals { slots: UnsafeCell::new(Vec::new()), inheriting: Cell::new(0) }
    }

    /// Works on the list. `f` must not run code of the user's.
    fn with<R>(&self, f: impl FnOnce(&mut Vec<Slot>) -> R) -> R {
        // SAFETY: the list belongs to the fiber, whose thread we are on, and `f` is a few moves.
        f(unsafe { &mut *self.slots.get() })
    }

    fn find(&self, key: *const ()) -> Option<*mut ()> {
        self.with(|slots| slots.iter().find(|slot| ptr::eq(slot.key, key)).map(|slot| slot.value))
    }

    fn push(&self, slot: Slot) {
        self.inheriting.set(self.inheriting.get() + usize::from(slot.inherit.is_some()));
        self.with(|slots| slots.push(slot));
    }

    /// Replaces the value of `key`; returns the old one.
    fn replace(&self, key: *const (), value: *mut ()) -> Option<*mut ()> {
        self.with(|slots| {
            let slot = slots.iter_mut().find(|slot| ptr::eq(slot.key, key))?;
            Some(core::mem::replace(&mut slot.value, value))
        })
    }

    fn remove(&self, key: *const ()) -> Option<Slot> {
        let removed = self.with(|slots| {
            let index = slots.iter().position(|slot| ptr::eq(slot.key, key))?;
            Some(slots.swap_remove(index))
        })?;
        self.inheriting.set(self.inheriting.get() - usize::from(removed.inherit.is_some()));
        Some(removed)
    }

    /// Adds a value that came with the fiber.
    pub(crate) fn adopt(&self, inherited: Inherited) {
        if let Some(before) = self.remove(inherited.0.key) {
            // SAFETY: owned by the slot.
            unsafe { (before.drop)(before.value) };
        }
        let inherited = core::mem::ManuallyDrop::new(inherited);
        // SAFETY: moved out, and not dropped.
        self.push(unsafe { ptr::read(&inherited.0) });
    }

    /// Copies of all values that children inherit.
    pub(crate) fn inherited(&self) -> Vec<Inherited> {
        if self.inheriting.get() == 0 {
            return Vec::new();
        }
        let copies: Vec<(*const (), *const (), CopyFn)> = self.with(|slots| {
            slots
                .iter()
                .filter(|slot| !slot.value.is_null())
                .filter_map(|slot| Some((slot.key, slot.value.cast_const(), slot.inherit?)))
                .collect()
        });
        // Cloning is code of the user's; values are not dropped meanwhile, since that needs the
        // fiber that runs us to end.
        // SAFETY: each function belongs to its value.
        copies.into_iter().map(|(key, value, copy)| unsafe { copy(key, value) }).collect()
    }
}

/// Drops the values of a fiber or thread that ends.
pub(crate) fn drop_all(locals: &Locals) {
    for _ in 0..ROUNDS {
        let slots = locals.with(core::mem::take);
        locals.inheriting.set(0);
        if slots.is_empty() {
            return;
        }
        for slot in slots {
            // SAFETY: at the end of a fiber every `set` has returned, so the slots own their values.
            let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { (slot.drop)(slot.value) }));
            if let Err(payload) = dropped {
                report::say(format_args!("a fiber-local panicked while it was dropped"));
                core::mem::forget(payload);
            }
        }
    }
    report::say(format_args!(
        "fiber-locals are made anew again and again by the destructors of others; they are leaked"
    ));
    core::mem::forget(locals.with(core::mem::take));
}

/// The key of a value that each fiber has for itself; made by [`fiber_local!`](crate::fiber_local).
#[derive(Debug)]
pub struct FiberLocal<T: 'static> {
    init: fn() -> T,
    inherit: Option<CopyFn>,
    /// Gives each key an address of its own.
    _address: u8,
}

impl<T: 'static> FiberLocal<T> {
    /// A key whose values are made by `init`.
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> Self {
        FiberLocal { init, inherit: None, _address: 0 }
    }

    /// A key whose value a new fiber gets from the one that spawns it, if that one has any.
    #[doc(hidden)]
    pub const fn inheriting(init: fn() -> T) -> Self
    where
        T: Clone + Send,
    {
        FiberLocal { init, inherit: Some(copy::<T>), _address: 0 }
    }

    fn key(&'static self) -> *const () {
        ptr::from_ref(self).cast()
    }

    /// Calls `f` with this fiber's value, which is made now if it has none.
    ///
    /// # Panics
    /// If the value is asked for while it is being made.
    ///
    /// # Examples
    /// ```
    /// use std::cell::Cell;
    ///
    /// sinew::fiber_local!(static COUNT: Cell<u32> = Cell::new(0));
    ///
    /// sinew::run(|| {
    ///     COUNT.with(|count| count.set(count.get() + 1));
    ///     let other = sinew::spawn(|| COUNT.with(|count| count.get()));
    ///     assert_eq!(other.join().unwrap(), 0);
    ///     assert_eq!(COUNT.with(|count| count.get()), 1);
    /// });
    /// ```
    #[track_caller]
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        let Some(owner) = Owner::current() else {
            // The thread is ending, and has no place for values any more.
            return f(&(self.init)());
        };
        let value = match owner.locals().find(self.key()) {
            Some(value) => value,
            None => self.make(owner.locals()),
        };
        assert!(!value.is_null(), "a fiber-local is asked for while it is being made");
        // SAFETY: made for this key, so it is a `T`; it stays until the fiber ends, or the `set`
        // returns that we are in.
        f(unsafe { &*value.cast::<T>() })
    }

    #[cold]
    fn make(&'static self, locals: &Locals) -> *mut () {
        /// Takes the mark away if making the value fails.
        struct Unmark<'a>(&'a Locals, *const ());
        impl Drop for Unmark<'_> {
            fn drop(&mut self) {
                self.0.remove(self.1);
            }
        }
        locals.push(self.slot(ptr::null_mut()));
        let unmark = Unmark(locals, self.key());
        let value = Box::into_raw(Box::new((self.init)())).cast::<()>();
        core::mem::forget(unmark);
        locals.replace(self.key(), value);
        value
    }

    fn slot(&'static self, value: *mut ()) -> Slot {
        Slot { key: self.key(), value, drop: drop_box::<T>, inherit: self.inherit }
    }

    /// Runs `f` with `value` in the place of this fiber's value, and puts that back afterwards.
    ///
    /// # Examples
    /// ```
    /// sinew::fiber_local!(static USER: &'static str = "nobody");
    ///
    /// USER.set("alice", || USER.with(|user| assert_eq!(*user, "alice")));
    /// USER.with(|user| assert_eq!(*user, "nobody"));
    /// ```
    pub fn set<R>(&'static self, value: T, f: impl FnOnce() -> R) -> R {
        /// Puts the value before in its place again.
        struct Restore<'a>(&'a Locals, *const (), Option<*mut ()>);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                match self.2 {
                    Some(before) => {
                        self.0.replace(self.1, before);
                    }
                    None => {
                        self.0.remove(self.1);
                    }
                }
            }
        }
        let Some(owner) = Owner::current() else {
            return f();
        };
        // Dropped last, when it is in nobody's place any more.
        let value = UnsafeCell::new(value);
        let place = value.get().cast::<()>();
        let before = owner.locals().replace(self.key(), place);
        if before.is_none() {
            owner.locals().push(Slot { drop: |_| {}, ..self.slot(place) });
        }
        let _restore = Restore(owner.locals(), self.key(), before);
        f()
    }

    /// A value on its way to a new fiber.
    pub(crate) fn initial(&'static self, value: T) -> Inherited
    where
        T: Send,
    {
        Inherited(self.slot(Box::into_raw(Box::new(value)).cast()))
    }
}

impl<T: Clone + 'static> FiberLocal<T> {
    /// A copy of this fiber's value.
    ///
    /// # Examples
    /// ```
    /// sinew::fiber_local!(static LIMIT: usize = 10);
    ///
    /// assert_eq!(LIMIT.get(), 10);
    /// ```
    #[track_caller]
    pub fn get(&'static self) -> T {
        self.with(T::clone)
    }
}

unsafe fn drop_box<T>(value: *mut ()) {
    if !value.is_null() {
        // SAFETY: made by `Box::into_raw` for a key of this type.
        drop(unsafe { Box::from_raw(value.cast::<T>()) });
    }
}

unsafe fn copy<T: Clone + Send + 'static>(key: *const (), value: *const ()) -> Inherited {
    // SAFETY: the value of a key of this type.
    let value = unsafe { (*value.cast::<T>()).clone() };
    let value = Box::into_raw(Box::new(value)).cast();
    Inherited(Slot { key, value, drop: drop_box::<T>, inherit: Some(copy::<T>) })
}

impl Drop for Inherited {
    fn drop(&mut self) {
        // SAFETY: the slot owns its value, unless it was adopted.
        unsafe { (self.0.drop)(self.0.value) };
    }
}

/// Whose values these are: the fiber's or the thread's.
enum Owner {
    Fiber(&'static Control),
    Thread(FiberRef),
}

impl Owner {
    fn current() -> Option<Owner> {
        match current::fiber() {
            Some((_, control)) => Some(Owner::Fiber(control)),
            None => current::lasting_proxy().map(Owner::Thread),
        }
    }

    fn locals(&self) -> &Locals {
        let control = match self {
            Owner::Fiber(control) => control,
            Owner::Thread(proxy) => &**proxy,
        };
        &control.extra_or_new().locals
    }
}

/// Declares values that each fiber has for itself.
///
/// As [`std::thread_local!`], but per fiber; outside of fibers, per thread. With `inherit`, a new
/// fiber begins with a copy of the value of the one that spawns it.
///
/// # Examples
/// ```
/// use std::cell::RefCell;
///
/// sinew::fiber_local! {
///     static NOTES: RefCell<Vec<String>> = RefCell::new(Vec::new());
///     inherit static REQUEST: u64 = 0;
/// }
///
/// sinew::run(|| {
///     NOTES.with(|notes| notes.borrow_mut().push("mine".into()));
///     REQUEST.set(7, || {
///         sinew::spawn(|| {
///             assert_eq!(REQUEST.get(), 7);
///             NOTES.with(|notes| assert!(notes.borrow().is_empty()));
///         })
///         .join()
///         .unwrap();
///     });
/// });
/// ```
#[macro_export]
macro_rules! fiber_local {
    () => {};
    ($(#[$attribute:meta])* inherit $visibility:vis static $name:ident: $type:ty = $init:expr $(; $($rest:tt)*)?) => {
        $(#[$attribute])*
        $visibility static $name: $crate::FiberLocal<$type> = $crate::FiberLocal::inheriting(|| $init);
        $crate::fiber_local!($($($rest)*)?);
    };
    ($(#[$attribute:meta])* $visibility:vis static $name:ident: $type:ty = $init:expr $(; $($rest:tt)*)?) => {
        $(#[$attribute])*
        $visibility static $name: $crate::FiberLocal<$type> = $crate::FiberLocal::new(|| $init);
        $crate::fiber_local!($($($rest)*)?);
    };
}
