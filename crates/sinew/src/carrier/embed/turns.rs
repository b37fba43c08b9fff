//! Where the order of dispatch differs in a foreign loop.
//!
//! A manager promises an order: tasks begin in the order in which they were added, and a fiber that
//! yields goes on when every other fiber has run and the loop has had its turn. So its carrier does
//! not use `run_next`, and takes unstarted fibers from outside behind the started ones.

use super::super::Owner;
use crate::fiber::life::STARTED;
use crate::fiber::{Control, Flags};

impl Owner {
    /// Whether the next dispatch is already decided: the root has work, or a fiber in `run_next`
    /// has interrupted itself.
    #[inline(always)]
    pub(in crate::carrier) fn is_decided(&self) -> bool {
        self.is_embedded()
            && (self.embedded.call.get().is_some()
                || self.embedded.interrupted.get() > 0 && !self.run_next.get().is_null())
    }

    /// Returns the decided next fiber, or the root.
    pub(in crate::carrier) fn decided(&self) -> *const Control {
        if self.embedded.call.get().is_some() { &raw const self.root } else { self.next_ready() }
    }

    /// Puts a fiber behind all others: it runs when every other fiber has run and the loop has had
    /// its turn.
    ///
    /// # Safety
    /// The fiber is in no queue. It is the running fiber, which stops next, or an unstarted one
    /// that belongs to the caller.
    pub(crate) unsafe fn behind_all(&self, me: &Control) {
        me.set_flags(Flags::YIELDED);
        // SAFETY: the fiber is in no queue, so its link is free.
        unsafe { self.embedded.yielded.push(me) };
    }

    /// Makes a fiber ready that was woken on the carrier's thread while the thread did not run as
    /// the carrier.
    ///
    /// # Safety
    /// The caller has ended the fiber's wait, and the fiber is bound to this carrier.
    #[cold]
    pub(in crate::carrier) unsafe fn ready_from_outside(&self, control: &Control) {
        // SAFETY: the fiber is ours and in no queue. Code that is in the middle of using `ready`
        // runs as the carrier, and then wakes do not come here.
        unsafe { self.ready.push(control) };
        if !self.is_stepping() {
            self.shared().ring();
        }
    }

    /// Puts the running fiber, which yields, behind the fibers that are ready. On an embedded
    /// carrier, puts it behind all other fibers.
    ///
    /// # Safety
    /// The fiber runs on this carrier, is in no queue, and stops next.
    pub(crate) unsafe fn behind_others(&self, me: &Control) {
        // SAFETY: as the caller promised.
        unsafe {
            if self.is_embedded() {
                self.behind_all(me);
            } else {
                self.behind(me);
            }
        }
    }

    /// Whether the oldest unstarted fiber gets a turn now and then while started ones are ready.
    pub(in crate::carrier) fn takes_oldest_in_turn(&self) -> bool {
        !self.is_embedded()
    }

    /// Returns how often `run_next` may be used in a window of `window` dispatches.
    pub(in crate::carrier) fn run_next_uses(&self, window: u32) -> u32 {
        if self.is_embedded() { 0 } else { (window / 4).max(1) }
    }

    /// Ends waits whose deadlines have passed, but in a foreign loop not so often that the loop
    /// gets no turn.
    pub(in crate::carrier) fn expire_due(&self, now: u64) {
        if self.is_embedded() {
            self.expire_in_step(now);
        } else {
            self.expire(now);
        }
    }

    /// Takes a fiber that came through the inbox.
    ///
    /// # Safety
    /// The fiber is ready, in no queue, and belongs to this carrier.
    #[inline(always)]
    pub(in crate::carrier) unsafe fn receive(&self, control: &Control) {
        // SAFETY: the fiber is in no queue, so its link is free.
        unsafe {
            if self.is_embedded() {
                return self.receive_in_loop(control);
            }
            self.ready.push(control);
        }
    }

    /// Takes a fiber that came through the inbox of a carrier in a foreign loop. Unstarted fibers
    /// from outside begin behind the started ones.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    unsafe fn receive_in_loop(&self, control: &Control) {
        let started = control.life.marks() & STARTED != 0;
        // SAFETY: the fiber is in no queue and belongs to this carrier, as the caller of `receive`
        // promised.
        unsafe {
            if !started || control.flags().has(Flags::MIGRATABLE) {
                if !started && !control.flags().has(Flags::RECURRING) {
                    control.set_born(self.now.get());
                }
                self.deque().push(control);
            } else {
                if self.observed.is_on() {
                    self.note_woken(control.id());
                }
                self.ready.push(control);
            }
        }
    }
}
