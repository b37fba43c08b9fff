//! What few fibers have, apart from the control block.
//!
//! Made when it is first needed, and kept when the block is recycled: once warm, nothing is
//! allocated for it.

use super::control::{Control, Flags};
use super::local::{self, Locals};
use crate::carrier::bell::Bell;
use crate::primitive::{AtomicBool, AtomicPtr, AtomicU64, Ordering, SpinLock};
use crate::report;
use core::any::Any;
use core::cell::{Cell, UnsafeCell};
use core::ptr;
use core::task::Waker;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// See the page of this module. Who may touch the plain fields is laid down in `control`. What a fiber touches that
/// rests between requests comes first, and lies together.
#[repr(C, align(64))]
pub(crate) struct Extra {
    /// How to have an unstarted fiber back that is kept until something happens; null if it is not.
    /// Means nothing while the fiber is started.
    pub(crate) armed: AtomicPtr<Disarm>,
    /// Where an unstarted fiber that waits for something has what it has captured, and what it waits for: good for
    /// nothing but to ask for the memory there.
    pub(crate) captured: AtomicPtr<u8>,
    pub(crate) source: AtomicPtr<u8>,
    pub(crate) locals: Locals,
    /// A panic of a slot's hook, to be raised when the wait has been left. Nothing unless the fiber has the flag
    /// `PENDING`.
    pub(crate) pending_panic: Cell<Option<Box<dyn Any + Send>>>,
    /// Set before the block is occupied, from when on others look at it, and not changed until it is free.
    pub(crate) name: UnsafeCell<Option<Arc<str>>>,
    /// Bytes of stack, if the fiber has the flag `SIZED`.
    pub(crate) stack_size: Cell<usize>,
    /// Whether it was made to be submitted later, and was not.
    pub(crate) held_back: AtomicBool,
    /// The nearest deadline of the scopes that the fiber is in, if it has the flag `DEADLINE`.
    pub(crate) deadline: Cell<u64>,
    /// How many first-class fibers of this fiber are being unwound.
    pub(crate) unwindings: Cell<u32>,
    /// The scope that the fiber is a child of, and what to do there at its end.
    pub(crate) scope: Cell<*const ()>,
    pub(crate) scope_end: Cell<Option<&'static ScopeEnd>>,
    /// Links of the list that the scope guards.
    pub(crate) scope_next: Cell<*const Control>,
    pub(crate) scope_previous: Cell<*const Control>,
    /// The context slots in use, the innermost last. None unless the fiber has the flag `SLOTS`.
    pub(crate) slots: UnsafeCell<Vec<Rc<dyn crate::park::slots::Use>>>,
    /// Whom to tell of the end, if the join handle was polled as a future.
    pub(crate) waker: SpinLock<Option<Waker>>,
    /// The thread's proxy while the fiber is pinned and waits as its thread, and the epoch of that
    /// wait, which is written first.
    pub(crate) pinned_as: AtomicPtr<Control>,
    pub(crate) pinned_epoch: AtomicU64,
    /// The deadline of that wait, once the fiber has computed it; `NEVER` until then.
    pub(crate) pinned_until: AtomicU64,
    /// The signal of the last wait for a future, if no waker is left of it: the next one needs no allocation.
    pub(crate) signal: Cell<Option<Arc<crate::park::Signal>>>,
    /// What ends the wait of a thread in the kernel, if it ever waited there.
    pub(crate) bell: OnceLock<Bell>,
}

/// How a fiber that was cancelled before it began is taken out of where it is kept. Belongs to a
/// layer above this one.
pub(crate) struct Disarm {
    /// Submits the fiber, if it is still kept.
    pub(crate) call: fn(&Control),
}

/// What a scope wants to be told of the end of a child. Belongs to a layer above this one.
pub(crate) struct ScopeEnd {
    /// Before the end: the fiber leaves the scope's list.
    pub(crate) leave: unsafe fn(scope: *const (), child: &Control),
    /// After the end, when nothing of the fiber is left: the scope may return.
    pub(crate) gone: unsafe fn(scope: *const ()),
    /// Before the end of a fiber that could not begin: that counts as a failure.
    pub(crate) failed: unsafe fn(scope: *const ()),
}

impl Default for Extra {
    fn default() -> Self {
        Extra {
            name: UnsafeCell::new(None),
            stack_size: Cell::new(0),
            held_back: AtomicBool::new(false),
            locals: Locals::new(),
            deadline: Cell::new(u64::MAX),
            unwindings: Cell::new(0),
            scope: Cell::new(ptr::null()),
            scope_end: Cell::new(None),
            scope_next: Cell::new(ptr::null()),
            scope_previous: Cell::new(ptr::null()),
            slots: UnsafeCell::new(Vec::new()),
            pending_panic: Cell::new(None),
            waker: SpinLock::new(None),
            pinned_as: AtomicPtr::new(ptr::null_mut()),
            pinned_epoch: AtomicU64::new(0),
            pinned_until: AtomicU64::new(u64::MAX),
            signal: Cell::new(None),
            bell: OnceLock::new(),
            armed: AtomicPtr::new(ptr::null_mut()),
            captured: AtomicPtr::new(ptr::null_mut()),
            source: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

impl Extra {
    /// The fiber's name.
    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        // SAFETY: not changed while anybody has a reference to the block.
        unsafe { (*self.name.get()).as_ref() }
    }

    fn take_slots(&self) -> Vec<Rc<dyn crate::park::slots::Use>> {
        // SAFETY: the list belongs to the fiber's thread, and no user code runs meanwhile.
        core::mem::take(unsafe { &mut *self.slots.get() })
    }

    /// Forgets what belonged to the fiber that had the block.
    ///
    /// # Safety
    /// The block is free, or not yet alive.
    pub(crate) unsafe fn clear(&self) {
        // SAFETY: nobody else has a reference.
        unsafe { *self.name.get() = None };
        self.stack_size.set(0);
        self.held_back.store(false, Ordering::Relaxed);
        self.deadline.set(u64::MAX);
        // A first-class fiber that was forgotten in the middle of its unwinding stays counted until here.
        self.unwindings.set(0);
        self.scope_end.set(None);
        self.armed.store(ptr::null_mut(), Ordering::Relaxed);
        // What runs code of the user's when it is dropped went before the fiber ended.
        debug_assert!(self.locals.is_empty());
        // SAFETY: as the caller promised.
        debug_assert!(unsafe { (*self.slots.get()).is_empty() }, "slots without their flag");
    }

    /// Drops what is left of the user's, when the fiber ends or rests. May run anything, and leaves nothing: whoever
    /// has the block next may be on another thread.
    pub(crate) fn drop_rest(&self, flags: impl Fn() -> Flags) {
        // What it may have of slots is not looked at unless it has some: it lies apart from what all touch.
        const OF_SLOTS: Flags = Flags(Flags::SLOTS.0 | Flags::PENDING.0);
        if flags().has(OF_SLOTS) {
            // First-class fibers may be suspended where they use slots.
            let uses = self.take_slots();
            report::contain(|| drop(uses));
            let panic = self.pending_panic.take();
            report::contain(|| drop(panic));
        }
        // The destructors of the others may have made some, so these go last.
        local::drop_all(&self.locals);
        if flags().has(OF_SLOTS) {
            // What their destructors have left is leaked: no more code of the user's.
            core::mem::forget(self.take_slots());
            core::mem::forget(self.pending_panic.take());
        }
    }
}
