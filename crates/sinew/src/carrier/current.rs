//! Who runs here: all thread-local state of the crate.
//!
//! Everything is returned by value, and no `thread_local!` is read in a function that may be inlined:
//! a compiler that kept the address of one across a switch would read another thread's after a
//! migration. The word that says who runs is read in every wait, so where there is a form of it that
//! may be inlined (`thread_word!`), it is.

use super::Carrier;
use crate::fiber::slab::{self, Slab};
use crate::fiber::{Control, FiberRef, Flags};
use core::cell::Cell;
use core::ptr;

// The carrier that this thread is. Without a destructor, so that it can be read at any time.
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
))]
// SAFETY: a name of this crate, and of this version of it.
sinew_context::thread_word!(unsafe word, concat!("sinew_here_", env!("CARGO_PKG_VERSION")));

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64"),
)))]
mod word {
    use core::cell::Cell;
    use core::ptr;

    thread_local! {
        static WORD: Cell<*const ()> = const { Cell::new(ptr::null()) };
    }

    #[inline(never)]
    pub(super) fn get() -> *const () {
        WORD.get()
    }

    #[inline(never)]
    pub(super) fn set(word: *const ()) {
        WORD.set(word);
    }
}

thread_local! {
    /// The same in the thread's last moments, when the other is gone.
    static LAST_PROXY: Cell<*const Control> = const { Cell::new(ptr::null()) };
    /// Whether this thread is in the user's report hook.
    static SAYING: Cell<bool> = const { Cell::new(false) };
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
    fiber().and_then(|(_, control)| {
        let hook = if control.flags().has(Flags::NO_WAIT) { IN_A_HOOK } else { 0 };
        core::num::NonZeroU64::new(control.id() | hook)
    })
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
    control.crew.store(ptr::null_mut(), crate::primitive::Ordering::Relaxed);
    control.occupy(id, &crate::fiber::task::Vtable::NONE, Flags::PROXY, 1);
    // SAFETY: the reference that `occupy` counted.
    unsafe { FiberRef::from_counted(control) }
}
