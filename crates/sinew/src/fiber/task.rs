//! A closure and its result, in the control block of the fiber that runs the closure.
//!
//! # Life of the storage
//!
//! `store` writes the closure. The fiber takes it out once: when it starts, or, if it rests between
//! runs, after its last run. A fiber that is discarded before its start has its closure dropped. At
//! its end the fiber writes the result. The holder of the join handle takes or drops the result; if
//! the handle is gone by then, the fiber drops it as its last act. A value that is larger than the
//! storage is in a box.

use super::cancelled::panic_ended;
use super::control::Control;
use super::flags::Flags;
use crate::report;
use core::any::Any;
use core::cell::UnsafeCell;
use core::mem::{self, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};

const SIZE: usize = 64;

/// Room for a closure, then for its result.
#[repr(C, align(16))]
pub(crate) struct Storage(MaybeUninit<[u8; SIZE]>);

impl Storage {
    pub(crate) const fn uninit() -> Storage {
        Storage(MaybeUninit::uninit())
    }
}

/// The functions that depend on the closure's type.
pub(crate) struct Vtable {
    /// Takes the closure out, runs it, and stores the result.
    ///
    /// # Safety
    /// The storage holds a closure of this vtable.
    pub(crate) run: unsafe fn(&Control),
    /// Drops the closure and stores `Err(payload)`.
    ///
    /// # Safety
    /// The storage holds a closure of this vtable.
    pub(crate) refuse: unsafe fn(&Control, payload: Box<dyn Any + Send>),
    /// Drops a result that will not be taken.
    ///
    /// # Safety
    /// The storage holds a result of this vtable.
    pub(crate) drop_result: unsafe fn(&Control),
    /// Keeps a resting fiber until it is to run again. Belongs to a layer above this one.
    ///
    /// # Safety
    /// The storage holds a closure of this vtable, whose last run has said that the fiber rests.
    /// The fiber is unstarted, and the caller owns it.
    pub(crate) rest: unsafe fn(&'static Control),
}

impl Vtable {
    /// The vtable of a block without a closure: a proxy, or a carrier's own loop.
    pub(crate) const NONE: Vtable =
        Vtable { run: |_| {}, refuse: |_, _| {}, drop_result: |_| {}, rest: |_| {} };
}

const fn fits<T>() -> bool {
    size_of::<T>() <= SIZE && align_of::<T>() <= align_of::<Storage>()
}

/// Writes `value` to where `take` finds it.
///
/// # Safety
/// The caller owns the storage, which holds nothing that must be dropped.
#[inline(always)]
unsafe fn put<T>(storage: &UnsafeCell<Storage>, value: T) {
    // SAFETY: the storage has room for a `T` that fits, or for a box. The caller owns it.
    unsafe {
        // A constant condition, so that only the form in use is compiled.
        if const { fits::<T>() } {
            storage.get().cast::<T>().write(value);
        } else {
            storage.get().cast::<Box<T>>().write(Box::new(value));
        }
    }
}

/// Takes out the value that `put` wrote.
///
/// # Safety
/// `put::<T>` wrote the value, and it was not taken out since.
#[inline(always)]
unsafe fn take<T>(storage: &UnsafeCell<Storage>) -> T {
    // SAFETY: `put::<T>` wrote a value in this form, which depends on the type alone.
    unsafe {
        if const { fits::<T>() } {
            storage.get().cast::<T>().read()
        } else {
            *storage.get().cast::<Box<T>>().read()
        }
    }
}

type Outcome<T> = std::thread::Result<T>;

/// Returns a closure with its vtable.
#[inline(always)]
pub(crate) fn of<F: FnOnce() -> T, T>(closure: F) -> (&'static Vtable, F) {
    (vtable::<F, T>(), closure)
}

/// Returns the vtable of closures of type `F`.
fn vtable<F, T>() -> &'static Vtable
where
    F: FnOnce() -> T,
{
    struct Of<F, T>(core::marker::PhantomData<(F, T)>);
    impl<F: FnOnce() -> T, T> Of<F, T> {
        const VTABLE: Vtable = Vtable {
            run: run::<F, T>,
            refuse: refuse::<F, T>,
            drop_result: drop_result::<T>,
            ..Vtable::NONE
        };
    }
    &Of::<F, T>::VTABLE
}

/// Returns a closure that does not panic, with a vtable that stores no result. The fiber's block
/// has no joiner.
#[inline(always)]
pub(crate) fn detached<F: FnOnce()>(closure: F) -> (&'static Vtable, F) {
    struct Of<F>(core::marker::PhantomData<F>);
    impl<F: FnOnce()> Of<F> {
        const VTABLE: Vtable =
            Vtable { run: run_detached::<F>, refuse: refuse_detached::<F>, ..Vtable::NONE };
    }
    (&Of::<F>::VTABLE, closure)
}

/// A closure that a fiber runs again and again, resting in between.
pub(crate) trait Recurring {
    /// The result of the last run.
    type Result;

    /// Runs once. Returns the result if that was the last run.
    fn run(&mut self) -> Option<Self::Result>;

    /// Arranges that `control` is submitted when it is to run again. From then on the runner owns
    /// the closure; it may be freed before this call returns.
    ///
    /// # Safety
    /// The fiber is unstarted, and the caller owns it. `this` is the closure in its block.
    unsafe fn rest(this: *const Self, control: &'static Control);
}

/// Returns the vtable of fibers that rest.
pub(crate) fn recurring<F: Recurring>() -> &'static Vtable {
    struct Of<F>(core::marker::PhantomData<F>);
    impl<F: Recurring> Of<F> {
        const VTABLE: Vtable = Vtable {
            run: run_recurring::<F>,
            refuse: refuse::<F, F::Result>,
            drop_result: drop_result::<F::Result>,
            rest: rest::<F>,
        };
    }
    &Of::<F>::VTABLE
}

/// Runs a closure of [`recurring`] once. Takes it out and stores the result after its last run.
///
/// # Safety
/// The caller is the fiber of the block, whose storage holds an `F`.
unsafe fn run_recurring<F: Recurring>(control: &Control) {
    let closure = in_place::<F>(&control.storage);
    // SAFETY: the caller promises that the storage holds an `F`. The closure stays in place, and no
    // other thread touches it while the fiber runs.
    let ran = catch_unwind(AssertUnwindSafe(|| unsafe { (*closure).run() }));
    let mut result = match ran {
        Ok(None) => return control.set_flags(Flags::RESTS),
        Ok(Some(value)) => Ok(value),
        Err(panic) => {
            panic_ended(control, &*panic);
            Err(panic)
        }
    };
    // SAFETY: the closure has run for the last time, and its place becomes free for the result.
    unsafe {
        let closure = take::<F>(&control.storage);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(closure))) {
            panic_ended(control, &*panic);
            // The first panic is the result. The value that it replaces, or else the second panic,
            // is dropped unseen.
            let lost = match &result {
                Ok(_) => mem::replace(&mut result, Err(panic)),
                Err(_) => Err(panic),
            };
            control.set_flags(Flags::MASKED);
            report::contain(|| drop(lost));
        }
        put::<Outcome<F::Result>>(&control.storage, result);
    }
}

/// Hands a fiber whose closure is an `F` to the layer that keeps it.
///
/// # Safety
/// As for [`Vtable::rest`]; the storage holds an `F`.
unsafe fn rest<F: Recurring>(control: &'static Control) {
    // SAFETY: the caller promises that the storage holds an `F` and that the fiber is unstarted and
    // its own.
    unsafe { F::rest(in_place(&control.storage), control) };
}

/// Returns a pointer to the value that `put` wrote, in place.
fn in_place<T>(storage: &UnsafeCell<Storage>) -> *mut T {
    const { assert!(fits::<T>(), "the value is too large to be in place") };
    storage.get().cast()
}

/// Runs a closure of [`detached`], which stores no result.
///
/// # Safety
/// The caller is the fiber of the block, whose storage holds an `F`.
unsafe fn run_detached<F: FnOnce()>(control: &Control) {
    // SAFETY: the caller promises that the storage holds an `F`.
    let closure = unsafe { take::<F>(&control.storage) };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(closure)) {
        panic_ended(control, &*panic);
        drop_quietly(panic);
    }
}

/// Drops a closure of [`detached`], and the payload.
///
/// # Safety
/// The caller owns the fiber, which has not run, and the storage holds an `F`.
unsafe fn refuse_detached<F: FnOnce()>(control: &Control, payload: Box<dyn Any + Send>) {
    // SAFETY: the caller promises that the storage holds an `F`.
    let closure = unsafe { take::<F>(&control.storage) };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(closure))) {
        panic_ended(control, &*panic);
        drop_quietly(panic);
    }
    drop_quietly(payload);
}

/// Drops a payload that will not be seen.
fn drop_quietly(payload: Box<dyn Any + Send>) {
    report::contain(|| drop(payload));
}

/// Stores the closure of a new fiber.
///
/// # Safety
/// The block is new, and its vtable is the one of `F`.
#[inline(always)]
pub(crate) unsafe fn store<F>(control: &Control, closure: F) {
    // SAFETY: the maker of a fiber owns its storage, which is empty.
    unsafe { put(&control.storage, closure) };
}

/// Takes a closure of [`of`] out, runs it, and stores the result.
///
/// # Safety
/// The caller is the fiber of the block, whose storage holds an `F`.
unsafe fn run<F: FnOnce() -> T, T>(control: &Control) {
    // SAFETY: the caller promises that the storage holds an `F`. After `take` it is free until the
    // result is put there.
    unsafe {
        let closure = take::<F>(&control.storage);
        let result: Outcome<T> = catch_unwind(AssertUnwindSafe(closure));
        if let Err(panic) = &result {
            panic_ended(control, &**panic);
        }
        put(&control.storage, result);
    }
}

/// Drops a closure, and stores the payload as the result. If the closure's destructor panics,
/// stores that panic instead.
///
/// # Safety
/// The caller owns the fiber, which does not run its closure again, and the storage holds an `F`.
unsafe fn refuse<F, T>(control: &Control, payload: Box<dyn Any + Send>) {
    // SAFETY: as for `run`.
    unsafe {
        let closure = take::<F>(&control.storage);
        let dropped = report::contained(|| drop(closure));
        if let Err(panic) = &dropped {
            panic_ended(control, &**panic);
        }
        let result: Outcome<T> = Err(dropped.err().unwrap_or(payload));
        put(&control.storage, result);
    }
}

/// Drops a result that will not be taken.
///
/// # Safety
/// The storage holds an `Outcome<T>`, and the caller alone may take it.
unsafe fn drop_result<T>(control: &Control) {
    // SAFETY: the caller promises that the storage holds the result.
    let result = unsafe { take::<Outcome<T>>(&control.storage) };
    // A panic here could not be reported to a joiner: the handle is gone.
    report::contain(|| drop(result));
}

/// Takes the result of a finished fiber.
///
/// # Safety
/// The fiber has finished, its closure returned a `T`, and the result was not taken.
#[inline(always)]
pub(crate) unsafe fn take_result<T>(control: &Control) -> Outcome<T> {
    // SAFETY: the caller promises that the storage holds an `Outcome<T>`.
    unsafe { take(&control.storage) }
}
