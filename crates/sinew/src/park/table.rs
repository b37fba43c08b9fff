//! Who waits for what, by address: for objects that have no room for a list of their own.
//!
//! The table has a fixed number of buckets, each under its lock. In a bucket there is a queue for
//! every key that somebody waits for; a queue's head lies in the entry of its first waiter, and
//! moves to the next one when that leaves. So nothing is allocated, waiters of one key come first
//! in, first out, and many waiters of one key do not slow others of the same bucket down.
//!
//! `list` has the protocol by which waits are entered, granted and left.

use super::list::{Ended, List, Node, Terms, Wakes, wait_in};
use crate::primitive::{Cell, SpinLock};
use core::cell::UnsafeCell;
use core::pin::Pin;
use core::ptr;

/// Buckets; those that are never used are never resident.
const BUCKETS: usize = if cfg!(sinew_loom) { 1 } else { 4096 };

/// What is waited for: an address, and what tells apart the objects that live there one after the
/// other, for those who cannot be sure that nobody waits when one goes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Key {
    address: usize,
    generation: u64,
    /// What the bucket is chosen by; follows from the others.
    spread: u64,
}

impl PartialEq for Key {
    #[inline(always)]
    fn eq(&self, other: &Key) -> bool {
        self.address == other.address && self.generation == other.generation
    }
}

impl Key {
    pub(crate) fn of<T: ?Sized>(object: &T) -> Key {
        Key::with_generation(ptr::from_ref(object).cast::<()>().addr(), 0)
    }

    /// One of several keys of an object, all in the same bucket.
    pub(crate) fn with_generation(address: usize, generation: u64) -> Key {
        Key { address, generation, spread: address as u64 >> 3 }
    }

    /// The key whose bytes these are; of any others, one for which nobody waits.
    pub(crate) fn from_bytes(bytes: [u8; size_of::<Key>()]) -> Key {
        // SAFETY: three numbers without padding, of which any are allowed.
        unsafe { core::mem::transmute(bytes) }
    }

    /// One of many keys of something that has a number in the place of an address, which cannot be
    /// taken for one.
    pub(crate) fn numbered(number: u64, key: u64) -> Key {
        let spread = number.wrapping_add(key.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Key { address: number as usize * 2 + 1, generation: key, spread }
    }

    /// Which of its object's keys this is.
    pub(crate) fn number(self) -> u64 {
        self.generation
    }
}

/// What a waiter says of itself.
pub(crate) struct Entry {
    key: Key,
    /// Of two kinds of waiters, which it is: those who want the object for themselves, or to share
    /// it. Others are all of one kind.
    pub(crate) shares: bool,
    /// A number that means something to the two sides.
    pub(crate) word: Cell<usize>,
    /// Whether it is to stand before the others.
    pub(crate) ahead: Cell<bool>,
    /// Who is to be the owner of what is handed over.
    pub(crate) heir: Cell<usize>,
    queue: UnsafeCell<Head>,
}

impl Entry {
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Where in an entry its key is, for those who look from outside.
    pub(crate) const KEY: usize = core::mem::offset_of!(Entry, key);

    pub(crate) fn new(key: Key, shares: bool, word: usize) -> Entry {
        let queue = UnsafeCell::new(Head::new());
        let (word, ahead, heir) = (Cell::new(word), Cell::new(false), Cell::new(0));
        Entry { key, shares, word, ahead, heir, queue }
    }
}

/// The head of a queue. Only that in the first entry of a queue is used.
struct Head {
    waiters: List<Entry>,
    /// How many of them share, and how many do not.
    counts: [usize; 2],
    next: *const Node<Entry>,
    previous: *const Node<Entry>,
}

impl Head {
    const fn new() -> Head {
        Head { waiters: List::new(), counts: [0; 2], next: ptr::null(), previous: ptr::null() }
    }
}

/// Queues of several keys: the first entry of each, linked.
pub(crate) struct Bucket {
    first: *const Node<Entry>,
}

// SAFETY: entries are touched under the lock of their bucket, and live while they are linked.
unsafe impl Send for Bucket {}

#[repr(align(64))]
struct Aligned(SpinLock<Bucket>);

#[cfg(not(sinew_loom))]
static TABLE: [Aligned; BUCKETS] = empty();

#[cfg(sinew_loom)]
loom::lazy_static! {
    static ref TABLE: [Aligned; BUCKETS] = empty();
}

const fn empty() -> [Aligned; BUCKETS] {
    [const { Aligned(SpinLock::new(Bucket { first: ptr::null() })) }; BUCKETS]
}

/// Makes the table of an execution.
#[cfg(sinew_loom)]
pub(crate) fn prepare() {
    let _: &[Aligned] = &*TABLE;
}

/// Whether an address is in the table.
#[cfg(not(sinew_loom))]
pub(crate) fn is_within(address: usize) -> bool {
    let start = (&raw const TABLE).addr();
    (start..start + size_of_val(&TABLE)).contains(&address)
}

/// The bucket in which `key` is.
#[inline(always)]
pub(crate) fn bucket(key: Key) -> &'static SpinLock<Bucket> {
    let spread = key.spread.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &TABLE[(spread >> 52) as usize % BUCKETS].0
}

impl Bucket {
    /// The first waiter for `key`.
    fn head(&self, key: Key) -> Option<&Node<Entry>> {
        let mut next = self.first;
        // SAFETY: what is linked is alive; heads are changed under the lock.
        unsafe {
            while let Some(node) = next.as_ref() {
                if node.payload().key == key {
                    return Some(node);
                }
                next = (*node.payload().queue.get()).next;
            }
        }
        None
    }

    /// The queue of `key`, if anybody waits for it.
    pub(crate) fn queue(&mut self, key: Key) -> Option<Queue<'_>> {
        let head = ptr::from_ref(self.head(key)?);
        Some(Queue { bucket: self, head })
    }

    /// Appends a waiter, or puts it before the others, as it says.
    ///
    /// # Safety
    /// As for [`List::push`].
    pub(crate) unsafe fn push(&mut self, node: Pin<&Node<Entry>>) {
        let entry = node.get_ref().payload();
        // SAFETY: heads are changed under the lock.
        unsafe {
            let head = match self.queue(entry.key) {
                Some(queue) if entry.ahead.get() => return queue.push_first(node),
                Some(queue) => (*queue.head).payload().queue.get(),
                None => {
                    let head = entry.queue.get();
                    *head = Head { next: self.first, ..Head::new() };
                    if let Some(other) = self.first.as_ref() {
                        (*other.payload().queue.get()).previous = node.get_ref();
                    }
                    self.first = node.get_ref();
                    head
                }
            };
            (*head).counts[usize::from(entry.shares)] += 1;
            (*head).waiters.push(node);
        }
    }

    /// Takes out a waiter that is in the bucket.
    pub(crate) fn remove(&mut self, node: &Node<Entry>) {
        let key = node.payload().key;
        if let Some(mut queue) = self.queue(key) {
            queue.remove(node);
        }
    }
}

/// Those who wait for one key. At least one does when it is made.
pub(crate) struct Queue<'a> {
    bucket: &'a mut Bucket,
    head: *const Node<Entry>,
}

impl Queue<'_> {
    fn head(&self) -> Option<*mut Head> {
        // SAFETY: what is linked is alive.
        unsafe { self.head.as_ref() }.map(|node| node.payload().queue.get())
    }

    /// The first waiter.
    pub(crate) fn first(&self) -> Option<&Node<Entry>> {
        // SAFETY: what is linked is alive.
        unsafe { self.head.as_ref() }
    }

    /// How many waiters share, or do not.
    pub(crate) fn count(&self, shares: bool) -> usize {
        // SAFETY: heads are changed under the lock, which the caller has.
        self.head().map_or(0, |head| unsafe { (*head).counts[usize::from(shares)] })
    }

    /// Takes out a waiter that is in the queue.
    pub(crate) fn remove(&mut self, node: &Node<Entry>) {
        let Some(head) = self.head() else { return };
        // SAFETY: heads are changed under the lock; what is linked is alive.
        unsafe {
            (*head).counts[usize::from(node.payload().shares)] -= 1;
            (*head).waiters.remove(node);
            if ptr::eq(node, self.head) {
                // What is left behind is written anew before it is used again.
                self.pass_on(&*head);
            }
        }
    }

    /// Puts a waiter before the others.
    unsafe fn push_first(mut self, node: Pin<&Node<Entry>>) {
        let Some(head) = self.head() else { return };
        // SAFETY: heads are changed under the lock; what is linked is alive; the rest is the
        // caller's promise.
        unsafe {
            (*head).counts[usize::from(node.payload().shares)] += 1;
            (*head).waiters.push_first(node);
            self.pass_on(&*head);
        }
    }

    /// Moves the head of the queue to the waiter that is now the first, if there is one.
    unsafe fn pass_on(&mut self, head: &Head) {
        let first = head.waiters.first;
        let (previous, next) = (head.previous, head.next);
        // SAFETY: heads are changed under the lock; what is linked is alive.
        unsafe {
            let (before, after) = match first.as_ref() {
                Some(node) => {
                    ptr::copy_nonoverlapping(head, node.payload().queue.get(), 1);
                    (first, first)
                }
                None => (next, previous),
            };
            match previous.as_ref() {
                Some(previous) => (*previous.payload().queue.get()).next = before,
                None => self.bucket.first = before,
            }
            if let Some(next) = next.as_ref() {
                (*next.payload().queue.get()).previous = after;
            }
        }
        self.head = first;
    }

    /// Takes out the first waiter, ends its wait, and lets `give` tell it more; false if the wait has
    /// been ended.
    pub(crate) fn grant_first(&mut self, wakes: &mut Wakes, give: impl FnOnce(&Entry)) -> bool {
        self.grant(self.head, wakes, give)
    }

    /// Takes out the first waiter of which `is` is true and whose wait can be ended, and ends it;
    /// false if there is none.
    pub(crate) fn grant_one(&mut self, wakes: &mut Wakes, is: impl Fn(&Entry) -> bool) -> bool {
        while let Some(head) = self.head() {
            // SAFETY: heads are changed under the lock; what is linked is alive.
            let found = unsafe { (*head).waiters.find(&is).map(ptr::from_ref) };
            let Some(found) = found else { return false };
            if self.grant(found, wakes, |_| ()) {
                return true;
            }
        }
        false
    }

    fn grant(
        &mut self,
        node: *const Node<Entry>,
        wakes: &mut Wakes,
        give: impl FnOnce(&Entry),
    ) -> bool {
        // SAFETY: alive as long as the lock is held, also when it is not linked any more: its waiter
        // has to take the lock before it leaves, or was claimed by us.
        let Some(node) = (unsafe { node.as_ref() }) else { return false };
        self.remove(node);
        let Some(claimed) = node.claim() else { return false };
        give(node.payload());
        node.grant();
        wakes.push(claimed);
        true
    }
}

/// Waits for `key`. `still` is asked under the lock of the bucket: if it says no, there is nothing
/// to wait for. `left` is told under the lock when the waiter leaves without being granted.
#[inline(always)]
#[track_caller]
pub(crate) fn wait(
    entry: &Entry,
    terms: Terms,
    mut still: impl FnMut(&mut Bucket) -> bool,
    left: impl Fn(&mut Bucket) -> Wakes,
) -> Ended<()> {
    wait_in(
        bucket(entry.key),
        terms,
        entry,
        |bucket, node| {
            if !still(bucket) {
                return Some(());
            }
            // SAFETY: the node is pinned in `wait_in`, which takes it out before it goes.
            unsafe { bucket.push(node) };
            None
        },
        |bucket, node| {
            if let Some(node) = node {
                bucket.remove(node);
            }
            left(bucket)
        },
    )
}

/// Wakes up to `most` of those who wait for `key`, the first ones first; says how many.
pub(crate) fn release(key: Key, most: usize) -> usize {
    let mut count = 0;
    loop {
        let mut wakes = Wakes::none();
        {
            let mut bucket = bucket(key).lock();
            while count < most && !wakes.is_full() {
                let Some(mut queue) = bucket.queue(key) else { break };
                count += usize::from(queue.grant_first(&mut wakes, |_| ()));
            }
        }
        if !wakes.resume() {
            return count;
        }
    }
}

/// Wakes everybody who waits for the end of a fiber.
pub(crate) fn release_finished(address: usize, id: u64) {
    release(Key::with_generation(address, id), usize::MAX);
}
