//! What a manager tells of its fibers, tasks and stacks, and of when it has to run next.

use super::ManagerHandle;
use crate::fiber::{Control, Fiber};
use std::os::fd::RawFd;
use std::time::Instant;

impl ManagerHandle {
    /// Returns whether a fiber of this manager runs; false on the main context.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// assert!(!manager.has_active_fiber());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_active_fiber(&self) -> bool {
        self.look(false, |core| core.is_inside())
    }

    /// Returns the running fiber of this manager; `None` on the main context.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, ManagerHandle, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// assert!(manager.active_fiber().is_none());
    /// manager.add_task(|| {
    ///     let manager = ManagerHandle::current().unwrap();
    ///     assert_eq!(manager.active_fiber(), Some(sinew::current()));
    /// });
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn active_fiber(&self) -> Option<Fiber> {
        self.look(None, |core| core.is_inside().then(|| fiber(core.carrier.current())))
    }

    /// Returns the fiber of this manager that runs, or for which the main context runs a call.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, ManagerHandle, Options, SimpleLoopController};
    ///
    /// let controller = SimpleLoopController::new();
    /// let manager = FiberManager::new(controller.clone(), Options::new())?;
    /// manager.add_task(|| {
    ///     let manager = ManagerHandle::current().unwrap();
    ///     let me = sinew::current();
    ///     sinew::manager::run_in_main_context(|| {
    ///         assert_eq!(manager.active_fiber(), None);
    ///         assert_eq!(manager.current_fiber(), Some(me));
    ///     });
    /// });
    /// controller.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn current_fiber(&self) -> Option<Fiber> {
        self.look(None, |core| {
            if core.is_inside() {
                return Some(fiber(core.carrier.current()));
            }
            let lender = core.carrier.lender();
            (!lender.is_null()).then(|| fiber(lender))
        })
    }

    /// Returns whether there are tasks that have not ended, ready or not.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| ());
    /// assert!(manager.has_tasks());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_tasks(&self) -> bool {
        self.look(false, |core| core.has_tasks())
    }

    /// Returns whether there are tasks that could run now.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(sinew::park);
    /// assert!(manager.has_ready_tasks());
    /// manager.loop_until_no_ready();
    /// assert!(manager.has_tasks() && !manager.has_ready_tasks());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn has_ready_tasks(&self) -> bool {
        self.look(false, |core| core.carrier.queued() > 0 || core.carrier.is_due())
    }

    /// Returns how many tasks have not ended.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| ());
    /// assert_eq!(manager.active_tasks(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn active_tasks(&self) -> usize {
        self.look(0, |core| core.live())
    }

    /// Returns how many stacks exist: the stacks of fibers that have started, and the stacks that
    /// are kept for later fibers.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| ());
    /// assert_eq!(manager.fibers_allocated(), 0); // it has not started
    /// manager.loop_until_no_ready();
    /// assert_eq!((manager.fibers_allocated(), manager.fibers_pool_size()), (1, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fibers_allocated(&self) -> usize {
        self.look(0, |core| core.crew.stacks_in_use())
    }

    /// Returns how many stacks are kept for later fibers.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// assert_eq!(manager.fibers_pool_size(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fibers_pool_size(&self) -> usize {
        self.look(0, |core| core.carrier.pooled())
    }

    /// Returns how many fibers are ready to run, including fibers that have yielded.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| ());
    /// manager.add_task(|| ());
    /// assert_eq!(manager.run_queue_size(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run_queue_size(&self) -> usize {
        self.look(0, |core| core.carrier.queued())
    }

    /// Returns the most bytes of stack that a measured task has used; see
    /// [`Options::record_stack_every`](super::Options::record_stack_every).
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new().record_stack_every(1))?;
    /// manager.add_task(|| ());
    /// manager.loop_until_no_ready();
    /// assert!(manager.stack_high_water_mark() > 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_high_water_mark(&self) -> usize {
        self.look(0, |core| core.high_water.get())
    }

    /// Returns when the loop should run the manager again even if nothing else happens before: the
    /// next deadline of a fiber, or the next resize of the pool of stacks.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// manager.add_task(|| sinew::sleep(std::time::Duration::from_secs(1)));
    /// manager.loop_until_no_ready();
    /// assert!(manager.next_deadline().is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn next_deadline(&self) -> Option<Instant> {
        self.look(None, |core| core.next_deadline())
    }

    /// Returns one descriptor that stands for all descriptors that fibers wait for: it is readable
    /// when any of those has an event. Your own loop watches it, and then calls
    /// [`loop_until_no_ready`](Self::loop_until_no_ready).
    ///
    /// The descriptor does not change while the manager lives. `None` if the backend has none.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{FiberManager, Options, SimpleLoopController};
    ///
    /// let manager = FiberManager::new(SimpleLoopController::new(), Options::new())?;
    /// assert!(manager.fd().is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fd(&self) -> Option<RawFd> {
        self.look(None, |core| core.fd())
    }
}

/// Makes a handle to a fiber of this thread that has not ended.
fn fiber(control: *const Control) -> Fiber {
    // SAFETY: the fiber runs on this thread, or waits for a call that does, so its block is
    // occupied.
    Fiber::new(unsafe { &*control })
}
