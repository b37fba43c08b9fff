//! A closure and its result, in the control block of the fiber that turns one into the other.
//!
//! # Life of the storage
//!
//! `store` writes the closure. The fiber takes it out, once, when it starts, or, if it rests in between, when
//! it has run for the last time, and writes the result when it ends; or whoever discards an unstarted
//! fiber drops it. The holder of the join handle
//! takes or drops the result; if the handle is gone before, the fiber drops it, as its last act.
//! What is larger than the storage is in a box.

use super::control::{Control, Flags};
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

/// What differs from closure to closure.
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
    /// Drops the result that nobody will take.
    ///
    /// # Safety
    /// The storage holds a result of this vtable.
    pub(crate) drop_result: unsafe fn(&Control),
    /// Tells those who wait for the end in the waiter table, given the block's address and the
    /// fiber's id. Belongs to a layer above this one.
    pub(crate) announce: fn(address: usize, id: u64),
    /// Keeps a fiber that rests until it is to run again. Belongs to a layer above this one.
    ///
    /// # Safety
    /// The storage holds a closure of this vtable, which has said that the fiber rests; the fiber is
    /// unstarted, and the caller's.
    pub(crate) rest: unsafe fn(&'static Control),
}

impl Vtable {
    /// That of a block without a closure: a thread's, or a carrier's own.
    pub(crate) const NONE: Vtable = Vtable {
        run: |_| {},
        refuse: |_, _| {},
        drop_result: |_| {},
        announce: crate::park::table::release_finished,
        rest: |_| {},
    };
}

const fn fits<T>() -> bool {
    size_of::<T>() <= SIZE && align_of::<T>() <= align_of::<Storage>()
}

/// Writes `value` to where `take` finds it.
///
/// # Safety
/// The storage is the caller's, and holds nothing that needs to be dropped.
#[inline(always)]
unsafe fn put<T>(storage: &UnsafeCell<Storage>, value: T) {
    // SAFETY: either form fits, and the caller has the storage for itself.
    unsafe {
        // Constant, so that nothing is compiled for the form that it does not have.
        if const { fits::<T>() } {
            storage.get().cast::<T>().write(value);
        } else {
            storage.get().cast::<Box<T>>().write(Box::new(value));
        }
    }
}

/// Takes out what `put` wrote.
///
/// # Safety
/// `put::<T>` wrote it, and nobody took it.
#[inline(always)]
unsafe fn take<T>(storage: &UnsafeCell<Storage>) -> T {
    // SAFETY: as the caller promised; the form depends on the type alone.
    unsafe {
        if const { fits::<T>() } {
            storage.get().cast::<T>().read()
        } else {
            *storage.get().cast::<Box<T>>().read()
        }
    }
}

type Outcome<T> = std::thread::Result<T>;

/// A closure with what goes with it.
#[inline(always)]
pub(crate) fn of<F: FnOnce() -> T, T>(closure: F) -> (&'static Vtable, F) {
    (vtable::<F, T>(), closure)
}

/// The vtable of closures of type `F`.
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

/// The vtable of closures of type `F` whose end nobody waits for in the block: they store nothing, and do not
/// panic.
pub(crate) fn detached<F: FnOnce()>() -> &'static Vtable {
    struct Of<F>(core::marker::PhantomData<F>);
    impl<F: FnOnce()> Of<F> {
        const VTABLE: Vtable =
            Vtable { run: run_detached::<F>, refuse: refuse_detached::<F>, ..Vtable::NONE };
    }
    &Of::<F>::VTABLE
}

/// What a fiber runs again and again, and rests in between.
pub(crate) trait Recurring {
    /// What it gives in the end.
    type Result;

    /// Runs once; something if that was the last time.
    fn run(&mut self) -> Option<Self::Result>;

    /// Has `control` submitted when it is to run again. From then on the closure is whoever's who runs it, and
    /// may be gone before this returns.
    ///
    /// # Safety
    /// The fiber is unstarted, and the caller's; `this` is the closure that its block holds.
    unsafe fn rest(this: *const Self, control: &'static Control);
}

/// The vtable of fibers that rest.
pub(crate) fn recurring<F: Recurring>() -> &'static Vtable {
    struct Of<F>(core::marker::PhantomData<F>);
    impl<F: Recurring> Of<F> {
        const VTABLE: Vtable = Vtable {
            run: run_recurring::<F>,
            refuse: refuse::<F, F::Result>,
            drop_result: drop_result::<F::Result>,
            rest: rest::<F>,
            ..Vtable::NONE
        };
    }
    &Of::<F>::VTABLE
}

unsafe fn run_recurring<F: Recurring>(control: &Control) {
    let closure = in_place::<F>(&control.storage);
    // SAFETY: as for `run`. The closure stays where it is, and nobody else touches it while the fiber runs.
    let ran = catch_unwind(AssertUnwindSafe(|| unsafe { (*closure).run() }));
    let mut result = match ran {
        Ok(None) => return control.set_flags(Flags::RESTS),
        Ok(Some(value)) => Ok(value),
        Err(panic) => {
            crate::park::panic_ended(control, &*panic);
            Err(panic)
        }
    };
    // SAFETY: the closure is over, and its place free for the result.
    unsafe {
        let closure = take::<F>(&control.storage);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(closure))) {
            crate::park::panic_ended(control, &*panic);
            // The first panic counts. Nobody sees what it replaces.
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

unsafe fn rest<F: Recurring>(control: &'static Control) {
    // SAFETY: as the caller promised.
    unsafe { F::rest(in_place(&control.storage), control) };
}

/// What `put` wrote, where it is.
fn in_place<T>(storage: &UnsafeCell<Storage>) -> *mut T {
    const { assert!(fits::<T>(), "what is larger is in a box") };
    storage.get().cast()
}

unsafe fn run_detached<F: FnOnce()>(control: &Control) {
    // SAFETY: as for `run`.
    let closure = unsafe { take::<F>(&control.storage) };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(closure)) {
        crate::park::panic_ended(control, &*panic);
        drop_quietly(panic);
    }
}

unsafe fn refuse_detached<F: FnOnce()>(control: &Control, payload: Box<dyn Any + Send>) {
    // SAFETY: as for `run`.
    let closure = unsafe { take::<F>(&control.storage) };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(closure))) {
        crate::park::panic_ended(control, &*panic);
        drop_quietly(panic);
    }
    drop_quietly(payload);
}

/// Drops what nobody will see.
fn drop_quietly(payload: Box<dyn Any + Send>) {
    report::contain(|| drop(payload));
}

/// Stores the closure of a new fiber.
///
/// # Safety
/// The block is new and its vtable is that of `F`.
#[inline(always)]
pub(crate) unsafe fn store<F>(control: &Control, closure: F) {
    // SAFETY: the maker of a fiber has its storage.
    unsafe { put(&control.storage, closure) };
}

unsafe fn run<F: FnOnce() -> T, T>(control: &Control) {
    // SAFETY: as the caller promised; from here on the storage is free until the result is put.
    unsafe {
        let closure = take::<F>(&control.storage);
        let result: Outcome<T> = catch_unwind(AssertUnwindSafe(closure));
        if let Err(panic) = &result {
            crate::park::panic_ended(control, &**panic);
        }
        put(&control.storage, result);
    }
}

unsafe fn refuse<F, T>(control: &Control, payload: Box<dyn Any + Send>) {
    // SAFETY: as for `run`.
    unsafe {
        let closure = take::<F>(&control.storage);
        let dropped = report::contained(|| drop(closure));
        if let Err(panic) = &dropped {
            crate::park::panic_ended(control, &**panic);
        }
        let result: Outcome<T> = Err(dropped.err().unwrap_or(payload));
        put(&control.storage, result);
    }
}

unsafe fn drop_result<T>(control: &Control) {
    // SAFETY: as the caller promised.
    let result = unsafe { take::<Outcome<T>>(&control.storage) };
    // What panics here would be a panic that nobody can be told of: the handle is gone.
    report::contain(|| drop(result));
}

/// Takes the result of a finished fiber.
///
/// # Safety
/// The fiber has finished, its closure returned a `T`, and nobody took the result.
#[inline(always)]
pub(crate) unsafe fn take_result<T>(control: &Control) -> Outcome<T> {
    // SAFETY: as the caller promised.
    unsafe { take(&control.storage) }
}
