//! Groups of fibers that are waited for together.
//!
//! A group has the join handles of its members in the order of submission. A member enters the
//! group before it is submitted, so a member that submits others comes before them.
//! [`Group::finish`] waits for one member after the other. When it reaches the end of the list,
//! under the lock, no member is left that could submit another one, and it takes the whole list.

use super::{FiberBuilder, JoinHandle, Unstarted};
use crate::carrier::current;
use crate::clock;
use crate::fiber::{Fiber, describe};
use crate::runtime::RuntimeHandle;
use core::time::Duration;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Result;
use std::time::Instant;

/// A group of fibers that collects their results in the order of submission.
///
/// A clone is another handle to the same group. Any thread may submit through it, and so may the
/// members themselves; [`finish`](Self::finish) waits for such members as well. Dropping all
/// handles detaches the members, which go on.
///
/// # Examples
/// ```
/// use sinew::Group;
///
/// let group = Group::new();
/// for n in 0..4 {
///     group.submit(move || n * n);
/// }
/// let squares: Vec<i32> = group.finish().into_iter().map(|result| result.unwrap()).collect();
/// assert_eq!(squares, [0, 1, 4, 9]);
/// ```
///
/// Members can submit further members:
/// ```
/// use sinew::Group;
///
/// fn visit(group: &Group<u32>, depth: u32) {
///     let theirs = group.clone();
///     group.submit(move || {
///         if depth > 0 {
///             visit(&theirs, depth - 1);
///             visit(&theirs, depth - 1);
///         }
///         1
///     });
/// }
///
/// let group = Group::new();
/// visit(&group, 4);
/// assert_eq!(group.finish().into_iter().map(|result| result.unwrap()).sum::<u32>(), 31);
/// ```
pub struct Group<T> {
    runtime: RuntimeHandle,
    members: Arc<Mutex<Members<T>>>,
}

struct Members<T> {
    /// In the order of submission.
    fibers: Vec<JoinHandle<T>>,
    /// Whether new members are cancelled, until the results are taken.
    cancelled: bool,
}

impl<T: Send + 'static> Group<T> {
    /// Creates a group on the caller's runtime, or on the default runtime.
    ///
    /// # Examples
    /// ```
    /// let group = sinew::Group::<u32>::new();
    /// assert!(group.is_empty());
    /// ```
    pub fn new() -> Group<T> {
        Group::on(&RuntimeHandle::current_or_default())
    }

    /// Creates a group on the given runtime.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).name("other").build()?;
    /// let group = sinew::Group::on(runtime.handle());
    /// group.submit(|| sinew::RuntimeHandle::current().name().to_owned());
    /// assert_eq!(group.finish()[0].as_ref().unwrap(), "other");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on(runtime: &RuntimeHandle) -> Group<T> {
        let members = Members { fibers: Vec::new(), cancelled: false };
        Group { runtime: runtime.clone(), members: Arc::new(Mutex::new(members)) }
    }

    /// Starts a fiber in the group, from any thread or fiber.
    ///
    /// # Examples
    /// ```
    /// let group = sinew::Group::new();
    /// group.submit(|| 1);
    /// group.submit(|| 2);
    /// assert_eq!(group.finish().len(), 2);
    /// ```
    pub fn submit(&self, f: impl FnOnce() -> T + Send + 'static) {
        self.submit_unstarted(Unstarted::new(&self.runtime, f));
    }

    /// Starts a fiber with settings of its own in the group.
    ///
    /// # Errors
    /// As for [`FiberBuilder::spawn`].
    ///
    /// # Examples
    /// ```
    /// let group = sinew::Group::new();
    /// group.submit_with(sinew::FiberBuilder::new().name("first"), || 1)?;
    /// assert_eq!(group.finish().remove(0).unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn submit_with(
        &self,
        builder: FiberBuilder,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<()> {
        self.submit_unstarted(builder.runtime(&self.runtime).build(f)?);
        Ok(())
    }

    /// Starts an unstarted fiber in the group. It runs on the runtime that it was made for.
    ///
    /// # Examples
    /// ```
    /// let group = sinew::Group::new();
    /// let fiber = sinew::FiberBuilder::new().build(|| 7)?;
    /// group.submit_unstarted(fiber);
    /// assert_eq!(group.finish().remove(0).unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn submit_unstarted(&self, fiber: Unstarted<T>) {
        fiber.submit_after(|handle| {
            let fiber = handle.fiber();
            let cancelled = {
                let mut members = self.lock();
                members.fibers.push(handle);
                members.cancelled
            };
            if cancelled {
                fiber.cancel();
            }
        });
    }

    /// Waits for all members, including those that members submit meanwhile, and returns their
    /// results in the order of submission.
    ///
    /// Afterwards the group is empty and can be used again. If several callers wait, one caller
    /// gets the results. A caller that is cancelled is unwound from this call; the members go on,
    /// and their results stay in the group.
    ///
    /// # Panics
    /// If a member calls it: the member would wait for itself.
    ///
    /// # Examples
    /// ```
    /// let group = sinew::Group::new();
    /// group.submit(|| 1);
    /// group.submit(|| panic!("the second fails"));
    /// let results = group.finish();
    /// assert!(results[0].is_ok() && results[1].is_err());
    /// ```
    #[track_caller]
    pub fn finish(&self) -> Vec<Result<T>> {
        self.finish_by(clock::NEVER).expect("a wait without a deadline ends with the members")
    }

    /// Waits for all members, at most for `timeout`, and returns their results; see
    /// [`finish`](Self::finish). Returns `None` if some member has not ended by then. Nothing is
    /// lost: the members go on, and a later call gets their results.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let group = sinew::Group::new();
    /// group.submit(sinew::park);
    /// assert!(group.finish_timeout(Duration::from_millis(1)).is_none());
    /// group.cancel();
    /// assert_eq!(group.finish().len(), 1);
    /// ```
    #[track_caller]
    pub fn finish_timeout(&self, timeout: Duration) -> Option<Vec<Result<T>>> {
        self.finish_by(clock::after(clock::now(), timeout))
    }

    /// Waits for all members, at most until `deadline`; see
    /// [`finish_timeout`](Self::finish_timeout).
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let group = sinew::Group::new();
    /// group.submit(|| 7);
    /// let results = group.finish_deadline(Instant::now() + Duration::from_secs(60)).unwrap();
    /// assert_eq!(results.len(), 1);
    /// ```
    #[track_caller]
    pub fn finish_deadline(&self, deadline: Instant) -> Option<Vec<Result<T>>> {
        self.finish_by(clock::at(deadline))
    }

    #[track_caller]
    fn finish_by(&self, deadline: u64) -> Option<Vec<Result<T>>> {
        self.forbid_waiting_for_itself();
        let mut ended = 0;
        let fibers = loop {
            let next = {
                let mut members = self.lock();
                match members.fibers.get(ended) {
                    Some(member) => member.fiber(),
                    None => {
                        // Another caller may have taken the members that this call waited for.
                        // Members that were submitted afterwards may be going on.
                        match members.fibers.iter().position(|member| !member.is_finished()) {
                            Some(going) => {
                                ended = going;
                                continue;
                            }
                            None => {
                                members.cancelled = false;
                                break core::mem::take(&mut members.fibers);
                            }
                        }
                    }
                }
            };
            if !next.wait_ended(deadline) {
                return None;
            }
            ended += 1;
        };
        Some(fibers.into_iter().map(JoinHandle::join).collect())
    }

    #[track_caller]
    fn forbid_waiting_for_itself(&self) {
        let Some((_, me)) = current::fiber() else { return };
        let member = self.lock().fibers.iter().any(|member| core::ptr::eq(member.control(), me));
        assert!(!member, "{} cannot wait for the end of its own group", describe(me));
    }
}

impl<T> Group<T> {
    /// Whether all members have ended.
    ///
    /// # Examples
    /// ```
    /// let group = sinew::Group::new();
    /// group.submit(|| ());
    /// sinew::wait_until(|| group.is_done());
    /// group.finish();
    /// ```
    pub fn is_done(&self) -> bool {
        self.lock().fibers.iter().all(JoinHandle::is_finished)
    }

    /// Returns the number of members that were submitted and whose results were not taken yet.
    ///
    /// # Examples
    /// ```
    /// let group = sinew::Group::new();
    /// group.submit(|| ());
    /// assert_eq!(group.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.lock().fibers.len()
    }

    /// Whether the group has no member.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::Group::<()>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks all members to end, including members that are submitted before the results are taken.
    ///
    /// # Examples
    /// ```
    /// let group = sinew::Group::new();
    /// group.submit(sinew::park);
    /// group.cancel();
    /// assert!(group.finish()[0].is_err());
    /// ```
    pub fn cancel(&self) {
        // Copied, so that no member runs and no bell rings while the lock is held.
        let fibers: Vec<_> = {
            let mut members = self.lock();
            members.cancelled = true;
            members.fibers.iter().map(JoinHandle::fiber).collect()
        };
        fibers.iter().for_each(Fiber::cancel);
    }

    /// Locks the list. The lock is held for a few steps only, without waits or user code.
    fn lock(&self) -> MutexGuard<'_, Members<T>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Group<T> {
    fn clone(&self) -> Self {
        Group { runtime: self.runtime.clone(), members: self.members.clone() }
    }
}

impl<T: Send + 'static> Default for Group<T> {
    fn default() -> Self {
        Group::new()
    }
}

impl<T> std::fmt::Debug for Group<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("runtime", &self.runtime)
            .field("members", &self.len())
            .finish_non_exhaustive()
    }
}

/// Runs all closures as fibers, and returns their results in order.
///
/// # Examples
/// ```
/// let results = sinew::run_all((0..3).map(|n| move || n + 1));
/// let sum: i32 = results.into_iter().map(|result| result.unwrap()).sum();
/// assert_eq!(sum, 6);
/// ```
#[track_caller]
pub fn run_all<I, F, T>(closures: I) -> Vec<Result<T>>
where
    I: IntoIterator<Item = F>,
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let group = Group::new();
    closures.into_iter().for_each(|f| group.submit(f));
    group.finish()
}
