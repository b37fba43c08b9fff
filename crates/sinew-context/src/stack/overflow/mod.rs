//! Stack overflow: recognised and reported before the process ends.
//!
//! A fault handler for SIGSEGV (and SIGBUS, which macOS sends) looks up the fault's address in
//! `registry.rs`. If the address is in a guard, the handler reports which stack overflowed, its
//! size and a remedy, restores the default action and returns. The instruction faults again, and
//! the default action ends the process. Any other fault goes to the handler that was installed
//! before, so the standard library still reports overflows of OS threads.
//!
//! The handler runs on an alternate stack, because the ordinary one has just run out. The standard
//! library gives one to its threads; [`arm`] gives one to any thread that has none or a small one.
//!
//! This module holds the registry, the previous handlers, and each thread's alternate stack. The
//! other global state of the crate is in `hook` and `census`.

pub(crate) mod registry;

use crate::hook;
use core::cell::Cell;
use core::mem::MaybeUninit;
use registry::Slot;
use std::sync::Once;
use std::sync::OnceLock;

/// The handlers that were installed before ours.
static PREVIOUS: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];
const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
static INSTALL: Once = Once::new();

thread_local! {
    /// Whether this thread was armed. Has no destructor, so that it can be read at any time.
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static ALTERNATE: AlternateStack = const { AlternateStack(Cell::new(None)) };
}

/// Makes sure that a stack overflow on this thread is reported.
///
/// The allocators of guarded stacks call it. A runtime calls it once on each thread that runs
/// contexts but has made no stack itself.
///
/// # Examples
/// ```
/// use sinew_context::stack::overflow;
///
/// let carrier = std::thread::spawn(|| {
///     overflow::arm(); // before contexts run on this thread, on stacks that it has not made
///     overflow::arm(); // has no effect: the thread is armed
/// });
/// assert!(carrier.join().is_ok());
/// ```
#[inline]
pub fn arm() {
    if !ARMED.get() {
        arm_thread();
    }
}

#[cold]
fn arm_thread() {
    ARMED.set(true);
    // SAFETY: `handle_fault` is a valid signal handler: it allocates nothing, waits for nothing,
    // and passes on faults outside of guards.
    INSTALL.call_once(|| unsafe { install() });
    // This fails if the thread has already destroyed `ALTERNATE`. Then the report is lost, but the
    // process still ends.
    let _ = ALTERNATE.try_with(AlternateStack::provide);
}

/// Installs the fault handler, and keeps the handlers that were there before.
///
/// # Safety
/// Called once. `handle_fault` is a valid handler for the signals.
unsafe fn install() {
    for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: an all-zero `sigaction` is valid, and the handler has the signature of
        // SA_SIGINFO.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handle_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            // Read the old handler first: the new one may be called at once.
            if libc::sigaction(signal, core::ptr::null(), old.as_mut_ptr()) == 0 {
                let _ = previous.set(old.assume_init());
                libc::sigaction(signal, &action, core::ptr::null_mut());
            }
        }
    }
}

/// The fault handler.
///
/// # Safety
/// Only the kernel calls it, with the arguments of a `SA_SIGINFO` handler.
unsafe extern "C" fn handle_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes valid information on the fault.
    let address = unsafe { (*info).si_addr() }.addr();
    // Ignore the code of the signal: a guard in place reports SEGV_MAPERR, a guard by mprotect
    // SEGV_ACCERR.
    match registry::find_in_handler(address) {
        Some(slot) if address < slot.low => {
            report(address, slot);
            // SAFETY: restores the default action, which the repeated fault then takes.
            unsafe { set_default(signal) };
        }
        // SAFETY: passes on the arguments of the kernel.
        _ => unsafe { pass_on(signal, info, context) },
    }
}

fn report(address: usize, slot: Slot) {
    let size = slot.high - slot.low;
    let whose = Whose(slot.low..slot.high);
    hook::report(format_args!(
        "sinew: stack overflow in {whose}: all {size} bytes of the stack {:#x}..{:#x} are used \
         (fault at {address:#x})\n\
         sinew: give it a larger stack, for instance by `stack_size({})` of the builder of the \
         fiber, the runtime or the pool, or move large values to the heap",
        slot.low,
        slot.high,
        size.saturating_mul(2),
    ));
}

/// Displays the fiber that runs on a stack, as named by the runtime's hook.
struct Whose(core::ops::Range<usize>);

impl core::fmt::Display for Whose {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match hook::describe() {
            Some(describe) => describe(self.0.clone(), f),
            None => f.write_str("a fiber"),
        }
    }
}

/// Restores the default action of a signal.
///
/// # Safety
/// The caller is the fault handler: the default action ends the process at the next fault.
unsafe fn set_default(signal: libc::c_int) {
    // SAFETY: an all-zero action is SIG_DFL without flags.
    unsafe {
        let action: libc::sigaction = core::mem::zeroed();
        libc::sigaction(signal, &action, core::ptr::null_mut());
    }
}

/// Calls the handler that was installed before, or restores the default action.
///
/// # Safety
/// The arguments are those that the kernel passed to the fault handler.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Plain = extern "C" fn(libc::c_int);
    type Detailed = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let index = usize::from(signal == libc::SIGBUS);
    let previous = PREVIOUS[index].get();
    let handler = previous.map_or(libc::SIG_DFL, |action| action.sa_sigaction);
    match previous {
        Some(action) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
            // SAFETY: the program installed the handler with these flags, so it has this signature.
            unsafe {
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    core::mem::transmute::<usize, Detailed>(handler)(signal, info, context);
                } else {
                    core::mem::transmute::<usize, Plain>(handler)(signal);
                }
            }
        }
        // An ignored fault would repeat for ever; the kernel ends the process for it too.
        // SAFETY: restores the default action, which the repeated fault then takes.
        _ => unsafe { set_default(signal) },
    }
}

/// A thread's alternate signal stack, if this module made one.
struct AlternateStack(Cell<Option<(*mut libc::c_void, usize)>>);

impl AlternateStack {
    fn provide(&self) {
        // SAFETY: reads the current alternate stack, then sets one in our own memory, which stays
        // mapped until `drop` takes it out of use.
        unsafe {
            let mut current: libc::stack_t = core::mem::zeroed();
            // Room for the report and for several nested handlers. Each handler takes as much as
            // the register file that the kernel saves. The stack that the standard library gives
            // its threads has room for two.
            let size = 4 * minimum_signal_stack().max(libc::SIGSTKSZ) + 32 * 1024;
            if libc::sigaltstack(core::ptr::null(), &mut current) != 0
                || current.ss_flags & libc::SS_DISABLE == 0 && current.ss_size >= size
            {
                return;
            }
            let memory = libc::mmap(
                core::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON,
                -1,
                0,
            );
            if memory == libc::MAP_FAILED {
                return;
            }
            let wanted = libc::stack_t { ss_sp: memory, ss_flags: 0, ss_size: size };
            if libc::sigaltstack(&wanted, core::ptr::null_mut()) == 0 {
                self.0.set(Some((memory, size)));
            } else {
                libc::munmap(memory, size);
            }
        }
    }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        let Some((memory, size)) = self.0.take() else {
            return;
        };
        // SAFETY: the alternate stack is taken out of use before its memory is unmapped. If other
        // code has replaced it since, the replacement stays.
        unsafe {
            let mut current: libc::stack_t = core::mem::zeroed();
            libc::sigaltstack(core::ptr::null(), &mut current);
            if current.ss_sp == memory {
                let none = libc::stack_t {
                    ss_sp: core::ptr::null_mut(),
                    ss_flags: libc::SS_DISABLE,
                    ss_size: size,
                };
                libc::sigaltstack(&none, core::ptr::null_mut());
            }
            libc::munmap(memory, size);
        }
    }
}

fn minimum_signal_stack() -> usize {
    #[cfg(target_os = "linux")]
    {
        const AT_MINSIGSTKSZ: libc::c_ulong = 51;
        // SAFETY: no preconditions. The result is zero if the kernel does not provide the value.
        unsafe { libc::getauxval(AT_MINSIGSTKSZ) as usize }
    }
    #[cfg(not(target_os = "linux"))]
    {
        0
    }
}
