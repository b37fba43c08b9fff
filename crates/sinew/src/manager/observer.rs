//! Observers of the fibers of a manager.

use super::core::Core;
use crate::carrier::embed::Moment;
use crate::fiber::FiberId;
use crate::park;
use std::rc::Rc;

/// Receives calls when fibers of a manager start, stop, and become ready to run; see
/// [`add_observer`](super::ManagerHandle::add_observer).
///
/// The manager calls it between two fibers, on its own thread. The methods must not wait, and
/// should be short. A panic in one of them is reported, and has no other effect.
///
/// # Examples
/// ```
/// use sinew::FiberId;
/// use sinew::manager::{FiberManager, Observer, Options, SimpleLoopController};
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// #[derive(Default)]
/// struct Starts(Cell<u32>);
/// impl Observer for Starts {
///     fn starting(&self, _: FiberId) {
///         self.0.set(self.0.get() + 1);
///     }
/// }
///
/// let starts = Rc::new(Starts::default());
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new().observer(starts.clone()))?;
/// manager.add_task(sinew::yield_now);
/// controller.run();
/// assert_eq!(starts.0.get(), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Observer {
    /// Called when the fiber is about to run, for the first time or again.
    ///
    /// # Examples
    /// ```
    /// # use sinew::FiberId;
    /// # use sinew::manager::{FiberManager, Observer, Options, SimpleLoopController};
    /// # use std::cell::RefCell;
    /// # use std::rc::Rc;
    /// #[derive(Default)]
    /// struct Order(RefCell<Vec<FiberId>>);
    /// impl Observer for Order {
    ///     fn starting(&self, fiber: FiberId) {
    ///         self.0.borrow_mut().push(fiber);
    ///     }
    /// }
    ///
    /// # let controller = SimpleLoopController::new();
    /// let order = Rc::new(Order::default());
    /// let options = Options::new().observer(order.clone());
    /// let manager = FiberManager::new(controller.clone(), options)?;
    /// manager.add_task(sinew::yield_now);
    /// manager.add_task(|| ());
    /// controller.run();
    /// let order = order.0.borrow();
    /// assert_eq!(order.len(), 3);
    /// assert_eq!(order[0], order[2]); // the first fiber has run again after the second
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn starting(&self, fiber: FiberId) {
        let _ = fiber;
    }

    /// Called when the fiber has become ready to run, after it waited or yielded.
    ///
    /// # Examples
    /// ```
    /// # use sinew::FiberId;
    /// # use sinew::manager::{FiberManager, Observer, Options, SimpleLoopController};
    /// # use std::cell::Cell;
    /// # use std::rc::Rc;
    /// # use std::time::Duration;
    /// #[derive(Default)]
    /// struct Wakes(Cell<u32>);
    /// impl Observer for Wakes {
    ///     fn runnable(&self, _: FiberId) {
    ///         self.0.set(self.0.get() + 1);
    ///     }
    /// }
    ///
    /// # let controller = SimpleLoopController::new();
    /// let wakes = Rc::new(Wakes::default());
    /// let options = Options::new().observer(wakes.clone());
    /// let manager = FiberManager::new(controller.clone(), options)?;
    /// manager.add_task(|| sinew::sleep(Duration::from_millis(1)));
    /// controller.run();
    /// assert_eq!(wakes.0.get(), 1); // at the end of the sleep, not when the task was added
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn runnable(&self, fiber: FiberId) {
        let _ = fiber;
    }

    /// Called when the fiber has stopped: to wait, to yield, for a call on the main context, or at
    /// its end.
    ///
    /// # Examples
    /// ```
    /// # use sinew::FiberId;
    /// # use sinew::manager::{FiberManager, Observer, Options, SimpleLoopController};
    /// # use std::cell::Cell;
    /// # use std::rc::Rc;
    /// # use std::time::{Duration, Instant};
    /// /// Notes the longest time for which a fiber kept the loop.
    /// struct Longest(Cell<Instant>, Cell<Duration>);
    /// impl Observer for Longest {
    ///     fn starting(&self, _: FiberId) {
    ///         self.0.set(Instant::now());
    ///     }
    ///     fn stopped(&self, _: FiberId) {
    ///         self.1.set(self.1.get().max(self.0.get().elapsed()));
    ///     }
    /// }
    ///
    /// # let controller = SimpleLoopController::new();
    /// let longest = Rc::new(Longest(Cell::new(Instant::now()), Cell::default()));
    /// let options = Options::new().observer(longest.clone());
    /// let manager = FiberManager::new(controller.clone(), options)?;
    /// manager.add_task(|| std::thread::sleep(Duration::from_millis(2))); // keeps the loop
    /// controller.run();
    /// assert!(longest.1.get() >= Duration::from_millis(2));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn stopped(&self, fiber: FiberId) {
        let _ = fiber;
    }
}

impl Core {
    pub(super) fn add_observer(self: &Rc<Self>, observer: Rc<dyn Observer>) {
        self.observers.borrow_mut().push(observer);
        self.heed_observers();
    }

    pub(super) fn remove_observer(self: &Rc<Self>, observer: &Rc<dyn Observer>) {
        let mut observers = self.observers.borrow_mut();
        let position = observers.iter().position(|other| Rc::ptr_eq(other, observer));
        let removed = position.map(|position| observers.remove(position));
        drop(observers);
        self.heed_observers();
        drop(removed);
    }

    /// Makes the carrier call the present observers; switches the calls off if there are none.
    pub(super) fn heed_observers(self: &Rc<Self>) {
        let any = !self.observers.borrow().is_empty();
        let core = Rc::downgrade(self);
        let watcher = move |moment, fiber| {
            let observers = core.upgrade().map(|core| core.observers.borrow().clone());
            let fiber = FiberId::new(fiber);
            park::without_waiting(|| {
                for observer in observers.into_iter().flatten() {
                    match moment {
                        Moment::Starting => observer.starting(fiber),
                        Moment::Runnable => observer.runnable(fiber),
                        Moment::Stopped => observer.stopped(fiber),
                    }
                }
            });
        };
        self.carrier.watch(if any { Some(Rc::new(watcher)) } else { None });
        self.crew.observers.set_watched(any);
        self.crew.tell_observed();
    }
}
