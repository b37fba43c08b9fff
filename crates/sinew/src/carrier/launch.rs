//! How a fiber begins and ends.
//!
//! A fiber gets its stack when it first runs: [`start`] writes a [`Launch`] to the top of the
//! stack, and a context that begins in [`enter`]. When the fiber has ended, `enter` looks for the
//! next one. If that fiber is unstarted and wants an ordinary stack, it runs on this stack at once,
//! without a switch: ten thousand small fibers use one warm stack. Otherwise `enter` leaves for the
//! next fiber. The launch then *rests*, as the carrier's spare, until a fiber starts on its stack.
//! If the carrier already has a spare, the launch exits, and the next context gives the stack back:
//! no stack is freed by code that runs on it.
//!
//! The end of a fiber, in order:
//!
//! 1. Its locals are dropped. Its result is stored, or dropped if the handle is detached.
//! 2. One exchange marks the fiber finished and drops the runtime's reference. From here on the
//!    block may serve another fiber.
//! 3. The joiner and the watchers are woken.
//!
//! A fiber that *rests* gives up its stack in the same way, and is unstarted again. Another thread
//! may submit it and run it before this thread has left the stack, on which nothing of the fiber is
//! left. README.md of `reactor` says why no cancellation is missed.

use super::{Carrier, Owner, dispatch};
use crate::fiber::life::{CANCELLED, DETACHED, JOINING, POLLED, STARTED, WATCHED};
use crate::fiber::state::{Epoch, Outcome};
use crate::fiber::{Cancelled, Control, FiberRef, Flags, on_end, slab};
use crate::metrics;
use crate::report;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use core::ptr;
use sinew_context::context::{self, Arrival, Context, Record};
use sinew_context::stack::{Found, Stack, StackAllocator};
use std::io;

/// The purpose of a launch's stack.
#[derive(Clone, Copy)]
pub(super) enum Use {
    /// Any fiber may run on it next, and the carrier may keep it as its spare.
    Ordinary,
    /// It was made for one fiber, which may move or has a stack size of its own.
    Own,
    /// It is the reserve of this carrier.
    Reserve(*const Carrier),
}

/// The record at the top of a fiber's stack.
#[repr(C)]
pub(super) struct Launch {
    record: Record,
    stack: ManuallyDrop<Stack>,
    /// The fiber that runs on the stack. The carrier's root in this place tells the launch to exit.
    control: Cell<*const Control>,
    /// The context in which a resting launch goes on.
    context: Cell<Option<Context>>,
    used_as: Use,
}

impl Launch {
    /// Returns the fiber that runs on the stack.
    ///
    /// # Safety
    /// The launch is complete, and its stack has not been given back.
    pub(super) unsafe fn control(launch: *const Launch) -> *const Control {
        // SAFETY: the launch is complete, and its stack still exists.
        unsafe { (*launch).control.get() }
    }
}

/// The result of looking at a stack from outside.
pub(crate) struct Seen {
    /// The address of the block of the fiber that runs, or was the last to run, on the stack.
    pub(crate) block: usize,
    /// The frames of the fiber lie below this address.
    pub(crate) base: usize,
}

/// Looks at a stack from outside. Returns `None` if the stack was last used for anything but a
/// fiber of a runtime, or cannot be read.
pub(crate) fn look_at(stack: &Found, read: impl Fn(usize) -> Option<usize>) -> Option<Seen> {
    /// The number of bytes that `prepare` lays out below a launch. Later the frames of the
    /// trampoline and of [`enter`] lie there.
    const FIRST_FRAME: usize = 32;
    let launch = stack.top() - size_of::<Launch>();
    let launch = launch - launch % 16;
    // A record begins with the address of its entry function.
    let entry: context::FirstFunction = enter;
    (read(launch)? == entry as usize).then_some(())?;
    let block = read(launch + core::mem::offset_of!(Launch, control))?;
    Some(Seen { block, base: launch - stack.stagger() - FIRST_FRAME })
}

/// Flags of fibers that cannot share their stack with the fibers after them.
const OWN_STACK: Flags = Flags(Flags::MIGRATABLE.0 | Flags::SIZED.0);

/// Gives an unstarted fiber a stack, and binds it to this carrier. Returns `None` if there is no
/// stack. Then the root starts or ends the fiber (`refusal`).
///
/// # Safety
/// The caller has taken the fiber out of its queue.
#[inline(always)]
pub(super) unsafe fn start(owner: &Owner, control: &Control) -> Option<Context> {
    // SAFETY: the caller owns the fiber.
    match unsafe { try_start(owner, control) } {
        Ok(context) => Some(context),
        Err(_) => {
            // SAFETY: the fiber was taken out of its queue, so its link is free.
            unsafe { owner.refused.push(control) };
            None
        }
    }
}

/// Gives an unstarted fiber a stack, and binds it to this carrier.
///
/// # Errors
/// If there is no stack. Then the fiber is unchanged.
///
/// # Safety
/// As for [`start`].
#[inline(always)]
pub(super) unsafe fn try_start(owner: &Owner, control: &Control) -> io::Result<Context> {
    let spare = owner.spare.get().cast::<Launch>();
    if spare.is_null() || control.flags().has(OWN_STACK) {
        // SAFETY: the caller owns the fiber.
        return unsafe { start_on_new_stack(owner, control) };
    }
    owner.spare.set(ptr::null_mut());
    bind(owner, control);
    owner.count_start(control);
    // SAFETY: the spare is a launch that rests in a context.
    unsafe {
        (*spare).control.set(control);
        Ok((*spare).context.get().expect("a launch rests in a context"))
    }
}

/// The part of [`try_start`] that is out of line: the carrier has no spare, or the fiber cannot use
/// it.
///
/// # Safety
/// As for [`start`].
#[inline(never)]
unsafe fn start_on_new_stack(owner: &Owner, control: &Control) -> io::Result<Context> {
    let stack = stack_for(owner, control)?;
    bind(owner, control);
    owner.count_start(control);
    let used_as = if control.flags().has(OWN_STACK) { Use::Own } else { Use::Ordinary };
    // SAFETY: the stack is ours and unused.
    Ok(unsafe { prepare_on(stack, control, enter, used_as) })
}

/// Writes a launch to the top of a stack, for a fiber that begins in `entry`.
///
/// # Safety
/// The stack belongs to the caller, and nothing uses it.
pub(super) unsafe fn prepare_on(
    stack: Stack,
    control: &Control,
    entry: context::FirstFunction,
    used_as: Use,
) -> Context {
    let launch = stack.top().as_ptr().wrapping_sub(size_of::<Launch>());
    let launch = launch.wrapping_sub(launch.addr() % 16).cast::<Launch>();
    // SAFETY: the stack is ours and unused, and the smallest stack has room for all of this. The
    // record stays until `take_back`.
    unsafe {
        launch.write(Launch {
            record: Record::new(entry),
            stack: ManuallyDrop::new(stack),
            control: Cell::new(control),
            context: Cell::new(None),
            used_as,
        });
        prepare(launch)
    }
}

/// Lays out the first frame below a launch.
///
/// # Safety
/// The launch is complete, and nothing else on its stack is in use.
unsafe fn prepare(launch: *mut Launch) -> Context {
    // SAFETY: the launch is complete, and the memory below it is unused.
    unsafe {
        let stack = &(*launch).stack;
        let bounds = (stack.low().as_ptr(), stack.high().as_ptr());
        let top = launch.cast::<u8>().wrapping_sub(stack.stagger());
        Context::prepare(top, bounds, launch.cast(), 0)
    }
}

/// Allocates the stack of an unstarted fiber.
#[inline(always)]
fn stack_for(owner: &Owner, control: &Control) -> io::Result<Stack> {
    if control.flags().has(OWN_STACK) {
        return stack_of_its_own(owner, control);
    }
    owner.stacks.borrow().as_ref().expect("a running carrier has stacks").allocate()
}

#[cold]
#[inline(never)]
fn stack_of_its_own(owner: &Owner, control: &Control) -> io::Result<Stack> {
    let size = match control.extra() {
        Some(extra) if control.flags().has(Flags::SIZED) => extra.stack_size.get(),
        _ => owner.crew().settings.stack_size,
    };
    owner.crew().stack(size)
}

/// Binds an unstarted fiber to the carrier that is about to run it.
#[inline(always)]
pub(super) fn bind(owner: &Owner, control: &Control) {
    control.set_carrier(owner.shared());
    if control.flags().has(Flags::MIGRATABLE) {
        control.set_flags(Flags::ON_STACK);
    }
    // A canceller of an unstarted fiber only sets the mark. Either `run` sees the mark, or the
    // canceller sees that the fiber has started.
    control.life.set(STARTED);
}

/// The first function of every stack.
///
/// # Safety
/// Only the trampoline calls this, with the words of the first switch to a context that
/// [`prepare_on`] made, and with that context's record, a `Launch`.
unsafe extern "C-unwind" fn enter(first: *mut (), second: usize, record: *mut Record) -> ! {
    // SAFETY: the trampoline passes the words of a switch to a context that `start` made.
    unsafe {
        let arrival = Arrival::begin(first, second);
        let launch = record.cast::<Launch>();
        let mut me: &'static Control = &*(*launch).control.get();
        dispatch::arrive(me, arrival);
        loop {
            run(me);
            let shared = !me.flags().has(OWN_STACK);
            if !shared {
                // From here on the fiber stays on this carrier.
                me.clear_flags(Flags::MIGRATABLE);
            }
            let owner = Owner::of_running(me);
            let counted = owner.is_counted(me);
            if me.flags().has(Flags::RESTS) {
                rest(owner, me);
            } else {
                finish(owner, me);
            }
            // Destructors of the user's values may have waited until here.
            owner.count_end(counted);
            // The block is not ours any more, and may serve another fiber.
            owner.set_current(&owner.root);
            let next = &*owner.next();
            if shared && next.context.get().is_none() && !next.flags().has(OWN_STACK) {
                bind(owner, next);
                owner.count_start(next);
                (*launch).control.set(next);
                owner.set_current(next);
                me = next;
                continue;
            }
            let to = depart(owner, next);
            if !matches!((*launch).used_as, Use::Ordinary) || !owner.spare.get().is_null() {
                context::exit(to, dispatch::ended(launch.cast()));
            }
            let arrival = context::switch_with(to, dispatch::kept(launch.cast()), 0);
            me = &*(*launch).control.get();
            dispatch::arrive(me, arrival);
            if me.flags().has(Flags::ROOT) {
                let root = Owner::of_running(me).root_context();
                context::exit(root, dispatch::ended(launch.cast()));
            }
        }
    }
}

/// Makes `next`, which was taken out of its queue, the current fiber, and returns its context. If
/// there is no stack for it, makes the root current and returns the root's context.
///
/// # Safety
/// The caller owns `next`, and leaves for the context at once.
#[inline(always)]
pub(super) unsafe fn depart(owner: &Owner, next: &Control) -> Context {
    // SAFETY: the caller owns `next`.
    let begun = next.context.get().or_else(|| unsafe { start(owner, next) });
    let (next, to) = match begun {
        Some(context) => (next, context),
        None => (&owner.root, owner.root_context()),
    };
    owner.set_current(next);
    if next.flags().has(Flags::MIGRATABLE) {
        dispatch::moved(owner, next);
    }
    to
}

/// Runs the closure of a fiber. Drops the closure instead if the fiber was cancelled before it
/// began, or if its crew is no longer open.
///
/// # Safety
/// `me` has just begun to run, and its closure is in its block.
#[inline(always)]
unsafe fn run(me: &Control) {
    let closing = || {
        // SAFETY: a running fiber has a carrier.
        unsafe { (*me.carrier()).crew() }.phase() != super::crew::Phase::Open
    };
    // SAFETY: the closure was stored when the fiber was made, and only this call takes it.
    unsafe {
        if me.life.marks() & CANCELLED != 0 || closing() {
            me.life.set(CANCELLED);
            me.set_flags(Flags::MASKED);
            (me.vtable.get().refuse)(me, Cancelled::before_start());
        } else {
            (me.vtable.get().run)(me);
        }
    }
}

/// Makes a fiber unstarted again, and hands it to the layer that keeps it until it is to run.
///
/// # Safety
/// `me` runs, its closure has said that it rests, and no user value is left on its stack.
#[inline(never)]
unsafe fn rest(owner: &Owner, me: &'static Control) {
    // Cancellation must not cut the following steps short.
    me.set_flags(Flags::MASKED);
    // The fiber may run on another thread next time, where its locals must not go.
    drop_leftovers(me);
    owner.forget_unless_observed(me);
    me.reset_flags();
    // A canceller from now on finds the fiber unstarted. An earlier cancellation is seen when the
    // fiber starts.
    me.life.clear(STARTED);
    // SAFETY: the fiber is unstarted, and ours until the callee keeps it.
    unsafe { (me.vtable.get().rest)(me) };
}

/// Ends a fiber whose result is stored.
///
/// # Safety
/// `me` is the running fiber, and no user value is left on its stack.
#[inline(always)]
pub(super) unsafe fn finish(owner: &Owner, me: &Control) {
    if me.extra().is_some() {
        // SAFETY: `me` runs, and its result is stored.
        return unsafe { finish_with_extra(owner, me) };
    }
    // SAFETY: a running fiber has the runtime's reference, and its result is stored.
    if let Some((joiner, epoch)) = unsafe { end(me) } {
        // SAFETY: blocks are never unmapped. If the joiner has left, the epoch matches no wait.
        wake_joiner(owner, unsafe { &*joiner }, epoch);
    }
    // The end is counted last: dropping the result may have waited, and the carrier must not end
    // before that is over.
    metrics::add(&owner.shared().counters.finished, 1);
}

/// Ends a fiber that may have locals or a scope.
///
/// # Safety
/// As for [`finish`].
#[inline(never)]
unsafe fn finish_with_extra(owner: &Owner, me: &Control) {
    // Cancellation must not cut the following steps short.
    me.set_flags(Flags::MASKED);
    // SAFETY: a running fiber has the runtime's reference, and its result is stored.
    unsafe { end_with_extra(me, |joiner, epoch| wake_joiner(owner, joiner, epoch)) };
    metrics::add(&owner.shared().counters.finished, 1);
}

/// Ends a thread's proxy, or a fiber that never reached a carrier. The result is stored.
///
/// # Safety
/// The caller owns the fiber.
pub(crate) unsafe fn finish_outside(me: &Control) {
    // SAFETY: the caller owns the fiber, and with it the runtime's reference.
    unsafe {
        end_with_extra(me, |joiner, epoch| {
            super::wake(joiner, epoch, Outcome::Notified);
        });
    }
}

/// Drops the fiber's locals and slots, ends the fiber, and tells its joiner and its scope.
///
/// # Safety
/// As for [`end`].
unsafe fn end_with_extra(me: &Control, wake: impl FnOnce(&Control, Epoch)) {
    drop_leftovers(me);
    let scope = me.extra().and_then(|extra| Some((extra.scope.get(), extra.scope_end.take()?)));
    // SAFETY: the scope does not return before `gone` was called. Blocks are never unmapped. If the
    // joiner has left, the epoch matches no wait.
    unsafe {
        if let Some((scope, end)) = scope {
            (end.leave)(scope, me);
        }
        if let Some((joiner, epoch)) = end(me) {
            wake(&*joiner, epoch);
        }
        if let Some((scope, end)) = scope {
            (end.gone)(scope);
        }
    }
}

/// Marks a fiber finished and gives up the runtime's reference. Returns the joiner, if there is
/// one.
///
/// # Safety
/// The caller has the runtime's reference, and the result is stored.
#[inline(always)]
unsafe fn end(me: &Control) -> Option<(*const Control, Epoch)> {
    let mut dropped = false;
    let mut polled = false;
    let (joiner, last) = me.life.finish(|marks| {
        if marks & (DETACHED | POLLED | WATCHED) != 0 {
            // SAFETY: the result is stored, and a detached result is taken by no one else.
            unsafe { unusual_end(me, marks, &mut dropped, &mut polled) };
        }
        let joined = marks & JOINING != 0 || me.flags().has(Flags::JOINED_HERE);
        joined.then(|| me.joiner())
    });
    if last {
        // SAFETY: no reference is left.
        unsafe { slab::free(me) };
    }
    if polled {
        // SAFETY: `unusual_end` added a reference.
        tell_those_who_watch(unsafe { FiberRef::from_counted(me) });
    }
    joiner
}

/// Wakes the joiner.
#[inline(always)]
fn wake_joiner(owner: &Owner, joiner: &Control, epoch: Epoch) {
    if ptr::eq(joiner.carrier(), owner.shared()) && !joiner.flags().has(Flags::NOT_ALONE) {
        // As in `claim_alone`: a joiner is registered nowhere else.
        if joiner.wake.claim_alone(epoch, Outcome::Notified) {
            // SAFETY: the claim succeeded, and the joiner is bound to this carrier.
            unsafe { owner.woken_here(joiner) };
        }
    } else {
        super::wake(joiner, epoch, Outcome::Notified);
    }
}

/// Handles the rare marks at the end of a fiber: drops a detached result, and takes a reference to
/// the block if a waker or watchers have to be told afterwards. `dropped` and `polled` keep it from
/// doing either twice.
///
/// # Safety
/// The result is stored. If `marks` has `DETACHED`, no other code takes the result.
#[cold]
#[inline(never)]
unsafe fn unusual_end(me: &Control, marks: u64, dropped: &mut bool, polled: &mut bool) {
    if marks & DETACHED != 0 && !*dropped {
        *dropped = true;
        me.set_flags(Flags::MASKED);
        // SAFETY: the result is stored, and `DETACHED` gives it to the fiber.
        unsafe { (me.vtable.get().drop_result)(me) };
        // The result's destructor may have made locals.
        drop_leftovers(me);
    }
    if marks & (POLLED | WATCHED) != 0 && !*polled {
        *polled = true;
        me.life.acquire();
    }
}

#[cold]
#[inline(never)]
fn tell_those_who_watch(me: FiberRef) {
    let waker = me.extra().and_then(|extra| extra.waker.lock().take());
    if let Some(waker) = waker
        && report::contain(|| waker.wake()).is_none()
    {
        report::say(format_args!("a waker panicked when fiber {} ended", me.id()));
    }
    drop_leftovers(&me);
    on_end::announce(me.as_ptr().addr(), me.id());
}

#[cold]
#[inline(never)]
pub(super) fn drop_leftovers(me: &Control) {
    if let Some(extra) = me.extra() {
        extra.drop_leftovers(|| me.flags());
    }
}

/// Keeps the launch of a fiber that has ended as the carrier's spare.
///
/// # Safety
/// `launch` is the message of a launch that rests in `context`, and no other code uses it.
#[inline(always)]
pub(super) unsafe fn keep(owner: &Owner, launch: usize, context: Context) {
    let launch = ptr::with_exposed_provenance_mut::<Launch>(launch);
    // SAFETY: the launch rests, so its memory is valid.
    unsafe { (*launch).context.set(Some(context)) };
    owner.spare.set(launch.cast());
}

/// Gives back the stack of a launch that has exited.
///
/// # Safety
/// `launch` is the message of an exit in an `enter` function, and this is done once.
#[inline(never)]
pub(super) unsafe fn take_back(launch: usize) {
    let launch = ptr::with_exposed_provenance_mut::<Launch>(launch);
    // SAFETY: nothing on that stack is in use. The `Stack` is moved out before its memory goes.
    // Carriers are never freed. A fiber on the reserve is bound, so this is the thread of the
    // reserve's carrier.
    unsafe {
        context::retire(&raw mut (*launch).record);
        let used_as = (*launch).used_as;
        let stack = ManuallyDrop::take(&mut (*launch).stack);
        match used_as {
            Use::Reserve(carrier) => Owner::of(&*carrier).reserve.put_back(stack),
            Use::Ordinary | Use::Own => drop(stack),
        }
    }
}

/// Ends the carrier's spare, and gives its stack back.
///
/// # Safety
/// The caller is the root.
pub(super) unsafe fn drop_spare(owner: &Owner) {
    let spare = owner.spare.replace(ptr::null_mut()).cast::<Launch>();
    if spare.is_null() {
        return;
    }
    let root = &owner.root;
    // SAFETY: the spare rests. With the root as its fiber, it exits to here. The root stays on its
    // thread.
    unsafe {
        (*spare).control.set(root);
        if let Some(context) = (*spare).context.get() {
            let message = dispatch::message_of(root, false);
            dispatch::switch(owner, root, (root, context), message);
        }
    }
}
