//! The manager of a loop: found, or made.
//!
//! Two caches: one of the thread, and behind it one of the process. What the first has is the manager itself, which
//! belongs to the thread; the second knows of all, for threads that have a loop's remote handle only. An entry goes
//! when its loop does; one that is left, because somebody has dropped the manager in another way, is erased when it is
//! come across.

use super::controller::ReactorLoopController;
use super::core::{Core, Shared};
use super::event_loop::{EventLoop, LoopRemote};
use super::{FiberManager, LoopController, ManagerHandle, Options, RemoteHandle};
use crate::carrier::current::{self, Key};
use crate::primitive::{Ordering, SpinLock};
use core::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// A loop that can have managers.
///
/// Implemented by [`EventLoop`]; for a loop of one's own, [`manager_for`] needs these three.
pub trait Loop {
    /// A number that no other loop of this kind has, and none that is gone had.
    fn number(&self) -> u64;

    /// What runs a new manager of the loop.
    fn controller(&self) -> Box<dyn LoopController>;

    /// Has `f` called when the loop goes, on its thread.
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

/// All managers of loops in the process.
static ALL: SpinLock<BTreeMap<Key, Weak<Shared>>> = SpinLock::new(BTreeMap::new());

/// The manager of a loop: that which it has, or a new one with the usual options. It goes when the loop goes.
///
/// # Panics
/// If there is no descriptor for a new one.
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

/// The same, with options: a loop has a manager for each set of sizes, periods and measurements. The rest of the
/// options, such as observers, is for a new one.
///
/// # Panics
/// If there cannot be a new one with these options.
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

/// The same, of several that a loop has: one for each type `T`.
///
/// # Panics
/// If there cannot be a new one with these options.
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

/// The manager of a loop on another thread, if it has one: that which [`manager_for`] gives there.
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

/// What this thread knows; what it knows wrongly is erased.
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

/// Has the loop keep a manager, and the caches know it, until the loop goes.
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
