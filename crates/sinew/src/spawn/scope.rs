//! Children that borrow from their parent.
//!
//! # Why it is sound
//!
//! What children borrow lives outside of the call to `scope`, which does not return, nor unwind,
//! before every child is gone: its frames, its locals and, if its handle is not leaked, its result.
//! The wait for them is not left early; if the parent is cancelled meanwhile, or its deadline
//! passes, that is passed on to the children, and the parent waits on.
//!
//! A handle that is leaked keeps its result for ever: not dropped, so not used.

use super::arm::JoinArm;
use super::handle::Fiber;
use super::{Builder, JoinHandle, make, make_outside, submit};
use crate::cancel;
use crate::carrier::crew::PinnedWait;
use crate::carrier::current as here;
use crate::clock;
use crate::fiber::extra::ScopeEnd;
use crate::fiber::life::CANCELLED;
use crate::fiber::state::Outcome;
use crate::fiber::{Control, FiberRef, Flags, WaitKind, task};
use crate::metrics;
use crate::park::{Wait, Waiter};
use crate::primitive::{AtomicUsize, Ordering, SpinLock};
use crate::runtime::Handle;
use core::marker::PhantomData;
use core::ptr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Result;

/// A scope in which children may borrow; see [`scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    core: Core,
    /// Invariant, as in [`std::thread::Scope`]: no child may be given something that lives shorter
    /// or longer than it says.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

#[derive(Debug)]
struct Core {
    state: SpinLock<Children>,
    /// Panics of children that nobody has seen.
    unseen: AtomicUsize,
    /// Why the parent could not wait for children, so that there must not be any.
    refusal: Option<&'static str>,
}

/// Why whoever calls `scope` here could not wait at its end, if so.
fn refusal() -> Option<&'static str> {
    let (carrier, control) = here::fiber()?;
    let flags = control.flags();
    if flags.has(Flags::NO_WAIT) {
        return Some("a scope in a predicate or a hook has no children: nothing may wait there");
    }
    if flags.has(Flags::PINNED) {
        if carrier.crew().carriers.len() == 1 {
            return Some(
                "deadlock: a pinned fiber waits for a scope's children on its only carrier",
            );
        }
        if carrier.crew().settings.pinned_wait == PinnedWait::Error {
            return Some("a pinned fiber would block its carrier at the end of a scope");
        }
    }
    None
}

#[derive(Debug)]
struct Children {
    count: usize,
    /// Those that have not ended, to pass a cancellation on to.
    first: *const Control,
    /// Whether the parent was cancelled: new children are as well.
    cancelled: bool,
    /// The parent, when it waits.
    waiter: Option<Waiter>,
}

// SAFETY: the list is touched under the lock; children leave it before they end.
unsafe impl Send for Children {}

/// Runs `f`, in which fibers may be started that borrow from the caller, and waits for all of them.
///
/// As [`std::thread::scope`]: if a child panicked and nobody joined it, `scope` panics when all have
/// ended. If the caller is cancelled, or a deadline passes, while it waits, its children are
/// cancelled. On a plain thread the children run on the default runtime.
///
/// Leaving `f` early, by `?` or by a panic, cancels nobody: children that wait for somebody who never
/// comes are waited for. [`Scope::cancel`] ends them.
///
/// # Examples
/// ```
/// let mut numbers = vec![1, 2, 3];
/// let sum = sinew::scope(|s| {
///     let sum = s.spawn(|| numbers.iter().sum::<i32>());
///     sum.join().unwrap()
/// });
/// numbers.push(sum);
/// assert_eq!(numbers, [1, 2, 3, 6]);
/// ```
///
/// A child cannot outlive the scope:
/// ```compile_fail,E0597
/// sinew::scope(|s| {
///     let inner = 7;
///     s.spawn(|| inner + 1);
/// });
/// ```
#[track_caller]
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        core: Core {
            state: SpinLock::new(Children {
                count: 0,
                first: ptr::null(),
                cancelled: false,
                waiter: None,
            }),
            unseen: AtomicUsize::new(0),
            refusal: refusal(),
        },
        scope: PhantomData,
        env: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    scope.core.wait();
    if let Some((_, control)) = here::fiber() {
        // What a context slot's hook threw while we waited.
        cancel::settle(control, Outcome::Notified);
    }
    match result {
        Err(payload) => cancel::pass_on(payload),
        Ok(_) if scope.core.unseen.load(Ordering::Relaxed) > 0 => {
            panic!("a scoped fiber panicked")
        }
        Ok(result) => {
            cancel::check_current();
            result
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a fiber that may borrow what lives longer than the scope.
    ///
    /// Children may start further children. [`Builder::spawn_scoped`] gives a child settings of its own.
    ///
    /// # Panics
    /// If the caller of [`scope`] could not wait for the child, because it is in a predicate or a hook, or pinned
    /// where a pinned wait is an error or would never end.
    ///
    /// # Examples
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let count = AtomicU32::new(0);
    /// sinew::scope(|s| {
    ///     for _ in 0..10 {
    ///         s.spawn(|| count.fetch_add(1, Ordering::Relaxed));
    ///     }
    /// });
    /// assert_eq!(count.into_inner(), 10);
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let closure = self.child(f);
        // SAFETY: closure and result are `Send`, and the scope does not return before the fiber is
        // gone, with them.
        let handle = unsafe {
            match here::fiber() {
                Some((carrier, parent)) => {
                    let (carrier, control) =
                        make(carrier, parent, task::of(closure), Flags(0), |_| ());
                    self.core.adopt(control);
                    metrics::add(&carrier.counters.spawned, 1);
                    carrier.publish(control);
                    JoinHandle::new(control)
                }
                None => {
                    let runtime = Handle::default_runtime();
                    let control = make_outside(runtime.crew(), closure);
                    self.core.adopt(control);
                    submit(runtime.crew(), control);
                    JoinHandle::new(control)
                }
            }
        };
        ScopedJoinHandle { handle, core: &self.core, scope: PhantomData }
    }

    /// Starts a child with settings of its own.
    #[track_caller]
    pub(super) fn spawn_with<F, T>(
        &'scope self,
        builder: Builder,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let closure = self.child(f);
        // SAFETY: closure and result are `Send`. The fiber becomes a child before it is submitted, and the
        // scope does not return before the child is gone, with them. If there is no fiber, the closure
        // was dropped.
        let unstarted = unsafe { builder.build_any(task::of(closure), Flags(0)) }?;
        let handle = unstarted.submit_after(|handle: JoinHandle<T>| {
            self.core.adopt(handle.control());
            handle
        });
        Ok(ScopedJoinHandle { handle, core: &self.core, scope: PhantomData })
    }

    /// What a child runs: `f`, and the scope hears of its panic.
    ///
    /// # Panics
    /// If the scope cannot have children.
    #[track_caller]
    fn child<F, T>(&'scope self, f: F) -> impl FnOnce() -> T + use<'scope, F, T>
    where
        F: FnOnce() -> T,
    {
        let core = &self.core;
        if let Some(reason) = core.refusal {
            panic!("{reason}");
        }
        move || match catch_unwind(AssertUnwindSafe(f)) {
            Ok(result) => result,
            Err(payload) => {
                if !cancel::is_cancel(&*payload) {
                    core.unseen.fetch_add(1, Ordering::Relaxed);
                }
                cancel::pass_on(payload)
            }
        }
    }

    /// Asks all children to end, also those that are yet to be started.
    ///
    /// # Examples
    /// ```
    /// sinew::scope(|s| {
    ///     s.spawn(|| sinew::park());
    ///     s.cancel();
    /// });
    /// ```
    pub fn cancel(&self) {
        self.core.cancel();
    }
}

impl Core {
    /// Makes a fiber that is not yet submitted a child.
    fn adopt(&self, control: &Control) {
        let extra = control.extra_or_new();
        extra.scope.set(ptr::from_ref(self).cast());
        extra.scope_end.set(Some(&END));
        extra.scope_previous.set(ptr::null());
        let mut children = self.state.lock();
        children.count += 1;
        extra.scope_next.set(children.first);
        // SAFETY: who is in the list has not ended.
        if let Some(first) = unsafe { children.first.as_ref() } {
            first.extra_or_new().scope_previous.set(control);
        }
        children.first = control;
        if children.cancelled {
            control.life.set(CANCELLED);
        }
    }

    /// Waits until all children are gone. Never unwinds.
    fn wait(&self) {
        loop {
            if self.state.lock().count == 0 {
                return;
            }
            let wait = Wait::begin_anyhow(WaitKind::Scope, ptr::from_ref(self).addr());
            {
                let mut children = self.state.lock();
                if children.count == 0 {
                    drop(children);
                    wait.withdraw();
                    return;
                }
                children.waiter = Some(wait.waiter());
            }
            let outcome = wait.suspend(clock::NEVER);
            self.state.lock().waiter = None;
            if outcome != Outcome::Notified {
                self.cancel();
                return cancel::masked(|| self.wait());
            }
        }
    }

    /// Cancels all children.
    fn cancel(&self) {
        // The list is copied, since a request may ring a bell, which is too much for the lock; and
        // memory for the copy is found before the lock is taken, for the same reason.
        let mut copy: Vec<FiberRef> = Vec::new();
        loop {
            let count = self.state.lock().count;
            copy.reserve(count + 16);
            let mut children = self.state.lock();
            children.cancelled = true;
            if children.count > copy.capacity() {
                continue;
            }
            let mut next = children.first;
            // SAFETY: who is in the list has not ended, so it has references.
            while let Some(child) = unsafe { next.as_ref() } {
                copy.push(FiberRef::new(child));
                next = child.extra_or_new().scope_next.get();
            }
            break;
        }
        for child in copy {
            cancel::request(&child);
        }
    }
}

static END: ScopeEnd = ScopeEnd { leave, gone, failed };

unsafe fn failed(scope: *const ()) {
    // SAFETY: the scope waits for `gone`.
    unsafe { &*scope.cast::<Core>() }.unseen.fetch_add(1, Ordering::Relaxed);
}

unsafe fn leave(scope: *const (), child: &Control) {
    // SAFETY: the scope waits for `gone`.
    let core = unsafe { &*scope.cast::<Core>() };
    let Some(extra) = child.extra() else { return };
    let mut children = core.state.lock();
    let (previous, next) = (extra.scope_previous.get(), extra.scope_next.get());
    // SAFETY: who is in the list has not ended.
    unsafe {
        match previous.as_ref().and_then(Control::extra) {
            Some(previous) => previous.scope_next.set(next),
            None => children.first = next,
        }
        if let Some(next) = next.as_ref().and_then(Control::extra) {
            next.scope_previous.set(previous);
        }
    }
}

unsafe fn gone(scope: *const ()) {
    let waiter = {
        // SAFETY: the scope waits for this. When the lock is free it may be gone.
        let mut children = unsafe { &*scope.cast::<Core>() }.state.lock();
        children.count -= 1;
        if children.count == 0 { children.waiter.take() } else { None }
    };
    if let Some(waiter) = waiter {
        waiter.wake();
    }
}

/// The right to the result of a child.
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    core: &'scope Core,
    scope: PhantomData<&'scope mut &'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the child's result; see [`JoinHandle::join`].
    ///
    /// # Examples
    /// ```
    /// let text = String::from("borrowed");
    /// let length = sinew::scope(|s| s.spawn(|| text.len()).join().unwrap());
    /// assert_eq!(length, 8);
    /// ```
    #[track_caller]
    pub fn join(self) -> Result<T> {
        let result = self.handle.join();
        if let Err(payload) = &result
            && !cancel::is_cancel(&**payload)
        {
            self.core.unseen.fetch_sub(1, Ordering::Relaxed);
        }
        result
    }

    /// Joining as one of several operations; see [`JoinHandle::arm`].
    ///
    /// # Examples
    /// ```
    /// sinew::scope(|s| {
    ///     let mut child = s.spawn(|| 7);
    ///     sinew::select! {
    ///         join(child) -> result => assert_eq!(result.unwrap(), 7),
    ///     }
    /// });
    /// ```
    #[track_caller]
    pub fn arm(&mut self) -> JoinArm<'_, T> {
        JoinArm::new(&mut self.handle, Some(&self.core.unseen))
    }

    /// Whether the child has ended.
    ///
    /// # Examples
    /// ```
    /// sinew::scope(|s| {
    ///     let child = s.spawn(|| ());
    ///     sinew::wait_until(|| child.is_finished(), None);
    /// });
    /// ```
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// A handle that says who the child is and what it does.
    ///
    /// # Examples
    /// ```
    /// sinew::scope(|s| {
    ///     let child = s.spawn(sinew::park);
    ///     child.fiber().unpark();
    /// });
    /// ```
    pub fn fiber(&self) -> Fiber {
        self.handle.fiber()
    }

    /// Asks the child to end; see [`JoinHandle::cancel`].
    ///
    /// # Examples
    /// ```
    /// sinew::scope(|s| {
    ///     let child = s.spawn(sinew::park);
    ///     child.cancel();
    ///     assert!(child.join().is_err());
    /// });
    /// ```
    pub fn cancel(&self) {
        self.handle.cancel();
    }
}
