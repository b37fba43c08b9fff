//! A point where a number of fibers or threads wait for each other.
//!
//! The waiters are in a list of `park::list`. A round ends when the last fiber or thread of it
//! arrives.

use crate::clock;
use crate::fiber::WaitKind;
use crate::park::list::{Begin, Ended, List, Terms, Wakes, wait_in};
use crate::primitive::{Cell, SpinLock};

/// A point where a number of fibers or threads wait until all have arrived. It can be used again.
///
/// A fiber that is cancelled while it waits does not count as arrived.
///
/// # Examples
/// ```
/// use sinew::sync::Barrier;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// let (barrier, there) = (Barrier::new(5), AtomicU32::new(0));
/// sinew::scope(|s| {
///     for _ in 0..5 {
///         s.spawn(|| {
///             there.fetch_add(1, Ordering::Relaxed);
///             barrier.wait();
///             assert_eq!(there.load(Ordering::Relaxed), 5);
///         });
///     }
/// });
/// ```
pub struct Barrier {
    size: usize,
    waiting: SpinLock<Waiting>,
}

struct Waiting {
    /// How many waiters of the current round there are.
    count: usize,
    /// The number of complete rounds. A waiter notes the number on arrival, and may pass when the
    /// number has grown.
    round: u64,
    list: List<Cell<u64>>,
}

/// The result of [`Barrier::wait`].
///
/// # Examples
/// ```
/// use sinew::sync::Barrier;
///
/// let barrier = Barrier::new(3);
/// let fibers = sinew::scope(|s| {
///     let fibers = [(); 3].map(|()| s.spawn(|| barrier.wait()));
///     fibers.map(|fiber| fiber.join().unwrap())
/// });
/// // One fiber of the round does the work that follows it.
/// assert_eq!(fibers.iter().filter(|result| result.is_leader()).count(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Returns whether the caller arrived last in its round.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::sync::Barrier::new(1).wait().is_leader());
    /// ```
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    /// Creates a barrier for `size` fibers or threads. A size of 0 has the effect of 1.
    ///
    /// # Examples
    /// ```
    /// static START: sinew::sync::Barrier = sinew::sync::Barrier::new(1);
    /// START.wait();
    /// ```
    pub const fn new(size: usize) -> Barrier {
        Barrier { size, waiting: SpinLock::new(Waiting { count: 0, round: 0, list: List::new() }) }
    }

    /// Waits until all fibers or threads of the barrier have arrived. The last one to arrive is the
    /// leader.
    ///
    /// # Examples
    /// ```
    /// let barrier = sinew::sync::Barrier::new(2);
    /// let leaders = sinew::scope(|s| {
    ///     let other = s.spawn(|| barrier.wait().is_leader());
    ///     let mine = barrier.wait().is_leader();
    ///     u32::from(mine) + u32::from(other.join().unwrap())
    /// });
    /// assert_eq!(leaders, 1);
    /// ```
    #[track_caller]
    pub fn wait(&self) -> BarrierWaitResult {
        let ended = wait_in(
            Begin::Anew,
            &self.waiting,
            Terms::new(WaitKind::Event, self, clock::NEVER),
            &Cell::new(0),
            |node| {
                let mut waiting = self.waiting.lock();
                if waiting.count + 1 >= self.size {
                    waiting.count = 0;
                    waiting.round += 1;
                    return Some(waiting.round);
                }
                waiting.count += 1;
                node.payload().set(waiting.round);
                // SAFETY: `wait_in` pins the node, and unlinks it before its frame ends.
                unsafe { waiting.list.push(node) };
                None
            },
            |waiting, node| {
                if let Some(node) = node {
                    if node.payload().get() == waiting.round {
                        waiting.count -= 1;
                    }
                    waiting.list.remove(node);
                }
                Wakes::none()
            },
        );
        match ended {
            Ended::AtOnce(round) => {
                self.release(round);
                BarrierWaitResult(true)
            }
            _ => BarrierWaitResult(false),
        }
    }

    /// Wakes the waiters of rounds before `round`. They are at the front of the list.
    fn release(&self, round: u64) {
        loop {
            let mut wakes = Wakes::none();
            {
                let mut waiting = self.waiting.lock();
                while !wakes.is_full()
                    && waiting.list.first().is_some_and(|first| first.payload().get() < round)
                {
                    if let Some(node) = waiting.list.pop()
                        && let Some(claimed) = node.claim()
                    {
                        node.grant();
                        wakes.push(claimed);
                    }
                }
            }
            if !wakes.resume() {
                return;
            }
        }
    }
}

// A barrier holds no data of the user that a panic could leave half changed.
impl std::panic::UnwindSafe for Barrier {}
impl std::panic::RefUnwindSafe for Barrier {}

impl core::fmt::Debug for Barrier {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Barrier").field("size", &self.size).finish_non_exhaustive()
    }
}
