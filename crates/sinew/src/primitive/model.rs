//! Atomics, cells and a lock for models: loom's objects, behind constructors that are `const fn`.
//!
//! A loom object belongs to one execution of a model and cannot be a constant. So the types here
//! get their object at the first use. An atomic takes an object that [`check`] made before there
//! was a second thread. Otherwise loom would regard the thread of the first use as the creator.
//!
//! A use of an atomic or a cell after its drop panics, as long as its memory exists. Models that
//! check the order of drops keep the memory (`crate::model::Kept`).

use core::cell::{OnceCell, RefCell, UnsafeCell};
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr;
pub(crate) use loom::sync::atomic::{Ordering, fence};
use loom::sync::mpsc;
pub(crate) use loom::thread::yield_now as yield_thread;

/// Whether this is the backend of the models.
pub(crate) const IS_MODEL: bool = true;

/// The number of atomics that one execution may use.
const ATOMICS: usize = 48;

struct Pool(RefCell<Vec<loom::sync::atomic::AtomicU64>>);

// SAFETY: loom runs one thread at a time.
unsafe impl Sync for Pool {}

loom::lazy_static! {
    static ref POOL: Pool = Pool(RefCell::new(
        (0..ATOMICS).map(|_| loom::sync::atomic::AtomicU64::new(0)).collect(),
    ));
}

/// Checks a model.
pub(crate) fn check(model: impl Fn() + Sync + Send + 'static) {
    check_within(usize::MAX, model);
}

/// Checks a model with at most `preemptions` preemptions, or fewer if the environment says so.
pub(crate) fn check_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    let bound = builder.preemption_bound.unwrap_or(usize::MAX);
    builder.preemption_bound = Some(bound.min(preemptions));
    builder.max_branches = 10_000;
    builder.check(move || {
        let _: &Pool = &POOL;
        model();
    });
}

/// Whether the object that contains this field was dropped.
struct Dropped(bool);

impl Dropped {
    #[track_caller]
    fn check(&self) {
        // SAFETY: the memory of the object exists, even if the object was dropped.
        let dropped = unsafe { ptr::read_volatile(&raw const self.0) };
        assert!(!dropped, "an atomic or a cell was used after it was dropped");
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        // SAFETY: a write to this very field. Volatile, because the compiler may omit plain writes
        // to a dropped object.
        unsafe { ptr::write_volatile(&raw mut self.0, true) };
    }
}

/// A type that fits into an atomic.
pub(crate) trait Bits: Copy {
    const MASK: u64 = u64::MAX;
    fn bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
}

impl Bits for bool {
    fn bits(self) -> u64 {
        u64::from(self)
    }
    fn from_bits(bits: u64) -> bool {
        bits & 1 == 1
    }
}

impl Bits for u32 {
    const MASK: u64 = 0xFFFF_FFFF;
    fn bits(self) -> u64 {
        u64::from(self)
    }
    fn from_bits(bits: u64) -> u32 {
        bits as u32
    }
}

impl Bits for u64 {
    fn bits(self) -> u64 {
        self
    }
    fn from_bits(bits: u64) -> u64 {
        bits
    }
}

impl Bits for usize {
    fn bits(self) -> u64 {
        self as u64
    }
    fn from_bits(bits: u64) -> usize {
        bits as usize
    }
}

impl<T> Bits for *mut T {
    fn bits(self) -> u64 {
        self.expose_provenance() as u64
    }
    fn from_bits(bits: u64) -> *mut T {
        ptr::with_exposed_provenance_mut(bits as usize)
    }
}

/// An atomic. Loom's object holds the difference from the initial value, so that objects from the
/// pool, which are zero, fit every initial value.
///
/// With `SC`, each SeqCst load has a fence before it, which orders more than the load promises.
/// Loom supports SeqCst only in fences.
pub(crate) struct Atomic<T: Bits, const SC: bool = false> {
    initial: T,
    object: OnceCell<loom::sync::atomic::AtomicU64>,
    dropped: Dropped,
}

pub(crate) type AtomicBool = Atomic<bool>;
pub(crate) type AtomicU32 = Atomic<u32>;
pub(crate) type AtomicU64 = Atomic<u64>;
pub(crate) type AtomicUsize = Atomic<usize>;
pub(crate) type AtomicPtr<T> = Atomic<*mut T>;

/// Atomics of protocols that rely on a total order of all SeqCst accesses. Loom supports SeqCst
/// only in fences, so each SeqCst load of these has a fence before it.
pub(crate) mod sc {
    pub(crate) type AtomicU64 = super::Atomic<u64, true>;
    pub(crate) type AtomicPtr<T> = super::Atomic<*mut T, true>;
}

/// Stores `value`, and orders the store before every later load. Uses a fence, because loom
/// supports SeqCst only in fences.
pub(crate) fn store_then_fence(word: &AtomicUsize, value: usize) {
    word.store(value, Ordering::Release);
    fence(Ordering::SeqCst);
}

/// Defines a static. Each execution of a model has its own copy.
macro_rules! execution_static {
    (static $name:ident: $type:ty = $value:expr;) => {
        loom::lazy_static! {
            static ref $name: $type = $value;
        }
    };
}
pub(crate) use execution_static;

// SAFETY: loom runs one thread at a time, and switches only inside of its own objects.
unsafe impl<T: Bits, const SC: bool> Sync for Atomic<T, SC> {}
// SAFETY: loom runs one thread at a time, and switches only inside of its own objects.
unsafe impl<T: Bits, const SC: bool> Send for Atomic<T, SC> {}

impl<T: Bits, const SC: bool> Atomic<T, SC> {
    pub(crate) const fn new(initial: T) -> Self {
        Atomic { initial, object: OnceCell::new(), dropped: Dropped(false) }
    }

    fn object(&self) -> &loom::sync::atomic::AtomicU64 {
        self.dropped.check();
        self.object.get_or_init(|| POOL.0.borrow_mut().pop().expect("`ATOMICS` is too small"))
    }

    fn encode(&self, value: T) -> u64 {
        value.bits().wrapping_sub(self.initial.bits()) & T::MASK
    }

    fn decode(&self, raw: u64) -> T {
        T::from_bits(raw.wrapping_add(self.initial.bits()) & T::MASK)
    }

    /// Performs one access, and checks that the atomic was not dropped meanwhile.
    fn access<R>(&self, access: impl FnOnce() -> R) -> R {
        let result = access();
        // Other threads may have run before the access was made.
        self.dropped.check();
        result
    }

    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> T {
        if SC && order == Ordering::SeqCst {
            fence(Ordering::SeqCst);
        }
        self.decode(self.access(|| self.object().load(order)))
    }

    #[track_caller]
    pub(crate) fn store(&self, value: T, order: Ordering) {
        self.access(|| self.object().store(self.encode(value), order));
    }

    #[track_caller]
    pub(crate) fn swap(&self, value: T, order: Ordering) -> T {
        self.decode(self.access(|| self.object().swap(self.encode(value), order)))
    }

    #[track_caller]
    pub(crate) fn compare_exchange(
        &self,
        old: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T> {
        let (old, new) = (self.encode(old), self.encode(new));
        let changed = self.access(|| self.object().compare_exchange(old, new, success, failure));
        changed.map(|raw| self.decode(raw)).map_err(|raw| self.decode(raw))
    }

    #[track_caller]
    pub(crate) fn compare_exchange_weak(
        &self,
        old: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T> {
        self.compare_exchange(old, new, success, failure)
    }

    #[track_caller]
    pub(crate) fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        mut f: impl FnMut(T) -> Option<T>,
    ) -> Result<T, T> {
        let mut now = self.load(fetch);
        while let Some(new) = f(now) {
            match self.compare_exchange(now, new, set, fetch) {
                Ok(old) => return Ok(old),
                Err(other) => now = other,
            }
        }
        Err(now)
    }

    #[track_caller]
    pub(crate) fn fetch_add(&self, value: T, order: Ordering) -> T {
        self.decode(self.access(|| self.object().fetch_add(value.bits(), order)))
    }

    #[track_caller]
    pub(crate) fn fetch_sub(&self, value: T, order: Ordering) -> T {
        self.decode(self.access(|| self.object().fetch_sub(value.bits(), order)))
    }

    /// Performs an access that works on bits. If the initial value is zero, the object's bits are
    /// the value's bits, and `direct` works on them. Otherwise a loop applies `f`.
    #[track_caller]
    fn fetch(
        &self,
        order: Ordering,
        direct: impl FnOnce(&loom::sync::atomic::AtomicU64) -> u64,
        f: impl Fn(u64) -> u64,
    ) -> T {
        if self.initial.bits() == 0 {
            return self.decode(self.access(|| direct(self.object())));
        }
        let f = |now: T| Some(T::from_bits(f(now.bits())));
        self.fetch_update(order, Ordering::Relaxed, f).unwrap_or_else(|now| now)
    }

    #[track_caller]
    pub(crate) fn fetch_or(&self, value: T, order: Ordering) -> T {
        let bits = value.bits();
        self.fetch(order, |object| object.fetch_or(bits, order), |now| now | bits)
    }

    #[track_caller]
    pub(crate) fn fetch_and(&self, value: T, order: Ordering) -> T {
        let bits = value.bits();
        self.fetch(order, |object| object.fetch_and(bits, order), |now| now & bits)
    }

    #[track_caller]
    pub(crate) fn fetch_max(&self, value: T, order: Ordering) -> T {
        let bits = value.bits();
        self.fetch(order, |object| object.fetch_max(bits, order), |now| now.max(bits))
    }
}

impl<T: Bits, const SC: bool> fmt::Debug for Atomic<T, SC> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Atomic").finish_non_exhaustive()
    }
}

/// A cell for ordered uses only: loom reports two unordered uses if one of them writes.
pub(crate) struct Cell<T> {
    value: UnsafeCell<T>,
    uses: OnceCell<loom::cell::UnsafeCell<()>>,
    dropped: Dropped,
}

impl<T> Cell<T> {
    pub(crate) const fn new(value: T) -> Cell<T> {
        Cell { value: UnsafeCell::new(value), uses: OnceCell::new(), dropped: Dropped(false) }
    }

    #[track_caller]
    fn uses(&self) -> &loom::cell::UnsafeCell<()> {
        self.dropped.check();
        self.uses.get_or_init(|| loom::cell::UnsafeCell::new(()))
    }

    #[track_caller]
    pub(crate) fn get(&self) -> T
    where
        T: Copy,
    {
        self.uses().with(|_| ());
        // SAFETY: loom runs one thread at a time, and has checked that this use is ordered.
        unsafe { *self.value.get() }
    }

    #[track_caller]
    pub(crate) fn set(&self, value: T) {
        drop(self.replace(value));
    }

    #[track_caller]
    pub(crate) fn replace(&self, value: T) -> T {
        self.uses().with_mut(|_| ());
        // SAFETY: loom runs one thread at a time, and has checked that this use is ordered.
        unsafe { ptr::replace(self.value.get(), value) }
    }

    #[track_caller]
    pub(crate) fn take(&self) -> T
    where
        T: Default,
    {
        self.replace(T::default())
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// A lock. A thread that finds it taken blocks: the model of a spinning thread would not end.
///
/// It is a channel with one message. Loom's mutex would be poisoned by a thread that unlocks it
/// while another thread is being unwound.
pub(crate) struct SpinLock<T> {
    value: UnsafeCell<T>,
    token: OnceCell<(mpsc::Sender<()>, mpsc::Receiver<()>)>,
}

// SAFETY: only the holder of the lock reaches the value, and loom runs one thread at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: the value is `Send`, and moves with the lock.
unsafe impl<T: Send> Send for SpinLock<T> {}

pub(crate) struct SpinGuard<'a, T>(&'a SpinLock<T>);

impl<T> SpinLock<T> {
    pub(crate) const fn new(value: T) -> SpinLock<T> {
        SpinLock { value: UnsafeCell::new(value), token: OnceCell::new() }
    }

    fn token(&self) -> &(mpsc::Sender<()>, mpsc::Receiver<()>) {
        if self.token.get().is_none() {
            // Store the channel first: the send may switch to another thread that looks for it.
            let token = self.token.get_or_init(mpsc::channel);
            token.0.send(()).expect("the lock keeps the receiver");
        }
        self.token.get().expect("the channel was made above")
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        self.token().1.recv().expect("the lock keeps the sender");
        SpinGuard(self)
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.0.token().0.send(()).expect("the lock keeps the receiver");
    }
}
