//! Arms whose waiters are in the table.

use super::sealed::{Entered, Joint};
use crate::park::list::Node;
use crate::park::table::{self, Bucket, Entry, Key};
use crate::sync::futex::Futex;
use core::pin::Pin;

/// One of several waits, for what the table has a key for. It is woken, and looks then whether it can
/// be done: nothing is lost if the wait was ended for another.
pub(crate) struct KeyArm {
    entry: Entry,
    node: Option<Node<Entry>>,
}

impl KeyArm {
    pub(crate) fn new(key: Key) -> KeyArm {
        KeyArm::with_word(key, 0)
    }

    /// One whose entry has a number that means something to the other side.
    pub(crate) fn with_word(key: Key, word: usize) -> KeyArm {
        KeyArm { entry: Entry::new(key, false, word), node: None }
    }

    /// Enters the wait, unless `still`, which is asked under the lock of the table, says that there
    /// is nothing to wait for: then it is done.
    pub(crate) fn enter(
        &mut self,
        wait: Joint<'_>,
        still: impl FnOnce(&mut Bucket) -> bool,
    ) -> Entered {
        if self.link(wait, still) { Entered::Linked } else { done(wait) }
    }

    /// Enters the wait, unless `still` says that there is nothing to wait for; false then.
    pub(crate) fn link(
        &mut self,
        Joint(wait): Joint<'_>,
        still: impl FnOnce(&mut Bucket) -> bool,
    ) -> bool {
        let node = self.node.insert(Node::one_of_several(wait, &self.entry));
        // SAFETY: `select` does not move the arm before it has left it.
        let node = unsafe { Pin::new_unchecked(&*node) };
        let mut bucket = table::bucket(self.entry.key()).lock();
        let waits = still(&mut bucket);
        if waits {
            // SAFETY: the node is pinned, and taken out before it goes.
            unsafe { bucket.push(node) };
        }
        waits
    }

    /// Leaves the wait.
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
    /// It was not in the table any more, or never.
    NotThere,
    /// It waited, and nobody had come for it.
    InVain,
    /// What it waited for was given to it.
    Granted,
}

/// An arm that can be done ends the wait for it, if nobody has ended it for another.
pub(crate) fn done(Joint(wait): Joint<'_>) -> Entered {
    if wait.claim_for_itself() { Entered::Done } else { Entered::Lost }
}

/// One of several waits, for what is announced by posts of a futex.
pub(crate) struct SignalArm(KeyArm);

impl SignalArm {
    pub(crate) fn new(futex: &Futex) -> SignalArm {
        SignalArm(KeyArm::new(Key::of(futex)))
    }

    /// Enters the wait for the next post of the same futex, unless `ready` says that there is nothing
    /// to wait for.
    pub(crate) fn enter(
        &mut self,
        wait: Joint<'_>,
        futex: &Futex,
        ready: impl Fn() -> bool,
    ) -> Entered {
        loop {
            let token = futex.get();
            // What becomes ready after the look is posted after it. The other way round that is not
            // so: a post may be of something that was seen before it came.
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
