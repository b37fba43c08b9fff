//! Waiters by address, for objects that have no room for a list of their own.
//!
//! The table has a fixed number of buckets, each under its lock. A bucket has a queue for each key
//! that has waiters. The head of a queue lies in the entry of its first waiter, and moves to the
//! next entry when that waiter leaves. So nothing is allocated, the waiters of a key are served
//! first in, first out, and many waiters of one key do not slow down other keys of the bucket.
//!
//! `list` has the protocol by which waiters enter, are granted and leave.

use super::list::{Begin, Ended, List, Node, Terms, Wakes, wait_in};
use crate::primitive::{Cell, IS_MODEL, SpinLock, execution_static};
use core::cell::UnsafeCell;
use core::pin::Pin;
use core::ptr;

/// Number of buckets. A page of the table takes memory only once one of its buckets has been used.
const BUCKETS: usize = if IS_MODEL { 1 } else { 4096 };

/// The object of a wait: an address and a generation.
///
/// The generation tells apart several queues of one object, or objects that live at one address in
/// turn and may have waiters when they are dropped.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Key {
    address: usize,
    generation: u64,
    /// Selects the bucket. Computed from the other fields.
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

    /// Returns one of several keys of an object. All of them are in one bucket.
    pub(crate) fn with_generation(address: usize, generation: u64) -> Key {
        Key { address, generation, spread: address as u64 >> 3 }
    }

    /// Rebuilds a key from its bytes. Bytes that are no key's give a key without waiters.
    pub(crate) fn from_bytes(bytes: [u8; size_of::<Key>()]) -> Key {
        // SAFETY: a key is three integers without padding, and any bit pattern is valid.
        unsafe { core::mem::transmute(bytes) }
    }

    /// Returns one of many keys of an object that has a number instead of an address. The result
    /// has an odd address, so it is no key of an aligned object.
    pub(crate) fn numbered(number: u64, key: u64) -> Key {
        let spread = number.wrapping_add(key.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Key { address: number as usize * 2 + 1, generation: key, spread }
    }

    /// Returns the number of the key within its object.
    pub(crate) fn number(self) -> u64 {
        self.generation
    }
}

/// A waiter's data in the table.
pub(crate) struct Entry {
    key: Key,
    /// Whether the waiter wants to share the object. False for a waiter that wants it exclusively,
    /// and for all waiters of objects that cannot be shared.
    pub(crate) shares: bool,
    /// A number that the waiter and the granter exchange.
    pub(crate) word: Cell<usize>,
    /// Whether the waiter goes to the front of the queue.
    pub(crate) ahead: Cell<bool>,
    /// The owner to be written into a lock that is handed over to this waiter.
    pub(crate) heir: Cell<usize>,
    queue: UnsafeCell<Head>,
}

impl Entry {
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Offset of the key in an entry. `inspect` copies the key from there.
    pub(crate) const KEY: usize = core::mem::offset_of!(Entry, key);

    pub(crate) fn new(key: Key, shares: bool, word: usize) -> Entry {
        let queue = UnsafeCell::new(Head::new());
        let (word, ahead, heir) = (Cell::new(word), Cell::new(false), Cell::new(0));
        Entry { key, shares, word, ahead, heir, queue }
    }
}

/// The head of a queue. Only the head in the first entry of a queue is in use.
struct Head {
    waiters: List<Entry>,
    /// How many waiters do not share, and how many do.
    counts: [usize; 2],
    next: *const Node<Entry>,
    previous: *const Node<Entry>,
}

impl Head {
    const fn new() -> Head {
        Head { waiters: List::new(), counts: [0; 2], next: ptr::null(), previous: ptr::null() }
    }
}

/// Queues of several keys: the first entries of all queues, linked.
pub(crate) struct Bucket {
    first: *const Node<Entry>,
}

// SAFETY: entries are touched under the lock of their bucket, and live while they are linked.
unsafe impl Send for Bucket {}

#[repr(align(64))]
struct Aligned(SpinLock<Bucket>);

execution_static! {
    static TABLE: [Aligned; BUCKETS] =
        [const { Aligned(SpinLock::new(Bucket { first: ptr::null() })) }; BUCKETS];
}

/// Returns whether an address is in the table.
pub(crate) fn is_within(address: usize) -> bool {
    let start = TABLE.as_ptr().addr();
    (start..start + size_of::<[Aligned; BUCKETS]>()).contains(&address)
}

/// Returns the bucket of `key`.
#[inline(always)]
pub(crate) fn bucket(key: Key) -> &'static SpinLock<Bucket> {
    let spread = key.spread.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    &TABLE[(spread >> 52) as usize % BUCKETS].0
}

impl Bucket {
    /// Returns the first waiter for `key`.
    fn head(&self, key: Key) -> Option<&Node<Entry>> {
        let mut next = self.first;
        // SAFETY: linked entries are alive, and heads change only under the lock.
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

    /// Returns the queue of `key`, if it has waiters.
    pub(crate) fn queue(&mut self, key: Key) -> Option<Queue<'_>> {
        let head = ptr::from_ref(self.head(key)?);
        Some(Queue { bucket: self, head })
    }

    /// Appends a waiter, or puts it at the front if its entry says `ahead`.
    ///
    /// # Safety
    /// The node is in no list. It stays where it is until it is taken out of the bucket.
    pub(crate) unsafe fn push(&mut self, node: Pin<&Node<Entry>>) {
        let entry = node.get_ref().payload();
        // SAFETY: linked entries are alive, and heads change only under the lock. The caller keeps
        // the node in place.
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

    /// Takes out a waiter of this bucket.
    pub(crate) fn remove(&mut self, node: &Node<Entry>) {
        let key = node.payload().key;
        if let Some(mut queue) = self.queue(key) {
            queue.remove(node);
        }
    }
}

/// The waiters for one key. There is at least one when the value is made.
pub(crate) struct Queue<'a> {
    bucket: &'a mut Bucket,
    head: *const Node<Entry>,
}

impl Queue<'_> {
    fn head(&self) -> Option<*mut Head> {
        // SAFETY: linked entries are alive.
        unsafe { self.head.as_ref() }.map(|node| node.payload().queue.get())
    }

    /// Returns the first waiter.
    pub(crate) fn first(&self) -> Option<&Node<Entry>> {
        // SAFETY: linked entries are alive.
        unsafe { self.head.as_ref() }
    }

    /// Counts the waiters that share, or those that do not.
    pub(crate) fn count(&self, shares: bool) -> usize {
        // SAFETY: heads change only under the lock, which the caller holds.
        self.head().map_or(0, |head| unsafe { (*head).counts[usize::from(shares)] })
    }

    /// Takes out a waiter of this queue.
    pub(crate) fn remove(&mut self, node: &Node<Entry>) {
        let Some(head) = self.head() else { return };
        // SAFETY: heads change only under the lock, and linked entries are alive.
        unsafe {
            (*head).counts[usize::from(node.payload().shares)] -= 1;
            (*head).waiters.remove(node);
            if ptr::eq(node, self.head) {
                // The old head is written anew before it is used again.
                self.pass_on(&*head);
            }
        }
    }

    /// Puts a waiter before all others.
    ///
    /// # Safety
    /// The node is in no list. It stays where it is until it is taken out of the bucket.
    unsafe fn push_first(mut self, node: Pin<&Node<Entry>>) {
        let Some(head) = self.head() else { return };
        // SAFETY: heads change only under the lock, and linked entries are alive. The caller keeps
        // the node in place.
        unsafe {
            (*head).counts[usize::from(node.payload().shares)] += 1;
            (*head).waiters.push_first(node);
            self.pass_on(&*head);
        }
    }

    /// Moves the head of the queue into the first waiter's entry, or unlinks the queue if it is
    /// empty.
    ///
    /// # Safety
    /// `head` is the head of this queue, in an entry that is alive. No other reference to a head of
    /// the bucket is in use.
    unsafe fn pass_on(&mut self, head: &Head) {
        let first = head.waiters.first;
        let (previous, next) = (head.previous, head.next);
        // SAFETY: heads change only under the lock, and linked entries are alive.
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

    /// Takes out the first waiter, ends its wait, and calls `give` to serve it. Returns false if
    /// the wait was ended before.
    pub(crate) fn grant_first(&mut self, wakes: &mut Wakes, give: impl FnOnce(&Entry)) -> bool {
        self.grant(self.head, wakes, give)
    }

    /// Takes out waiters of which `is` is true until the wait of one can be ended, and ends that
    /// wait. Returns false if there is none.
    pub(crate) fn grant_one(&mut self, wakes: &mut Wakes, is: impl Fn(&Entry) -> bool) -> bool {
        while let Some(head) = self.head() {
            // SAFETY: heads change only under the lock, and linked entries are alive.
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
        // SAFETY: the node is alive while the lock is held, also after it is unlinked: its waiter
        // takes the lock before it leaves, unless it finds a grant, which only this function gives
        // below.
        let Some(node) = (unsafe { node.as_ref() }) else { return false };
        self.remove(node);
        let Some(claimed) = node.claim() else { return false };
        give(node.payload());
        node.grant();
        wakes.push(claimed);
        true
    }
}

/// Waits for the key of `entry`.
///
/// `still` is called under the lock of the bucket; false means that there is nothing to wait for.
/// `left` is called under the lock when the waiter leaves while it is still in its queue.
#[inline(always)]
#[track_caller]
pub(crate) fn wait(
    entry: &Entry,
    terms: Terms,
    mut still: impl FnMut(&mut Bucket) -> bool,
    left: impl Fn(&mut Bucket) -> Wakes,
) -> Ended<()> {
    let lock = bucket(entry.key);
    wait_in(
        Begin::Anew,
        lock,
        terms,
        entry,
        |node| {
            let mut bucket = lock.lock();
            if !still(&mut bucket) {
                return Some(());
            }
            // SAFETY: `wait_in` pins the node, and takes it out before the node's frame ends.
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

/// Wakes up to `most` waiters for `key`, the first ones first. Returns their number.
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
