//! Finds the waiting fibers that nothing can wake.
//!
//! A waker needs a pointer to the channel, the lock or the semaphore that the fiber waits at. So
//! this module searches memory for such pointers. Fibers that wait without a deadline are
//! *sleepers*. A pointer on the stack of a sleeper is of no use unless something else wakes that
//! sleeper first. Every other holder of a pointer can use it: a fiber that runs or is about to, a
//! thread, a static, a first-class fiber.
//!
//! # Blocks
//!
//! A pointer may lie in a block of the heap. Then only the holders of a pointer to that block can
//! use it. So the search goes on from block to block, with one pass over memory for each step, as
//! far as [`Heap`] knows the blocks. An unknown block counts as usable. A pointer into the stack of
//! a sleeper makes the objects there usable: the sleeper has lent them.
//!
//! # Claim
//!
//! A sleeper that is reported as stuck can only be woken by a cancellation, or through a pointer
//! that the search could not see: one in a register only, with marks in its upper bits, in a file
//! or in another process. Pointers that are left over in memory can make the search miss a stuck
//! sleeper. They never make it report a sleeper that can be woken.

use super::heap::Heap;
use super::leak::is_suspect;
use super::memory;
use super::scan::{Region, Scanner, regions, unused_stacks};
use super::snapshot::FiberInfo;
use crate::carrier::{Crew, launch};
use crate::fiber::life::STARTED;
use crate::fiber::{Control, Flags, WaitKind, slab};
use crate::fiber::{FiberId, FiberState};
use crate::park::table;
use crate::sync::channel;
use sinew_context::stack::{self, Found};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

/// Addresses are stored in this disguise while memory is searched for them.
const DISGUISE: usize = usize::MAX;

/// The most passes over memory. This bounds how many blocks of the heap may lie between a pointer
/// and its user.
const PASSES: usize = 8;
/// The search follows at most this many blocks of the heap.
const MOST_BLOCKS: usize = 20_000;
/// Bytes of the counts of an `Arc`, which precede a channel: the ends of the channel point to them.
const COUNTS: usize = 2 * size_of::<usize>();

/// A fiber that waits without a deadline.
pub(super) struct Sleeper {
    pub(super) info: FiberInfo,
    awaits: Awaits,
    /// Disguised addresses: the lowest used address of its stack, the start of the stack, and the
    /// address below which its frames lie.
    stack: [usize; 3],
}

/// The object or fiber that wakes a sleeper.
#[derive(Clone, Copy)]
enum Awaits {
    /// A channel at this address, disguised.
    Channel(usize),
    /// A lock, a semaphore, an event or a condition variable at this address, disguised.
    Object(usize),
    /// A fiber that has to end, or to release a lock.
    Fiber(FiberId),
    /// A child of the sleeper's scope, which has to end. Any other fiber may be that child.
    AnyOther,
    /// Something unknown.
    Anything,
}

impl Sleeper {
    /// Returns the sleeper of a fiber that has stopped in a wait without a deadline. Returns `None`
    /// if the fiber goes on by itself, or may do so.
    fn of(info: &FiberInfo, all: &HashSet<FiberId>) -> Option<Sleeper> {
        let control = info.fiber.control();
        let wait = info.wait.filter(|wait| wait.left.is_none())?;
        if info.state != FiberState::Suspended || !super::deadlock::has_stopped(control) {
            return None;
        }
        // If a thread has the lock, the owner is not among the fibers.
        let owner = wait.owner.filter(|owner| all.contains(owner));
        let awaits = match wait.kind {
            WaitKind::Send | WaitKind::Receive => Awaits::Channel(wait.address),
            WaitKind::Lock | WaitKind::Key if owner.is_some() => Awaits::Fiber(owner?),
            WaitKind::Lock | WaitKind::Semaphore | WaitKind::Condvar | WaitKind::Event => {
                Awaits::Object(wait.address)
            }
            WaitKind::Join => wait.joins.map_or(Awaits::Anything, Awaits::Fiber),
            WaitKind::Scope => Awaits::AnyOther,
            WaitKind::Park
            | WaitKind::Key
            | WaitKind::Value
            | WaitKind::Future
            | WaitKind::Select => Awaits::Anything,
            _ => return None,
        };
        let place = control.context.look()?.address();
        let stack = stack::find(place)?;
        // A fiber that waits inside a first-class fiber is no sleeper: it has two stacks, and
        // another fiber may take one of these.
        let base = base_of(&stack, control)?;
        let stack = [place, stack.range().start, base].map(|address| address ^ DISGUISE);
        Some(Sleeper { info: info.clone(), awaits, stack })
    }

    fn used(&self) -> (usize, usize) {
        (self.stack[0] ^ DISGUISE, self.stack[2] ^ DISGUISE)
    }
}

/// Returns the address below which the frames on a stack lie, if it is the stack of this fiber.
fn base_of(stack: &Found, control: &Control) -> Option<usize> {
    let seen = launch::look_at(stack, read)?;
    (seen.block == core::ptr::from_ref(control).addr()).then_some(seen.base)
}

fn read(address: usize) -> Option<usize> {
    memory::word(address).ok()
}

/// Filters `fibers`: keeps those that nothing can wake, in their order. Stack memory of the caller
/// below the address `top` belongs to the search, which does not look there.
///
/// # Errors
/// Fails if the memory of the process cannot be read.
pub(super) fn stuck(mut fibers: Vec<FiberInfo>, top: usize) -> io::Result<Vec<FiberInfo>> {
    if cfg!(any(sinew_asan, sinew_tsan)) {
        // AddressSanitizer keeps locals off the stack. ThreadSanitizer maps more memory than can be
        // searched.
        return Err(io::ErrorKind::Unsupported.into());
    }
    let all: HashSet<FiberId> = fibers.iter().map(FiberInfo::id).collect();
    fibers.iter_mut().for_each(disguise);
    let sleepers: Vec<_> = fibers.iter().filter_map(|info| Sleeper::of(info, &all)).collect();
    if sleepers.is_empty() {
        return Ok(Vec::new());
    }
    let regions = regions()?;
    let mut search = Search::new(&sleepers, top, &regions);
    search.own = vec![buffer(&fibers), buffer(&sleepers)];
    let alone = sleepers.len() == fibers.len();
    let runs = search.run(&regions, alone);
    drop(search);
    let stuck = sleepers.into_iter().zip(runs).filter(|(_, runs)| !runs);
    let mut stuck: Vec<_> = stuck.map(|(sleeper, _)| sleeper.info).collect();
    stuck.iter_mut().for_each(disguise);
    Ok(stuck)
}

/// Returns the memory of a vector, unused capacity included.
fn buffer<T>(vec: &Vec<T>) -> (usize, usize) {
    let start = vec.as_ptr().addr();
    (start, start + vec.capacity() * size_of::<T>())
}

/// Disguises the address in the description of a fiber, or reveals it again.
fn disguise(info: &mut FiberInfo) {
    if let Some(wait) = &mut info.wait {
        wait.address ^= DISGUISE;
    }
}

/// Whether a fiber is the child of a scope. Only such a fiber can have a reference into the stack
/// of another fiber. In any other fiber, a pointer to a foreign stack is left over from a switch
/// between the two.
fn has_scope(control: &Control) -> bool {
    // The word belongs to another thread, but does not change during the life of the fiber.
    let scope = control.extra().and_then(|extra| read((&raw const extra.scope).addr()));
    scope.is_some_and(|scope| scope != 0)
}

/// Returns the stacks of the threads that are carriers and nothing else. A thread of the user that
/// steps a manager is not among them.
fn carrier_stacks(regions: &[Region]) -> Vec<(usize, usize)> {
    let mut stacks = Vec::new();
    for crew in Crew::all() {
        for carrier in crew.carriers.iter().filter(|carrier| !carrier.is_embedded()) {
            // The place of the carrier's own context when it last switched to a fiber.
            let Some(place) = carrier.root().context.look().map(|place| place.address()) else {
                continue;
            };
            let around = regions.iter().find(|region| (region.start..region.end).contains(&place));
            stacks.extend(
                around.filter(|region| region.guarded).map(|region| (region.start, region.end)),
            );
        }
    }
    stacks
}

/// A target of the search, which looks for pointers to this part of memory: the stack of a sleeper,
/// the object that a sleeper waits at, or a block with a pointer to another node.
struct Node {
    /// Disguised start and end.
    range: (usize, usize),
    /// The nodes that contain pointers to this one.
    holders: Vec<usize>,
}

/// A conclusion of the search.
#[derive(Clone, Copy)]
enum Step {
    /// Something that may run has a pointer to this node.
    Usable(usize),
    /// Something can wake this sleeper.
    Runs(usize),
}

/// The owner of a part of memory.
#[derive(Clone, Copy)]
struct Whose {
    /// The sleeper, if the memory is a sleeper's stack. `None` if something that may run uses it,
    /// or if it is in the heap.
    sleeper: Option<usize>,
    /// Whether the owner may have borrowed from the stack of another fiber.
    borrows: bool,
}

impl Whose {
    const OTHER: Whose = Whose { sleeper: None, borrows: true };
}

struct Search<'a> {
    sleepers: &'a [Sleeper],
    /// The stacks of sleepers come first, in the order of the sleepers.
    nodes: Vec<Node>,
    /// Whether something that may run has a pointer to each node. Not a field of `Node`: the
    /// padding after a bool may contain remains of old pointers.
    usable: Vec<bool>,
    /// The nodes that the next pass looks for.
    wanted: Vec<usize>,
    /// All nodes by their disguised starts. The disguise reverses the order: the last node comes
    /// first.
    by_range: BTreeMap<usize, usize>,
    /// The node that each sleeper waits at.
    awaited: Vec<Option<usize>>,
    /// The sleepers by the disguised starts of their stacks.
    stacks: BTreeMap<usize, usize>,
    /// The sleepers by the disguised addresses of their control blocks.
    by_block: HashMap<usize, usize>,
    /// Parts of threads' stacks that are not in use.
    unused: Vec<(usize, usize)>,
    /// The stacks of the carriers' threads. They contain only the runtime's own functions, to which
    /// fibers lend nothing, so pointers to stacks are left over from switches there.
    roots: Vec<(usize, usize)>,
    /// Memory of the search itself. Parts that it has not written may contain old pointers.
    own: Vec<(usize, usize)>,
    heap: Heap,
}

impl<'a> Search<'a> {
    fn new(sleepers: &'a [Sleeper], top: usize, regions: &[Region]) -> Search<'a> {
        /// More stack than the search needs from here on.
        const DEEP: usize = 64 * 1024;
        let mut unused = unused_stacks(regions);
        unused.push(((&raw const unused).addr().saturating_sub(DEEP), top));
        let key = |sleeper: &Sleeper| core::ptr::from_ref(sleeper.info.fiber.control()).addr();
        let mut search = Search {
            sleepers,
            nodes: Vec::new(),
            usable: Vec::new(),
            wanted: Vec::new(),
            by_range: BTreeMap::new(),
            awaited: Vec::new(),
            stacks: sleepers.iter().enumerate().map(|(index, one)| (one.stack[1], index)).collect(),
            by_block: sleepers
                .iter()
                .enumerate()
                .map(|(index, one)| (key(one) ^ DISGUISE, index))
                .collect(),
            unused,
            roots: carrier_stacks(regions),
            own: Vec::new(),
            heap: Heap::look(regions),
        };
        for sleeper in sleepers {
            let (start, end) = sleeper.used();
            // Leave out the first words, which the switch has saved. Only the runtime has pointers
            // to them, some with marks in the lowest bits.
            search.add((start + 16, end));
        }
        // Add channels first: the block of a channel begins where the channel does.
        let is_channel = |sleeper: &&Sleeper| matches!(sleeper.awaits, Awaits::Channel(_));
        for sleeper in sleepers.iter().filter(is_channel) {
            search.node_of(sleeper);
        }
        search.awaited = sleepers.iter().map(|sleeper| search.node_of(sleeper)).collect();
        search
    }

    /// Returns the node that a sleeper waits at; `None` if it does not wait at a part of memory, or
    /// at an unknown part.
    fn node_of(&mut self, sleeper: &Sleeper) -> Option<usize> {
        match sleeper.awaits {
            Awaits::Channel(address) => {
                let address = address ^ DISGUISE;
                Some(self.add((address - COUNTS, address + channel::CORE_SIZE)))
            }
            Awaits::Object(address) => {
                let address = address ^ DISGUISE;
                self.at(address).or_else(|| {
                    let block = self.heap.find(address).filter(|block| !block.free)?;
                    Some(self.add((block.start, block.end)))
                })
            }
            Awaits::Fiber(_) | Awaits::AnyOther | Awaits::Anything => None,
        }
    }

    /// Returns the node that contains an address.
    fn at(&self, address: usize) -> Option<usize> {
        // Ranges do not overlap. The disguise reverses the order, so the last range that begins at
        // or before the address is the first at or after the disguised address.
        let (_, node) = self.by_range.range(address ^ DISGUISE..).next()?;
        (address < self.nodes[*node].range.1 ^ DISGUISE).then_some(*node)
    }

    /// Returns the node of a range. The next pass looks for a new node.
    fn add(&mut self, (start, end): (usize, usize)) -> usize {
        if let Some(node) = self.at(start) {
            return node;
        }
        let node = self.nodes.len();
        let range = (start ^ DISGUISE, end ^ DISGUISE);
        self.nodes.push(Node { range, holders: Vec::new() });
        self.usable.push(false);
        self.by_range.insert(range.0, node);
        self.wanted.push(node);
        node
    }

    /// Returns for each sleeper whether something can wake it. `alone` says that there are no other
    /// fibers.
    fn run(&mut self, regions: &[Region], alone: bool) -> Vec<bool> {
        let mut scanner = Scanner::new();
        for _ in 0..PASSES {
            self.pass(regions, &mut scanner);
            let runs = self.spread(alone);
            let is_left = |(sleeper, runs): (&Sleeper, &bool)| !runs && is_suspect(&sleeper.info);
            if self.wanted.is_empty() || !self.sleepers.iter().zip(&runs).any(is_left) {
                return runs;
            }
        }
        // The holders of these nodes are unknown, so the nodes count as usable.
        for node in core::mem::take(&mut self.wanted) {
            self.usable[node] = true;
        }
        self.spread(alone)
    }

    /// Searches all memory for pointers to the wanted nodes.
    fn pass(&mut self, regions: &[Region], scanner: &mut Scanner) {
        let wanted = core::mem::take(&mut self.wanted);
        self.heap.forget();
        // Disguised start and end of each node, the last node first.
        let mut targets: Vec<(usize, usize, usize)> = wanted
            .iter()
            .map(|node| (self.nodes[*node].range.0, self.nodes[*node].range.1, *node))
            .collect();
        targets.sort_unstable();
        let (Some(last), Some(first)) = (targets.first(), targets.last()) else { return };
        let (least, most) = (first.0 ^ DISGUISE, last.1 ^ DISGUISE);
        let target = |word: usize| {
            let at = targets.partition_point(|(start, ..)| *start < word ^ DISGUISE);
            let (_, end, node) = targets.get(at)?;
            (word < *end ^ DISGUISE).then_some(*node)
        };
        let mut found = Vec::new();
        for region in regions {
            let resident = scanner.resident(region);
            let parts: Vec<_> = resident.iter().flat_map(|part| self.parts(*part)).collect();
            for (start, end, whose) in parts {
                scanner.words(start, end, |address, word| {
                    if (least..most).contains(&word)
                        && let Some(node) = target(word)
                    {
                        found.push((address ^ DISGUISE, whose, node));
                    }
                });
                for (address, whose, node) in found.drain(..) {
                    if !self.usable[node] && !scanner.has(address ^ DISGUISE) {
                        self.note(address ^ DISGUISE, whose, node);
                    }
                }
            }
        }
    }

    /// Notes that there is a pointer to `node` at `address`.
    fn note(&mut self, address: usize, whose: Whose, node: usize) {
        let is_stack = node < self.sleepers.len();
        let is_root = || self.roots.iter().any(|(start, end)| (*start..*end).contains(&address));
        let is_own = whose.sleeper == Some(node);
        if is_stack && !is_own && (!whose.borrows || is_root()) {
            return;
        }
        let Some(holder) = self.holder(address, whose) else { return };
        match holder {
            Some(holder) => {
                // Pointers on one stack are found in a row, so this check avoids most duplicates.
                let holders = &mut self.nodes[node].holders;
                if holders.last() != Some(&holder) {
                    holders.push(holder);
                }
            }
            None => self.usable[node] = true,
        }
    }

    /// Returns the node that contains the pointer at an address; `Some(None)` if something that may
    /// run has the pointer, and `None` if nothing has it.
    fn holder(&mut self, address: usize, whose: Whose) -> Option<Option<usize>> {
        if whose.sleeper.is_some() {
            return Some(whose.sleeper);
        }
        let contains = |(start, end): &(usize, usize)| (*start..*end).contains(&address);
        if self.unused.iter().chain(&self.own).any(contains)
            || contains(&buffer(&self.nodes))
            || self.heap.has(address)
            || table::is_within(address)
        {
            return None;
        }
        if let Some(block) = slab::around(address) {
            return self.holder_of(block, address);
        }
        if let Some(node) = self.at(address) {
            return Some(Some(node));
        }
        match self.heap.find(address) {
            Some(block) if block.free => None,
            Some(block) if self.nodes.len() < 2 * self.sleepers.len() + MOST_BLOCKS => {
                Some(Some(self.add((block.start, block.end))))
            }
            _ => Some(None),
        }
    }

    /// Returns the holder of a pointer in a control block: the block's fiber, or the handle to its
    /// result. In the block of a thread, only the pointer to its `Extra` counts; the others belong
    /// to the record of its waits.
    fn holder_of(&self, block: &Control, address: usize) -> Option<Option<usize>> {
        let is_thread = block.flags().has(Flags::PROXY);
        if block.life.is_unused() || is_thread && !block.is_extra(address) {
            return None;
        }
        Some(self.by_block.get(&(core::ptr::from_ref(block).addr() ^ DISGUISE)).copied())
    }

    /// Returns for each sleeper whether something can wake it, as far as the holders of the nodes
    /// are known.
    fn spread(&self, alone: bool) -> Vec<bool> {
        let index_of: HashMap<FiberId, usize> =
            self.sleepers.iter().enumerate().map(|(index, one)| (one.info.id(), index)).collect();
        // The steps that follow once a node is usable, once a sleeper runs, and once any sleeper
        // runs.
        let mut after_node: Vec<Vec<Step>> = self.nodes.iter().map(|_| Vec::new()).collect();
        let mut after_sleeper: Vec<Vec<Step>> = self.sleepers.iter().map(|_| Vec::new()).collect();
        let mut after_any = Vec::new();
        let mut steps = Vec::new();
        for (node, Node { holders, .. }) in self.nodes.iter().enumerate() {
            holders.iter().for_each(|holder| after_node[*holder].push(Step::Usable(node)));
            steps.extend(self.usable[node].then_some(Step::Usable(node)));
        }
        for (index, sleeper) in self.sleepers.iter().enumerate() {
            let before = match sleeper.awaits {
                Awaits::Channel(_) | Awaits::Object(_) => {
                    self.awaited[index].map(|node| &mut after_node[node])
                }
                // A fiber that is not a sleeper runs, or will.
                Awaits::Fiber(id) => index_of.get(&id).map(|other| &mut after_sleeper[*other]),
                Awaits::AnyOther => alone.then_some(&mut after_any),
                Awaits::Anything => None,
            };
            before.unwrap_or(&mut steps).push(Step::Runs(index));
        }
        let mut usable = vec![false; self.nodes.len()];
        let mut runs = vec![false; self.sleepers.len()];
        while let Some(step) = steps.pop() {
            match step {
                Step::Usable(node) => {
                    if !core::mem::replace(&mut usable[node], true) {
                        steps.append(&mut after_node[node]);
                    }
                }
                Step::Runs(index) => {
                    if !core::mem::replace(&mut runs[index], true) {
                        // The stack of a sleeper is the node with its number.
                        steps.push(Step::Usable(index));
                        steps.append(&mut after_sleeper[index]);
                        steps.append(&mut after_any);
                    }
                }
            }
        }
        runs
    }

    /// Returns the parts of a range that are in use, as far as is known, with their owners. Leaves
    /// out stacks that no fiber uses.
    fn parts(&self, (start, end): (usize, usize)) -> Vec<(usize, usize, Whose)> {
        const PAGE: usize = 4096;
        let mut parts: Vec<(usize, usize, Whose)> = Vec::new();
        let mut at = start;
        // The end of the last stack that was found. No stack lies between it and `at`.
        let mut plain = at;
        while at < end {
            let Some(stack) = stack::find(at) else {
                at = (at + PAGE).min(end);
                continue;
            };
            parts.push((plain, at, Whose::OTHER));
            let next = stack.range().end.min(end);
            if let Some((used, last, whose)) = self.used_of(&stack) {
                parts.push((at.max(used), next.min(last), whose));
            }
            (at, plain) = (next, next);
        }
        parts.push((plain, end, Whose::OTHER));
        parts
    }

    /// Returns the part of a stack that is in use, as far as is known, with its owner.
    fn used_of(&self, stack: &Found) -> Option<(usize, usize, Whose)> {
        let range = stack.range();
        if let Some(index) = self.stacks.get(&(range.start ^ DISGUISE)) {
            let (start, end) = self.sleepers[*index].used();
            let borrows = has_scope(self.sleepers[*index].info.fiber.control());
            return Some((start, end, Whose { sleeper: Some(*index), borrows }));
        }
        let Some(seen) = launch::look_at(stack, read) else {
            return Some((range.start, range.end, Whose::OTHER));
        };
        let control = slab::at(seen.block)?;
        if control.life.is_vacant() || control.life.marks() & STARTED == 0 {
            return None;
        }
        // The fiber is somewhere on this stack, or on the stack of a first-class fiber that it has
        // resumed. If it waits on another stack of its own, this stack was used by an earlier fiber
        // with the same block.
        let place = control.context.look().map(|context| context.address());
        let elsewhere = control.wake.waiting().is_some()
            && place.is_some_and(|place| {
                let its = stack::find(place).filter(|its| its.range() != range);
                its.is_some_and(|its| base_of(&its, control).is_some())
            });
        let whose = Whose { sleeper: None, borrows: has_scope(control) };
        (!elsewhere).then_some((range.start, seen.base, whose))
    }
}
