//! Stops a carrier for a moment, to see what the fiber on it does.
//!
//! # Protocol
//!
//! One request runs at a time, under a lock.
//!
//! 1. The requester names the thread and sends it a signal.
//! 2. The handler, on the thread's alternate stack, writes down the registers of the interrupted
//!    code and waits. The interrupted code does not go on.
//! 3. The requester copies the stack, and lets the thread go on.
//!
//! Each step is an exchange of one word, so a side that gives up does so before or after the next
//! step of the other side, never in the middle. A requester without an answer withdraws its
//! request. A handler that is not released in time goes on by itself, and then the requester throws
//! the copy away. Once a handler has answered, the requester does not give up: it waits until the
//! handler says that it is stopped, and later until the handler says that it is done. The handler
//! does nothing in between that could block. So no handler is under way when the next request
//! begins.

use super::backtrace::BacktraceError;
use crate::carrier::Carrier;
use crate::primitive::{AtomicBool, AtomicU32, AtomicUsize, Ordering, futex};
use core::ffi::{c_int, c_void};
use core::time::Duration;
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// No request is under way.
const IDLE: u32 = 0;
/// The requester has asked a thread to stop.
const ASKED: u32 = 1;
/// The thread writes down its registers.
const ANSWERS: u32 = 2;
/// The thread has written its registers, and waits.
const STOPPED: u32 = 3;
/// The thread may go on.
const GOES_ON: u32 = 4;

static PHASE: AtomicU32 = AtomicU32::new(IDLE);
static TARGET: AtomicU32 = AtomicU32::new(0);
static REGISTERS: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// How long the requester waits for an answer: the thread may have to wait for a processor.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// How long the stopped thread waits to be released.
const PATIENCE: Duration = Duration::from_millis(200);

/// The action that was installed for the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// The signal that stops a thread. The system ignores it by default, and debuggers let it pass.
const SIGNAL: c_int = libc::SIGURG;

/// The registers of a stopped thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopped {
    pub(super) instruction: usize,
    pub(super) stack: usize,
    pub(super) frame: usize,
    /// The return address of the function, on machines that have a register for it.
    #[cfg_attr(target_arch = "x86_64", allow(dead_code, reason = "it is on the stack there"))]
    pub(super) link: usize,
}

/// Stops the thread of a carrier, and calls `look` meanwhile. Fails if the thread could not be
/// stopped, or went on by itself.
pub(super) fn stopped<R>(
    carrier: &Carrier,
    look: impl FnOnce(Stopped) -> R,
) -> Result<R, BacktraceError> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    install().map_err(BacktraceError::Unreadable)?;
    let thread = carrier.thread();
    // A thread cannot stop itself. The caller may be on the carrier's thread, in a hook that runs
    // as if on a plain thread.
    // SAFETY: `gettid` only returns a number.
    if thread == 0 || thread == unsafe { libc::gettid() }.cast_unsigned() {
        return Err(BacktraceError::Running);
    }
    TARGET.store(thread, Ordering::Relaxed);
    // ORDERING: Release publishes the target; pairs with the Acquire in `handle`.
    PHASE.store(ASKED, Ordering::Release);
    // SAFETY: the call takes plain numbers, and fails for a thread that has ended.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) };
    if sent < 0 {
        PHASE.store(IDLE, Ordering::Relaxed);
        return Err(BacktraceError::Unreadable(io::Error::last_os_error()));
    }
    wait_while(ASKED, Some(ANSWER_WITHIN));
    if exchange(ASKED, IDLE) {
        let text = "the carrier did not stop: it blocks SIGURG, or has another handler for it";
        return Err(BacktraceError::Unreadable(io::Error::new(io::ErrorKind::TimedOut, text)));
    }
    wait_while(ANSWERS, None);
    let [instruction, stack, frame, link] =
        [0, 1, 2, 3].map(|index: usize| REGISTERS[index].load(Ordering::Relaxed));
    let seen = look(Stopped { instruction, stack, frame, link });
    // If the thread is still stopped, it was stopped all the time.
    let in_time = exchange(STOPPED, GOES_ON);
    futex::wake(PHASE.as_ptr());
    if in_time {
        wait_while(GOES_ON, None);
    }
    if in_time { Ok(seen) } else { Err(BacktraceError::Running) }
}

fn exchange(from: u32, to: u32) -> bool {
    // ORDERING: AcqRel orders the registers and the copy of the stack; the requester's exchanges
    // pair with the handler's.
    PHASE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Waits while the phase is `phase`, `patience` at most.
fn wait_while(phase: u32, patience: Option<Duration>) {
    let deadline = patience.map(|patience| Instant::now() + patience);
    // ORDERING: Acquire shows the registers; pairs with the Release in `handle`.
    while PHASE.load(Ordering::Acquire) == phase {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return;
        }
        futex::wait(PHASE.as_ptr(), phase, left);
    }
}

/// Installs the handler. The caller holds the lock of the requests.
fn install() -> io::Result<()> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.load(Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the action is valid, and the handler makes only calls that are allowed in a handler.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let mut before: libc::sigaction = core::mem::zeroed();
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // Block all signals: a nested handler would need more than the smallest alternate stacks
        // have, and would keep the thread stopped.
        libc::sigfillset(&raw mut action.sa_mask);
        if libc::sigaction(SIGNAL, core::ptr::null(), &raw mut before) < 0 {
            return Err(io::Error::last_os_error());
        }
        let _ = BEFORE.set(before);
        if libc::sigaction(SIGNAL, &raw const action, core::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    INSTALLED.store(true, Ordering::Relaxed);
    Ok(())
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: `errno` is the thread's own variable.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the call takes plain numbers.
    let me = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    // ORDERING: Acquire shows the target; pairs with the Release in `stopped`.
    let asked = PHASE.load(Ordering::Acquire) == ASKED && TARGET.load(Ordering::Relaxed) == me;
    if asked && exchange(ASKED, ANSWERS) {
        // SAFETY: the kernel passes the context of the interrupted code.
        let registers = unsafe { registers(context.cast()) };
        for (place, register) in REGISTERS.iter().zip(registers) {
            place.store(register, Ordering::Relaxed);
        }
        // ORDERING: Release publishes the registers; pairs with the Acquire in `wait_while`.
        PHASE.store(STOPPED, Ordering::Release);
        futex::wake(PHASE.as_ptr());
        stay();
    } else {
        // SAFETY: these are the arguments that the kernel passed to this handler.
        unsafe { pass_on(signal, info, context) };
    }
    // SAFETY: `errno` is the thread's own variable.
    unsafe { *libc::__errno_location() = errno };
}

/// Waits for the requester to release this thread.
fn stay() {
    // A handler may not be allowed to read a clock, so the kernel keeps the time.
    futex::wait(PHASE.as_ptr(), STOPPED, Some(PATIENCE));
    if !exchange(STOPPED, IDLE) {
        // ORDERING: Release publishes that the handler has finished; pairs with the Acquire in
        // `wait_while`.
        PHASE.store(IDLE, Ordering::Release);
    }
    futex::wake(PHASE.as_ptr());
}

/// Calls the handler that was installed before, if there was one.
///
/// # Safety
/// The kernel passed these arguments to `handle`.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {}
        // SAFETY: this function was installed as a handler of this kind.
        handler => unsafe {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    core::mem::transmute(handler);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(c_int) = core::mem::transmute(handler);
                handler(signal);
            }
        },
    }
}

/// Returns the instruction pointer, the stack pointer and the frame pointer of the interrupted
/// code. The fourth value is not used on this machine.
///
/// # Safety
/// `context` is the context that the kernel passed to `handle`.
#[cfg(target_arch = "x86_64")]
unsafe fn registers(context: *const libc::ucontext_t) -> [usize; 4] {
    // SAFETY: the caller passes the context that the kernel gave to the handler.
    let all = unsafe { &(*context).uc_mcontext.gregs };
    [libc::REG_RIP, libc::REG_RSP, libc::REG_RBP, libc::REG_RBP]
        .map(|index| all[index as usize] as usize)
}

/// Returns the instruction pointer, the stack pointer, the frame pointer and the link register of
/// the interrupted code.
///
/// # Safety
/// `context` is the context that the kernel passed to `handle`.
#[cfg(target_arch = "aarch64")]
unsafe fn registers(context: *const libc::ucontext_t) -> [usize; 4] {
    // SAFETY: the caller passes the context that the kernel gave to the handler.
    let all = unsafe { &(*context).uc_mcontext };
    [all.pc as usize, all.sp as usize, all.regs[29] as usize, all.regs[30] as usize]
}
