//! A copy of the timers of all carriers, for `inspect`: the waits that have a deadline.

use super::Crew;
use crate::fiber::Control;
use crate::fiber::state::Epoch;
use crate::queue::{Timed, low_bits};
use core::ptr;

/// Waits that have a deadline, as tuples of fiber, number of the wait, and deadline. Sorted.
pub(crate) struct TimedWaits(Vec<(*const Control, u32, u64)>);

impl TimedWaits {
    /// Collects the timed waits of all carriers of all crews.
    pub(crate) fn collect() -> TimedWaits {
        let mut all = Vec::new();
        for crew in Crew::all() {
            for carrier in &crew.carriers {
                // Carriers wait for this lock, so it is held only for a copy into reserved memory.
                let count = carrier.timers.lock().len();
                all.reserve(count + count / 8);
                all.extend(carrier.timers.lock().all());
            }
        }
        all.sort_unstable();
        TimedWaits(all)
    }

    /// Whether the fiber's current wait had a deadline when the waits were collected.
    pub(crate) fn has(&self, control: &Control) -> bool {
        control.wait_number().is_some_and(|number| self.find(control, number).is_some())
    }

    /// Returns the deadline of the fiber's wait `epoch`, if it has one.
    pub(crate) fn deadline(&self, control: &Control, epoch: Epoch) -> Option<u64> {
        self.find(control, low_bits(epoch.number()))
    }

    fn find(&self, control: &Control, number: u32) -> Option<u64> {
        let key = (ptr::from_ref(control), number);
        let at = self.0.partition_point(|(item, of, _)| (*item, *of) < key);
        self.0.get(at).filter(|(item, of, _)| (*item, *of) == key).map(|(.., deadline)| *deadline)
    }
}
