//! Locks by key, without a lock object for each key.
//!
//! # Protocol
//!
//! A key with an empty queue in the table of `park::table` is free. The holder of a key has the
//! first entry in its queue; the waiters stand behind it. The unlocker takes the holder's entry out
//! and claims the wait of the next entry. That entry stays in place, and its waiter holds the key
//! from then on. If the claim fails, because that waiter is leaving, the unlocker takes its entry
//! out and tries the next one. All of this happens under the lock of the bucket.
//!
//! An entry lies in a pinned place. The closure forms, such as `with`, have the place in their frame;
//! other callers supply it. The destructor of the place takes the entry out of the table. So a guard
//! that is forgotten keeps its key locked until its place is dropped, and no dangling entry stays in
//! the table.

use super::moment;
use crate::carrier::current;
use crate::clock;
use crate::fiber::WaitKind;
use crate::fiber::state::Outcome;
use crate::park::Wait;
use crate::park::list::{Node, Wakes};
use crate::park::raise;
use crate::park::table::{self, Entry, Key};
use crate::primitive::{AtomicU64, Ordering};
use core::cell::UnsafeCell;
use core::fmt;
use core::hash::{BuildHasher, BuildHasherDefault, Hash};
use core::marker::{PhantomData, PhantomPinned};
use core::pin::{Pin, pin};
use core::time::Duration;
use std::collections::hash_map::DefaultHasher;

/// A lock for each key: the holder of a key excludes all other callers from that key. The waiters
/// of a key get it in their order of arrival.
///
/// Use it if work on one row, account or file must be serial, and there is no lock object for each
/// of them.
///
/// The lock is not reentrant: a caller that waits for a key that it already holds panics.
///
/// # Examples
/// ```
/// use sinew::sync::MultiLock;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// let (accounts, busy) = (MultiLock::new(), [const { AtomicU32::new(0) }; 3]);
/// sinew::scope(|s| {
///     for n in 0..30 {
///         let (accounts, busy) = (&accounts, &busy);
///         s.spawn(move || {
///             accounts.with(n % 3, || {
///                 assert_eq!(busy[n as usize % 3].fetch_add(1, Ordering::Relaxed), 0);
///                 sinew::yield_now();
///                 busy[n as usize % 3].fetch_sub(1, Ordering::Relaxed);
///             });
///         });
///     }
/// });
/// ```
#[derive(Debug)]
pub struct MultiLock {
    /// The number of this lock in the table, or zero before the first use. The address cannot take
    /// its place: a key may stay locked after this lock is dropped, and another lock may then have
    /// the address.
    number: AtomicU64,
}

impl MultiLock {
    /// Creates a lock with all keys free.
    ///
    /// # Examples
    /// ```
    /// static ROWS: sinew::sync::MultiLock = sinew::sync::MultiLock::new();
    /// assert!(ROWS.try_with(7, || ()).is_some());
    /// ```
    pub const fn new() -> MultiLock {
        MultiLock { number: AtomicU64::new(0) }
    }

    /// Runs `f` with the key locked, waiting until the key is free.
    ///
    /// # Panics
    /// If the caller already holds the key.
    ///
    /// # Examples
    /// ```
    /// let rows = sinew::sync::MultiLock::new();
    /// assert_eq!(rows.with(7, || "done"), "done");
    /// ```
    #[track_caller]
    pub fn with<R>(&self, key: u64, f: impl FnOnce() -> R) -> R {
        let place = pin!(MultiLockPlace::new());
        let _guard = self.lock(key, place);
        f()
    }

    /// Runs `f` with the key locked, if the key is free. Does not wait.
    ///
    /// # Examples
    /// ```
    /// let rows = sinew::sync::MultiLock::new();
    /// rows.with(7, || assert!(rows.try_with(7, || ()).is_none()));
    /// ```
    pub fn try_with<R>(&self, key: u64, f: impl FnOnce() -> R) -> Option<R> {
        let place = pin!(MultiLockPlace::new());
        let _guard = self.try_lock(key, place)?;
        Some(f())
    }

    /// Runs `f` with the hash of `key` locked, waiting until the hash is free. Two keys with the
    /// same hash exclude each other.
    ///
    /// # Panics
    /// If the caller already holds a key with this hash.
    ///
    /// # Examples
    /// ```
    /// let files = sinew::sync::MultiLock::new();
    /// files.with_hashed("a.txt", || ());
    /// ```
    #[track_caller]
    pub fn with_hashed<K: Hash + ?Sized, R>(&self, key: &K, f: impl FnOnce() -> R) -> R {
        self.with(BuildHasherDefault::<DefaultHasher>::default().hash_one(key), f)
    }

    /// Locks a key until the guard is dropped, waiting until the key is free. The place is the
    /// memory of the caller's place in the queue.
    ///
    /// # Panics
    /// If the caller already holds the key, or if the place still holds a key of a forgotten guard.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{MultiLock, MultiLockPlace};
    /// use std::pin::pin;
    ///
    /// let (rows, place) = (MultiLock::new(), pin!(MultiLockPlace::new()));
    /// let guard = rows.lock(7, place);
    /// assert!(rows.try_with(7, || ()).is_none());
    /// drop(guard);
    /// assert!(rows.try_with(7, || ()).is_some());
    /// ```
    #[track_caller]
    pub fn lock<'a>(&'a self, key: u64, place: Pin<&'a mut MultiLockPlace>) -> MultiLockGuard<'a> {
        let place = place.into_ref();
        enter(self.key(key), place, Patience::Till(clock::NEVER));
        MultiLockGuard { place, bound: PhantomData }
    }

    /// Locks a key if it is free. Does not wait.
    ///
    /// # Panics
    /// If the place still holds a key of a forgotten guard.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{MultiLock, MultiLockPlace};
    /// use std::pin::pin;
    ///
    /// let rows = MultiLock::new();
    /// assert!(rows.try_lock(7, pin!(MultiLockPlace::new())).is_some());
    /// ```
    pub fn try_lock<'a>(
        &'a self,
        key: u64,
        place: Pin<&'a mut MultiLockPlace>,
    ) -> Option<MultiLockGuard<'a>> {
        let place = place.into_ref();
        enter(self.key(key), place, Patience::None).then_some(())?;
        Some(MultiLockGuard { place, bound: PhantomData })
    }

    /// Locks a key, waiting at most `timeout`. Returns `None` if the time runs out.
    ///
    /// # Panics
    /// If the caller already holds the key, or if the place still holds a key of a forgotten guard.
    ///
    /// # Examples
    /// ```
    /// use sinew::sync::{MultiLock, MultiLockPlace};
    /// use std::pin::pin;
    /// use std::time::Duration;
    ///
    /// let (rows, place) = (MultiLock::new(), pin!(MultiLockPlace::new()));
    /// sinew::scope(|s| {
    ///     let _guard = rows.lock(7, place);
    ///     let other = s.spawn(|| {
    ///         rows.try_lock_for(7, pin!(MultiLockPlace::new()), Duration::from_millis(1)).is_some()
    ///     });
    ///     assert!(!other.join().unwrap());
    /// });
    /// ```
    #[track_caller]
    pub fn try_lock_for<'a>(
        &'a self,
        key: u64,
        place: Pin<&'a mut MultiLockPlace>,
        timeout: Duration,
    ) -> Option<MultiLockGuard<'a>> {
        let place = place.into_ref();
        enter(self.key(key), place, Patience::Till(moment(timeout))).then_some(())?;
        Some(MultiLockGuard { place, bound: PhantomData })
    }

    /// Returns the key that stands in the table for `key` of this lock. Gives the lock its number
    /// at the first use.
    fn key(&self, key: u64) -> Key {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let mut number = self.number.load(Ordering::Relaxed);
        if number == 0 {
            let new = NUMBERS.fetch_add(1, Ordering::Relaxed);
            let first = self.number.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
            number = first.map_or_else(|before| before, |_| new);
        }
        Key::numbered(number, key)
    }
}

/// How long a caller waits for a key.
#[derive(Clone, Copy)]
enum Patience {
    /// The caller does not wait.
    None,
    /// The caller waits until the deadline passes or it is cancelled.
    Till(u64),
    /// The caller waits until it has the key. Neither a deadline nor a cancellation cuts the wait
    /// short.
    Endless,
}

/// Puts the place into the queue of the key, and waits until the place is first. Returns false if the
/// patience runs out first.
#[track_caller]
fn enter(key: Key, place: Pin<&MultiLockPlace>, patience: Patience) -> bool {
    let me = current::block().addr();
    // SAFETY: only the caller touches the place: it has the place by `&mut`, or through the guard
    // that holds the place. Other threads touch only the node and the entry, under the lock of the
    // bucket.
    let place = unsafe { &mut *place.place.get() };
    assert!(
        place.node.is_none(),
        "the place of a MultiLock still holds a key of a forgotten guard"
    );
    let entry = &*place.entry.insert(Entry::new(key, false, me));
    let bucket = table::bucket(key);
    {
        let mut bucket = bucket.lock();
        let holder = bucket
            .queue(key)
            .and_then(|queue| queue.first().map(|first| first.payload().word.get()));
        match holder {
            None => {
                let node = &*place.node.insert(Node::marker(entry));
                // SAFETY: the place is pinned, and its destructor takes the node out of the queue.
                unsafe { bucket.push(Pin::new_unchecked(node)) };
                return true;
            }
            Some(holder) => {
                drop(bucket);
                assert!(
                    holder != me || matches!(patience, Patience::None),
                    "deadlock: key {} of a MultiLock is locked again by the fiber or thread that \
                     holds it",
                    key.number()
                );
            }
        }
    }
    let deadline = match patience {
        Patience::None => return false,
        Patience::Till(deadline) => deadline,
        Patience::Endless => clock::NEVER,
    };
    let endless = matches!(patience, Patience::Endless);
    loop {
        // The inspector finds the key in the entry, and the key's holder in the queue.
        let address = core::ptr::from_ref(entry).addr();
        let wait = match endless {
            true => Wait::begin_anyhow(WaitKind::Key, address),
            false => Wait::begin(WaitKind::Key, address),
        };
        let who = wait.who();
        let node = &*place.node.insert(Node::new(&wait, entry));
        let at_once = {
            let mut bucket = bucket.lock();
            let free = bucket.queue(key).is_none();
            // SAFETY: the place is pinned, and its destructor takes the node out of the queue.
            unsafe { bucket.push(Pin::new_unchecked(node)) };
            free
        };
        if at_once {
            wait.abandon();
            return true;
        }
        let outcome = wait.suspend(deadline);
        if node.is_granted() {
            return true;
        }
        {
            let mut bucket = bucket.lock();
            // A plain thread may see that its wait has ended before the unlocker has granted it the
            // key.
            if node.is_granted() {
                return true;
            }
            if node.is_linked() {
                bucket.remove(node);
            }
        }
        place.node = None;
        if !endless {
            raise::settle(who, outcome);
        }
        if outcome == Outcome::TimedOut && deadline <= clock::now() {
            return false;
        }
    }
}

impl Default for MultiLock {
    fn default() -> Self {
        MultiLock::new()
    }
}

/// The memory of a place in the queue of a key of a [`MultiLock`]. Pin the place, then pass it to a
/// `lock` function.
///
/// # Examples
/// ```
/// use sinew::sync::{MultiLock, MultiLockPlace};
/// use std::pin::pin;
///
/// let (rows, mut place) = (MultiLock::new(), pin!(MultiLockPlace::new()));
/// for key in 0..3 {
///     let _guard = rows.lock(key, place.as_mut());
/// }
/// ```
pub struct MultiLockPlace {
    place: UnsafeCell<Place>,
    _pinned: PhantomPinned,
}

struct Place {
    /// The payload of the node, which points to it. Changes only while there is no node.
    entry: Option<Entry>,
    /// Present while the place holds a key or waits for one.
    node: Option<Node<Entry>>,
}

impl MultiLockPlace {
    /// Creates a place that is in no queue.
    ///
    /// # Examples
    /// ```
    /// let place = std::pin::pin!(sinew::sync::MultiLockPlace::new());
    /// # drop(place);
    /// ```
    pub const fn new() -> MultiLockPlace {
        MultiLockPlace {
            place: UnsafeCell::new(Place { entry: None, node: None }),
            _pinned: PhantomPinned,
        }
    }

    /// Gives up the key that the place holds, if there is one, and grants it to the first waiter.
    fn release(&self) {
        // SAFETY: only the caller touches the place, through the guard or in the destructor. Other
        // threads touch only the node and the entry, under the lock of the bucket.
        let place = unsafe { &mut *self.place.get() };
        let (Some(entry), Some(node)) = (&place.entry, &place.node) else { return };
        let key = entry.key();
        let mut wakes = Wakes::none();
        {
            let mut bucket = table::bucket(key).lock();
            bucket.remove(node);
            while let Some(mut queue) = bucket.queue(key)
                && let Some(next) = queue.first()
            {
                if let Some(claimed) = next.claim() {
                    next.grant();
                    wakes.push(claimed);
                    break;
                }
                let next: *const Node<Entry> = next;
                // SAFETY: the node is alive while the bucket is locked, because its waiter takes
                // that lock before it leaves.
                queue.remove(unsafe { &*next });
            }
        }
        place.node = None;
        wakes.resume();
    }
}

impl Default for MultiLockPlace {
    fn default() -> Self {
        MultiLockPlace::new()
    }
}

impl Drop for MultiLockPlace {
    fn drop(&mut self) {
        // If the guard was forgotten, the place still holds its key.
        self.release();
    }
}

impl fmt::Debug for MultiLockPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLockPlace").finish_non_exhaustive()
    }
}

/// A locked key of a [`MultiLock`]. Dropping the guard unlocks the key.
///
/// # Examples
/// ```
/// use sinew::sync::{MultiLock, MultiLockPlace};
/// use std::pin::pin;
///
/// let rows = MultiLock::new();
/// {
///     let place = pin!(MultiLockPlace::new());
///     let _guard = rows.lock(7, place);
///     assert!(rows.try_with(7, || ()).is_none());
///     assert!(rows.try_with(8, || ()).is_some()); // another key
/// }
/// assert!(rows.try_with(7, || ()).is_some());
/// ```
#[derive(Debug)]
#[must_use = "the key is unlocked at once if the guard is not kept"]
pub struct MultiLockGuard<'a> {
    place: Pin<&'a MultiLockPlace>,
    /// Makes the guard `!Send`: it stays with the fiber that locked.
    bound: PhantomData<*const ()>,
}

impl MultiLockGuard<'_> {
    /// Unlocks the key, until [`lock_again`](Self::lock_again) is called.
    pub(super) fn unlock_for_a_while(&self) {
        self.place.release();
    }

    /// Locks the key again, at the end of its queue.
    pub(super) fn lock_again(&self) {
        // SAFETY: only the owner of the guard, which is the caller, touches the place.
        // `unlock_for_a_while` has taken its node out of the queue.
        let entry = unsafe { &(*self.place.place.get()).entry };
        let key = entry.as_ref().expect("the place of a guard keeps the entry of its key").key();
        enter(key, self.place, Patience::Endless);
    }
}

impl Drop for MultiLockGuard<'_> {
    fn drop(&mut self) {
        self.place.release();
    }
}
