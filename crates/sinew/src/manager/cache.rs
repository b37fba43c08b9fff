//! Finds the manager of a loop, or makes one.
//!
//! There are two caches. The thread's cache leads to the manager itself, which belongs to the
//! thread. The cache of the process, behind it, knows the managers of all loops; it serves threads
//! that have only a loop's remote handle. An entry is removed when its loop is destroyed. If a
//! manager ends in another way, its entry stays until the next manager replaces it, and look-ups
//! ignore the entry.

use super::controller::ReactorLoopController;
use super::core::{Core, Shared};
use super::event_loop::{EventLoop, LoopRemote};
use super::{FiberManager, LoopController, ManagerHandle, Options, RemoteHandle};
use crate::primitive::{Ordering, SpinLock};
use core::any::TypeId;
use core::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// A loop for which [`manager_for`] finds or makes managers.
///
/// [`EventLoop`] implements it. Implement it for your own loop to use `manager_for` there.
///
/// # Examples
/// ```
/// use sinew::manager::{Loop, LoopController, SimpleLoopController, manager_for};
/// use std::cell::RefCell;
///
/// struct Own {
///     controller: SimpleLoopController,
///     at_end: RefCell<Vec<Box<dyn FnOnce()>>>,
/// }
///
/// impl Loop for Own {
///     fn number(&self) -> u64 {
///         1 // this program makes one such loop
///     }
///     fn controller(&self) -> Box<dyn LoopController> {
///         Box::new(self.controller.clone())
///     }
///     fn on_destruction(&self, f: Box<dyn FnOnce()>) {
///         self.at_end.borrow_mut().push(f);
///     }
/// }
///
/// impl Drop for Own {
///     fn drop(&mut self) {
///         self.at_end.take().into_iter().for_each(|f| f());
///     }
/// }
///
/// let own = Own { controller: SimpleLoopController::new(), at_end: RefCell::default() };
/// manager_for(&own).add_task(|| ());
/// own.controller.run();
/// assert!(!manager_for(&own).has_tasks());
/// ```
pub trait Loop {
    /// Returns the number of the loop. No other loop of this type has, or ever had, this number.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{Loop, LoopController};
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// struct Own {
    ///     number: u64,
    /// }
    /// impl Own {
    ///     fn new() -> Own {
    ///         static NEXT: AtomicU64 = AtomicU64::new(0);
    ///         Own { number: NEXT.fetch_add(1, Ordering::Relaxed) }
    ///     }
    /// }
    /// impl Loop for Own {
    ///     fn number(&self) -> u64 {
    ///         self.number
    ///     }
    ///     // and the other methods
    /// #     fn controller(&self) -> Box<dyn LoopController> {
    /// #         unimplemented!()
    /// #     }
    /// #     fn on_destruction(&self, _: Box<dyn FnOnce()>) {}
    /// }
    /// assert_ne!(Own::new().number(), Own::new().number());
    /// ```
    fn number(&self) -> u64;

    /// Makes the controller that runs a new manager in this loop.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{Loop, LoopController, manager_for};
    /// # use std::cell::RefCell;
    /// use sinew::manager::ExecutorLoopController;
    /// use std::sync::mpsc;
    ///
    /// struct Own {
    ///     sender: mpsc::Sender<Box<dyn FnOnce() + Send>>, // to the queue of the loop
    /// #     at_end: RefCell<Vec<Box<dyn FnOnce()>>>,
    /// }
    /// impl Loop for Own {
    ///     fn controller(&self) -> Box<dyn LoopController> {
    ///         let sender = self.sender.clone();
    ///         Box::new(ExecutorLoopController::new(move |f| drop(sender.send(f))))
    ///     }
    ///     // and the other methods
    /// #     fn number(&self) -> u64 {
    /// #         1
    /// #     }
    /// #     fn on_destruction(&self, f: Box<dyn FnOnce()>) {
    /// #         self.at_end.borrow_mut().push(f);
    /// #     }
    /// }
    ///
    /// let (sender, queue) = mpsc::channel();
    /// # let own = Own { sender, at_end: RefCell::default() };
    /// manager_for(&own).add_task(|| ());
    /// queue.recv().unwrap()(); // a turn of the loop
    /// assert!(!manager_for(&own).has_tasks());
    /// ```
    fn controller(&self) -> Box<dyn LoopController>;

    /// Registers `f`, to be called on the loop's thread when the loop is destroyed.
    ///
    /// The `f` that [`manager_for`] registers owns the manager, and ends it when it is called or
    /// dropped. So the loop has to keep `f` until its own end.
    ///
    /// # Examples
    /// ```
    /// # use sinew::manager::{Loop, LoopController, SimpleLoopController, manager_for};
    /// # use std::cell::RefCell;
    /// struct Own {
    ///     at_end: RefCell<Vec<Box<dyn FnOnce()>>>,
    /// }
    /// impl Loop for Own {
    ///     fn on_destruction(&self, f: Box<dyn FnOnce()>) {
    ///         self.at_end.borrow_mut().push(f);
    ///     }
    ///     // and the other methods
    /// #     fn number(&self) -> u64 {
    /// #         1
    /// #     }
    /// #     fn controller(&self) -> Box<dyn LoopController> {
    /// #         Box::new(SimpleLoopController::new())
    /// #     }
    /// }
    /// impl Drop for Own {
    ///     fn drop(&mut self) {
    ///         self.at_end.take().into_iter().for_each(|f| f());
    ///     }
    /// }
    ///
    /// let own = Own { at_end: RefCell::default() };
    /// let remote = manager_for(&own).remote();
    /// assert!(remote.is_alive());
    /// drop(own); // ends the manager
    /// assert!(!remote.is_alive());
    /// ```
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

/// The key of a loop's manager: the loop's type and number, and the type and settings of the
/// manager.
type Key = (TypeId, u64, TypeId, [u64; 8]);

thread_local! {
    /// The crew numbers of the managers of this thread's loops.
    static OF_THREAD: RefCell<BTreeMap<Key, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// The managers of all loops in the process.
static ALL: SpinLock<BTreeMap<Key, Weak<Shared>>> = SpinLock::new(BTreeMap::new());

/// Returns the manager of a loop, and makes it with the default options if there is none. The
/// manager ends when the loop is destroyed.
///
/// # Panics
/// If a new manager cannot be made, for example because the process has no free descriptor.
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
/// manager for each combination of sizes, periods, measurements and policies for pinned waits. The
/// other options, such as observers, apply only when a new manager is made.
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
            remember(key, known.crew.number);
            return ManagerHandle::new(&core);
        }
    }
    match FiberManager::with_controller(event_loop.controller(), options) {
        Ok(manager) => keep(event_loop, key, manager),
        Err(error) => panic!("cannot make a manager for the loop: {error}"),
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

/// Enters a manager in the thread's cache.
fn remember(key: Key, number: u32) {
    let _ = OF_THREAD.try_with(|cache| cache.borrow_mut().insert(key, number));
}

/// Removes a manager from the thread's cache.
fn forget(key: Key) {
    let _ = OF_THREAD.try_with(|cache| cache.borrow_mut().remove(&key));
}

/// Looks up the thread's cache. Removes the entry if its manager has ended.
fn of_thread(key: Key) -> Option<ManagerHandle> {
    let number = OF_THREAD.try_with(|cache| cache.borrow().get(&key).copied()).ok().flatten()?;
    let core = Core::of_this_thread(number);
    match core.filter(|core| core.is_open()) {
        Some(core) => Some(ManagerHandle::new(&core)),
        None => {
            forget(key);
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
    remember(key, shared.crew.number);
    event_loop.on_destruction(Box::new(move || {
        let removed = ALL.lock().remove(&key);
        forget(key);
        drop(removed);
        drop(manager);
    }));
    handle
}
