//! An event loop for threads that have none: callbacks, timers, and managers.

use super::Until;
use super::controller::Runner;
use crate::carrier::bell::{Bell, poll};
use crate::primitive::{AtomicBool, AtomicU64, Ordering};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A single-threaded loop that calls closures, at once or after a delay, and runs managers.
///
/// [`manager_for`](super::manager_for) makes a manager in the loop, and so does a
/// [`ReactorLoopController`](super::ReactorLoopController). While nothing is ready, the loop sleeps
/// until a fiber's deadline passes or a descriptor that a fiber waits for has an event.
///
/// # Examples
/// ```
/// use sinew::manager::{EventLoop, manager_for};
/// use std::time::Duration;
///
/// let event_loop = EventLoop::new()?;
/// event_loop.run_in_loop(|| println!("a callback"));
/// manager_for(&event_loop).add_task(|| sinew::sleep(Duration::from_millis(1)));
/// event_loop.run(); // until nothing is left to do
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// The loop stays on its thread:
/// ```compile_fail,E0277
/// let event_loop = sinew::manager::EventLoop::new().unwrap();
/// std::thread::spawn(move || event_loop.run());
/// ```
pub struct EventLoop {
    pub(super) inner: Rc<Inner>,
}

type Callback = Box<dyn FnOnce()>;
type RemoteCallback = Box<dyn FnOnce() + Send>;

pub(super) struct Inner {
    shared: Arc<Shared>,
    callbacks: RefCell<VecDeque<Callback>>,
    /// Managers to which callbacks of this turn gave tasks. They run at the end of the turn.
    this_turn: RefCell<VecDeque<Runner>>,
    /// Whether the loop is in a callback.
    in_callback: Cell<bool>,
    timers: RefCell<BTreeMap<(Instant, u64), Callback>>,
    timer_numbers: Cell<u64>,
    /// The managers that wait for a deadline or a descriptor, by number.
    idle_managers: RefCell<BTreeMap<u64, (Until, Runner)>>,
    kept: Cell<usize>,
    on_destruction: RefCell<Vec<Callback>>,
}

/// The part of a loop that other threads share.
struct Shared {
    number: u64,
    bell: Bell,
    /// Whether other threads have to ring the bell. The loop sets it before it sleeps.
    asleep: AtomicBool,
    callbacks: Mutex<Option<Vec<RemoteCallback>>>,
    terminated: AtomicBool,
}

static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl EventLoop {
    /// Makes a loop that belongs to this thread.
    ///
    /// # Errors
    /// If the system has no descriptor for the bell that wakes the loop.
    ///
    /// # Examples
    /// ```
    /// let event_loop = sinew::manager::EventLoop::new()?;
    /// event_loop.run(); // nothing to do
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> io::Result<EventLoop> {
        let shared = Shared {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            bell: Bell::new()?,
            asleep: AtomicBool::new(false),
            callbacks: Mutex::new(Some(Vec::new())),
            terminated: AtomicBool::new(false),
        };
        Ok(EventLoop {
            inner: Rc::new(Inner {
                shared: Arc::new(shared),
                callbacks: RefCell::default(),
                this_turn: RefCell::default(),
                in_callback: Cell::new(false),
                timers: RefCell::default(),
                timer_numbers: Cell::new(0),
                idle_managers: RefCell::default(),
                kept: Cell::new(0),
                on_destruction: RefCell::default(),
            }),
        })
    }

    /// Runs until there is no callback, no timer, no manager with tasks and no [`KeepAlive`], or
    /// until the loop is [terminated](Self::terminate).
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    ///
    /// let event_loop = EventLoop::new()?;
    /// event_loop.run_in_loop(|| println!("once"));
    /// event_loop.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run(&self) {
        while !self.take_terminated() && self.inner.is_kept() {
            self.inner.turn(true);
        }
    }

    /// Runs until the loop is [terminated](Self::terminate), even if there is nothing to do.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    ///
    /// let event_loop = EventLoop::new()?;
    /// let remote = event_loop.remote();
    /// let thread = std::thread::spawn(move || remote.terminate());
    /// event_loop.run_forever();
    /// thread.join().unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run_forever(&self) {
        while !self.take_terminated() {
            self.inner.turn(true);
        }
    }

    /// Runs one turn without sleeping. Returns whether [`run`](Self::run) would go on: whether
    /// there is a callback, a timer, a manager with tasks or a [`KeepAlive`].
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    ///
    /// let event_loop = EventLoop::new()?;
    /// event_loop.run_in_loop(|| ());
    /// assert!(!event_loop.run_once());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run_once(&self) -> bool {
        self.inner.turn(false);
        self.inner.is_kept()
    }

    /// Makes [`run`](Self::run) or [`run_forever`](Self::run_forever) return after the present
    /// turn. If neither is running, the next call returns at once.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    ///
    /// let event_loop = EventLoop::new()?;
    /// event_loop.terminate();
    /// event_loop.run_forever();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn terminate(&self) {
        self.inner.shared.terminated.store(true, Ordering::Relaxed);
    }

    fn take_terminated(&self) -> bool {
        self.inner.shared.terminated.swap(false, Ordering::Relaxed)
    }

    /// Queues `f` for the loop. If a callback queues it, `f` runs in the next turn. Tasks that `f`
    /// adds to managers of the loop run in the turn that calls `f`.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    ///
    /// let event_loop = EventLoop::new()?;
    /// event_loop.run_in_loop(|| println!("in the loop"));
    /// event_loop.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run_in_loop(&self, f: impl FnOnce() + 'static) {
        self.inner.run_in_loop(Box::new(f));
    }

    /// Makes the loop call `f` when `delay` has passed.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    /// use std::time::Duration;
    ///
    /// let event_loop = EventLoop::new()?;
    /// event_loop.run_after(Duration::from_millis(1), || println!("later"));
    /// event_loop.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run_after(&self, delay: Duration, f: impl FnOnce() + 'static) {
        let inner = &self.inner;
        let number = inner.timer_numbers.replace(inner.timer_numbers.get() + 1);
        let now = Instant::now();
        let at = now.checked_add(delay).unwrap_or(now + A_YEAR);
        inner.timers.borrow_mut().insert((at, number), Box::new(f));
    }

    /// Registers `f`, to be called when the loop is dropped. The function that was registered last
    /// is called first.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    ///
    /// let event_loop = EventLoop::new()?;
    /// event_loop.on_destruction(|| println!("gone"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_destruction(&self, f: impl FnOnce() + 'static) {
        self.inner.on_destruction.borrow_mut().push(Box::new(f));
    }

    /// Returns a guard that keeps [`run`](Self::run) from returning until the guard is dropped.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    ///
    /// let event_loop = EventLoop::new()?;
    /// let keep = event_loop.keep_alive();
    /// event_loop.run_in_loop(move || drop(keep));
    /// event_loop.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn keep_alive(&self) -> KeepAlive {
        KeepAlive::new(&self.inner)
    }

    /// Returns a handle for other threads.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    ///
    /// let event_loop = EventLoop::new()?;
    /// let remote = event_loop.remote();
    /// std::thread::spawn(move || remote.run_in_loop(|| println!("in the loop"))).join().unwrap();
    /// event_loop.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn remote(&self) -> LoopRemote {
        LoopRemote { shared: self.inner.shared.clone() }
    }

    /// Returns the unique number of the loop.
    pub(super) fn number(&self) -> u64 {
        self.inner.shared.number
    }
}

const A_YEAR: Duration = Duration::from_secs(365 * 86_400);

impl Inner {
    pub(super) fn run_in_loop(&self, f: Callback) {
        self.callbacks.borrow_mut().push_back(f);
    }

    /// Queues a manager: for the end of this turn if a callback of this turn asks for it, and
    /// otherwise for the next turn. So a task that a callback adds runs in the turn of the
    /// callback. Managers that wake each other, or whose fibers yield, do not keep the loop from
    /// its timers and descriptors.
    pub(super) fn run_manager(&self, runner: Runner) {
        if self.in_callback.get() && !runner.is_running() {
            self.this_turn.borrow_mut().push_back(runner);
        } else {
            self.run_in_loop(Box::new(move || {
                runner.run();
            }));
        }
    }

    /// Notes the events that a manager waits for; `None` if it waits for none, or has ended.
    pub(super) fn set_idle(&self, number: u64, until: Option<(Until, Runner)>) {
        let before = match until {
            Some(until) => self.idle_managers.borrow_mut().insert(number, until),
            None => self.idle_managers.borrow_mut().remove(&number),
        };
        drop(before);
    }

    fn is_kept(&self) -> bool {
        self.kept.get() > 0
            || !self.callbacks.borrow().is_empty()
            || !self.this_turn.borrow().is_empty()
            || !self.timers.borrow().is_empty()
            || self.shared.has_callbacks()
    }

    /// Runs one turn. If there is nothing to do and `sleeps` is set, sleeps first until there is
    /// something to do.
    fn turn(&self, sleeps: bool) {
        self.take_remote();
        // If a panic has ended an earlier turn early, the remaining managers of that turn run in
        // this one.
        let idle = self.callbacks.borrow().is_empty() && self.this_turn.borrow().is_empty();
        if idle || !self.idle_managers.borrow().is_empty() {
            self.watch(sleeps && idle);
            self.take_remote();
        }
        self.run_timers();
        // Callbacks that are added from here on run in the next turn.
        let count = self.callbacks.borrow().len();
        for _ in 0..count {
            let callback = self.callbacks.borrow_mut().pop_front();
            if let Some(callback) = callback {
                self.call(callback);
            }
        }
        // Managers run outside of callbacks, so their requests are for the next turn, and this loop
        // ends.
        loop {
            let runner = self.this_turn.borrow_mut().pop_front();
            match runner {
                Some(runner) => _ = runner.run(),
                None => break,
            }
        }
    }

    /// Calls a callback; tasks that it adds run in this turn. A panic of the callback ends the
    /// turn.
    fn call(&self, callback: Callback) {
        struct InCallback<'a>(&'a Cell<bool>, bool);
        impl Drop for InCallback<'_> {
            fn drop(&mut self) {
                self.0.set(self.1);
            }
        }
        // A callback may run the loop, so the mark is restored, not cleared.
        let _inside = InCallback(&self.in_callback, self.in_callback.replace(true));
        callback();
    }

    fn take_remote(&self) {
        for callback in self.shared.take() {
            self.run_in_loop(callback);
        }
    }

    fn run_timers(&self) {
        let now = Instant::now();
        loop {
            let mut timers = self.timers.borrow_mut();
            let due = match timers.first_entry() {
                Some(first) if first.key().0 <= now => first.remove(),
                _ => return,
            };
            drop(timers);
            due();
        }
    }

    /// Waits for the events of managers, for timers, and for other threads. Then runs the managers
    /// that had an event.
    fn watch(&self, sleeps: bool) {
        self.idle_managers.borrow_mut().retain(|_, (_, runner)| !runner.is_gone());
        let mut fds = vec![polled(self.shared.bell.as_fd().as_raw_fd())];
        let mut watching = Vec::new();
        let mut earliest = self.timers.borrow().keys().next().map(|(at, _)| *at);
        for (number, (until, _)) in &*self.idle_managers.borrow() {
            earliest = earliest.into_iter().chain(until.deadline).min();
            if let Some(fd) = until.fd {
                fds.push(polled(fd));
                watching.push(*number);
            }
        }
        let left = earliest.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = if sleeps { left } else { Some(Duration::ZERO) };
        if sleeps || fds.len() > 1 {
            self.shared.sleep(|may| {
                poll(&mut fds, if may { timeout } else { Some(Duration::ZERO) });
            });
        }
        let now = Instant::now();
        let ready = |number: &u64| {
            let at = watching.iter().position(|watched| watched == number);
            at.is_some_and(|at| fds[at + 1].revents != 0)
        };
        let due: Vec<Runner> = self
            .idle_managers
            .borrow()
            .iter()
            .filter(|(number, (until, _))| {
                ready(number) || until.deadline.is_some_and(|deadline| deadline <= now)
            })
            .map(|(_, (_, runner))| runner.clone())
            .collect();
        for runner in due {
            runner.run();
        }
    }
}

impl Shared {
    fn take(&self) -> Vec<RemoteCallback> {
        let mut callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        callbacks.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn has_callbacks(&self) -> bool {
        let callbacks = self.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        callbacks.as_ref().is_some_and(|callbacks| !callbacks.is_empty())
    }

    /// Calls `poll`, and tells it whether it may sleep. It may sleep only if there is nothing to
    /// do.
    fn sleep(&self, poll: impl FnOnce(bool)) {
        // ORDERING: SeqCst; pairs with the swap in `ring`. Either the look below sees the callback
        // or the termination, or the thread that made the change sees that the loop sleeps, and
        // rings.
        self.asleep.store(true, Ordering::SeqCst);
        let may = !self.has_callbacks() && !self.terminated.load(Ordering::SeqCst);
        poll(may);
        self.asleep.store(false, Ordering::SeqCst);
        self.bell.clear();
    }

    fn ring(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.bell.ring();
        }
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        loop {
            // A callback may register another one.
            let callback = self.inner.on_destruction.borrow_mut().pop();
            match callback {
                Some(callback) => callback(),
                None => break,
            }
        }
        let shared = &self.inner.shared;
        let left = shared.callbacks.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(left);
        let callbacks = self.inner.callbacks.take();
        let timers = self.inner.timers.take();
        let managers = self.inner.this_turn.take();
        drop((callbacks, timers, managers));
    }
}

impl std::fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLoop").field("number", &self.number()).finish_non_exhaustive()
    }
}

/// Keeps [`EventLoop::run`] from returning; see [`EventLoop::keep_alive`].
///
/// # Examples
/// ```
/// use sinew::manager::EventLoop;
///
/// let event_loop = EventLoop::new()?;
/// let guard = event_loop.keep_alive(); // another thread will send an answer to the loop
/// assert!(event_loop.run_once()); // `run` would wait for it
/// drop(guard);
/// assert!(!event_loop.run_once());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct KeepAlive {
    inner: Weak<Inner>,
}

impl KeepAlive {
    pub(super) fn new(inner: &Rc<Inner>) -> KeepAlive {
        inner.kept.set(inner.kept.get() + 1);
        KeepAlive { inner: Rc::downgrade(inner) }
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.kept.set(inner.kept.get() - 1);
        }
    }
}

impl std::fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeepAlive").finish_non_exhaustive()
    }
}

/// A handle by which other threads use an [`EventLoop`]; see [`EventLoop::remote`].
///
/// # Examples
/// ```
/// use sinew::manager::EventLoop;
///
/// let event_loop = EventLoop::new()?;
/// let remote = event_loop.remote();
/// let worker = std::thread::spawn(move || {
///     let to_stop = remote.clone();
///     remote.run_in_loop(move || to_stop.terminate())
/// });
/// event_loop.run_forever(); // until the worker's callback ends it
/// assert!(worker.join().unwrap());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct LoopRemote {
    shared: Arc<Shared>,
}

impl LoopRemote {
    /// Makes the loop call `f` on its thread. If the loop was dropped, drops `f` and returns false.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    ///
    /// let event_loop = EventLoop::new()?;
    /// let remote = event_loop.remote();
    /// std::thread::spawn(move || remote.run_in_loop(|| println!("on the loop's thread"))).join().unwrap();
    /// event_loop.run();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn run_in_loop(&self, f: impl FnOnce() + Send + 'static) -> bool {
        let mut callbacks = self.shared.callbacks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(callbacks_there) = callbacks.as_mut() else {
            drop(callbacks);
            return false;
        };
        callbacks_there.push(Box::new(f));
        drop(callbacks);
        self.shared.ring();
        true
    }

    /// Makes the loop return; see [`EventLoop::terminate`].
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::EventLoop;
    ///
    /// let event_loop = EventLoop::new()?;
    /// event_loop.remote().terminate();
    /// event_loop.run_forever();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn terminate(&self) {
        self.shared.terminated.store(true, Ordering::SeqCst);
        self.shared.ring();
    }

    pub(super) fn number(&self) -> u64 {
        self.shared.number
    }
}

impl std::fmt::Debug for LoopRemote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoopRemote").field("number", &self.number()).finish_non_exhaustive()
    }
}

fn polled(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}
