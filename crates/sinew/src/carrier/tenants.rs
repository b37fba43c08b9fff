//! The managers of a thread, and what becomes of the thread if one of them is leaked.
//!
//! A fiber may have lent what is on its thread, such as a thread-local, to others that run elsewhere. If its manager is
//! leaked, the fiber never ends, and so neither may the thread. That is looked at when the destructors of the thread's
//! locals have run, since a manager may be in one of them: by the destructor of a key, which comes after those, and not
//! at all when the process exits.

use super::current;
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

/// Managers of a thread, by the numbers of their crews.
#[derive(Default)]
pub(super) struct Tenants {
    all: RefCell<Vec<(u32, Weak<dyn Any>)>>,
    /// How often the end of the thread has been seen.
    rounds: Cell<u32>,
}

impl Tenants {
    /// How many of the managers have fibers that have started and not ended.
    fn with_started_fibers(&self) -> usize {
        self.all.borrow().iter().filter(|(number, _)| has_started(*number)).count()
    }
}

/// How often to wait for destructors of locals that are keys themselves. The system does so four times at least.
const ROUNDS: u32 = 3;

/// The key whose destructor looks.
///
/// # Errors
/// If the process has no more keys.
fn key() -> io::Result<libc::pthread_key_t> {
    static KEY: OnceLock<Result<libc::pthread_key_t, i32>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: a place for the key, and a destructor for what is kept under it.
        match unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } {
            0 => Ok(key),
            error => Err(error),
        }
    });
    key.map_err(io::Error::from_raw_os_error)
}

fn tenants() -> Option<&'static Tenants> {
    // SAFETY: it stays until the thread, which this is, ends.
    unsafe { current::tenants().as_ref() }
}

/// Has the end of the thread looked at.
fn keep(tenants: *const Tenants) -> io::Result<()> {
    // SAFETY: a valid key.
    match unsafe { libc::pthread_setspecific(key()?, tenants.cast()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Makes room for managers of this thread.
///
/// # Errors
/// If nobody would look when the thread ends: there must be no manager then.
pub(crate) fn prepare() -> io::Result<()> {
    if tenants().is_none() {
        let tenants: Box<Tenants> = Box::default();
        keep(&raw const *tenants)?;
        current::set_tenants(Box::leak(tenants));
    }
    Ok(())
}

/// Notes a manager of this thread, which has room for it.
pub(crate) fn add(number: u32, manager: Weak<dyn Any>) {
    let tenants = tenants().expect("a thread is prepared before it has a manager");
    tenants.all.borrow_mut().push((number, manager));
}

/// Whether there are managers of this thread.
pub(super) fn are_here() -> bool {
    tenants().is_some_and(|tenants| !tenants.all.borrow().is_empty())
}

/// How many managers of this thread have fibers that have started and not ended.
pub(super) fn with_started_fibers() -> usize {
    tenants().map_or(0, Tenants::with_started_fibers)
}

/// Forgets a manager of this thread.
pub(crate) fn remove(number: u32) {
    let removed = tenants().and_then(|tenants| {
        let mut all = tenants.all.borrow_mut();
        let position = all.iter().position(|(other, _)| *other == number)?;
        Some(all.swap_remove(position))
    });
    drop(removed);
}

/// The manager of this thread with this number.
pub(crate) fn find(number: u32) -> Option<Weak<dyn Any>> {
    let all = tenants()?.all.borrow();
    all.iter().find(|(other, _)| *other == number).map(|(_, manager)| manager.clone())
}

/// The thread that these managers belong to ends.
unsafe extern "C" fn thread_ends(tenants: *mut c_void) {
    let tenants = tenants.cast::<Tenants>();
    // SAFETY: what `add` has made, for this thread, and nobody has freed.
    let there = unsafe { &*tenants };
    there.rounds.set(there.rounds.get() + 1);
    if there.rounds.get() < ROUNDS && keep(tenants).is_ok() {
        return;
    }
    if there.with_started_fibers() > 0 {
        report::say(format_args!(
            "a thread ends with a manager that was leaked, and fibers of it that have not ended; the thread is kept, \
             since they may have lent what is on it"
        ));
        loop {
            // SAFETY: no preconditions. What the standard library parks a thread with is gone.
            unsafe { libc::pause() };
        }
    }
    current::set_tenants(ptr::null());
    // SAFETY: as above; the last that is done with it.
    drop(unsafe { Box::from_raw(tenants) });
}

/// Whether a fiber of this crew has started, and not ended.
fn has_started(number: u32) -> bool {
    let mut any = false;
    slab::for_each(|control| {
        let started = control.life.marks() & STARTED != 0 && !control.life.is_vacant();
        any |= started && control.crew.load(Ordering::Relaxed) == number;
    });
    any
}
