//! [`TaskIterator`]: the results of tasks, in the order in which the tasks end.
//!
//! The iterator has the join handles of its tasks, in slots. Each task has an [`End`] with the
//! index of its slot. The `End` is dropped when the closure has returned or was unwound, or
//! together with a closure that never ran. Its drop puts the index into the queue of [`Ends`]. So
//! every task enters the queue exactly once, in the order in which the tasks end. A waiter notes
//! how long the queue has to become, and then waits for a future. The task whose end makes the
//! queue that long sets the future, so an end that comes before the wait begins is not missed.
//!
//! The iterator takes a result from the join handle only when the fiber has ended as well. So a
//! caller that is unwound from the wait loses nothing: the slot is still the first of the queue.

use super::task::{IntoTask, start};
use crate::park::can_yield;
use crate::spawn::{JoinHandle, local_carrier};
use crate::sync::FiberFuture;
use core::cell::{Cell, RefCell};
use core::fmt;
use std::collections::VecDeque;
use std::rc::Rc;
use std::thread::Result;

/// Starts tasks, and returns an iterator over their results in the order in which they end.
///
/// This function does not wait.
///
/// # Panics
/// On a plain thread, and in a migratable fiber.
///
/// # Examples
/// ```
/// use sinew::tasks::add_tasks;
///
/// sinew::run(|| {
///     let mut sum = 0;
///     for (index, result) in add_tasks((0..10).map(|n| move || n * n)) {
///         assert_eq!(result.unwrap(), index * index);
///         sum += index;
///     }
///     assert_eq!(sum, 45);
/// });
/// ```
#[track_caller]
pub fn add_tasks<I, F, T>(tasks: I) -> TaskIterator<T>
where
    I: IntoIterator<Item = F>,
    F: IntoTask<Output = T> + 'static,
    T: 'static,
{
    local_carrier("add_tasks");
    let mut iterator = TaskIterator::new();
    for task in tasks {
        iterator.add_task(task);
    }
    iterator
}

/// An iterator over the results of tasks, in the order in which the tasks end; see [`add_tasks`].
///
/// As an [`Iterator`] it waits for the next task to end, and returns the task's number and its
/// result. Tasks may be added even after it has returned `None`.
///
/// Dropping the iterator leaves the tasks running. A caller that is unwound from a wait, for
/// example by a [`timeout`](crate::timeout()), has lost no result, and may wait again.
///
/// # Examples
/// ```
/// use sinew::tasks::TaskIterator;
/// use std::time::Duration;
///
/// sinew::run(|| {
///     let mut tasks = TaskIterator::new();
///     tasks.add_task(|| {
///         sinew::sleep(Duration::from_millis(20));
///         "slow"
///     });
///     tasks.add_task(|| "quick");
///     let (number, result) = tasks.next().unwrap();
///     assert_eq!((number, result.unwrap()), (1, "quick"));
///     assert_eq!(tasks.await_next().unwrap(), "slow");
/// });
/// ```
#[must_use = "the tasks run in any case, but their results are dropped"]
pub struct TaskIterator<T> {
    ends: Rc<Ends>,
    /// The tasks whose results were not taken yet, and their numbers. A task that ends names its
    /// slot.
    slots: Vec<Option<(usize, JoinHandle<T>)>>,
    /// The indices of the free slots.
    vacant: Vec<usize>,
    added: usize,
    last: Option<usize>,
}

impl<T: 'static> TaskIterator<T> {
    /// Makes an iterator without tasks.
    ///
    /// # Examples
    /// ```
    /// use sinew::tasks::TaskIterator;
    ///
    /// sinew::run(|| {
    ///     let mut tasks = TaskIterator::new();
    ///     tasks.add_task(|| 7);
    ///     assert_eq!(tasks.await_next().unwrap(), 7);
    /// });
    /// ```
    pub fn new() -> TaskIterator<T> {
        let ends = Rc::new(Ends::default());
        TaskIterator { ends, slots: Vec::new(), vacant: Vec::new(), added: 0, last: None }
    }

    /// Starts one more task, and returns its number: the count of tasks that were added before it.
    ///
    /// # Panics
    /// On a plain thread, and in a migratable fiber.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let mut tasks = sinew::tasks::add_tasks([|| 1]);
    ///     assert_eq!(tasks.add_task(|| 2), 1);
    ///     let results: Vec<i32> = tasks.map(|(_, result)| result.unwrap()).collect();
    ///     assert_eq!(results.len(), 2);
    /// });
    /// ```
    #[track_caller]
    pub fn add_task(&mut self, task: impl IntoTask<Output = T> + 'static) -> usize {
        local_carrier("TaskIterator::add_task");
        let (settings, f) = task.parts();
        let slot = self.vacant.last().copied().unwrap_or(self.slots.len());
        // Reserve room for every task, so that no `End` allocates when it is dropped.
        self.ends.queue.borrow_mut().reserve(self.slots.len() + 1);
        let starting = Starting { ends: &self.ends, slot };
        let ending = Ending { f, end: End { ends: self.ends.clone(), slot } };
        let fiber = start(settings, move || ending.run());
        core::mem::forget(starting);
        let number = self.added;
        self.added += 1;
        if self.vacant.pop().is_some() {
            self.slots[slot] = Some((number, fiber));
        } else {
            self.slots.push(Some((number, fiber)));
        }
        number
    }

    /// Returns the result of the next task to end. Waits only if there is no result to take.
    ///
    /// If the task panicked, the payload is the `Err`; [`task_id`](Self::task_id) then says which
    /// task it was. A caller that is cancelled is unwound from here.
    ///
    /// # Panics
    /// If there is no task, and where [`reserve`](Self::reserve) panics.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let mut tasks = sinew::tasks::add_tasks([|| "done"]);
    ///     while tasks.has_next() {
    ///         assert_eq!(tasks.await_next().unwrap(), "done");
    ///     }
    /// });
    /// ```
    #[track_caller]
    pub fn await_next(&mut self) -> Result<T> {
        match self.next() {
            Some((_, result)) => result,
            None => panic!(
                "await_next called on a TaskIterator without tasks; has_next tells whether there \
                 are any"
            ),
        }
    }

    /// Waits until `n` results can be taken without waiting. If fewer than `n` results are left,
    /// waits for all of them.
    ///
    /// A caller that is cancelled is unwound from here.
    ///
    /// # Panics
    /// If the wait could never end: in a [`pinned`](crate::pinned) region or outside of fibers,
    /// where the tasks cannot run meanwhile.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let mut tasks = sinew::tasks::add_tasks([|| 1, || 2, || 3]);
    ///     tasks.reserve(3);
    ///     assert!(!tasks.has_pending());
    /// });
    /// ```
    #[track_caller]
    pub fn reserve(&mut self, n: usize) {
        self.ends.wait_for(n.min(self.left()));
    }

    /// Cancels all tasks that have not ended; see
    /// [`JoinHandle::cancel`](crate::JoinHandle::cancel).
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let mut tasks = sinew::tasks::add_tasks([sinew::park, sinew::park]);
    ///     tasks.cancel();
    ///     assert!(tasks.all(|(_, result)| sinew::is_cancel(&*result.unwrap_err())));
    /// });
    /// ```
    pub fn cancel(&self) {
        self.slots.iter().flatten().for_each(|(_, fiber)| fiber.cancel());
    }
}

impl<T> TaskIterator<T> {
    /// Returns whether there is a result to take, now or when its task has ended.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let mut tasks = sinew::tasks::add_tasks([|| 7]);
    ///     assert!(tasks.has_next());
    ///     tasks.await_next().unwrap();
    ///     assert!(!tasks.has_next());
    /// });
    /// ```
    pub fn has_next(&self) -> bool {
        self.left() > 0
    }

    /// Returns whether there is a result that can be taken without waiting.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let mut tasks = sinew::tasks::add_tasks([|| 7]);
    ///     assert!(!tasks.has_completed());
    ///     tasks.reserve(1);
    ///     assert!(tasks.has_completed());
    /// });
    /// ```
    pub fn has_completed(&self) -> bool {
        self.ends.count() > 0
    }

    /// Returns whether there is a task that has not ended.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let mut tasks = sinew::tasks::add_tasks([|| 7]);
    ///     assert!(tasks.has_pending());
    ///     tasks.reserve(1);
    ///     assert!(!tasks.has_pending());
    /// });
    /// ```
    pub fn has_pending(&self) -> bool {
        self.left() > self.ends.count()
    }

    /// Returns the number of the task whose result was taken last; `None` if no result was taken
    /// yet.
    ///
    /// # Examples
    /// ```
    /// sinew::run(|| {
    ///     let mut tasks = sinew::tasks::add_tasks([|| 7]);
    ///     assert_eq!(tasks.task_id(), None);
    ///     tasks.await_next().unwrap();
    ///     assert_eq!(tasks.task_id(), Some(0));
    /// });
    /// ```
    pub fn task_id(&self) -> Option<usize> {
        self.last
    }

    /// Returns the number of results that were not taken yet.
    fn left(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}

impl<T: 'static> Iterator for TaskIterator<T> {
    type Item = (usize, Result<T>);

    #[track_caller]
    fn next(&mut self) -> Option<(usize, Result<T>)> {
        if !self.has_next() {
            return None;
        }
        self.ends.wait_for(1);
        let slot = self.ends.first()?;
        if let Some((_, fiber)) = &self.slots[slot] {
            // The closure has returned, but the fiber may still wait, for example in destructors of
            // its fiber-locals. The caller may be unwound from this wait, so nothing is taken
            // before it is over.
            fiber.wait_for_end();
        }
        self.ends.queue.borrow_mut().pop_front();
        let (number, fiber) = self.slots[slot].take()?;
        self.vacant.push(slot);
        self.last = Some(number);
        Some((number, fiber.join()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left(), Some(self.left()))
    }
}

impl<T: 'static> ExactSizeIterator for TaskIterator<T> {}

impl<T: 'static> Default for TaskIterator<T> {
    fn default() -> Self {
        TaskIterator::new()
    }
}

impl<T> fmt::Debug for TaskIterator<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskIterator")
            .field("completed", &self.ends.count())
            .field("pending", &(self.left() - self.ends.count()))
            .field("task_id", &self.last)
            .finish()
    }
}

/// The ends of tasks, which the tasks report to their iterator. The iterator and its tasks are on
/// one thread.
#[derive(Default)]
struct Ends {
    /// The slots of ended tasks with results to take, in the order in which the tasks ended.
    queue: RefCell<VecDeque<usize>>,
    /// The length of the queue for which the iterator waits; zero if it does not wait.
    wanted: Cell<usize>,
    /// Set when the queue has reached that length. Each wait makes a new future.
    reached: RefCell<FiberFuture<()>>,
}

impl Ends {
    fn count(&self) -> usize {
        self.queue.borrow().len()
    }

    fn first(&self) -> Option<usize> {
        self.queue.borrow().front().copied()
    }

    fn add(&self, slot: usize) {
        self.queue.borrow_mut().push_back(slot);
        let wanted = self.wanted.get();
        if wanted != 0 && self.count() >= wanted {
            self.wanted.set(0);
            // An error would mean that the future was set already, and then there is no waiter to
            // wake.
            let _ = self.reached.borrow().set(());
        }
    }

    #[track_caller]
    fn wait_for(&self, count: usize) {
        if self.count() >= count {
            return;
        }
        assert!(
            can_yield(),
            "deadlock: cannot wait for a TaskIterator in a pinned region or outside of fibers, because its \
             tasks run on this thread; wait in a fiber that is not pinned"
        );
        // The previous future has no waiter: an earlier wait has returned or was unwound.
        *self.reached.borrow_mut() = FiberFuture::new();
        self.wanted.set(count);
        self.reached.borrow().wait();
    }
}

/// A closure, and the guard that reports its end. If this is dropped before the closure ran, the
/// closure is dropped first.
struct Ending<F> {
    f: F,
    end: End,
}

impl<F: FnOnce() -> T, T> Ending<F> {
    fn run(self) -> T {
        let _end = self.end;
        (self.f)()
    }
}

/// Reports the end of a task when it is dropped: after its closure has returned or was unwound, or
/// together with a closure that never ran.
struct End {
    ends: Rc<Ends>,
    slot: usize,
}

impl Drop for End {
    fn drop(&mut self) {
        self.ends.add(self.slot);
    }
}

/// Removes the reported end of a task that could not be started: the system could not meet its
/// settings, or a fiber-local panicked while it was inherited.
struct Starting<'a> {
    ends: &'a Ends,
    slot: usize,
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.ends.queue.borrow_mut().retain(|slot| *slot != self.slot);
    }
}
