//! Who runs here: all thread-local state of the crate.
//!
//! Everything is returned by value, and no `thread_local!` is read in a function that may be inlined:
//! a compiler that kept the address of one across a switch would read another thread's after a
//! migration. The word that says who runs is read in every wait, so where there is a form of it that
//! may be inlined (`thread_word!`), it is.

use super::Carrier;
use super::tenants::Tenants;
use crate::fiber::slab::{self, Slab};
use crate::fiber::{Control, FiberRef, Flags};
use crate::primitive::Ordering;
use core::any::TypeId;
use core::cell::{Cell, RefCell};
use core::ptr;
use std::collections::BTreeMap;

/// A loop by its type and number, and the type and the settings that its manager is for.
pub(crate) type Key = (TypeId, u64, TypeId, [u64; 8]);

// The carrier that this thread is. Without a destructor, so that it can be read at any time.
// SAFETY: a name of this crate, and of this version of it.
sinew_context::thread_word!(unsafe word, concat!("sinew_here_", env!("CARGO_PKG_VERSION")));

thread_local! {
    /// The same in the thread's last moments, when the other is gone.
    static LAST_PROXY: Cell<*const Control> = const { Cell::new(ptr::null()) };
    /// Whether this thread is in the user's report hook.
    static SAYING: Cell<bool> = const { Cell::new(false) };
    /// The managers that belong to this thread; null if there never was one.
    static TENANTS: Cell<*const Tenants> = const { Cell::new(ptr::null()) };
    /// The managers of loops of this thread.
    static CACHE: RefCell<BTreeMap<Key, u32>> = const { RefCell::new(BTreeMap::new()) };
    /// The block that stands for this thread when it waits.
    static PROXY: Proxy = const { Proxy(Cell::new(ptr::null())) };
}

/// A thread's reference to its proxy, given up when the thread ends.
struct Proxy(Cell<*const Control>);

impl Drop for Proxy {
    fn drop(&mut self) {
        let control = self.0.get();
        if !control.is_null() {
            // SAFETY: the thread's own reference. Destructors of its locals may still use it; after
            // that the thread counts as ended.
            unsafe {
                super::launch::drop_rest(&*control);
                self.0.set(ptr::null());
                super::launch::finish_outside(&*control);
            }
        }
    }
}

/// The managers that belong to this thread; null if there never was one.
#[inline(never)]
pub(super) fn tenants() -> *const Tenants {
    TENANTS.get()
}

#[inline(never)]
pub(super) fn set_tenants(tenants: *const Tenants) {
    TENANTS.set(tenants);
}

/// Notes which manager a loop of this thread has.
pub(crate) fn cache_manager(key: Key, number: u32) {
    let _ = CACHE.try_with(|cache| cache.borrow_mut().insert(key, number));
}

/// Which manager a loop of this thread has, as far as is known.
pub(crate) fn cached_manager(key: Key) -> Option<u32> {
    CACHE.try_with(|cache| cache.borrow().get(&key).copied()).ok().flatten()
}

/// Forgets which manager a loop of this thread has.
pub(crate) fn forget_manager(key: Key) {
    let _ = CACHE.try_with(|cache| cache.borrow_mut().remove(&key));
}

/// Notes whether this thread is in the user's report hook; returns whether it was.
pub(crate) fn set_saying(saying: bool) -> bool {
    SAYING.replace(saying)
}

/// The carrier that this thread is; null if it is none.
#[inline(always)]
pub(crate) fn carrier() -> *const Carrier {
    word::get().cast()
}

/// Makes this thread a carrier, or takes that back.
pub(super) fn set_carrier(carrier: *const Carrier) {
    word::set(carrier.cast());
}

/// The slab of this thread's carrier; null if it is none.
pub(crate) fn slab() -> *const Slab {
    let carrier = carrier();
    if carrier.is_null() {
        return ptr::null();
    }
    // SAFETY: carriers live for ever.
    unsafe { &raw const (*carrier).slab }
}

/// The fiber that runs on this thread, and its carrier.
#[inline(always)]
pub(crate) fn fiber() -> Option<(&'static Carrier, &'static Control)> {
    // SAFETY: carriers live for ever; what runs has a block.
    unsafe {
        let carrier = carrier().as_ref()?;
        let control = &*carrier.current();
        (!control.flags().has(Flags::ROOT)).then_some((carrier, control))
    }
}

/// What runs on this thread, a fiber or the carrier's root, and its carrier.
#[inline(always)]
pub(crate) fn running() -> Option<(&'static Carrier, &'static Control)> {
    // SAFETY: carriers live for ever; what runs has a block.
    unsafe {
        let carrier = carrier().as_ref()?;
        Some((carrier, &*carrier.current()))
    }
}

/// The block of whoever runs on this thread: the fiber's, or the thread's own. For comparison.
#[inline(always)]
pub(crate) fn block() -> *const Control {
    let carrier = carrier();
    if carrier.is_null() {
        return proxy_block();
    }
    // SAFETY: carriers live for ever.
    unsafe { (*carrier).current() }
}

/// The same, but null for a thread that has never waited.
pub(crate) fn known_block() -> *const Control {
    let carrier = carrier();
    if carrier.is_null() {
        return PROXY.try_with(|proxy| proxy.0.get()).unwrap_or(LAST_PROXY.get());
    }
    // SAFETY: carriers live for ever.
    unsafe { (*carrier).current() }
}

/// The block of the fiber that runs here, or has something done on its carrier's root; else of the thread, null
/// if it has none.
pub(crate) fn lender_or_known() -> *const Control {
    let lender = lender();
    if lender.is_null() { known_or_proxy() } else { lender }
}

/// Calls `f` as if this thread were no carrier, and stood in no wait: code that is called in the middle of
/// something may do what it likes.
pub(crate) fn as_plain_thread<R>(f: impl FnOnce() -> R) -> R {
    struct Back(*const Carrier, *const Control);
    impl Drop for Back {
        fn drop(&mut self) {
            // The block that stood for the thread meanwhile is given up, as on a plain thread: what it has of the
            // user's is dropped, which may need another one.
            for _ in 0..ROUNDS {
                let proxy = replace_proxy(ptr::null());
                if proxy.is_null() {
                    break;
                }
                drop(Proxy(Cell::new(proxy)));
            }
            // One that is made again and again is leaked.
            replace_proxy(self.1);
            set_carrier(self.0);
            // SAFETY: carriers live for ever.
            if let Some(carrier) = unsafe { self.0.as_ref() } {
                carrier.set_aside(false);
            }
        }
    }
    let back = Back(carrier(), replace_proxy(ptr::null()));
    // SAFETY: as above.
    if let Some(carrier) = unsafe { back.0.as_ref() } {
        carrier.set_aside(true);
    }
    set_carrier(ptr::null());
    let result = f();
    drop(back);
    result
}

/// How often a block may be needed by what is dropped with the one before.
const ROUNDS: u32 = 4;

#[inline(never)]
fn replace_proxy(proxy: *const Control) -> *const Control {
    // In its last moments a thread has the other one.
    PROXY.try_with(|place| place.0.replace(proxy)).unwrap_or_else(|_| LAST_PROXY.replace(proxy))
}

/// Whether this is a thread whose loop runs fibers, and none of these. They cannot go on while it waits: it comes
/// before those of them that wait for the same.
pub(crate) fn is_host() -> bool {
    fiber().is_none() && super::tenants::are_here()
}

/// Whether who waits is a fiber in somebody else's loop.
pub(crate) fn is_guest(waiter: *const Control) -> bool {
    // SAFETY: control blocks are never unmapped.
    unsafe { (*waiter).flags() }.has(Flags::EMBEDDED)
}

/// A number that no other thread has at the same time.
#[inline(never)]
pub(crate) fn thread_number() -> usize {
    LAST_PROXY.with(|local| ptr::from_ref(local).addr())
}

/// The fiber that has something done on the root of this thread's carrier, if that is what runs.
pub(crate) fn lender() -> *const Control {
    match running() {
        Some((carrier, control)) if control.flags().has(Flags::ROOT) => carrier.lender(),
        _ => ptr::null(),
    }
}

/// The block of the fiber that runs here; else of the thread, null if it has none.
fn known_or_proxy() -> *const Control {
    match fiber() {
        Some((_, control)) => control,
        None => PROXY.try_with(|proxy| proxy.0.get()).unwrap_or(ptr::null()),
    }
}

#[cold]
#[inline(never)]
fn proxy_block() -> *const Control {
    // Kept by the thread.
    proxy().as_ptr()
}

/// Whether a fiber or thread, which holds something, runs on another CPU at this moment, as far as a
/// look tells.
#[cold]
pub(crate) fn runs_elsewhere(control: &Control) -> bool {
    let carrier = control.carrier();
    if control.flags().has(Flags::PROXY) {
        return control.wake.waiting().is_none();
    }
    // SAFETY: carriers live for ever.
    !carrier.is_null()
        && !ptr::eq(carrier, self::carrier())
        && ptr::eq(unsafe { (*carrier).current() }, control)
}

/// The id of the fiber that runs here, for first-class fibers: the host they belong to.
///
/// A hook in the middle of a wait is a host of its own: it must come back to where it was called, so
/// it cannot go on in a first-class fiber from outside.
pub(crate) fn host() -> Option<core::num::NonZeroU64> {
    const IN_A_HOOK: u64 = 1 << 60;
    let (carrier, control) = running()?;
    if control.flags().has(Flags::ROOT) {
        // Whatever runs there in a foreign loop must come back to where it was called.
        return core::num::NonZeroU64::new(carrier.activation()).filter(|_| carrier.is_embedded());
    }
    {
        let hook = if control.flags().has(Flags::NO_WAIT) { IN_A_HOOK } else { 0 };
        core::num::NonZeroU64::new(control.id() | hook)
    }
}

/// The proxy of this thread; made if it has none.
pub(crate) fn proxy() -> FiberRef {
    lasting_proxy().unwrap_or_else(|| {
        // Not given up: there is nobody left to do it.
        if LAST_PROXY.get().is_null() {
            LAST_PROXY.set(new_proxy().into_counted());
        }
        // SAFETY: the thread's own reference keeps it.
        FiberRef::new(unsafe { &*LAST_PROXY.get() })
    })
}

/// The proxy of this thread, unless it is in its last moments.
#[inline(never)]
pub(crate) fn lasting_proxy() -> Option<FiberRef> {
    PROXY
        .try_with(|proxy| {
            if proxy.0.get().is_null() {
                proxy.0.set(new_proxy().into_counted());
            }
            // SAFETY: the thread's own reference keeps it.
            FiberRef::new(unsafe { &*proxy.0.get() })
        })
        .ok()
}

fn new_proxy() -> FiberRef {
    let (control, id) = slab::take_common();
    control.crew.store(0, Ordering::Relaxed);
    control.occupy(id, &crate::fiber::task::Vtable::NONE, Flags::PROXY, 1, crate::clock::now());
    // SAFETY: the reference that `occupy` counted.
    unsafe { FiberRef::from_counted(control) }
}
