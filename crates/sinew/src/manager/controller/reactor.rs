//! The controller of a manager in an [`EventLoop`].

use super::{LoopController, Runner, Until};
use crate::manager::event_loop::{EventLoop, Inner as LoopInner, KeepAlive, LoopRemote};
use core::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs a manager in an [`EventLoop`]. The loop may be attached later; until then, the manager's
/// tasks wait.
///
/// The loop does not return while the manager has tasks. Clones share the manager.
///
/// # Examples
/// ```
/// use sinew::manager::{EventLoop, FiberManager, Options, ReactorLoopController};
///
/// let controller = ReactorLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// manager.add_task(|| println!("in a fiber"));
/// let event_loop = EventLoop::new()?;
/// controller.attach_loop(&event_loop);
/// event_loop.run();
/// assert!(!manager.has_tasks());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct ReactorLoopController {
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    runner: OnceCell<Runner>,
    event_loop: RefCell<Weak<LoopInner>>,
    /// Whether the manager had something to run while there was no loop.
    awaiting: Cell<bool>,
    until: Cell<Until>,
    busy: Cell<bool>,
    keep: RefCell<Option<KeepAlive>>,
    remote: Arc<Mutex<Remote>>,
}

/// The loop, for other threads.
#[derive(Default)]
struct Remote {
    event_loop: Option<LoopRemote>,
    awaiting: bool,
}

impl ReactorLoopController {
    /// Makes a controller without a loop.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, ReactorLoopController};
    ///
    /// let manager = FiberManager::new(ReactorLoopController::new(), Options::new())?;
    /// manager.add_task(|| ()); // waits for a loop
    /// assert!(manager.has_tasks());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> ReactorLoopController {
        ReactorLoopController::default()
    }

    /// Makes a controller that is attached to `event_loop`.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{EventLoop, FiberManager, Options, ReactorLoopController};
    ///
    /// let event_loop = EventLoop::new()?;
    /// let manager = FiberManager::new(ReactorLoopController::on(&event_loop), Options::new())?;
    /// manager.add_task(|| ());
    /// event_loop.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on(event_loop: &EventLoop) -> ReactorLoopController {
        let controller = ReactorLoopController::new();
        controller.attach_loop(event_loop);
        controller
    }

    /// Attaches the controller to `event_loop`, which runs the manager from here on.
    ///
    /// # Panics
    /// If the controller is attached to a loop already.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{EventLoop, FiberManager, Options, ReactorLoopController};
    ///
    /// let controller = ReactorLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task(|| ());
    /// let event_loop = EventLoop::new()?;
    /// controller.attach_loop(&event_loop);
    /// event_loop.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn attach_loop(&self, event_loop: &EventLoop) {
        let inner = &*self.inner;
        assert!(
            inner.event_loop.borrow().strong_count() == 0,
            "the controller is attached to a loop already; a manager runs in one loop"
        );
        *inner.event_loop.borrow_mut() = Rc::downgrade(&event_loop.inner);
        let mut remote = inner.remote.lock().unwrap_or_else(PoisonError::into_inner);
        remote.event_loop = Some(event_loop.remote());
        let awaiting = std::mem::take(&mut remote.awaiting) | inner.awaiting.take();
        drop(remote);
        if let Some(runner) = inner.runner.get() {
            self.idle(inner.until.get());
            self.keep_alive(inner.busy.get());
            // An earlier loop may have been dropped together with the request to run the manager.
            if awaiting || runner.is_scheduled() {
                event_loop.inner.run_manager(runner.clone());
            }
        }
    }
}

impl LoopController for ReactorLoopController {
    #[track_caller]
    fn attach(&self, runner: Runner) {
        let set = self.inner.runner.set(runner);
        assert!(set.is_ok(), "this ReactorLoopController already has a manager; it runs only one");
    }

    fn schedule(&self) {
        let event_loop = self.inner.event_loop.borrow().upgrade();
        match (event_loop, self.inner.runner.get()) {
            (Some(event_loop), Some(runner)) => event_loop.run_manager(runner.clone()),
            _ => self.inner.awaiting.set(true),
        }
    }

    fn remote(&self) -> Arc<dyn Fn() + Send + Sync> {
        let remote = self.inner.remote.clone();
        let runner = self.inner.runner.get().expect("the manager has attached its controller");
        let posted = runner.posted();
        Arc::new(move || {
            let mut remote = remote.lock().unwrap_or_else(PoisonError::into_inner);
            let event_loop = remote.event_loop.as_ref();
            // Without a loop, the next loop that is attached runs the manager.
            let told = event_loop.is_some_and(|event_loop| event_loop.run_in_loop(posted.clone()));
            remote.awaiting |= !told;
        })
    }

    fn idle(&self, until: Until) {
        let inner = &*self.inner;
        inner.until.set(until);
        if let (Some(event_loop), Some(runner)) =
            (inner.event_loop.borrow().upgrade(), inner.runner.get())
        {
            let idles = (until != Until::default()).then(|| (until, runner.clone()));
            event_loop.set_idle(runner.number(), idles);
        }
    }

    fn keep_alive(&self, busy: bool) {
        let inner = &*self.inner;
        inner.busy.set(busy);
        let event_loop = inner.event_loop.borrow().upgrade();
        let keep = event_loop.filter(|_| busy).map(|event_loop| KeepAlive::new(&event_loop));
        let before = inner.keep.replace(keep);
        drop(before);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (Some(event_loop), Some(runner)) =
            (self.event_loop.borrow().upgrade(), self.runner.get())
        {
            event_loop.set_idle(runner.number(), None);
        }
    }
}

impl std::fmt::Debug for ReactorLoopController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let attached = self.inner.event_loop.borrow().strong_count() > 0;
        f.debug_struct("ReactorLoopController")
            .field("is_attached", &attached)
            .finish_non_exhaustive()
    }
}
