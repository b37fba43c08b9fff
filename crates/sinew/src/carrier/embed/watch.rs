//! The watcher of an embedded carrier: it is told of each start, stop and wake of a fiber.

use super::super::Owner;
use crate::primitive::Ordering;
use crate::report;
use std::rc::Rc;

/// An event in a fiber's life, for a watcher on the carrier's own thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    Starting,
    Runnable,
    Stopped,
}

/// The watcher of a carrier, called with the event and the id of the fiber. It must not wait.
pub(crate) type Watcher = dyn Fn(Moment, u64);

impl Owner {
    /// Sets the watcher, which is told of starts, stops and wakes from now on; `None` removes it.
    pub(crate) fn watch(&self, watcher: Option<Rc<Watcher>>) {
        let before = self.embedded.watcher.replace(watcher);
        drop(before);
    }

    /// Notes that a fiber was woken. The watcher is told later, when no lock is held.
    pub(in crate::carrier) fn note_woken(&self, fiber: u64) {
        if self.embedded.watcher.borrow().is_some() {
            self.embedded.woken.borrow_mut().push(fiber);
        }
    }

    /// Tells the watcher of the noted wakes and of this event.
    pub(in crate::carrier) fn tell(&self, moment: Moment, fiber: u64) {
        let watcher = self.embedded.watcher.borrow().clone();
        let Some(watcher) = watcher else { return };
        let shared = &self.shared().embedded;
        shared.telling.store(true, Ordering::Relaxed);
        shared.between.store(moment == Moment::Stopped, Ordering::Relaxed);
        let woken = self.embedded.woken.take();
        for (moment, fiber) in
            woken.into_iter().map(|woken| (Moment::Runnable, woken)).chain([(moment, fiber)])
        {
            if report::contain(|| watcher(moment, fiber)).is_none() {
                report::say(format_args!("an observer panicked when fiber {fiber} was {moment:?}"));
            }
        }
        shared.between.store(false, Ordering::Relaxed);
        shared.telling.store(false, Ordering::Relaxed);
    }
}
