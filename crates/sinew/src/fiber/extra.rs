//! Data of a fiber that few fibers have, apart from the control block.
//!
//! It is made on first use, and kept when the block is recycled: once warm, nothing is allocated
//! for it.

use super::control::Control;
use super::flags::Flags;
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

/// See the page of this module. `control` says which thread may touch the plain fields at which
/// time. The fields that a fiber touches when it rests between requests come first, together.
#[repr(C, align(64))]
pub(crate) struct Extra {
    /// How to get back an unstarted fiber that is kept until an event. Null if it is not kept.
    /// Meaningless while the fiber is started.
    pub(crate) armed: AtomicPtr<Disarm>,
    /// Addresses of the captured values and of the awaited source of an unstarted fiber that waits
    /// for an event. Used only to prefetch the memory there.
    pub(crate) captured: AtomicPtr<u8>,
    pub(crate) source: AtomicPtr<u8>,
    pub(crate) locals: Locals,
    /// A panic of a slot's hook, to be raised at the end of the wait. `None` unless the fiber has
    /// the flag `PENDING`.
    pub(crate) pending_panic: Cell<Option<Box<dyn Any + Send>>>,
    /// Set before the block is occupied, because other threads read it from then on. Not changed
    /// until the block is free.
    pub(crate) name: UnsafeCell<Option<Arc<str>>>,
    /// Bytes of stack, if the fiber has the flag `SIZED`.
    pub(crate) stack_size: Cell<usize>,
    /// Whether the fiber was made to be submitted later, and has not been submitted.
    pub(crate) held_back: AtomicBool,
    /// The nearest deadline of the scopes that the fiber is in, if it has the flag `DEADLINE`.
    pub(crate) deadline: Cell<u64>,
    /// How many first-class fibers of this fiber are unwinding.
    pub(crate) unwindings: Cell<u32>,
    /// The scope of which the fiber is a child, and the functions to call there at its end.
    pub(crate) scope: Cell<*const ()>,
    pub(crate) scope_end: Cell<Option<&'static ScopeEnd>>,
    /// Links of the scope's list of children, which the scope guards.
    pub(crate) scope_next: Cell<*const Control>,
    pub(crate) scope_previous: Cell<*const Control>,
    /// The context slots in use, the innermost last. Empty unless the fiber has the flag `SLOTS`.
    pub(crate) slots: UnsafeCell<Vec<Rc<dyn SlotUse>>>,
    /// The waker to wake at the end, if the join handle was polled as a future.
    pub(crate) waker: SpinLock<Option<Waker>>,
    /// While the fiber is pinned and waits by blocking its thread: the thread's proxy and the epoch
    /// of that wait. The epoch is written first.
    pub(crate) pinned_as: AtomicPtr<Control>,
    pub(crate) pinned_epoch: AtomicU64,
    /// The deadline of the wait of `pinned_as`, once the fiber has computed it; `NEVER` until then.
    pub(crate) pinned_until: AtomicU64,
    /// The signal of the last wait for a future, if it has no wakers left. The next wait uses it
    /// again, and so needs no allocation.
    pub(crate) signal: Cell<Option<Arc<Signal>>>,
    /// Ends the wait of a thread in the kernel. Made when the thread first waits there.
    pub(crate) bell: OnceLock<Bell>,
}

/// One use of a context slot by a fiber. `park::slots` implements it.
pub(crate) trait SlotUse {
    /// Exchanges the state of the thread with the place of this use. Runs the user's hook.
    fn exchange(&self);
}

/// The token of one wait for a future; the future's wakers set it. `park::parker` has the protocol.
///
/// It serves one call of `block_on` at a time, and is reused only when no waker is left that could
/// set it.
pub(crate) struct Signal {
    pub(crate) token: AtomicU64,
    /// The fiber or thread that waits. The waiter writes it before it registers in the token.
    pub(crate) who: AtomicPtr<Control>,
}

/// How a canceller gets back an unstarted fiber that another layer keeps until an event. Belongs to
/// a layer above this one.
pub(crate) struct Disarm {
    /// Submits the fiber, if it is still kept.
    pub(crate) call: fn(&Control),
}

/// The functions by which a scope learns of the end of a child. Belongs to a layer above this one.
pub(crate) struct ScopeEnd {
    /// Called before the end: the fiber leaves the scope's list.
    ///
    /// # Safety
    /// `scope` is the scope of `child`. This is called once, before `gone`.
    pub(crate) leave: unsafe fn(scope: *const (), child: &Control),
    /// Called after the end, when nothing of the fiber is left: the scope may return.
    ///
    /// # Safety
    /// `scope` is the scope of the fiber. This is called once, after `leave`. When this function
    /// returns, the scope may be gone.
    pub(crate) gone: unsafe fn(scope: *const ()),
    /// Called before the end of a fiber that could not start, which counts as a failure.
    ///
    /// # Safety
    /// `scope` is the scope of the fiber, for which `gone` was not called yet.
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
    /// Returns the fiber's name.
    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        // SAFETY: the name does not change while the block has a reference.
        unsafe { (*self.name.get()).as_ref() }
    }

    fn take_slots(&self) -> Vec<Rc<dyn SlotUse>> {
        // SAFETY: the list belongs to the fiber's thread, and no user code runs in between.
        core::mem::take(unsafe { &mut *self.slots.get() })
    }

    /// Clears the data of the fiber that had the block.
    ///
    /// # Safety
    /// The block is free, or not yet alive.
    pub(crate) unsafe fn clear(&self) {
        // SAFETY: the block is free or not yet alive, so no other thread reads the name.
        unsafe { *self.name.get() = None };
        self.stack_size.set(0);
        self.held_back.store(false, Ordering::Relaxed);
        self.deadline.set(u64::MAX);
        // A first-class fiber that was forgotten in the middle of its unwinding stays counted until
        // here.
        self.unwindings.set(0);
        self.scope_end.set(None);
        self.armed.store(ptr::null_mut(), Ordering::Relaxed);
        // Values that run user code when they are dropped were dropped before the fiber ended.
        debug_assert!(self.locals.is_empty());
        // SAFETY: the block is free or not yet alive, so no other thread uses the list.
        debug_assert!(unsafe { (*self.slots.get()).is_empty() }, "slots without their flag");
    }

    /// Drops the user's values that are left, when the fiber ends or rests. May run user code.
    /// Leaves nothing behind: the block's next fiber may be on another thread.
    pub(crate) fn drop_leftovers(&self, flags: impl Fn() -> Flags) {
        // The slots lie apart from the fields that all fibers touch, so they are read only if the
        // flags say so.
        const OF_SLOTS: Flags = Flags(Flags::SLOTS.0 | Flags::PENDING.0);
        if flags().has(OF_SLOTS) {
            // First-class fibers may be suspended where they use slots.
            let uses = self.take_slots();
            report::contain(|| drop(uses));
            let panic = self.pending_panic.take();
            report::contain(|| drop(panic));
        }
        // Locals go last: the destructors above may have made some.
        local::drop_all(&self.locals);
        if flags().has(OF_SLOTS) {
            // The destructors of locals may have left slots. They are leaked, because no more user
            // code may run.
            core::mem::forget(self.take_slots());
            core::mem::forget(self.pending_panic.take());
        }
    }
}
