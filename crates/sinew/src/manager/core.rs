//! The inside of a manager: its carrier, its controller, and what they tell each other.

use super::options::{Options, PanicCallback};
use super::{LoopController, Observer, Rest, Runner};
use crate::carrier::crew::{Crew, Phase, Settings};
use crate::carrier::{Carrier, current, tenants};
use crate::clock;
use crate::fiber::Flags;
use crate::park;
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

/// What other threads may know of a manager.
pub(super) struct Shared {
    pub(super) crew: Arc<Crew>,
    /// Whether the controller has been told that there is something to do, and has not run since.
    pub(super) scheduled: AtomicBool,
    /// Until the manager is dropped.
    pub(super) open: AtomicBool,
    pub(super) thread: ThreadId,
    /// Taken out when the manager ends: it may lead back to this.
    remote: SpinLock<Option<Arc<dyn Fn() + Send + Sync>>>,
}

impl Shared {
    /// Tells the controller that there is something to do, unless it knows.
    pub(super) fn schedule(&self) {
        // ORDERING: AcqRel: whoever finds it set has put in its work before the run that clears it looks.
        if self.open.load(Ordering::Acquire) && !self.scheduled.swap(true, Ordering::AcqRel) {
            let remote = self.remote.lock().clone();
            if let Some(remote) = remote {
                remote();
            }
        }
    }

    /// Says whose thread this is, if it is not the manager's.
    #[track_caller]
    pub(super) fn check_thread(&self) {
        let here = std::thread::current().id();
        assert!(
            self.thread == here,
            "the manager \"{}\" belongs to {:?}, and was to be run on {here:?}; its loop or executor has to \
             be one that runs everything on the thread that made the manager",
            self.crew.settings.name,
            self.thread
        );
    }
}

/// How far the end of a manager has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Open,
    /// Dropped while it runs: it ends when that is over.
    Wanted,
    Begun,
    /// No fiber is left. The carrier is given back with the last reference to the core.
    Done,
    /// Fibers are left that did not end in time. Everything stays as it is.
    Abandoned,
}

/// The inside of a manager; see the page of this module.
pub(super) struct Core {
    pub(super) carrier: &'static Carrier,
    pub(super) crew: Arc<Crew>,
    pub(super) shared: Arc<Shared>,
    pub(super) options: Options,
    controller: OnceCell<Box<dyn LoopController>>,
    pub(super) observers: RefCell<Vec<Rc<dyn Observer>>>,
    pub(super) panic_callback: RefCell<Option<Rc<PanicCallback>>>,
    /// Tasks until the next one whose stack is measured.
    pub(super) until_record: Cell<usize>,
    pub(super) high_water: Cell<usize>,
    end: Cell<End>,
    /// What the controller was told last.
    rest: Cell<Rest>,
    busy: Cell<bool>,
    /// How many times the inbox is looked at before a sleep.
    looks: Cell<u32>,
    /// Whether the controller wanted to run it when it was running.
    again: Cell<bool>,
    /// Whether `run` is under way.
    pub(super) running: Cell<bool>,
    /// When the pool was last looked at.
    resized: Cell<u64>,
}

impl Core {
    pub(super) fn new(
        controller: Box<dyn LoopController>,
        options: Options,
    ) -> io::Result<Rc<Core>> {
        let name = options.name.clone().unwrap_or_else(|| "manager".into());
        if name.contains('\0') {
            return Err(invalid(format!("the name {name:?} has a zero byte in it")));
        }
        if options.pool_resize_period == Some(Duration::ZERO) {
            return Err(invalid(
                "a pool that is resized all the time: pool_resize_period(0)".into(),
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
        let carrier = crew.carriers[0];
        // One is the carrier's spare. If the pool is resized, that is what limits it.
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
            rest: Cell::new(Rest::default()),
            busy: Cell::new(false),
            looks: Cell::new(MOST_LOOKS),
            again: Cell::new(false),
            running: Cell::new(false),
            resized: Cell::new(clock::now()),
        });
        let owner: Weak<dyn Any> = Rc::downgrade(&core) as Weak<dyn Any>;
        tenants::add(core.crew.number, owner.clone());
        carrier.embed(Arc::new(move || shared.schedule()), owner);
        // From here on it has to be ended in order.
        let guard = EndUnlessForgotten(&core);
        controller.attach(Runner::new(&core));
        *core.shared.remote.lock() = Some(controller.remote());
        let _ = core.controller.set(controller);
        core::mem::forget(guard);
        // It may have got tasks before there was anybody to tell. Who did so has found no hook, and is seen here.
        if core.shared.scheduled.swap(false, Ordering::AcqRel) || core.has_tasks() {
            core.settle(true);
        }
        if !core.observers.borrow().is_empty() {
            core.heed_observers();
        }
        Ok(core)
    }

    /// The manager whose loop runs on this thread.
    pub(super) fn current() -> Option<Rc<Core>> {
        let (carrier, _) = current::running()?;
        carrier.owner()?.upgrade()?.downcast::<Core>().ok()
    }

    /// The manager with this number, if it belongs to this thread.
    pub(super) fn of_this_thread(number: u32) -> Option<Rc<Core>> {
        tenants::find(number)?.upgrade()?.downcast::<Core>().ok()
    }

    pub(super) fn is_open(&self) -> bool {
        self.end.get() == End::Open
    }

    /// Whether everything is over: there is nothing to be seen or run. Somebody may have a reference still, who called
    /// the controller that ended the manager.
    pub(super) fn has_ended(&self) -> bool {
        self.end.get() == End::Done
    }

    #[track_caller]
    pub(super) fn assert_open(&self) {
        assert!(
            !matches!(self.end.get(), End::Done | End::Abandoned),
            "a task was added to the manager \"{}\", which was dropped",
            self.crew.settings.name
        );
    }

    /// Whether a fiber of this manager runs, and not its main context, or a hook.
    pub(super) fn is_inside(&self) -> bool {
        // SAFETY: blocks are never unmapped. That of a fiber that has ended is current in hooks only.
        !self.carrier.is_aside() && !unsafe { &*self.carrier.current() }.flags().has(Flags::ROOT)
    }

    /// There is something to run.
    #[inline(always)]
    pub(super) fn schedule(&self) {
        if !self.carrier.is_stepping() && !self.shared.scheduled.load(Ordering::Relaxed) {
            self.schedule_now();
        }
    }

    #[cold]
    fn schedule_now(&self) {
        if self.is_open() && !self.shared.scheduled.swap(true, Ordering::AcqRel) {
            // Who makes the manager looks for what was to be run before it has a controller.
            let Some(controller) = self.controller.get() else { return };
            let schedule = || {
                // There is something to run, so there are tasks.
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

    /// The same for one whose turn may come when it is running already: then nothing is done, and the next turn
    /// comes when that is over.
    pub(super) fn run_in_turn(&self) {
        if self.carrier.is_entered() {
            self.run_later();
        } else {
            self.run();
        }
    }

    /// The controller is told again when what runs at present is over.
    fn run_later(&self) {
        self.again.set(true);
        self.shared.scheduled.store(false, Ordering::Release);
    }

    /// Runs what is ready, until nothing is.
    #[track_caller]
    pub(super) fn run(&self) {
        if matches!(self.end.get(), End::Done | End::Abandoned) {
            return;
        }
        if self.carrier.is_entered() {
            // It was perhaps the one time that the controller was to do so.
            self.run_later();
            panic!(
                "the loop of the manager \"{}\" was run inside of itself, {}",
                self.crew.settings.name,
                if self.carrier.is_aside() {
                    "in a hook"
                } else if self.is_inside() {
                    "by one of its fibers; a fiber yields or waits instead"
                } else {
                    "on its main context, where fibers cannot be waited for"
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
        // ORDERING: AcqRel: what was put in before is seen by what follows.
        self.shared.scheduled.swap(false, Ordering::AcqRel);
        let again = park::on_large_stack(|| self.carrier.step());
        self.settle(again);
    }

    /// Tells the controller how things are, when fibers have run.
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
        // Whenever it is called, the controller may end the manager.
        if !self.is_open() {
            return;
        }
        let mut rest = Rest { deadline: self.next_deadline(), fd: self.watched_fd() };
        if rest.fd.is_none() && self.crew.drivers[0].is_active() {
            // Nothing says when something has happened.
            let look = std::time::Instant::now() + LOOK;
            rest.deadline = Some(rest.deadline.map_or(look, |deadline| deadline.min(look)));
        }
        if self.rest.replace(rest) != rest || rest != Rest::default() {
            controller.rest(rest);
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

    /// How many tasks have not ended.
    pub(super) fn live(&self) -> usize {
        self.crew.live()
    }

    pub(super) fn has_tasks(&self) -> bool {
        !self.crew.is_empty()
    }

    /// When the manager is to be run again, if nothing happens before.
    pub(super) fn next_deadline(&self) -> Option<std::time::Instant> {
        let mut next = self.carrier.next_deadline();
        if let Some(period) = self.options.pool_resize_period
            && self.carrier.pooled() > 0
        {
            next = next.min(clock::after(self.resized.get(), period));
        }
        clock::to_instant(next)
    }

    /// What has to be watched for the fibers, if any of them waits for a descriptor.
    fn watched_fd(&self) -> Option<RawFd> {
        self.crew.drivers[0].is_active().then(|| self.fd()).flatten()
    }

    /// The same whether or not any of them does.
    pub(super) fn fd(&self) -> Option<RawFd> {
        let driver = &self.crew.drivers[0];
        driver.open();
        driver.as_fd().map(|fd| fd.as_raw_fd())
    }

    /// Sleeps until there may be something to do, at most for so long.
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
        let short = clock::now() - before < SHORT_SLEEP && !self.carrier.inbox.is_empty();
        let looks = if short { (looks * 2).max(FIRST_LOOKS) } else { looks / 2 };
        self.looks.set(looks.min(MOST_LOOKS));
    }

    /// Gives back stacks that nobody has needed for a while.
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

    /// The manager is dropped: everything that is left is cancelled, and run until it has ended. True if it has,
    /// within `timeout` if there is one.
    ///
    /// If this is inside of what it ends, it ends when that is over.
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
            // A fiber may have been made that was not seen.
            round = (round * 2).min(LAST_ROUND);
        }
        self.end.set(End::Done);
        self.tell_of_end();
        tenants::remove(self.crew.number);
        self.carrier.end_embedded(&self.crew);
        true
    }

    /// Tells the controller that there is nothing to be run any more.
    fn tell_of_end(&self) {
        let remote = self.shared.remote.lock().take();
        let told = report::contain(|| {
            drop(remote);
            if let Some(controller) = self.controller.get() {
                controller.rest(Rest::default());
                if self.busy.replace(false) {
                    controller.keep_alive(false);
                }
            }
        });
        if told.is_none() {
            report::say(format_args!(
                "the controller of the manager \"{}\" panicked when that had ended",
                self.crew.settings.name
            ));
        }
    }

    fn abandon(&self) -> bool {
        self.end.set(End::Abandoned);
        self.tell_of_end();
        // Fibers are left, with stacks that others may have borrowed from: nothing is given back.
        core::mem::forget(self.crew.clone());
        false
    }

    /// What has panicked, and where.
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
            // From here on the carrier may be anybody's: nobody can look at it by this.
            let _ = self.crew.thread_ended();
        }
    }
}

/// Ends a manager of which the controller has panicked when it was told of it.
struct EndUnlessForgotten<'a>(&'a Rc<Core>);

impl Drop for EndUnlessForgotten<'_> {
    fn drop(&mut self) {
        self.0.shut_down(None);
    }
}

/// How long it takes at most until a loop notices what has happened, with a backend that has no descriptor to watch.
const LOOK: Duration = Duration::from_millis(5);

/// Looks into the inbox before a sleep, at most: some ten microseconds; and how many there are at first.
const MOST_LOOKS: u32 = 1024;
const FIRST_LOOKS: u32 = 64;
/// A sleep that ended in less than this, in nanoseconds, was hardly worth it.
const SHORT_SLEEP: u64 = 100_000;

/// How long to sleep between two looks for fibers that were missed, at first and at last.
const ROUND: Duration = Duration::from_millis(5);
const LAST_ROUND: Duration = Duration::from_secs(1);

/// The text of a panic.
fn message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a payload that is not a text")
}

fn guard_size(pages: usize) -> usize {
    const LEAST: usize = 64 * 1024;
    pages.saturating_mul(sinew_context::stack::page_size()).max(LEAST)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
