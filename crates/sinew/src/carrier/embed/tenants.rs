//! The managers of a thread, and the end of a thread with a leaked manager.
//!
//! A fiber may have lent something on its thread, such as a thread-local, to code on other threads.
//! If its manager is leaked, the fiber never ends, so the thread must not end either. The check for
//! such fibers has to come after the destructors of the thread's locals, since a thread-local may
//! own a manager. So the check is the destructor of a pthread key, which the system runs later. The
//! check does not run when the process exits.

use crate::fiber::life::STARTED;
use crate::fiber::slab;
use crate::primitive::Ordering;
use crate::report;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::ffi::c_void;
use core::ptr;
use std::io;
use std::rc::Weak;
use std::sync::OnceLock;

thread_local! {
    /// The managers that belong to this thread; null if there never was one. Has no destructor, so
    /// that it can be read at any time.
    static TENANTS: Cell<*const Tenants> = const { Cell::new(ptr::null()) };
}

/// The managers of a thread, by the numbers of their crews.
#[derive(Default)]
struct Tenants {
    all: RefCell<Vec<(u32, Weak<dyn Any>)>>,
    /// How often the key's destructor has run on this thread.
    rounds: Cell<u32>,
}

impl Tenants {
    /// Returns how many of the managers have fibers that have started and not ended.
    fn with_started_fibers(&self) -> usize {
        self.all.borrow().iter().filter(|(number, _)| has_started(*number)).count()
    }
}

/// The round in which the key's destructor makes its check. In the earlier rounds it lets the
/// destructors of other keys run first. The system makes at least four rounds.
const ROUNDS: u32 = 3;

/// Returns the key. Its destructor checks the thread.
///
/// # Errors
/// If the process has no more keys.
fn key() -> io::Result<libc::pthread_key_t> {
    static KEY: OnceLock<Result<libc::pthread_key_t, i32>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is valid for a write, and the destructor accepts what `keep` stores under
        // the key.
        match unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } {
            0 => Ok(key),
            error => Err(error),
        }
    });
    key.map_err(io::Error::from_raw_os_error)
}

#[inline(never)]
fn tenants() -> Option<&'static Tenants> {
    // SAFETY: null, or allocated by `prepare` and freed only when this thread ends.
    unsafe { TENANTS.get().as_ref() }
}

/// Stores the managers under the key, so that the end of the thread is checked.
fn keep(tenants: *const Tenants) -> io::Result<()> {
    // SAFETY: the key is valid.
    match unsafe { libc::pthread_setspecific(key()?, tenants.cast()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Prepares this thread for managers.
///
/// # Errors
/// If the end of the thread could not be checked. Then the thread must have no manager.
pub(crate) fn prepare() -> io::Result<()> {
    if tenants().is_none() {
        let tenants: Box<Tenants> = Box::default();
        keep(&raw const *tenants)?;
        TENANTS.set(Box::leak(tenants));
    }
    Ok(())
}

/// Adds a manager to this thread, which was prepared before.
pub(crate) fn add(number: u32, manager: Weak<dyn Any>) {
    let tenants = tenants().expect("a thread is prepared before it has a manager");
    tenants.all.borrow_mut().push((number, manager));
}

/// Whether this thread has managers.
pub(in crate::carrier) fn are_here() -> bool {
    tenants().is_some_and(|tenants| !tenants.all.borrow().is_empty())
}

/// Returns how many managers of this thread have fibers that have started and not ended.
pub(in crate::carrier) fn with_started_fibers() -> usize {
    tenants().map_or(0, Tenants::with_started_fibers)
}

/// Removes a manager from this thread.
pub(crate) fn remove(number: u32) {
    let removed = tenants().and_then(|tenants| {
        let mut all = tenants.all.borrow_mut();
        let position = all.iter().position(|(other, _)| *other == number)?;
        Some(all.swap_remove(position))
    });
    drop(removed);
}

/// Returns the manager of this thread with this number.
pub(crate) fn find(number: u32) -> Option<Weak<dyn Any>> {
    let all = tenants()?.all.borrow();
    all.iter().find(|(other, _)| *other == number).map(|(_, manager)| manager.clone())
}

/// The destructor of the key: the thread of these managers ends.
///
/// # Safety
/// Only the end of a thread calls this, with the value that [`keep`] stored for this thread.
unsafe extern "C" fn thread_ends(tenants: *mut c_void) {
    let tenants = tenants.cast::<Tenants>();
    // SAFETY: `prepare` allocated it for this thread, and it is freed only below.
    let there = unsafe { &*tenants };
    there.rounds.set(there.rounds.get() + 1);
    if there.rounds.get() < ROUNDS && keep(tenants).is_ok() {
        return;
    }
    if there.with_started_fibers() > 0 {
        report::say(format_args!(
            "a thread ends with a leaked manager whose fibers have not ended; the thread is kept, since those \
             fibers may have lent its thread-locals"
        ));
        loop {
            // SAFETY: `pause` has no preconditions. The standard library's parking is no longer
            // usable here.
            unsafe { libc::pause() };
        }
    }
    TENANTS.set(ptr::null());
    // SAFETY: `prepare` leaked this box, and nothing uses it after this.
    drop(unsafe { Box::from_raw(tenants) });
}

/// Whether a fiber of this crew has started and not ended.
fn has_started(number: u32) -> bool {
    let mut any = false;
    slab::for_each(|control| {
        let started = control.life.marks() & STARTED != 0 && !control.life.is_vacant();
        any |= started && control.crew.load(Ordering::Relaxed) == number;
    });
    any
}
