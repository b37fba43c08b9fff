//! The fiber and carrier that run on this thread. All thread-local state of the crate is here, but
//! for a flag in `report` and what a thread with managers has (`embed::tenants`, `manager::cache`).
//!
//! Every function returns a value, and no function that reads a `thread_local!` may be inlined. If
//! the compiler kept the address of a thread-local across a switch, the code would read another
//! thread's value after a migration. Every wait reads the current carrier, so that word is a
//! `thread_word!`: where the platform has a form of it that may be inlined, that form is used.

use super::{Carrier, Owner};
use crate::fiber::slab::{self, Slab};
use crate::fiber::{Control, FiberRef, Flags};
use crate::primitive::Ordering;
use core::cell::Cell;
use core::ptr;

// The carrier that this thread runs as. Has no destructor, so that it can be read at any time.
// SAFETY: the symbol has the name of this crate and its version, so no other crate defines it.
sinew_context::thread_word!(unsafe word, concat!("sinew_here_", env!("CARGO_PKG_VERSION")));

thread_local! {
    /// The block that stands for this thread in its last moments, when `PROXY` has been destroyed.
    static LAST_PROXY: Cell<*const Control> = const { Cell::new(ptr::null()) };
    /// The block that stands for this thread when it waits.
    static PROXY: Proxy = const { Proxy(Cell::new(ptr::null())) };
}

/// A thread's reference to its proxy, given up when the thread ends.
struct Proxy(Cell<*const Control>);

impl Drop for Proxy {
    fn drop(&mut self) {
        let control = self.0.get();
        if !control.is_null() {
            // SAFETY: the reference belongs to this thread. Destructors of the proxy's locals may
            // still use the proxy. After that, the thread counts as ended.
            unsafe {
                super::launch::drop_leftovers(&*control);
                self.0.set(ptr::null());
                super::launch::finish_outside(&*control);
            }
        }
    }
}

/// Returns the carrier that this thread runs as; null if it is no carrier.
#[inline(always)]
pub(crate) fn carrier() -> *const Carrier {
    word::get().cast()
}

/// Makes this thread run as a carrier, or as a plain thread if null.
pub(super) fn set_carrier(carrier: *const Carrier) {
    word::set(carrier.cast());
}

/// Returns the slab of this thread's carrier; null if the thread is no carrier.
#[inline(always)]
pub(crate) fn slab() -> *const Slab {
    owner().map_or(ptr::null(), |owner| &raw const owner.slab)
}

/// Returns the owner of the carrier that this thread runs as.
#[inline(always)]
pub(crate) fn owner() -> Option<&'static Owner> {
    // SAFETY: carriers are never freed, and this thread runs as the carrier.
    unsafe { Some(Owner::of(carrier().as_ref()?)) }
}

/// Returns the fiber that runs on this thread, and the owner of its carrier.
#[inline(always)]
pub(crate) fn fiber() -> Option<(&'static Owner, &'static Control)> {
    let (owner, control) = running()?;
    (!control.flags().has(Flags::ROOT)).then_some((owner, control))
}

/// Returns the fiber or the root that runs on this thread, and the owner of its carrier.
#[inline(always)]
pub(crate) fn running() -> Option<(&'static Owner, &'static Control)> {
    let owner = owner()?;
    // SAFETY: the running fiber has a block, and blocks are never unmapped.
    let control = unsafe { &*owner.current() };
    Some((owner, control))
}

/// Returns the block of the running fiber, or of this thread. For comparison only.
#[inline(always)]
pub(crate) fn block() -> *const Control {
    let carrier = carrier();
    if carrier.is_null() {
        return proxy_block();
    }
    // SAFETY: carriers are never freed.
    unsafe { (*carrier).current() }
}

/// Returns the block of the running fiber, or of this thread; null for a thread that has never
/// waited.
pub(crate) fn known_block() -> *const Control {
    let carrier = carrier();
    if carrier.is_null() {
        return PROXY.try_with(|proxy| proxy.0.get()).unwrap_or(LAST_PROXY.get());
    }
    // SAFETY: carriers are never freed.
    unsafe { (*carrier).current() }
}

/// Returns the block of the running fiber, or of the fiber for which the carrier's root works, or
/// else of this thread; null if the thread has none.
pub(crate) fn lender_or_known() -> *const Control {
    let lender = lender();
    if lender.is_null() { known_or_proxy() } else { lender }
}

/// Calls `f` as if this thread were no carrier and had no wait under way. So a hook that is called
/// in the middle of a wait or of a fiber's end may use any function of sinew.
pub(crate) fn as_plain_thread<R>(f: impl FnOnce() -> R) -> R {
    struct Back(*const Carrier, *const Control);
    impl Drop for Back {
        fn drop(&mut self) {
            // Give up the block that stood for the thread meanwhile, as at the end of a thread.
            // This drops values of the user, and their destructors may need another block.
            for _ in 0..ROUNDS {
                let proxy = replace_proxy(ptr::null());
                if proxy.is_null() {
                    break;
                }
                drop(Proxy(Cell::new(proxy)));
            }
            // If destructors make a block in every round, the last one is leaked.
            replace_proxy(self.1);
            set_carrier(self.0);
            if let Some(owner) = owner() {
                owner.set_aside(false);
            }
        }
    }
    let back = Back(carrier(), replace_proxy(ptr::null()));
    if let Some(owner) = owner() {
        owner.set_aside(true);
    }
    set_carrier(ptr::null());
    let result = f();
    drop(back);
    result
}

/// How many proxies [`as_plain_thread`] gives up in a row. The destructors of one proxy's values
/// may make the next proxy.
const ROUNDS: u32 = 4;

#[inline(never)]
fn replace_proxy(proxy: *const Control) -> *const Control {
    // After `PROXY` has been destroyed, the thread uses `LAST_PROXY`.
    PROXY.try_with(|place| place.0.replace(proxy)).unwrap_or_else(|_| LAST_PROXY.replace(proxy))
}

/// Whether the caller is a manager's thread outside of the manager's fibers. Those fibers cannot go
/// on while the thread waits, so at a lock the thread comes before them.
pub(crate) fn is_host() -> bool {
    fiber().is_none() && super::embed::tenants::are_here()
}

/// Whether the waiter is a fiber of a manager.
pub(crate) fn is_guest(waiter: *const Control) -> bool {
    // SAFETY: control blocks are never unmapped.
    unsafe { (*waiter).flags() }.has(Flags::EMBEDDED)
}

/// Returns a number that no other live thread has.
#[inline(never)]
pub(crate) fn thread_number() -> usize {
    LAST_PROXY.with(|local| ptr::from_ref(local).addr())
}

/// Returns the fiber for which the root of this thread's carrier works, if the root runs; otherwise
/// null.
pub(crate) fn lender() -> *const Control {
    match running() {
        Some((owner, control)) if control.flags().has(Flags::ROOT) => owner.lender(),
        _ => ptr::null(),
    }
}

/// Returns the block of the running fiber, or else of this thread; null if the thread has none.
fn known_or_proxy() -> *const Control {
    match fiber() {
        Some((_, control)) => control,
        None => PROXY.try_with(|proxy| proxy.0.get()).unwrap_or(ptr::null()),
    }
}

#[cold]
#[inline(never)]
fn proxy_block() -> *const Control {
    // The thread itself keeps the block.
    proxy().as_ptr()
}

/// Whether a fiber or thread runs on another CPU at the moment of the call. Used to guess whether
/// the holder of a lock will release it soon.
#[cold]
pub(crate) fn runs_elsewhere(control: &Control) -> bool {
    let carrier = control.carrier();
    if control.flags().has(Flags::PROXY) {
        return control.wake.waiting().is_none();
    }
    // SAFETY: carriers are never freed.
    !carrier.is_null()
        && !ptr::eq(carrier, self::carrier())
        && ptr::eq(unsafe { (*carrier).current() }, control)
}

/// Returns the id of the host that runs on this thread: the running fiber. A first-class fiber
/// belongs to one host.
///
/// A hook in the middle of a wait is a host of its own. It must return to its caller, so it cannot
/// go on in a first-class fiber from outside.
pub(crate) fn host() -> Option<core::num::NonZeroU64> {
    const IN_A_HOOK: u64 = 1 << 60;
    let (owner, control) = running()?;
    if control.flags().has(Flags::ROOT) {
        // Code on the root of a foreign loop's carrier must return to its caller, so each such call
        // is a host of its own.
        return core::num::NonZeroU64::new(owner.activation()).filter(|_| owner.is_embedded());
    }
    {
        let hook = if control.flags().has(Flags::NO_WAIT) { IN_A_HOOK } else { 0 };
        core::num::NonZeroU64::new(control.id() | hook)
    }
}

/// Returns the proxy of this thread, and makes it if there is none.
pub(crate) fn proxy() -> FiberRef {
    lasting_proxy().unwrap_or_else(|| {
        // This reference is never given up: no destructor runs after the last ones of the thread.
        if LAST_PROXY.get().is_null() {
            LAST_PROXY.set(new_proxy().into_counted());
        }
        // SAFETY: the reference in `LAST_PROXY` keeps the block.
        FiberRef::new(unsafe { &*LAST_PROXY.get() })
    })
}

/// Returns the proxy of this thread, or `None` in the thread's last moments.
#[inline(never)]
pub(crate) fn lasting_proxy() -> Option<FiberRef> {
    PROXY
        .try_with(|proxy| {
            if proxy.0.get().is_null() {
                proxy.0.set(new_proxy().into_counted());
            }
            // SAFETY: the reference in `PROXY` keeps the block.
            FiberRef::new(unsafe { &*proxy.0.get() })
        })
        .ok()
}

fn new_proxy() -> FiberRef {
    let (control, id) = slab::take_common();
    control.crew.store(0, Ordering::Relaxed);
    control.occupy(id, &crate::fiber::task::Vtable::NONE, Flags::PROXY, 1, crate::clock::now());
    // SAFETY: `occupy` counted one reference, which this takes.
    unsafe { FiberRef::from_counted(control) }
}
