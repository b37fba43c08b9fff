//! The end of a fiber for which there is no stack.
//!
//! Its closure has to be dropped, and a destructor may wait, for instance for a lock that a
//! suspended neighbour holds. On the carrier's own stack, that wait would block the carrier, and
//! the neighbour with it. So each carrier has one stack in *reserve*, on which a refused fiber does
//! nothing but end. The stack is made when the carrier's thread begins, and does not count against
//! any limit.
//!
//! # Protocol
//!
//! Every step happens on the carrier's thread.
//!
//! 1. `launch::start` finds no stack and puts the fiber into `Own::refused`. Dispatch goes to
//!    the root as long as a fiber is in that list and the reserve is free
//!    ([`Owner::can_refuse`]).
//! 2. The root calls [`Owner::refuse_some`]. It gives back every stack that the carrier only
//!    keeps warm, and tries again: a fiber that gets a stack then begins after all. Otherwise the
//!    fiber takes the reserve and begins in [`enter`], which drops its closure.
//! 3. While the reserve is in use, further refused fibers stay in the list. [`enter`] exits to the
//!    next fiber, which puts the stack back in reserve (`launch::take_back`). Dispatch then goes to
//!    the root again, as in step 1.
//!
//! If there was no memory for a reserve when the thread began, the carrier drops the closure on its
//! own stack.

use super::dispatch;
use super::launch::{self, Launch, Use};
use super::{Crew, Owner};
use crate::fiber::{Control, Flags};
use crate::report;
use core::cell::Cell;
use sinew_context::context::{self, Arrival, Context, Record};
use sinew_context::stack::{ProtectedFixedSize, Stack, StackAllocator};
use std::io;

/// The stack on which refused fibers end. Belongs to the carrier's thread.
pub(crate) struct Reserve {
    /// Taken out while a refused fiber uses it.
    stack: Cell<Option<Stack>>,
    /// Whether a refused fiber has the stack.
    in_use: Cell<bool>,
    /// Why the fiber that is about to begin on the stack was refused.
    error: Cell<Option<io::Error>>,
}

impl Reserve {
    pub(super) const fn new() -> Reserve {
        Reserve { stack: Cell::new(None), in_use: Cell::new(false), error: Cell::new(None) }
    }

    /// Makes the stack, when the carrier's thread begins.
    pub(super) fn fill(&self, crew: &Crew) {
        let stack = ProtectedFixedSize::new(crew.settings.stack_size);
        self.stack.set(stack.and_then(|allocator| allocator.allocate()).ok());
    }

    /// Frees the stack, when the carrier's thread ends.
    pub(super) fn empty(&self) {
        debug_assert!(!self.in_use.get(), "no fiber is left");
        drop(self.stack.take());
    }

    /// Takes the stack back from a refused fiber that has ended.
    pub(super) fn put_back(&self, stack: Stack) {
        self.stack.set(Some(stack));
        self.in_use.set(false);
    }
}

impl Owner {
    /// Whether a fiber was refused, and the reserve is free for it.
    #[inline(always)]
    pub(super) fn can_refuse(&self) -> bool {
        !self.refused.is_empty() && !self.reserve.in_use.get()
    }

    /// Starts or ends the fibers for which there was no stack. Returns true if one is ready.
    ///
    /// # Safety
    /// The caller is the root.
    #[cold]
    pub(super) unsafe fn refuse_some(&self) -> bool {
        let mut any = false;
        for _ in 0..self.refused.len() {
            let Some(control) = self.refused.pop() else { break };
            // SAFETY: a fiber in the list is unstarted, in no other queue, and belongs to this
            // carrier. Blocks are never unmapped. The caller is the root.
            unsafe {
                if let Some(context) = self.start_or_refuse(&*control) {
                    (*control).context.set(context);
                    self.ready.push(control);
                    any = true;
                }
            }
        }
        any
    }

    /// Returns the context of a fiber for which there was no stack. In that context, the fiber
    /// either begins its closure after all, or ends. Returns `None` if the fiber has ended already,
    /// or is in the list again because another fiber has the reserve.
    ///
    /// # Safety
    /// The fiber is unstarted, in no queue, and belongs to the caller, which is the root.
    #[cold]
    pub(super) unsafe fn start_or_refuse(&self, control: &Control) -> Option<Context> {
        // Giving back the carrier's warm stacks may free a stack for the fiber.
        // SAFETY: the caller is the root.
        unsafe { launch::drop_spare(self) };
        if let Some(stacks) = &*self.stacks.borrow() {
            stacks.flush();
        }
        // SAFETY: the caller owns the fiber.
        match unsafe { launch::try_start(self, control) } {
            Ok(context) => Some(context),
            Err(_) if self.reserve.in_use.get() => {
                // SAFETY: the fiber is in no queue, so its link is free.
                unsafe { self.refused.push(control) };
                None
            }
            // SAFETY: the caller owns the fiber, which is in no queue, and the reserve is free.
            Err(error) => unsafe { self.refuse(control, error) },
        }
    }

    /// Ends a fiber that cannot get a stack. Returns the context in which it ends, or `None` if it
    /// has ended already.
    ///
    /// # Safety
    /// As for [`start_or_refuse`](Self::start_or_refuse). The reserve is not in use.
    unsafe fn refuse(&self, control: &Control, error: io::Error) -> Option<Context> {
        // The fiber ends here, also if it was migratable.
        control.clear_flags(Flags::MIGRATABLE);
        launch::bind(self, control);
        self.count_start(control);
        let again = if control.flags().has(Flags::RECURRING) { " again" } else { "" };
        report::say(format_args!("fiber {} ends before it began{again}: {error}", control.id()));
        if let Some(extra) = control.extra()
            && let Some(end) = extra.scope_end.get()
        {
            // SAFETY: the scope does not return before the fiber is gone.
            unsafe { (end.failed)(extra.scope.get()) };
        }
        let Some(stack) = self.reserve.stack.take() else {
            // SAFETY: the fiber is ours, and its closure was stored when it was made.
            unsafe {
                let counted = self.is_counted(control);
                (control.vtable.get().refuse)(control, Box::new(error));
                launch::finish(self, control);
                self.count_end(counted);
            }
            return None;
        };
        self.reserve.in_use.set(true);
        self.reserve.error.set(Some(error));
        // SAFETY: the reserve stack is ours and unused, and the fiber has no other context.
        Some(unsafe { launch::prepare_on(stack, control, enter, Use::Reserve(self.shared())) })
    }
}

/// The only function of a refused fiber, which ends it.
///
/// # Safety
/// Only the trampoline calls this, with the words of the first switch to the context that `refuse`
/// made, and with that context's record, a `Launch`.
unsafe extern "C-unwind" fn enter(first: *mut (), second: usize, record: *mut Record) -> ! {
    // SAFETY: the trampoline passes the words of a switch to a context that `refuse` made. The
    // closure was stored when the fiber was made. The fiber is bound to its carrier, even if the
    // closure's destructor waits.
    unsafe {
        let arrival = Arrival::begin(first, second);
        let launch = record.cast::<Launch>();
        let me: &'static Control = &*Launch::control(launch);
        dispatch::arrive(me, arrival);
        let owner = Owner::of_running(me);
        let error = owner.reserve.error.take().expect("a refused fiber has a reason");
        me.set_flags(Flags::MASKED);
        let counted = owner.is_counted(me);
        (me.vtable.get().refuse)(me, Box::new(error));
        launch::finish(owner, me);
        owner.count_end(counted);
        // From here on the block may serve another fiber.
        owner.set_current(&owner.root);
        let to = launch::depart(owner, &*owner.next());
        context::exit(to, dispatch::ended(launch.cast()))
    }
}
