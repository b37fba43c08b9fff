//! The inside of a manager: its carrier, its controller, and the calls between them.
//!
//! `README.md` of this module has the protocol by which the controller learns of work, and the
//! proof that no wake is lost.

use super::options::{Options, PanicCallback};
use super::{LoopController, Observer, Runner, Until};
use crate::carrier::crew::{Crew, Phase, Settings};
use crate::carrier::embed::on_root::on_large_stack;
use crate::carrier::embed::tenants;
use crate::carrier::{Owner, current};
use crate::clock;
use crate::fiber::Flags;
use crate::primitive::{AtomicBool, Ordering, SpinLock};
use crate::reactor::Reactor;
use crate::report;
use crate::runtime::environment;
use core::any::Any;
use core::cell::{Cell, OnceCell, RefCell};
use core::time::Duration;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::thread::ThreadId;

/// The part of a manager that other threads share.
pub(super) struct Shared {
    pub(super) crew: Arc<Crew>,
    /// Whether the controller was told that there is something to do, and has not run the manager
    /// since.
    pub(super) scheduled: AtomicBool,
    /// True until the manager is dropped.
    pub(super) open: AtomicBool,
    pub(super) thread: ThreadId,
    /// The controller's remote hook. Taken out when the manager ends, because it may hold a
    /// reference to this `Shared`.
    remote: SpinLock<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl Shared {
    /// Tells the controller that there is something to do, unless it was told already.
    pub(super) fn schedule(&self) {
        // ORDERING: AcqRel; pairs with the swap in `Core::run`. A caller that finds the flag set
        // has queued its work before the run that clears the flag looks for work.
        if self.open.load(Ordering::Acquire) && !self.scheduled.swap(true, Ordering::AcqRel) {
            let remote = self.remote.lock().clone();
            if let Some(remote) = remote {
                remote();
            }
        }
    }

    /// Panics if this is not the manager's thread.
    #[track_caller]
    pub(super) fn check_thread(&self) {
        let here = std::thread::current().id();
        assert!(
            self.thread == here,
            "the manager \"{}\" belongs to {:?}, but {here:?} was to run it; use a loop or \
             an executor that calls everything on the thread that made the manager",
            self.crew.settings.name,
            self.thread
        );
    }
}

/// How far the end of a manager has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Open,
    /// The manager was dropped while it ran, and ends when the outermost run has returned.
    Wanted,
    Begun,
    /// No fiber is left. The last reference to the core gives the carrier back.
    Done,
    /// Some fibers did not end in time. The manager, its carrier and their stacks are leaked.
    Abandoned,
}

/// The inside of a manager. It belongs to the manager's thread.
pub(super) struct Core {
    pub(super) carrier: &'static Owner,
    pub(super) crew: Arc<Crew>,
    pub(super) shared: Arc<Shared>,
    pub(super) options: Options,
    controller: OnceCell<Box<dyn LoopController>>,
    pub(super) observers: RefCell<Vec<Rc<dyn Observer>>>,
    pub(super) panic_callback: RefCell<Option<Rc<PanicCallback>>>,
    /// How many tasks have to begin until the stack of a task is measured.
    pub(super) until_record: Cell<usize>,
    pub(super) high_water: Cell<usize>,
    end: Cell<End>,
    /// The `Until` that the controller was told last.
    until: Cell<Until>,
    busy: Cell<bool>,
    /// How many times `sleep` looks into the inbox before it sleeps.
    looks: Cell<u32>,
    /// Whether the controller called while the manager was running.
    again: Cell<bool>,
    /// Whether `run` is in progress.
    pub(super) running: Cell<bool>,
    /// When the pool was last resized.
    resized: Cell<u64>,
}

impl Core {
    pub(super) fn new(
        controller: Box<dyn LoopController>,
        options: Options,
    ) -> io::Result<Rc<Core>> {
        let name = options.name.clone().unwrap_or_else(|| "manager".into());
        if name.contains('\0') {
            return Err(invalid(format!("the name {name:?} contains a zero byte")));
        }
        if options.pool_resize_period == Some(Duration::ZERO) {
            return Err(invalid(
                "pool_resize_period is zero; set a longer period, or no period at all".into(),
            ));
        }
        tenants::prepare()?;
        crate::runtime::install_hooks();
        let settings = Settings {
            name,
            pinned_wait: environment::pinned_wait(options.pinned_wait)?,
            idle_hook: None,
            stack_size: options.stack_size,
            max_stacks: None,
            guard_size: options.guard_pages.map(guard_size),
            max_warm: None,
            decay: None,
            dump_on_panic: false,
            embedded: true,
            measured: options.record_stack_every > 0 || options.log_running_time,
        };
        let backend = environment::backend()?;
        let crew = Crew::new(1, settings, |bell| Box::new(Reactor::of_loop(backend, bell)))?;
        // SAFETY: the crew is new, and only this manager, which stays on this thread, steps its
        // carrier.
        let carrier = unsafe { crew.carriers[0].adopt() };
        // The carrier's spare stack counts as one. With a resize period, the periodic resize limits
        // the pool instead.
        let most = match options.pool_resize_period {
            Some(_) => usize::MAX,
            None => options.max_pooled.saturating_sub(1),
        };
        carrier.begin_embedded(&crew, most);
        let shared = Arc::new(Shared {
            crew: crew.clone(),
            scheduled: AtomicBool::new(false),
            open: AtomicBool::new(true),
            thread: std::thread::current().id(),
            remote: SpinLock::new(None),
        });
        let core = Rc::new(Core {
            carrier,
            crew,
            shared: shared.clone(),
            controller: OnceCell::new(),
            observers: RefCell::new(options.observers.clone()),
            panic_callback: RefCell::new(options.panic_callback.clone()),
            until_record: Cell::new(options.record_stack_every),
            options,
            high_water: Cell::new(0),
            end: Cell::new(End::Open),
            until: Cell::new(Until::default()),
            busy: Cell::new(false),
            looks: Cell::new(MOST_LOOKS),
            again: Cell::new(false),
            running: Cell::new(false),
            resized: Cell::new(clock::now()),
        });
        let manager: Weak<dyn Any> = Rc::downgrade(&core) as Weak<dyn Any>;
        tenants::add(core.crew.number, manager.clone());
        core.carrier.embed(Arc::new(move || shared.schedule()), manager);
        // From here on the carrier is in use, and only `shut_down` may end it.
        let guard = EndUnlessForgotten(&core);
        controller.attach(Runner::new(&core));
        *core.shared.remote.lock() = Some(controller.remote());
        let _ = core.controller.set(controller);
        core::mem::forget(guard);
        // Tasks may have been added before there was a controller to tell. The adder found neither
        // a controller nor a remote hook, and left `scheduled` set.
        if core.shared.scheduled.swap(false, Ordering::AcqRel) || core.has_tasks() {
            core.settle(true);
        }
        if !core.observers.borrow().is_empty() {
            core.heed_observers();
        }
        Ok(core)
    }

    /// Returns the manager that runs on this thread, the innermost if several do.
    pub(super) fn current() -> Option<Rc<Core>> {
        let (carrier, _) = current::running()?;
        carrier.manager()?.upgrade()?.downcast::<Core>().ok()
    }

    /// Returns the manager with this number, if it belongs to this thread.
    pub(super) fn of_this_thread(number: u32) -> Option<Rc<Core>> {
        tenants::find(number)?.upgrade()?.downcast::<Core>().ok()
    }

    pub(super) fn is_open(&self) -> bool {
        self.end.get() == End::Open
    }

    /// Whether the manager has ended: nothing is left to look at or to run. A caller of the
    /// controller may still hold a reference, if the controller dropped the manager in that call.
    pub(super) fn has_ended(&self) -> bool {
        self.end.get() == End::Done
    }

    #[track_caller]
    pub(super) fn assert_open(&self) {
        assert!(
            !matches!(self.end.get(), End::Done | End::Abandoned),
            "cannot add a task to the manager \"{}\", which was dropped",
            self.crew.settings.name
        );
    }

    /// Whether a fiber of this manager runs; false on its main context and in a hook.
    pub(super) fn is_inside(&self) -> bool {
        // SAFETY: control blocks are never unmapped. The current block belongs to an ended fiber
        // only in a hook, and `is_aside` excludes hooks.
        !self.carrier.is_aside() && !unsafe { &*self.carrier.current() }.flags().has(Flags::ROOT)
    }

    /// Tells the controller that there is something to run, unless a step is in progress or the
    /// controller was told already.
    #[inline(always)]
    pub(super) fn schedule(&self) {
        if !self.carrier.is_stepping() && !self.shared.scheduled.load(Ordering::Relaxed) {
            self.schedule_now();
        }
    }

    #[cold]
    fn schedule_now(&self) {
        if self.is_open() && !self.shared.scheduled.swap(true, Ordering::AcqRel) {
            // Without a controller, `Core::new` is in progress, and looks at `scheduled` when it
            // has one.
            let Some(controller) = self.controller.get() else { return };
            let schedule = || {
                // There is something to run, so the manager has tasks.
                if !self.busy.replace(true) {
                    controller.keep_alive(true);
                }
                controller.schedule();
            };
            if current::carrier().is_null() {
                schedule();
            } else {
                current::as_plain_thread(schedule);
            }
        }
    }

    /// Runs the ready fibers, for a loop that may call while the manager is running already. In
    /// that case no fiber runs here, and the controller is told again when the outer run is over.
    pub(super) fn run_in_turn(&self) {
        if self.carrier.is_entered() {
            self.run_later();
        } else {
            self.run();
        }
    }

    /// Arranges that the controller is told again when the run in progress is over.
    fn run_later(&self) {
        self.again.set(true);
        self.shared.scheduled.store(false, Ordering::Release);
    }

    /// Runs ready fibers until none is left.
    #[track_caller]
    pub(super) fn run(&self) {
        if matches!(self.end.get(), End::Done | End::Abandoned) {
            return;
        }
        if self.carrier.is_entered() {
            // The controller may call only once each time it is told, so it has to be told again.
            self.run_later();
            panic!(
                "the loop of the manager \"{}\" was run inside of itself, {}",
                self.crew.settings.name,
                if self.carrier.is_aside() {
                    "in a hook"
                } else if self.is_inside() {
                    "by one of its fibers; let the fiber yield or wait instead"
                } else {
                    "on its main context; wait for other fibers in a fiber instead"
                }
            );
        }
        struct Running<'a>(&'a Cell<bool>);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        self.running.set(true);
        let _running = Running(&self.running);
        self.carrier.silence();
        // ORDERING: AcqRel; pairs with the swap in `Shared::schedule`. The step below sees the work
        // that was queued before the flag was set.
        self.shared.scheduled.swap(false, Ordering::AcqRel);
        let again = on_large_stack(|| self.carrier.step());
        self.settle(again);
    }

    /// Tells the controller, after fibers have run, when to run the manager again and whether it
    /// has tasks.
    pub(super) fn settle(&self, again: bool) {
        if self.carrier.is_entered() {
            return;
        }
        if self.end.get() == End::Wanted {
            self.shut_down(None);
        }
        let Some(controller) = self.controller.get().filter(|_| self.is_open()) else { return };
        self.resize_pool();
        if again | self.again.take() || self.carrier.is_due() {
            self.schedule_now();
        }
        // The controller may end the manager in any call to it.
        if !self.is_open() {
            return;
        }
        let mut until = Until { deadline: self.next_deadline(), fd: self.watched_fd() };
        if until.fd.is_none() && self.crew.drivers[0].is_active() {
            // No descriptor reports events, so the loop has to look for them from time to time.
            let look = std::time::Instant::now() + LOOK;
            until.deadline = Some(until.deadline.map_or(look, |deadline| deadline.min(look)));
        }
        if self.until.replace(until) != until || until != Until::default() {
            controller.idle(until);
        }
        if self.is_open() {
            self.keep_alive(&**controller);
        }
    }

    fn keep_alive(&self, controller: &dyn LoopController) {
        let busy = self.has_tasks();
        if self.busy.replace(busy) != busy {
            controller.keep_alive(busy);
        }
    }

    /// Returns how many tasks have not ended.
    pub(super) fn live(&self) -> usize {
        self.crew.live()
    }

    pub(super) fn has_tasks(&self) -> bool {
        !self.crew.is_empty()
    }

    /// Returns when the manager is to be run again if nothing else happens before.
    pub(super) fn next_deadline(&self) -> Option<std::time::Instant> {
        let mut next = self.carrier.next_deadline();
        if let Some(period) = self.options.pool_resize_period
            && self.carrier.pooled() > 0
        {
            next = next.min(clock::after(self.resized.get(), period));
        }
        clock::to_instant(next)
    }

    /// Returns the descriptor that the loop has to watch, if a fiber waits for one.
    fn watched_fd(&self) -> Option<RawFd> {
        self.crew.drivers[0].is_active().then(|| self.fd()).flatten()
    }

    /// Returns the descriptor that reports events for fibers, whether or not a fiber waits for one.
    pub(super) fn fd(&self) -> Option<RawFd> {
        let driver = &self.crew.drivers[0];
        driver.open();
        driver.as_fd().map(|fd| fd.as_raw_fd())
    }

    /// Sleeps until there may be something to do, at most for `timeout`.
    pub(super) fn sleep(&self, timeout: Option<Duration>) {
        if self.has_ended() {
            return;
        }
        let _inside = self.carrier.enter();
        let looks = self.looks.get();
        if looks > 0 && self.carrier.linger(looks) {
            return self.looks.set((looks * 2).min(MOST_LOOKS));
        }
        let before = clock::now();
        self.crew.drivers[0].wait(timeout);
        let short = clock::now() - before < SHORT_SLEEP && !self.carrier.shared().inbox.is_empty();
        let looks = if short { (looks * 2).max(FIRST_LOOKS) } else { looks / 2 };
        self.looks.set(looks.min(MOST_LOOKS));
    }

    /// Gives back stacks that were not needed during the last period.
    fn resize_pool(&self) {
        if self.options.max_pooled == 0 {
            self.carrier.drop_spare();
        }
        let Some(period) = self.options.pool_resize_period else { return };
        let now = clock::now();
        if clock::after(self.resized.get(), period) <= now {
            self.resized.set(now);
            self.carrier.drop_unneeded_stacks(self.options.max_pooled);
        }
    }

    /// Ends the manager: cancels all fibers, and runs them until they have ended. Returns whether
    /// all have ended, within `timeout` if there is one.
    ///
    /// If the manager is running, this only marks it, and returns false. The manager ends when the
    /// outermost run has returned.
    pub(super) fn shut_down(&self, timeout: Option<Duration>) -> bool {
        match self.end.get() {
            End::Open | End::Wanted => {}
            End::Begun => return false,
            End::Done => return true,
            End::Abandoned => return false,
        }
        self.shared.open.store(false, Ordering::Release);
        if self.carrier.is_entered() {
            self.end.set(End::Wanted);
            self.crew.advance(Phase::Closing);
            return false;
        }
        self.end.set(End::Begun);
        self.crew.advance(Phase::Closing);
        let deadline = timeout.map_or(clock::NEVER, |timeout| clock::after(clock::now(), timeout));
        let mut round = ROUND;
        loop {
            self.carrier.silence();
            crate::runtime::cancel_all(&self.crew);
            while self.carrier.step() {}
            if self.crew.is_empty() {
                break;
            }
            let now = clock::now();
            if deadline <= now {
                return self.abandon();
            }
            let until = deadline.min(self.carrier.next_deadline()).min(clock::after(now, round));
            self.sleep(clock::until(now, until));
            // A new fiber may have escaped `cancel_all`, so the next round comes even if nothing
            // happens.
            round = (round * 2).min(LAST_ROUND);
        }
        self.end.set(End::Done);
        self.tell_of_end();
        tenants::remove(self.crew.number);
        self.carrier.end_embedded(&self.crew);
        true
    }

    /// Tells the controller that there is nothing left to run.
    fn tell_of_end(&self) {
        let remote = self.shared.remote.lock().take();
        let told = report::contain(|| {
            drop(remote);
            if let Some(controller) = self.controller.get() {
                controller.idle(Until::default());
                if self.busy.replace(false) {
                    controller.keep_alive(false);
                }
            }
        });
        if told.is_none() {
            report::say(format_args!(
                "the controller of the manager \"{}\" panicked when the manager ended",
                self.crew.settings.name
            ));
        }
    }

    fn abandon(&self) -> bool {
        self.end.set(End::Abandoned);
        self.tell_of_end();
        // The remaining fibers may have lent data on their stacks, so nothing is given back.
        core::mem::forget(self.crew.clone());
        false
    }

    /// Hands the payload of a panic to the panic callback, or reports it if there is no callback.
    /// `place` says where the panic happened. A cancellation is dropped silently.
    #[cold]
    pub(super) fn panicked(&self, payload: Box<dyn Any + Send>, place: &str) {
        if crate::cancel::is_cancel(&*payload) {
            return;
        }
        let callback = self.panic_callback.borrow().clone();
        let called = callback
            .as_ref()
            .map(|callback| report::contain(|| callback(&*payload, place)).is_some());
        match called {
            Some(true) => {}
            Some(false) => report::say(format_args!(
                "the panic callback of the manager \"{}\" panicked",
                self.crew.settings.name
            )),
            None => report::say(format_args!(
                "the manager \"{}\" has caught a panic in {place}: {}",
                self.crew.settings.name,
                message(&*payload)
            )),
        }
        report::contain(|| drop(payload));
        drop(callback);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.has_ended() {
            // This was the last reference, so nothing reaches the carrier through the core. From
            // here on another crew may use the carrier.
            let _ = self.crew.thread_ended();
        }
    }
}

/// Ends the manager if its controller panics while `Core::new` attaches it.
struct EndUnlessForgotten<'a>(&'a Rc<Core>);

impl Drop for EndUnlessForgotten<'_> {
    fn drop(&mut self) {
        self.0.shut_down(None);
    }
}

/// The longest time until a loop notices an event, with a backend that has no descriptor to watch.
const LOOK: Duration = Duration::from_millis(5);

/// The most looks into the inbox before a sleep. They take some ten microseconds.
const MOST_LOOKS: u32 = 1024;
/// The fewest looks into the inbox after a short sleep.
const FIRST_LOOKS: u32 = 64;
/// A sleep of fewer nanoseconds than this costs more than the looks that would have avoided it.
const SHORT_SLEEP: u64 = 100_000;

/// The first and the longest pause between two rounds of `shut_down` that cancel fibers.
const ROUND: Duration = Duration::from_millis(5);
const LAST_ROUND: Duration = Duration::from_secs(1);

/// Returns the text of a panic's payload.
fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a payload that is not text")
}

fn guard_size(pages: usize) -> usize {
    const LEAST: usize = 64 * 1024;
    pages.saturating_mul(sinew_context::stack::page_size()).max(LEAST)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
