//! On which carrier a fiber starts. It stays there, so this decides how the load is shared.
//!
//! A carrier starts the fibers of its own deque until it has more live fibers than another carrier.
//! Then it *deals*: it gives unstarted fibers to carriers with less load than the mean. It puts them
//! among those carriers' *offers*. A carrier takes its offers at the end of a stint, or when its
//! deque is empty. If it leaves them for too long, the giver or an idle carrier takes them.
//!
//! placement/README.md has the rule, the reasons for it, and why no offer is lost.
//! `placement/simulation.rs` shows what the rule does on up to 64 carriers. Next: `run`, which
//! searches the work of neighbours.

use super::{Carrier, Owner, random};
use crate::fiber::{Control, Flags};
use crate::primitive::{AtomicU32, AtomicU64, Ordering, fence};
use crate::queue::{Delivery, Inbox};
use core::ptr;

/// In a crew of at most this many carriers, loads are compared with all of them.
const FEW: usize = 16;
/// In a larger crew, loads are compared with this many carriers, chosen at random.
const LOOKS: usize = 8;
/// How long the offers of a carrier are left to it, in nanoseconds. A carrier that is woken up for
/// its offers needs some tens of microseconds. A carrier that has not tended its duties for this long
/// gets none.
const PATIENCE: u64 = 300_000;

/// The load of a carrier, as all threads see it.
pub(crate) struct Load {
    /// Started fibers that are bound to the carrier, without those that wait for their children.
    /// Only the carrier's owner writes it.
    live: AtomicU32,
    /// Fibers among the offers.
    offered: AtomicU32,
    /// When the oldest of the offers was made.
    offered_at: AtomicU64,
    /// When the carrier last tended its duties or woke up; `u64::MAX` while it sleeps and wakes up.
    tended: AtomicU64,
    /// Unstarted fibers that another carrier has given to this one. Any carrier of the crew may
    /// take them.
    offers: Inbox<Control>,
}

impl Load {
    pub(super) fn new() -> Load {
        Load {
            live: AtomicU32::new(0),
            offered: AtomicU32::new(0),
            offered_at: AtomicU64::new(0),
            tended: AtomicU64::new(0),
            offers: Inbox::new(),
        }
    }

    /// Whether there are offers.
    #[inline(always)]
    pub(super) fn has_offers(&self) -> bool {
        !self.offers.is_empty()
    }

    /// Sets when the carrier last tended its duties; see the field.
    #[inline(always)]
    pub(super) fn set_tended(&self, at: u64) {
        self.tended.store(at, Ordering::Relaxed);
    }

    /// Whether the carrier has left its offers for too long.
    #[inline(always)]
    pub(super) fn has_old_offers(&self, now: u64) -> bool {
        self.has_offers() && now.saturating_sub(self.offered_at.load(Ordering::Relaxed)) > PATIENCE
    }

    #[inline(always)]
    pub(super) fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// Counts a fiber that begins, or a joiner that goes on.
    #[inline(always)]
    fn enter(&self) {
        self.live.store(self.live().wrapping_add(1), Ordering::Relaxed);
    }

    /// Uncounts a fiber that ends, or a joiner that waits.
    #[inline(always)]
    fn leave(&self) {
        self.live.store(self.live().wrapping_sub(1), Ordering::Relaxed);
    }
}

impl Carrier {
    /// Whether the carrier can be given fibers: it sleeps, wakes up, or has tended its duties lately.
    /// Otherwise one of its fibers computes for long, or blocks the thread.
    fn can_take(&self, now: u64) -> bool {
        now.saturating_sub(self.load.tended.load(Ordering::Relaxed)) <= PATIENCE
    }

    /// Returns how many fibers the carrier has or will have, as far as a relaxed look tells.
    ///
    /// A descriptor stands for a fiber that waits for it, unless there are more live fibers: fibers
    /// without a stack that wait for their first byte are not live yet.
    pub(super) fn burden(&self) -> usize {
        let live = self.load.live() as usize;
        let registered = self.crew().drivers[self.index()].registered();
        let offered = self.load.offered.load(Ordering::Relaxed) as usize;
        live.max(registered) + self.deque.len() + offered
    }
}

/// Returns the carriers that are compared to find one with little burden: all, or some if the crew is
/// large. Their order is random, so that equal carriers are chosen equally often.
fn candidates(carriers: &[&'static Carrier]) -> impl Iterator<Item = &'static Carrier> {
    let count = carriers.len();
    let looks = if count <= FEW { count } else { LOOKS };
    let first = random(count);
    (0..looks).map(move |look| {
        let index = if count <= FEW { (first + look) % count } else { random(count) };
        carriers[index]
    })
}

/// Returns the carrier with the least burden among the [`candidates`].
pub(crate) fn least_burdened(carriers: &[&'static Carrier]) -> &'static Carrier {
    candidates(carriers).min_by_key(|one| one.burden()).expect("a crew has carriers")
}

/// Returns how many of its unstarted fibers a carrier with the burden `mine` gives to a carrier with
/// the burden `theirs`, if `mean` is the mean of all burdens that were compared.
///
/// A sleeping carrier is not woken up for one fiber of two: two fibers that begin together often
/// wait for each other, and then do best on one carrier.
fn share(mine: usize, theirs: usize, mean: usize, asleep: bool) -> usize {
    let least = if asleep { 3 } else { 2 };
    if mine < theirs + least {
        0
    } else {
        mean.saturating_sub(theirs).min(mine.saturating_sub(mean))
    }
}

/// Returns how many live fibers a carrier with `live` of them may have before it compares loads
/// again. The comparison may cost some cache misses, so it is made for every eighth fiber of many.
fn next_limit(live: u32) -> u32 {
    live.saturating_add((live / 8).max(1))
}

impl Owner {
    /// Whether a fiber of this carrier counts as live: it cannot move on.
    #[inline(always)]
    pub(super) fn is_counted(&self, control: &Control) -> bool {
        !control.flags().has(Flags::ROAMING)
    }

    /// Counts a fiber that starts here.
    #[inline(always)]
    pub(super) fn count_start(&self, control: &Control) {
        if self.is_counted(control) {
            self.shared().load.enter();
        }
    }

    /// Uncounts a fiber that has ended or rests. Its block may serve another fiber by now, so the
    /// caller tells whether the fiber was counted.
    #[inline(always)]
    pub(super) fn count_end(&self, counted: bool) {
        if counted {
            self.shared().load.leave();
        }
    }

    /// Decides how many fibers may start here before the carrier compares loads.
    pub(super) fn limit_starts(&self) {
        let limit =
            if self.has_thieves() { next_limit(self.shared().load.live()) } else { u32::MAX };
        self.start_limit.set(limit);
    }

    /// Tends the placement of fibers: lowers the limit of [`limit_starts`](Self::limit_starts) if
    /// fibers have ended since, and takes back fibers that this carrier gave to others in vain.
    #[inline]
    pub(super) fn tend_placement(&self, now: u64) {
        let load = &self.shared().load;
        load.set_tended(now);
        let limit = self.start_limit.get();
        if limit != u32::MAX {
            self.start_limit.set(limit.min(next_limit(load.live())));
        }
        if self.has_given.get() {
            self.take_back(now);
        }
    }

    /// Takes fibers that other carriers have left among their offers for too long.
    #[cold]
    #[inline(never)]
    fn take_back(&self, now: u64) {
        let mut left = false;
        for carrier in &self.crew().carriers {
            if carrier.load.has_old_offers(now) {
                self.take_offers(carrier);
            }
            left |= carrier.load.has_offers();
        }
        self.has_given.set(left);
    }

    /// Gives unstarted fibers away, if this carrier has too many live ones.
    #[inline(always)]
    pub(super) fn deal_if_due(&self) {
        if self.shared().load.live() >= self.start_limit.get() {
            self.deal();
        }
    }

    #[cold]
    #[inline(never)]
    fn deal(&self) {
        if self.shared().deque.len() == 0 {
            return;
        }
        self.limit_starts();
        let mut compared = [None; FEW];
        let now = self.now.get();
        let others = candidates(&self.crew().carriers)
            .filter(|one| !ptr::eq(*one, self.shared()) && one.can_take(now));
        compared.iter_mut().zip(others).for_each(|(place, one)| *place = Some(one));
        let compared = || compared.iter().flatten();
        let all = compared().map(|one| one.burden()).sum::<usize>() + self.shared().burden();
        let mean = all.div_ceil(compared().count() + 1);
        for target in compared() {
            let (mine, theirs) = (self.shared().burden(), target.burden());
            let count = share(mine, theirs, mean, target.inbox.is_parked());
            if count > 0 {
                self.offer(target, count);
            }
        }
    }

    /// Gives up to `count` unstarted fibers to `target`, and wakes it if it sleeps.
    ///
    /// Gives the newest, because the oldest are the next to start. If the newest are the next, gives
    /// the oldest. Stops when the loads are equal, because `target` may be stealing meanwhile.
    fn offer(&self, target: &Carrier, count: usize) {
        for given in 0..count {
            if given > 0 && self.shared().burden() <= target.burden() + 1 {
                break;
            }
            let taken = if self.depth_first.get() {
                self.take_oldest_shared()
            } else {
                // SAFETY: `true` is right whether other carriers steal or not.
                unsafe { self.deque().pop(true) }
            };
            let Some(control) = taken else { break };
            if target.load.offered.fetch_add(1, Ordering::Relaxed) == 0 {
                target.load.offered_at.store(self.now.get(), Ordering::Relaxed);
            }
            // SAFETY: a fiber from the deque is ours, and in no other queue. No carrier parks on
            // the offers.
            let _ = unsafe { target.load.offers.push(Delivery::Ready(control)) };
        }
        self.has_given.set(true);
        // ORDERING: SeqCst fence; pairs with the one in `Owner::sleep` after the mark. Either the
        // target's last look sees the offers, or this thread sees the mark.
        fence(Ordering::SeqCst);
        if target.inbox.is_parked() && target.inbox.unpark() {
            target.ring();
        }
    }

    /// Moves the offers of `carrier`, which is this one or a neighbour, to the deque. Returns
    /// whether there were any.
    #[inline(always)]
    pub(super) fn take_offers(&self, carrier: &Carrier) -> bool {
        carrier.load.has_offers() && self.take_some_offers(carrier)
    }

    #[inline(never)]
    fn take_some_offers(&self, carrier: &Carrier) -> bool {
        let mut count = 0;
        carrier.load.offers.take(|offer| {
            let (Delivery::Ready(control) | Delivery::Message(control)) = offer;
            self.deque().push(control);
            count += 1;
        });
        carrier.load.offered.fetch_sub(count, Ordering::Relaxed);
        if count > 1 {
            self.crew().published();
        }
        count > 0
    }
}

/// A wait of a fiber for fibers that it has started. Meanwhile the waiter does not count as live: it
/// goes on when they have ended, so it adds no load of its own.
#[must_use]
pub(crate) struct Parenthood(Option<&'static Carrier>);

impl Parenthood {
    /// Begins the wait of the running fiber; `None` stands for a plain thread.
    #[inline(always)]
    pub(crate) fn begin(fiber: Option<(&'static Owner, &Control)>) -> Parenthood {
        // A pinned fiber blocks its carrier, which then can take no other fiber.
        let uncountable = Flags(Flags::ROAMING.0 | Flags::PINNED.0);
        let counted = fiber.filter(|(_, me)| !me.flags().has(uncountable));
        let carrier = counted.map(|(owner, _)| owner.shared());
        if let Some(carrier) = carrier {
            carrier.load.leave();
        }
        Parenthood(carrier)
    }

    /// Ends the wait. A bound fiber is on the carrier where the wait began.
    #[inline(always)]
    pub(crate) fn end(self) {
        if let Some(carrier) = self.0 {
            carrier.load.enter();
        }
    }
}

#[cfg(test)]
mod simulation;
