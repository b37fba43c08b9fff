//! Finds the manager of a loop, or makes one.
//!
//! There are two caches. The thread's cache leads to the manager itself, which belongs to the
//! thread. The cache of the process, behind it, knows the managers of all loops; it serves threads
//! that have only a loop's remote handle. An entry is removed when its loop is destroyed. A look-up
//! ignores an entry whose manager has ended in another way; the next manager replaces it.

use super::controller::ReactorLoopController;
use super::core::{Core, Shared};
use super::event_loop::{EventLoop, LoopRemote};
use super::{FiberManager, LoopController, ManagerHandle, Options, RemoteHandle};
use crate::carrier::current::{self, Key};
use crate::primitive::{Ordering, SpinLock};
use core::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// A loop for which [`manager_for`] finds or makes managers.
///
/// [`EventLoop`] implements it. Implement it for your own loop to use `manager_for` there.
pub trait Loop {
    /// Returns the number of the loop. No other loop of this type has it, and none that was
    /// destroyed had it.
    fn number(&self) -> u64;

    /// Makes the controller that runs a new manager in this loop.
    fn controller(&self) -> Box<dyn LoopController>;

    /// Registers `f`, to be called on the loop's thread when the loop is destroyed.
    fn on_destruction(&self, f: Box<dyn FnOnce()>);
}

impl Loop for EventLoop {
    fn number(&self) -> u64 {
        EventLoop::number(self)
    }

    fn controller(&self) -> Box<dyn LoopController> {
        Box::new(ReactorLoopController::on(self))
    }

    fn on_destruction(&self, f: Box<dyn FnOnce()>) {
        EventLoop::on_destruction(self, f);
    }
}

/// The managers of all loops in the process.
static ALL: SpinLock<BTreeMap<Key, Weak<Shared>>> = SpinLock::new(BTreeMap::new());

/// Returns the manager of a loop, and makes it with the default options if there is none. The
/// manager ends when the loop is destroyed.
///
/// # Panics
/// If a new manager cannot be made, for lack of a descriptor for example.
///
/// # Examples
/// ```
/// use sinew::manager::{EventLoop, manager_for};
///
/// let event_loop = EventLoop::new()?;
/// assert_eq!(manager_for(&event_loop), manager_for(&event_loop));
/// manager_for(&event_loop).add_task(|| ());
/// event_loop.run();
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn manager_for<L: Loop + 'static>(event_loop: &L) -> ManagerHandle {
    manager_for_local::<(), L>(event_loop, Options::new())
}

/// Returns the manager of a loop with these options, and makes it if there is none. A loop has one
/// manager for each combination of sizes, periods and measurements. The other options, such as
/// observers, apply only when a new manager is made.
///
/// # Panics
/// If a new manager cannot be made with these options.
///
/// # Examples
/// ```
/// use sinew::manager::{EventLoop, Options, manager_for_with};
///
/// let event_loop = EventLoop::new()?;
/// let manager = manager_for_with(&event_loop, Options::new().stack_size(64 * 1024));
/// # let _ = manager;
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn manager_for_with<L: Loop + 'static>(event_loop: &L, options: Options) -> ManagerHandle {
    manager_for_local::<(), L>(event_loop, options)
}

/// Returns the manager of a loop for the type `T` with these options, and makes it if there is
/// none. A loop has separate managers for each type; [`manager_for_with`] uses `()`.
///
/// # Panics
/// If a new manager cannot be made with these options.
///
/// # Examples
/// ```
/// use sinew::manager::{EventLoop, Options, manager_for, manager_for_local};
///
/// struct Background;
///
/// let event_loop = EventLoop::new()?;
/// let background = manager_for_local::<Background, _>(&event_loop, Options::new());
/// assert_ne!(background, manager_for(&event_loop));
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn manager_for_local<T: 'static, L: Loop + 'static>(
    event_loop: &L,
    options: Options,
) -> ManagerHandle {
    let key = (TypeId::of::<L>(), event_loop.number(), TypeId::of::<T>(), options.numbers());
    if let Some(known) = of_thread(key) {
        return known;
    }
    let known = ALL.lock().get(&key).and_then(Weak::upgrade);
    if let Some(known) = known.filter(|known| known.open.load(Ordering::Acquire)) {
        known.check_thread();
        if let Some(core) = Core::of_this_thread(known.crew.number) {
            current::cache_manager(key, known.crew.number);
            return ManagerHandle::new(&core);
        }
    }
    match FiberManager::with_controller(event_loop.controller(), options) {
        Ok(manager) => keep(event_loop, key, manager),
        Err(error) => panic!("a loop cannot have a manager: {error}"),
    }
}

/// Returns a remote handle to the manager that [`manager_for`] gives on the loop's thread, if the
/// loop has one.
///
/// # Examples
/// ```
/// use sinew::manager::{EventLoop, manager_for, remote_for};
///
/// let event_loop = EventLoop::new()?;
/// let remote = event_loop.remote();
/// assert!(remote_for(&remote).is_none());
/// manager_for(&event_loop);
/// std::thread::spawn(move || remote_for(&remote).unwrap().add_task_remote(|| ())).join().unwrap();
/// event_loop.run();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remote_for(event_loop: &LoopRemote) -> Option<RemoteHandle> {
    let usual = Options::new().numbers();
    let key = (TypeId::of::<EventLoop>(), event_loop.number(), TypeId::of::<()>(), usual);
    let known: Option<Arc<Shared>> = ALL.lock().get(&key).and_then(Weak::upgrade);
    known.filter(|known| known.open.load(Ordering::Acquire)).map(RemoteHandle::new)
}

/// Looks up the thread's cache. Removes the entry if its manager has ended.
fn of_thread(key: Key) -> Option<ManagerHandle> {
    let core = Core::of_this_thread(current::cached_manager(key)?);
    match core.filter(|core| core.is_open()) {
        Some(core) => Some(ManagerHandle::new(&core)),
        None => {
            current::forget_manager(key);
            None
        }
    }
}

/// Hands the manager to the loop, which drops it when the loop is destroyed, and enters it in both
/// caches until then.
fn keep<L: Loop>(event_loop: &L, key: Key, manager: FiberManager) -> ManagerHandle {
    let handle = manager.handle();
    let shared = manager.shared();
    ALL.lock().insert(key, Arc::downgrade(shared));
    current::cache_manager(key, shared.crew.number);
    event_loop.on_destruction(Box::new(move || {
        let removed = ALL.lock().remove(&key);
        current::forget_manager(key);
        drop(removed);
        drop(manager);
    }));
    handle
}
