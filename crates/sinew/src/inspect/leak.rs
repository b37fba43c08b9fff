//! Fibers that wait at channels of which nobody else has an end.
//!
//! Who has an end of a channel has a pointer to it in memory. So all memory is searched for pointers to
//! those channels at which fibers wait without a deadline. What such fibers have on their own stacks does
//! not count at first: it counts for those of them that somebody else might wake. What is left when no more
//! are found, is at channels that are known only to each other.
//!
//! What is no longer in use and was not overwritten looks as if it were in use: then a fiber is not listed
//! although it should be. What is left out is known to be unused: stacks below where those who wait are,
//! closures of fibers that have begun.

use super::scan::{Region, Scanner, regions, unused_stacks};
use super::snapshot::{FiberInfo, fibers};
use crate::fiber::life::STARTED;
use crate::fiber::state::Epoch;
use crate::fiber::{WaitKind, slab};
use crate::spawn::State;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

/// Addresses are kept like this while memory is searched for them.
const DISGUISE: usize = usize::MAX;

/// How far before what fibers wait at the pointers of its ends point: to the counts of an `Arc`.
const COUNTS: usize = 2 * size_of::<usize>();

/// A fiber that waits at a channel, for as long as it takes.
struct Suspect {
    info: FiberInfo,
    epoch: Epoch,
    /// What the ends of its channel point to, disguised.
    channel: usize,
}

impl Suspect {
    fn still_waits(&self) -> bool {
        self.info.fiber.control().wake.is_waiting(self.epoch)
    }
}

/// Whose stack it is.
#[derive(Clone, Copy)]
enum Whose {
    Suspect(usize),
    /// Of one that is not suspected: who has something there may use it.
    Other,
}

/// Fibers that wait to send or to receive at a channel (bounded, unbounded or oneshot) of which nobody but
/// they themselves, and others like them, has an end: they will wait for ever.
///
/// All memory of the process is searched for pointers to the channels, which takes about a second for each
/// gigabyte that is resident. Pointers that are no longer in use, but still somewhere in memory, keep a
/// fiber from being listed. One that a thread has in a register only, or that is hidden from a search (with
/// marks in its bits, in another process, in a file), is not seen: then one is listed that may be woken. Who
/// waits for several at once (`select!`), or at a broadcast or watch channel, is not listed.
///
/// # Errors
/// If the memory of the process cannot be looked at: there is no `/proc`, or it is not Linux.
///
/// # Examples
/// ```
/// use sinew::sync::channel;
///
/// let forgetful = sinew::spawn(|| {
///     let (sender, receiver) = channel::bounded::<u8>(1);
///     let _ = receiver.recv(); // its own sender is the only one
///     drop(sender);
/// });
/// sinew::wait_until(|| forgetful.fiber().waits_for().is_some(), None);
/// for leaked in sinew::inspect::leaks()? {
///     println!("{} waits for ever", leaked.id());
/// }
/// forgetful.cancel();
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline(never)]
pub fn leaks() -> io::Result<Vec<FiberInfo>> {
    // What is on this stack below is the search's own.
    let top = 0_u8;
    let top = (&raw const top).addr();
    let first = search(top)?;
    if first.is_empty() {
        return Ok(first);
    }
    // An end that was handed from one to another while memory was searched may have been missed.
    let second: HashSet<_> = search(top)?.into_iter().map(|info| (info.id(), info.waits)).collect();
    Ok(first.into_iter().filter(|info| second.contains(&(info.id(), info.waits))).collect())
}

/// Whether a fiber waits at a channel, so that it might be listed.
pub(super) fn is_suspect(info: &FiberInfo) -> bool {
    let kind = info.wait.map(|wait| wait.kind);
    matches!(kind, Some(WaitKind::Send | WaitKind::Receive))
}

fn search(top: usize) -> io::Result<Vec<FiberInfo>> {
    let mut suspects = Vec::new();
    let mut stacks: BTreeMap<usize, (usize, Whose)> = BTreeMap::new();
    let mut elsewhere = false;
    for info in fibers() {
        let control = info.fiber.control();
        let epoch = control.wake.waiting();
        let whose = match (epoch, info.wait) {
            (Some(epoch), Some(wait))
                if info.state == State::Suspended
                    && is_suspect(&info)
                    && super::deadlock::has_stopped(control) =>
            {
                let channel = (wait.address - COUNTS) ^ DISGUISE;
                suspects.push(Suspect { info: info.clone(), epoch, channel });
                Whose::Suspect(suspects.len() - 1)
            }
            _ => Whose::Other,
        };
        let place = control.context.look().map(|context| context.address());
        match place.and_then(|place| Some((place, sinew_context::stack::find(place)?.range()))) {
            // What runs may be anywhere on its stack.
            Some((place, range)) => {
                let suspended = info.state == State::Suspended;
                let used = if suspended { place } else { range.start };
                stacks.insert(range.start, (used, whose));
            }
            None => elsewhere |= control.life.marks() & STARTED != 0,
        }
    }
    if suspects.is_empty() {
        return Ok(Vec::new());
    }
    let timed = crate::carrier::TimedWaits::collect();
    let search = Search { suspects: &suspects, stacks, elsewhere, top };
    let leaked = search.run(&regions()?);
    super::memory::settle();
    let lost = suspects.iter().zip(leaked).filter(|(suspect, leaked)| {
        *leaked && !timed.has(suspect.info.fiber.control()) && suspect.still_waits()
    });
    Ok(lost.map(|(suspect, _)| suspect.info.clone()).collect())
}

struct Search<'a> {
    suspects: &'a [Suspect],
    /// By where a stack begins: from where on it is in use, and by whom.
    stacks: BTreeMap<usize, (usize, Whose)>,
    /// Whether somebody runs on a stack that is not known.
    elsewhere: bool,
    /// Below which the stack of this thread is the search's own.
    top: usize,
}

impl Search<'_> {
    /// For each suspect, whether nobody can wake it.
    fn run(&self, regions: &[Region]) -> Vec<bool> {
        /// More than the search needs of its stack from here on.
        const DEEP: usize = 64 * 1024;
        let wanted: HashSet<usize> = self.suspects.iter().map(|suspect| suspect.channel).collect();
        let (least, most) = (wanted.iter().min(), wanted.iter().max());
        let (Some(&least), Some(&most)) = (least, most) else { return Vec::new() };
        let mut unused = unused_stacks(regions);
        unused.push(((&raw const unused).addr().saturating_sub(DEEP), self.top));
        let mut scanner = Scanner::new();
        // Channels that somebody knows who is not suspected, and those that suspects know.
        let mut known: HashSet<usize> = HashSet::new();
        let mut knows: HashMap<usize, Vec<usize>> = HashMap::new();
        for region in regions {
            let resident = scanner.resident(region);
            for (start, end, whose) in resident.iter().flat_map(|part| self.parts(*part)) {
                let mut found = Vec::new();
                scanner.words(start, end, |address, word| {
                    let channel = word ^ DISGUISE;
                    if (least..=most).contains(&channel) && wanted.contains(&channel) {
                        found.push((address, channel));
                    }
                });
                for (address, channel) in found {
                    let dead = scanner.has(address)
                        || unused.iter().any(|(start, end)| (*start..*end).contains(&address))
                        || slab::around(address).is_some_and(|block| {
                            block.life.is_vacant() || block.life.marks() & STARTED != 0
                        });
                    match whose {
                        _ if dead => {}
                        Whose::Suspect(index) => knows.entry(index).or_default().push(channel),
                        Whose::Other => {
                            known.insert(channel);
                        }
                    }
                }
            }
        }
        self.spread(known, &knows)
    }

    /// Whoever waits at a known channel may be woken, and knows others.
    fn spread(&self, mut known: HashSet<usize>, knows: &HashMap<usize, Vec<usize>>) -> Vec<bool> {
        let mut leaked = vec![true; self.suspects.len()];
        loop {
            let mut changed = false;
            for (index, suspect) in self.suspects.iter().enumerate() {
                if leaked[index] && known.contains(&suspect.channel) {
                    leaked[index] = false;
                    known.extend(knows.get(&index).into_iter().flatten());
                    changed = true;
                }
            }
            if !changed {
                return leaked;
            }
        }
    }

    /// The parts of some memory that are in use, as far as is known, and by whom. Stacks of fibers that nobody
    /// uses are left out.
    fn parts(&self, (start, end): (usize, usize)) -> Vec<(usize, usize, Whose)> {
        const PAGE: usize = 4096;
        let mut parts: Vec<(usize, usize, Whose)> = Vec::new();
        let mut at = start;
        // From where on there is no stack.
        let mut plain = at;
        while at < end {
            let Some(stack) = sinew_context::stack::find(at) else {
                at = (at + PAGE).min(end);
                continue;
            };
            parts.push((plain, at, Whose::Other));
            let next = stack.range().end.min(end);
            match self.stacks.get(&stack.range().start) {
                Some((used, whose)) => parts.push((at.max(*used), next, *whose)),
                None if self.elsewhere => parts.push((at, next, Whose::Other)),
                None => {}
            }
            (at, plain) = (next, next);
        }
        parts.push((plain, end, Whose::Other));
        parts
    }
}
