//! Measures the running time of tasks, and how much of its stack a task uses.

use super::core::Core;
use crate::carrier::current;
use crate::fiber::{Flags, SlotUse};
use crate::park::slots;
use crate::report;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use sinew_context::stack::{self, Found};
use std::rc::Rc;

crate::fiber_local! {
    static TIME: RefCell<Option<Rc<RunningTime>>> = RefCell::new(None);
}

/// The processor time of a fiber, in nanoseconds of its thread's CPU clock.
struct RunningTime {
    /// When the fiber was last resumed; `None` while it is suspended.
    since: Cell<Option<u64>>,
    before: Cell<u64>,
}

impl RunningTime {
    fn total(&self) -> u64 {
        let now = self.since.get().map_or(0, |since| thread_time().saturating_sub(since));
        self.before.get() + now
    }
}

/// Returns the processor time that this thread has used, in nanoseconds.
fn thread_time() -> u64 {
    // SAFETY: all zeros is a valid `timespec`, and `clock_gettime` writes only to it.
    let time = unsafe {
        let mut time: libc::timespec = core::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl SlotUse for RunningTime {
    fn exchange(&self) {
        if self.since.get().is_some() {
            self.before.set(self.total());
            self.since.set(None);
        } else {
            self.since.set(Some(thread_time()));
        }
    }
}

/// Returns the processor time that the running task has used so far. Time in which the task waited,
/// or in which the main context ran a call for it, does not count. Returns `None` if the task is
/// not [measured](super::TaskOptions::log_running_time).
///
/// # Examples
/// ```
/// use sinew::manager::{FiberManager, Options, SimpleLoopController, TaskOptions, current_task_running_time};
/// use std::time::Duration;
///
/// let controller = SimpleLoopController::new();
/// let manager = FiberManager::new(controller.clone(), Options::new())?;
/// manager.add_task(|| assert_eq!(current_task_running_time(), None));
/// manager.add_task_with(TaskOptions::new().log_running_time(true), || {
///     sinew::sleep(Duration::from_millis(50));
///     assert!(current_task_running_time().unwrap() < Duration::from_millis(50));
/// });
/// controller.run();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn current_task_running_time() -> Option<Duration> {
    running_time().map(|time| Duration::from_nanos(time.total()))
}

fn running_time() -> Option<Rc<RunningTime>> {
    // A plain thread has no running time, and gets no fiber-local just for this query.
    let has = current::fiber().is_some() || !current::lender().is_null();
    has.then(|| TIME.with(|time| time.borrow().clone())).flatten()
}

/// Calls `f`, and does not count its time as running time of the task.
pub(super) fn unmeasured<R>(f: impl FnOnce() -> R) -> R {
    let measured = current::fiber().is_some_and(|(_, me)| me.flags().has(Flags::SLOTS));
    let time = if measured { running_time() } else { None };
    let Some(time) = time else { return f() };
    time.exchange();
    let result = f();
    time.exchange();
    result
}

/// Runs a task, and measures it if its options or its manager ask for that.
#[inline]
pub(super) fn around(f: impl FnOnce()) {
    if !is_measured() {
        return f();
    }
    let mut f = Some(f);
    measured(&mut || {
        if let Some(f) = f.take() {
            f();
        }
    });
}

#[inline]
fn is_measured() -> bool {
    current::fiber().is_some_and(|(_, me)| me.flags().has(Flags::MEASURED))
}

/// Runs a task, and measures its stack, its time, or both, as its flags and its manager say.
#[cold]
fn measured(f: &mut dyn FnMut()) {
    let core = Core::current();
    let timed = current::fiber().is_some_and(|(_, me)| me.flags().has(Flags::TIMED));
    let log = timed || core.as_ref().is_some_and(|core| core.options.log_running_time);
    let record = core.filter(|core| core.is_recorded());
    // The frames of the task lie below this frame. Inlined functions of the task lie in it.
    let mark = record.and_then(|core| Some((core, Painted::paint()?)));
    if log {
        let time =
            Rc::new(RunningTime { since: Cell::new(Some(thread_time())), before: Cell::new(0) });
        TIME.with(|place| *place.borrow_mut() = Some(time.clone()));
        slots::with_use(time, f);
    } else {
        f();
    }
    if let Some((core, painted)) = mark {
        core.record(painted.used(), painted.size());
    }
}

impl Core {
    /// Counts a task that begins, and returns whether its stack is measured.
    fn is_recorded(&self) -> bool {
        let every = self.options.record_stack_every;
        if every == 0 {
            return false;
        }
        let left = self.until_record.get().saturating_sub(1);
        self.until_record.set(if left == 0 { every } else { left });
        left == 0
    }

    fn record(&self, used: usize, size: usize) {
        self.high_water.set(self.high_water.get().max(used));
        if used + MARGIN >= size {
            report::say(format_args!(
                "a task of the manager \"{}\" has used {used} of {size} bytes of its stack; give it a larger one: \
                 see Options::stack_size",
                self.crew.settings.name
            ));
        }
    }
}

/// A task that leaves at most this many bytes of its stack unused is reported.
const MARGIN: usize = 64;

/// The pattern that fills a stack before it is measured.
const PAINT: u64 = 0xC0DE_5EED_0F1B_E25A;

/// Bytes below the painting frame that are not painted: frames of functions that it calls, and of
/// signal handlers, may lie there.
const ROOM: usize = 2048;

/// A stack that was painted below the frames in use.
struct Painted(Found);

impl Painted {
    /// Paints the running fiber's stack below the frames in use. `None` if this is not possible.
    #[inline(never)]
    fn paint() -> Option<Painted> {
        // AddressSanitizer keeps locals elsewhere, and watches accesses to the stack itself.
        if cfg!(sinew_asan) {
            return None;
        }
        let mark = 0_u8;
        let here = (&raw const mark).addr();
        let found = stack::find(here)?;
        let low = found.range().start.next_multiple_of(8);
        let end = here.saturating_sub(ROOM) & !7;
        for address in (low..end).step_by(8) {
            // SAFETY: the address is on this fiber's own stack, below every frame in use. Nothing
            // is stored there, and later calls overwrite it.
            unsafe {
                core::ptr::with_exposed_provenance_mut::<u64>(address).write_volatile(PAINT);
            }
        }
        Some(Painted(found))
    }

    /// Returns how many bytes of the stack are in use or were used since the painting.
    #[inline(never)]
    fn used(&self) -> usize {
        let range = self.0.range();
        let low = range.start.next_multiple_of(8);
        let is_painted = |address: &usize| {
            // SAFETY: the address is on this fiber's own stack, which is mapped while the fiber
            // runs.
            unsafe { core::ptr::with_exposed_provenance::<u64>(*address).read_volatile() == PAINT }
        };
        let first = (low..range.end).step_by(8).find(|address| !is_painted(address));
        range.end - first.unwrap_or(range.end)
    }

    fn size(&self) -> usize {
        self.0.range().len()
    }
}
