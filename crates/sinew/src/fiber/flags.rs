//! Flags of a fiber: properties that change how it waits, yields, is woken and ends.
//!
//! [`Control::flags`](super::Control::flags) returns them, and `set_flags`, `clear_flags`,
//! `restore_flags` and `reset_flags` of [`Control`](super::Control) change them. Paths of functions
//! below begin in the crate's `src`.
//!
//! # All flags
//!
//! `Control::occupy` writes all flags when a block gets a fiber. When a recurring fiber rests,
//! `Control::reset_flags` clears every flag outside of `OF_UNSTARTED`, and gives a fiber with
//! `ROAMING` its `MIGRATABLE` back. The table names the other writers.
//!
//! | flag | set by | cleared by | read by |
//! | --- | --- | --- | --- |
//! | **The kind of the fiber** | | | |
//! | `PROXY` | `carrier::current::new_proxy` | | `carrier::wake`, `Fiber::state`, `inspect`, `cancel` |
//! | `ROOT` | `Carrier::take` | | `carrier::current::fiber`, `dispatch::go`, `launch::enter`, `yield_now` |
//! | `EMBEDDED` | `Settings::birth` of a manager's crew | | `carrier::current::is_guest`, `park::yielding` |
//! | `RECURRING` | `spawn::recurring` | | `carrier::{dispatch, refusal, embed}`, `spawn::join`, `park::end` |
//! | `SIZED` | `Unborn::endow` | | `carrier::launch` |
//! | **Where the fiber may run** | | | |
//! | `AFFINE` | `FiberBuilder::build_any`, `spawn::birth::on_carrier` | | `spawn::birth::submit`, `reactor::deferred`, `spawn::join`, `park::end` |
//! | `ROAMING` | `FiberBuilder::build_any` | | `cancel::request`, `carrier::{tend, wake, observe}`, `spawn::join`, `inspect` |
//! | `MIGRATABLE` | `FiberBuilder::build_any`; again by `Wait::ended`, `yielding::leave` | an unwinding wait or yield (`Wait::begin_special`, `yielding::leave`); `launch::enter` at the end; `Owner::refuse` | `carrier::{dispatch, launch, owner, wake}`, `park`, `blocking::carried`, `cancel::request` |
//! | `ON_STACK` | `launch::bind`, `dispatch::moved`, `dispatch::ride` | `dispatch::arrive`, in the context that runs next | `Owner::resumable`, `dispatch::await_left` |
//! | **How the fiber waits and yields** | | | |
//! | `PINNED` | `park::pinned::in_region` | `in_region`, when it returns | `park`, `reactor`, `blocking`, `spawn::scope`, `inspect::snapshot` |
//! | `NO_WAIT` | `park::pinned::in_region` | `in_region`, when it returns | `park`, `reactor`, `blocking`, `spawn::scope`, `carrier::current::host` |
//! | `SLOTS` | `park::slots::remember` | `park::slots::forget`, with the last slot | each wait and yield, `manager`, `Extra::drop_leftovers` |
//! | `PENDING` | `park::slots::exchange_all` | `park::raise::settle` | `park::raise::settle`, `Extra::drop_leftovers` |
//! | `DEADLINE` | `cancel::until` | `cancel::until`, when it returns | `park::scope_deadline`, `yield_now`, `inspect::deadlock` |
//! | `ASLEEP` | `Wait::suspend_thread` | `Wait::suspend_thread` | `inspect::deadlock` |
//! | `POLLS` | `Wait::begin_polling` | `Wait::suspend_polling` | `carrier::wake` |
//! | **Cancellation and unwinding** | | | |
//! | `MASKED` | `cancel::masked`; `carrier::{launch, refusal}` and `fiber::task` around a fiber's end | `cancel::masked`, when it returns | `park`, `carrier::tend::interrupt` |
//! | `TOLD` | `carrier::tend::interrupt` | | `yield_now` |
//! | `RAISED` | `park::raise::raise` | | `park::raise::raise` |
//! | `PANICKED` | `runtime::hooks`, `park::raise`, `spawn::join::may_be_raised_again` | `carrier::unwinding`, the drop of a `Cancelled` | `carrier::unwinding`, each wait and yield, `fiber::panic_ended` |
//! | `UNWINDING` | `Wait::begin_special`, `Wait::begin_as_thread`, `carrier::unwinding` | `Wait::ended`, `carrier::unwinding` | `carrier::tend::interrupt`, `park::parker`, `park::raise` (in `DEAF`) |
//! | **The end** | | | |
//! | `JOINED_HERE` | `JoinHandle::wait` | `JoinHandle::wait`, if its wait ends before the fiber | `launch::end` |
//! | `RESTS` | `fiber::task::run_recurring` | | `launch::enter` |
//! | **Fibers of managers** | | | |
//! | `YIELDED` | `Owner::behind_all` | `Owner::ready_yielded` | `Fiber::state` |
//! | `IMMEDIATE` | `Owner::run_now`, `Owner::on_root` | `Owner::run_now`, `Owner::on_root`, when the fiber goes on | `Fiber::state` |
//! | `MEASURED` | `Settings::birth`, `Unborn::endow` | | `manager::measure` |
//! | `TIMED` | `Unborn::endow` | | `manager::measure` |
//! | **Observation** | | | |
//! | `OBSERVED` | `Owner::note_start_of` | `carrier::observe::note_wake`, `Owner::forget_unless_observed` | `carrier::{observe, wake}` |
//!
//! # Who may write
//!
//! `PROXY`, `ROOT`, `EMBEDDED`, `RECURRING`, `SIZED`, `AFFINE`, `ROAMING`, `MEASURED` and `TIMED`
//! are set by `occupy`, before the fiber is shared, and never change. All others change while other
//! threads look.
//!
//! A change is a load and a store, not one atomic step, so one thread at a time may write: the
//! thread to which the plain fields of the block belong (see the page of [`control`]).
//!
//! - For a fiber bound to a carrier, that is the carrier's thread. This thread also writes for
//!   fibers that do not run: a joiner sets `JOINED_HERE` of a fiber that can only end there, and
//!   the carrier sets `TOLD`, clears `YIELDED`, and changes `OBSERVED`. Another thread sends a
//!   message to the carrier instead.
//! - For a migratable fiber, that is the thread that runs it, then the thread that takes it out of
//!   a queue. The first one clears `ON_STACK` by its last write. The second one writes after it has
//!   seen that `ON_STACK` is clear. No thread writes `TOLD` or `JOINED_HERE` of such a fiber, and
//!   wakers leave its `OBSERVED` alone.
//! - For a proxy, that is its thread.
//!
//! # Who may read
//!
//! Any thread may read a flag, and learns its value at some moment. What it may conclude depends on
//! the flag:
//!
//! - The flags of `occupy` are known to every thread that may have a pointer to the fiber.
//! - `MIGRATABLE`, `POLLS` and `OBSERVED` tell a waker how to make the waiter run. They are set
//!   before the wait begins, and `WakeWord::begin` publishes them: if the waker's claim of the wait
//!   succeeds, it has read the values of that wait.
//! - `DEAF` tells a canceller to leave a wait alone. The canceller is on the thread of the fiber's
//!   carrier; or the fiber is migratable or pinned, and sets these flags before its wait begins.
//! - `ON_STACK` is cleared with Release and read with Acquire, so the thread that sees it clear
//!   also sees the saved context.
//! - What `inspect` and `Fiber::state` read from elsewhere may be out of date.
//!
//! [`control`]: super::control

/// Properties of a fiber that change how it waits, yields and is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flags(pub(crate) u32);

impl Flags {
    /// Stands for a thread, not a fiber.
    pub(crate) const PROXY: Flags = Flags(1 << 7);
    /// Stands for the carrier's own loop.
    pub(crate) const ROOT: Flags = Flags(1 << 10);
    /// Belongs to an embedded carrier, which a foreign loop steps.
    pub(crate) const EMBEDDED: Flags = Flags(1 << 21);
    /// Runs again and again, and is unstarted in between: it is bound to a carrier only until it
    /// rests.
    pub(crate) const RECURRING: Flags = Flags(1 << 26);
    /// Has its own stack size.
    pub(crate) const SIZED: Flags = Flags(1 << 6);

    /// May run only on the carrier that the builder named.
    pub(crate) const AFFINE: Flags = Flags(1 << 8);
    /// Was made to move between carriers, even if it may not at present.
    pub(crate) const ROAMING: Flags = Flags(1 << 14);
    /// May move between carriers.
    pub(crate) const MIGRATABLE: Flags = Flags(1 << 4);
    /// A migratable fiber that has not left its stack yet: no carrier may resume it.
    pub(crate) const ON_STACK: Flags = Flags(1 << 9);

    /// May not be suspended: it is in `pinned`, or runs a hook of the user's.
    pub(crate) const PINNED: Flags = Flags(1);
    /// Runs a predicate or a hook: even blocking the thread is an error.
    pub(crate) const NO_WAIT: Flags = Flags(1 << 11);
    /// Uses context slots, which are swapped at each switch.
    pub(crate) const SLOTS: Flags = Flags(1 << 2);
    /// A panic of a context slot's hook is to be raised at the end of the wait.
    pub(crate) const PENDING: Flags = Flags(1 << 15);
    /// Inside a deadline scope.
    pub(crate) const DEADLINE: Flags = Flags(1 << 5);
    /// A proxy of a thread that sleeps without a deadline until a waker ends its wait.
    pub(crate) const ASLEEP: Flags = Flags(1 << 19);
    /// A proxy of a thread that waits in the kernel for descriptors and for the bell in `Extra`.
    pub(crate) const POLLS: Flags = Flags(1 << 18);

    /// Cancellation is postponed.
    pub(crate) const MASKED: Flags = Flags(1 << 1);
    /// The carrier has told the fiber of the fiber's cancellation. Set on the fiber's own thread,
    /// so that a yield has only one word to check.
    pub(crate) const TOLD: Flags = Flags(1 << 16);
    /// A cancellation or a deadline was raised in this fiber before. If another one is raised after
    /// the fiber caught it, the fiber lets other fibers run first.
    pub(crate) const RAISED: Flags = Flags(1 << 12);
    /// A panic has begun in this fiber since its thread was last seen without one.
    pub(crate) const PANICKED: Flags = Flags(1 << 3);
    /// Suspended in the middle of an unwinding.
    pub(crate) const UNWINDING: Flags = Flags(1 << 13);

    /// `joiner` is a fiber of the carrier that runs this fiber. This fiber wakes `joiner` when it
    /// ends.
    pub(crate) const JOINED_HERE: Flags = Flags(1 << 17);
    /// Its closure has returned and is to run again: the fiber rests as soon as nothing of it is on
    /// the stack.
    pub(crate) const RESTS: Flags = Flags(1 << 27);

    /// Has yielded on an embedded carrier, and is not ready before all other fibers have run.
    pub(crate) const YIELDED: Flags = Flags(1 << 22);
    /// Has interrupted itself, on an embedded carrier, for work on the root or for another fiber.
    pub(crate) const IMMEDIATE: Flags = Flags(1 << 23);
    /// A task of which its manager measures the stack or the run time.
    pub(crate) const MEASURED: Flags = Flags(1 << 24);
    /// Run time was requested for this task.
    pub(crate) const TIMED: Flags = Flags(1 << 25);

    /// An observer, which knows the fiber's name, wants to know when the fiber is woken.
    pub(crate) const OBSERVED: Flags = Flags(1 << 20);

    /// Flags that an unstarted fiber may have.
    pub(super) const OF_UNSTARTED: Flags = Flags(
        Flags::ROAMING.0
            | Flags::SIZED.0
            | Flags::AFFINE.0
            | Flags::EMBEDDED.0
            | Flags::MEASURED.0
            | Flags::TIMED.0
            | Flags::RECURRING.0
            | Flags::OBSERVED.0,
    );

    /// Flags that make waking a fiber on its own carrier more than a push.
    pub(crate) const NOT_PLAIN: Flags = Flags(Flags::MIGRATABLE.0 | Flags::OBSERVED.0);
    /// Flags that forbid ending the fiber's wait without an atomic exchange: another thread may end
    /// the wait, or an observer wants to know of its end.
    pub(crate) const NOT_ALONE: Flags = Flags(Flags::ROAMING.0 | Flags::OBSERVED.0);

    /// Flags that keep a cancellation from ending a wait.
    pub(crate) const DEAF: Flags = Flags(Flags::MASKED.0 | Flags::UNWINDING.0);

    /// Flags that make `yield_now` take the longer path.
    pub(crate) const SLOW_YIELD: Flags = Flags(
        Flags::PINNED.0
            | Flags::SLOTS.0
            | Flags::PANICKED.0
            | Flags::MIGRATABLE.0
            | Flags::DEADLINE.0
            | Flags::ROOT.0
            | Flags::TOLD.0
            | Flags::EMBEDDED.0
            | Flags::NO_WAIT.0,
    );

    #[inline(always)]
    pub(crate) fn has(self, any_of: Flags) -> bool {
        self.0 & any_of.0 != 0
    }
}
