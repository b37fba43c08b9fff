//! Children that borrow from their parent.
//!
//! # Why it is sound
//!
//! Children borrow values that live outside of the call to `scope`. The call neither returns nor
//! unwinds before every child is gone: its frames, its locals and, unless its handle is leaked, its
//! result. The parent never leaves its wait for the children early. If the parent is cancelled
//! meanwhile, or its deadline passes, it cancels the children and goes on waiting.
//!
//! A leaked handle keeps its result for ever. The result is never dropped, so it uses no borrow.

use super::arm::JoinArm;
use super::{FiberBuilder, JoinHandle, birth};
use crate::cancel;
use crate::carrier::crew::PinnedWait;
use crate::carrier::current;
use crate::carrier::placement::Parenthood;
use crate::clock;
use crate::fiber::Fiber;
use crate::fiber::extra::ScopeEnd;
use crate::fiber::life::CANCELLED;
use crate::fiber::state::Outcome;
use crate::fiber::{Control, FiberRef, Flags, WaitKind, task};
use crate::metrics;
use crate::park::raise;
use crate::park::{Wait, Waiter};
use crate::primitive::{AtomicUsize, Ordering, SpinLock};
use crate::runtime::RuntimeHandle;
use core::marker::PhantomData;
use core::ptr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Result;

/// A scope in which children may borrow; see [`scope`].
///
/// # Examples
/// ```
/// /// Starts a child for each word, in the caller's scope.
/// fn lengths<'scope>(s: &'scope sinew::Scope<'scope, '_>, text: &'scope str) -> Vec<usize> {
///     let children: Vec<_> = text.split(' ').map(|word| s.spawn(|| word.len())).collect();
///     children.into_iter().map(|child| child.join().unwrap()).collect()
/// }
///
/// let text = String::from("borrowed by three");
/// assert_eq!(sinew::scope(|s| lengths(s, &text)), [8, 2, 5]);
/// ```
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    core: Core,
    /// Invariant, as in [`std::thread::Scope`]: no lifetime that a child sees may be
    /// shortened or extended.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

#[derive(Debug)]
struct Core {
    state: SpinLock<Children>,
    /// How many panics of children no caller has seen.
    unseen: AtomicUsize,
    /// Why the parent could not wait for children. If set, the scope refuses children.
    refusal: Option<&'static str>,
}

/// Returns why the caller of `scope` could not wait at the scope's end, or `None` if it could.
fn refusal() -> Option<&'static str> {
    let (carrier, control) = current::fiber()?;
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
    /// The list of children that have not ended, for passing a cancellation on.
    first: *const Control,
    /// Whether the parent was cancelled. If so, new children are cancelled as well.
    cancelled: bool,
    /// The parent, while it waits.
    waiter: Option<Waiter>,
}

// SAFETY: the list is touched under the lock only, and children leave it before they end.
unsafe impl Send for Children {}

/// Runs `f`, which may start fibers that borrow from the caller, and waits for all of them.
///
/// As with [`std::thread::scope`], `scope` panics at the end if a child panicked and was not
/// joined. If the caller is cancelled while it waits, or a deadline passes, its children are
/// cancelled. On a plain thread the children run on the default runtime.
///
/// Leaving `f` early, by `?` or by a panic, cancels no child: `scope` still waits, even for a child
/// whose own wait never ends. [`Scope::cancel`] ends such children.
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
    if let Some((_, control)) = current::fiber() {
        // Raise a panic that a context slot's hook threw during the wait.
        raise::settle(control, Outcome::Notified);
    }
    match result {
        Err(payload) => raise::pass_on(payload),
        Ok(_) if scope.core.unseen.load(Ordering::Relaxed) > 0 => {
            panic!("a scoped fiber panicked")
        }
        Ok(result) => {
            raise::check_current();
            result
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a child, which may borrow values that outlive the scope.
    ///
    /// Children may start further children. [`FiberBuilder::spawn_scoped`] starts a child with
    /// settings of its own.
    ///
    /// # Panics
    /// If the caller of [`scope`] could not wait for the child: it is in a predicate or a hook, or
    /// it is pinned where a pinned wait is an error or would never end.
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
        // SAFETY: closure and result are `Send`. The scope does not return before the fiber is
        // gone, and its closure and result with it.
        let handle = unsafe {
            match current::fiber() {
                Some((owner, parent)) => {
                    let (owner, control) =
                        birth::from_running(owner, parent, task::of(closure), Flags(0), |_| ());
                    self.core.adopt(control);
                    metrics::add(&owner.shared().counters.spawned, 1);
                    owner.publish(control);
                    JoinHandle::new(control)
                }
                None => {
                    let runtime = RuntimeHandle::default_runtime();
                    let control = birth::outside(runtime.crew(), task::of(closure));
                    self.core.adopt(control);
                    birth::submit(runtime.crew(), control);
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
        builder: FiberBuilder,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let closure = self.child(f);
        // SAFETY: closure and result are `Send`. The fiber becomes a child before it is submitted,
        // and the scope does not return before the child is gone, with its closure and result. On
        // an error `build_any` has dropped the closure.
        let unstarted = unsafe { builder.build_any(task::of(closure), Flags(0)) }?;
        let handle = unstarted.submit_after(|handle: JoinHandle<T>| {
            self.core.adopt(handle.control());
            handle
        });
        Ok(ScopedJoinHandle { handle, core: &self.core, scope: PhantomData })
    }

    /// Wraps the closure of a child, so that the scope counts its panic.
    ///
    /// # Panics
    /// If the scope refuses children.
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
                raise::pass_on(payload)
            }
        }
    }

    /// Asks all children to end, including children that are started later.
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
    /// Makes an unsubmitted fiber a child of the scope.
    fn adopt(&self, control: &Control) {
        let extra = control.extra_or_new();
        extra.scope.set(ptr::from_ref(self).cast());
        extra.scope_end.set(Some(&END));
        extra.scope_previous.set(ptr::null());
        let mut children = self.state.lock();
        children.count += 1;
        extra.scope_next.set(children.first);
        // SAFETY: a fiber in the list has not ended, so its block is alive.
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
            let parenthood = Parenthood::begin(current::fiber());
            let outcome = wait.suspend(clock::NEVER);
            parenthood.end();
            self.state.lock().waiter = None;
            if outcome != Outcome::Notified {
                self.cancel();
                return cancel::masked(|| self.wait());
            }
        }
    }

    /// Cancels all children.
    fn cancel(&self) {
        // The list is copied, because a request may ring a bell, which takes too long under the
        // lock. Memory for the copy is reserved before the lock is taken, for the same reason.
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
            // SAFETY: a fiber in the list has not ended, so its block has references.
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

/// Counts a child that could not start as failed; see [`ScopeEnd`].
///
/// # Safety
/// `scope` is the `Core` that has adopted a child for which [`gone`] was not called yet.
unsafe fn failed(scope: *const ()) {
    // SAFETY: the scope does not return before `gone` was called for this child.
    unsafe { &*scope.cast::<Core>() }.unseen.fetch_add(1, Ordering::Relaxed);
}

/// Takes a child that is about to end out of the scope's list; see [`ScopeEnd`].
///
/// # Safety
/// `scope` is the `Core` that has adopted `child`. This is called once for a child, before
/// [`gone`].
unsafe fn leave(scope: *const (), child: &Control) {
    // SAFETY: the scope does not return before `gone` was called for this child.
    let core = unsafe { &*scope.cast::<Core>() };
    let Some(extra) = child.extra() else { return };
    let mut children = core.state.lock();
    let (previous, next) = (extra.scope_previous.get(), extra.scope_next.get());
    // SAFETY: a fiber in the list has not ended, so its block is alive.
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

/// Counts a child as gone, and wakes the scope after the last one; see [`ScopeEnd`].
///
/// # Safety
/// `scope` is the `Core` that has adopted the child. This is called once for a child, after
/// [`leave`]. The caller does not use `scope` for this child afterwards.
unsafe fn gone(scope: *const ()) {
    let waiter = {
        // SAFETY: the scope waits for this call. It may be gone as soon as the lock is released.
        let mut children = unsafe { &*scope.cast::<Core>() }.state.lock();
        children.count -= 1;
        if children.count == 0 { children.waiter.take() } else { None }
    };
    if let Some(waiter) = waiter {
        waiter.wake();
    }
}

/// The right to take the result of a scope's child.
///
/// # Examples
/// ```
/// let numbers = vec![1, 2, 3, 4];
/// let (left, right) = numbers.split_at(2);
/// let sum: i32 = sinew::scope(|s| {
///     let left = s.spawn(|| left.iter().sum::<i32>());
///     let right = right.iter().sum::<i32>();
///     left.join().unwrap() + right
/// });
/// assert_eq!(sum, 10);
/// ```
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

    /// Returns an arm of `select` that waits for the end of the child; see [`JoinHandle::arm`].
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
    ///     sinew::wait_until(|| child.is_finished());
    /// });
    /// ```
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Returns a handle that tells the child's id, name and state.
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
