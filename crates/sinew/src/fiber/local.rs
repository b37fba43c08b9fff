//! Fiber-locals: values that each fiber has for itself.
//!
//! A value is kept in the fiber's `Extra`, and found by the address of its key. Outside of fibers
//! the value belongs to the thread, and is kept with its proxy. A value is made at its first use,
//! and dropped when the fiber or thread ends.
//!
//! The list holds each value in an `Rc`. A user of a value clones the `Rc`, so the value stays
//! alive while it is in use, even if the list changes. A binding of `set` is a separate entry. It
//! is found before older ones, and removed by its number: first-class fibers can end bindings in
//! another order than they began.

use crate::carrier::current;
use crate::fiber::{Control, FiberRef};
use crate::report;
use core::any::Any;
use core::cell::{Cell, UnsafeCell};
use core::ptr;
use std::rc::Rc;

/// The maximum number of rounds in which the values of an ending fiber are dropped. The destructors
/// of one round may make values anew; the values that are left after the last round are leaked.
const ROUNDS: usize = 16;

/// For how many values, besides the first, a recycled block keeps room.
const KEPT: usize = 8;

struct Value {
    /// The key's address.
    key: *const (),
    number: u64,
    /// `None` while the value is being made.
    value: Option<Rc<dyn Any>>,
    inherit: Option<CopyFn>,
}

/// Copies a value for a child.
type CopyFn = fn(&dyn Any) -> Option<Box<dyn Any + Send>>;

/// A value on its way to a new fiber.
pub(crate) struct Inherited {
    key: *const (),
    value: Box<dyn Any + Send>,
    inherit: Option<CopyFn>,
}

// SAFETY: the key is an address for comparison only, and the value is `Send`.
unsafe impl Send for Inherited {}

/// Entries, the newest last. Most fibers have at most one, which needs no memory outside of this
/// value.
struct Entries {
    /// An entry that is older than all entries of `more`. A new entry comes here only if both are
    /// empty.
    first: Option<Value>,
    more: Vec<Value>,
}

impl Entries {
    const fn new() -> Entries {
        Entries { first: None, more: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.more.is_empty()
    }

    fn push(&mut self, entry: Value) {
        if self.is_empty() {
            self.first = Some(entry);
        } else {
            self.more.push(entry);
        }
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = &Value> {
        self.first.iter().chain(&self.more)
    }

    fn find(&mut self, number: u64) -> Option<&mut Value> {
        self.first.iter_mut().chain(&mut self.more).find(|entry| entry.number == number)
    }

    fn remove(&mut self, number: u64) -> Option<Value> {
        if let Some(first) = self.first.take_if(|first| first.number == number) {
            return Some(first);
        }
        let index = self.more.iter().position(|entry| entry.number == number)?;
        Some(self.more.remove(index))
    }
}

/// A fiber's values.
pub(crate) struct Locals {
    entries: UnsafeCell<Entries>,
    numbers: Cell<u64>,
    /// The number of entries that children inherit.
    inheriting: Cell<usize>,
}

impl Locals {
    pub(crate) const fn new() -> Locals {
        Locals {
            entries: UnsafeCell::new(Entries::new()),
            numbers: Cell::new(0),
            inheriting: Cell::new(0),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.with(|entries| entries.is_empty())
    }

    /// Calls `f` with the list. `f` must not run user code.
    fn with<R>(&self, f: impl FnOnce(&mut Entries) -> R) -> R {
        // SAFETY: the list belongs to the fiber, and this is the fiber's thread. `f` only moves
        // entries, so it does not call this function again.
        f(unsafe { &mut *self.entries.get() })
    }

    /// Returns the newest value of `key`, or `Some(None)` if that value is being made.
    fn find(&self, key: *const ()) -> Option<Option<Rc<dyn Any>>> {
        self.with(|entries| {
            let entry = entries.iter().rev().find(|entry| ptr::eq(entry.key, key))?;
            Some(entry.value.clone())
        })
    }

    /// Adds an entry. Returns its number.
    fn push(&self, key: *const (), value: Option<Rc<dyn Any>>, inherit: Option<CopyFn>) -> u64 {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        self.inheriting.set(self.inheriting.get() + usize::from(inherit.is_some()));
        self.with(|entries| entries.push(Value { key, number, value, inherit }));
        number
    }

    fn fill(&self, number: u64, value: Rc<dyn Any>) {
        self.with(|entries| {
            if let Some(entry) = entries.find(number) {
                entry.value = Some(value);
            }
        });
    }

    fn remove(&self, number: u64) {
        let removed = self.with(|entries| entries.remove(number));
        if let Some(removed) = removed {
            let inherited = usize::from(removed.inherit.is_some());
            self.inheriting.set(self.inheriting.get().saturating_sub(inherited));
            // The list is not in use while the value's destructor runs.
            drop(removed);
        }
    }

    /// Adds a value that came with the fiber. Later entries of a key hide earlier ones.
    pub(crate) fn adopt(&self, inherited: Inherited) {
        let value: Box<dyn Any> = inherited.value;
        self.push(inherited.key, Some(Rc::from(value)), inherited.inherit);
    }

    /// Returns copies of all values that children inherit.
    #[inline(always)]
    pub(crate) fn inherited(&self) -> Vec<Inherited> {
        if self.inheriting.get() == 0 { Vec::new() } else { self.copies() }
    }

    #[cold]
    fn copies(&self) -> Vec<Inherited> {
        let values: Vec<(*const (), Rc<dyn Any>, CopyFn)> = self.with(|entries| {
            entries
                .iter()
                .filter_map(|entry| Some((entry.key, entry.value.clone()?, entry.inherit?)))
                .collect()
        });
        // Cloning runs user code. The newest value of a key comes last, and hides the others.
        values
            .into_iter()
            .filter_map(|(key, value, copy)| {
                Some(Inherited { key, value: copy(&*value)?, inherit: Some(copy) })
            })
            .collect()
    }
}

/// Drops the values of a fiber or thread that ends.
#[inline]
pub(crate) fn drop_all(locals: &Locals) {
    if !locals.is_empty() {
        drop_some(locals);
    }
}

#[inline(never)]
fn drop_some(locals: &Locals) {
    for _ in 0..ROUNDS {
        let mut entries = locals.with(|entries| core::mem::replace(entries, Entries::new()));
        locals.inheriting.set(0);
        for entry in entries.first.take().into_iter().chain(entries.more.drain(..)) {
            if report::contain(|| drop(entry)).is_none() {
                report::say(format_args!("a fiber-local panicked while it was dropped"));
            }
        }
        // Keep some room for the next fiber that gets the block.
        let is_done = locals.with(|list| {
            let is_done = list.is_empty();
            if is_done && entries.more.capacity() <= KEPT {
                *list = entries;
            }
            is_done
        });
        if is_done {
            return;
        }
    }
    report::say(format_args!(
        "fiber-locals are made anew again and again by the destructors of others; they are leaked"
    ));
    core::mem::forget(locals.with(|entries| core::mem::replace(entries, Entries::new())));
    locals.inheriting.set(0);
}

/// A key of a value that each fiber has for itself, made by [`fiber_local!`](crate::fiber_local).
///
/// # Examples
/// ```
/// use std::cell::Cell;
///
/// sinew::fiber_local!(static REQUEST: Cell<u32> = Cell::new(0));
///
/// let fibers = [1, 2].map(|number| {
///     sinew::spawn(move || {
///         REQUEST.with(|request| request.set(number));
///         sinew::yield_now(); // the other fiber sets its own value
///         REQUEST.with(Cell::get)
///     })
/// });
/// assert_eq!(fibers.map(|fiber| fiber.join().unwrap()), [1, 2]);
/// ```
#[derive(Debug)]
pub struct FiberLocal<T: 'static> {
    init: fn() -> T,
    inherit: Option<CopyFn>,
    /// Gives each key an address of its own.
    _address: u8,
}

impl<T: 'static> FiberLocal<T> {
    /// Creates a key. `init` makes its values.
    #[doc(hidden)]
    pub const fn new(init: fn() -> T) -> Self {
        FiberLocal { init, inherit: None, _address: 0 }
    }

    /// Creates a key with inheritance: a new fiber gets a copy of its parent's value, if the parent
    /// has one.
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

    /// Calls `f` with this fiber's value, making the value if the fiber has none.
    ///
    /// # Panics
    /// If `init` asks for the value that it is making.
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
        let Some(owner) = Holder::current() else {
            // The thread is ending, and has no place for values any more.
            return f(&(self.init)());
        };
        let value = match owner.locals.find(self.key()) {
            Some(Some(value)) => value,
            Some(None) => panic!("a fiber-local is asked for while it is being made"),
            None => self.make(owner.locals),
        };
        // This would detect two keys that the compiler has put at one address.
        let value = value.downcast_ref::<T>().expect("the value of a key is of its type");
        f(value)
    }

    #[cold]
    fn make(&'static self, locals: &Locals) -> Rc<dyn Any> {
        /// Removes the mark if making the value fails.
        struct Unmark<'a>(&'a Locals, u64);
        impl Drop for Unmark<'_> {
            fn drop(&mut self) {
                self.0.remove(self.1);
            }
        }
        let unmark = Unmark(locals, locals.push(self.key(), None, self.inherit));
        let value: Rc<dyn Any> = Rc::new((self.init)());
        locals.fill(unmark.1, value.clone());
        core::mem::forget(unmark);
        value
    }

    /// Runs `f` with `value` bound as this fiber's value. The previous value is visible again
    /// afterwards.
    ///
    /// # Examples
    /// ```
    /// sinew::fiber_local!(static USER: &'static str = "nobody");
    ///
    /// USER.set("alice", || USER.with(|user| assert_eq!(*user, "alice")));
    /// USER.with(|user| assert_eq!(*user, "nobody"));
    /// ```
    pub fn set<R>(&'static self, value: T, f: impl FnOnce() -> R) -> R {
        self.set_shared(Rc::new(value), f)
    }

    /// Runs `f` with a shared `value` bound as this fiber's value. Allocates no new value: the
    /// caller may keep the `Rc` and bind it again.
    ///
    /// # Examples
    /// ```
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// sinew::fiber_local!(static COUNT: Cell<u32> = Cell::new(0));
    ///
    /// let count = Rc::new(Cell::new(0));
    /// COUNT.set_shared(count.clone(), || COUNT.with(|count| count.set(7)));
    /// assert_eq!(count.get(), 7);
    /// ```
    pub fn set_shared<R>(&'static self, value: Rc<T>, f: impl FnOnce() -> R) -> R {
        /// Removes the binding.
        struct Unbind(Holder, u64);
        impl Drop for Unbind {
            fn drop(&mut self) {
                self.0.locals.remove(self.1);
            }
        }
        let Some(owner) = Holder::current() else {
            return f();
        };
        let number = owner.locals.push(self.key(), Some(value), self.inherit);
        let _unbind = Unbind(owner, number);
        f()
    }

    /// Returns a value to be given to a new fiber.
    pub(crate) fn initial(&'static self, value: T) -> Inherited
    where
        T: Send,
    {
        Inherited { key: self.key(), value: Box::new(value), inherit: self.inherit }
    }
}

impl<T: Clone + 'static> FiberLocal<T> {
    /// Returns a copy of this fiber's value.
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

fn copy<T: Clone + Send + 'static>(value: &dyn Any) -> Option<Box<dyn Any + Send>> {
    Some(Box::new(value.downcast_ref::<T>()?.clone()))
}

/// The holder of the values: the running fiber, the fiber for which the root works, or the thread.
struct Holder {
    /// In the `Extra` of a block, and blocks are never unmapped.
    locals: &'static Locals,
    /// Keeps the thread's proxy alive. A running fiber needs no such reference.
    _thread: Option<FiberRef>,
}

impl Holder {
    #[inline]
    fn current() -> Option<Holder> {
        let of = |control: &'static Control| &control.extra_or_new().locals;
        match current::fiber() {
            Some((_, control)) => Some(Holder { locals: of(control), _thread: None }),
            None => Holder::outside(of),
        }
    }

    #[cold]
    fn outside(of: impl Fn(&'static Control) -> &'static Locals) -> Option<Holder> {
        // SAFETY: a fiber that has lent itself for work on the root does not end meanwhile.
        if let Some(lender) = unsafe { current::lender().as_ref() } {
            return Some(Holder { locals: of(lender), _thread: None });
        }
        let proxy = current::lasting_proxy()?;
        // SAFETY: blocks are never unmapped.
        let locals = of(unsafe { &*proxy.as_ptr() });
        Some(Holder { locals, _thread: Some(proxy) })
    }
}

/// Declares values that each fiber has for itself.
///
/// Works like [`std::thread_local!`], but per fiber; outside of fibers, per thread. With `inherit`,
/// a new fiber starts with a copy of its parent's value.
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
