//! Arms that wait in the table of `park::table`: [`KeyArm`] under a key, and [`SignalArm`] for
//! posts of a futex.

use super::sealed::{Entered, Joint};
use crate::park::list::Node;
use crate::park::table::{self, Bucket, Entry, Key};
use crate::sync::futex::Futex;
use core::pin::Pin;

/// An arm that waits in the table under a key. After `leave`, the user of this arm decides whether
/// its operation was done or has become possible.
pub(crate) struct KeyArm {
    entry: Entry,
    node: Option<Node<Entry>>,
}

impl KeyArm {
    pub(crate) fn new(key: Key) -> KeyArm {
        KeyArm::with_word(key, 0)
    }

    /// Creates an arm with a number in its entry, which the waker reads.
    pub(crate) fn with_word(key: Key, word: usize) -> KeyArm {
        KeyArm { entry: Entry::new(key, false, word), node: None }
    }

    /// Enters the wait if `still`, called under the lock of the table, returns true. If `still`
    /// returns false, the operation is possible, and the arm ends the wait.
    pub(crate) fn enter(
        &mut self,
        wait: Joint<'_>,
        still: impl FnOnce(&mut Bucket) -> bool,
    ) -> Entered {
        if self.link(wait, still) { Entered::Linked } else { done(wait) }
    }

    /// Enters the wait if `still`, called under the lock of the table, returns true. Returns that
    /// result.
    pub(crate) fn link(
        &mut self,
        Joint(wait): Joint<'_>,
        still: impl FnOnce(&mut Bucket) -> bool,
    ) -> bool {
        let node = self.node.insert(Node::one_of_several(wait, &self.entry));
        // SAFETY: `select` does not move an arm between `enter` and `leave`, and `leave` drops the
        // node.
        let node = unsafe { Pin::new_unchecked(&*node) };
        let mut bucket = table::bucket(self.entry.key()).lock();
        let waits = still(&mut bucket);
        if waits {
            // SAFETY: the node is pinned, and `leave` unlinks it before it drops the node.
            unsafe { bucket.push(node) };
        }
        waits
    }

    /// Leaves the wait, and returns how the arm left.
    pub(crate) fn leave(&mut self) -> Departure {
        let Some(node) = &self.node else { return Departure::NotThere };
        let departure = {
            let mut bucket = table::bucket(self.entry.key()).lock();
            if node.is_linked() {
                bucket.remove(node);
                Departure::InVain
            } else if node.is_granted() {
                Departure::Granted
            } else {
                Departure::NotThere
            }
        };
        self.node = None;
        departure
    }
}

/// How an arm left its wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The arm was not in the table, or a waker had taken it out without a grant.
    NotThere,
    /// The arm still stood in the table.
    InVain,
    /// The arm was granted: its operation was done.
    Granted,
}

/// Ends the wait for an arm whose operation is possible. Returns `Lost` if the wait had ended
/// before.
pub(crate) fn done(Joint(wait): Joint<'_>) -> Entered {
    if wait.claim_for_itself() { Entered::Done } else { Entered::Lost }
}

/// An arm that waits for a condition. A post of a futex announces each change of the condition.
pub(crate) struct SignalArm(KeyArm);

impl SignalArm {
    pub(crate) fn new(futex: &Futex) -> SignalArm {
        SignalArm(KeyArm::new(Key::of(futex)))
    }

    /// Enters the wait for the next post of `futex`. If `ready` returns true, ends the wait
    /// instead. `futex` must be the one that the arm was created with.
    pub(crate) fn enter(
        &mut self,
        wait: Joint<'_>,
        futex: &Futex,
        ready: impl Fn() -> bool,
    ) -> Entered {
        loop {
            let token = futex.get();
            // A fiber that changes the condition after the look at `ready` also posts after it, so
            // the wait does not miss the change. A post between `get` and `link` makes `link` fail.
            // Then look again instead of ending the wait: the post may announce a change that the
            // caller saw earlier.
            if ready() {
                return done(wait);
            }
            if self.0.link(wait, |_| futex.mark(token + 1)) {
                return Entered::Linked;
            }
        }
    }

    /// Leaves the wait.
    pub(crate) fn leave(&mut self) {
        self.0.leave();
    }
}
