//! Four functions that a runtime above this crate may set, once.
//!
//! The hooks are configuration, not state about fibers. No variable of this crate holds the
//! running fiber; each switch hands it on. The other global state is in `stack::overflow` and
//! `census`.

use core::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A function that returns the number of the runtime's fiber that runs on this thread. Numbers are
/// below 2^62 and never used twice. Returns `None` outside of the runtime's fibers.
///
/// # Examples
/// ```
/// use sinew_context::hook::HostHook;
///
/// let outside: HostHook = || None;
/// assert!(outside().is_none());
/// ```
pub type HostHook = fn() -> Option<core::num::NonZeroU64>;

/// A function that receives a report for people: one or more whole lines.
///
/// # Examples
/// ```
/// use sinew_context::hook::ReportHook;
///
/// let to_stderr: ReportHook = |message| eprintln!("{message}");
/// to_stderr("a stack is almost full");
/// ```
pub type ReportHook = fn(message: &str);

/// A function that writes the name of the fiber whose stack spans the given addresses, for instance
/// `fiber "worker" (id 7)`.
///
/// # Examples
/// ```
/// use sinew_context::hook::DescribeHook;
///
/// let describe: DescribeHook = |stack, out| write!(out, "the fiber at {:#x}", stack.start);
/// let mut name = String::new();
/// describe(0x1000..0x2000, &mut name)?;
/// assert_eq!(name, "the fiber at 0x1000");
/// # Ok::<(), std::fmt::Error>(())
/// ```
pub type DescribeHook = fn(stack: core::ops::Range<usize>, out: &mut dyn fmt::Write) -> fmt::Result;

/// A function that is called with `true` when the unwinding of a first-class fiber begins, and with
/// `false` when the unwinding has reached the fiber's first frame. Both calls run on the stack of
/// the fiber that is unwound.
///
/// # Examples
/// ```
/// use sinew_context::hook::UnwindHook;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// static UNWINDINGS: AtomicU32 = AtomicU32::new(0);
/// let count: UnwindHook = |begins| {
///     UNWINDINGS.fetch_add(begins.into(), Ordering::Relaxed);
/// };
/// count(true);
/// count(false);
/// assert_eq!(UNWINDINGS.load(Ordering::Relaxed), 1);
/// ```
pub type UnwindHook = fn(begins: bool);

static HOST: OnceLock<HostHook> = OnceLock::new();
/// Zero until `HOST` is set, then [`ASK`]. A separate word, because each switch reads it.
static HOST_KEY: AtomicUsize = AtomicUsize::new(0);
static REPORT: OnceLock<ReportHook> = OnceLock::new();
static DESCRIBE: OnceLock<DescribeHook> = OnceLock::new();
static UNWIND: OnceLock<UnwindHook> = OnceLock::new();

/// The error of setting a hook that was set before. The first hook stays.
///
/// # Examples
/// ```standalone_crate
/// use sinew_context::hook::{self, AlreadySet};
///
/// fn ignore(_begins: bool) {}
///
/// // SAFETY: the hook does nothing.
/// unsafe {
///     assert_eq!(hook::set_unwind_hook(ignore), Ok(()));
///     assert_eq!(hook::set_unwind_hook(ignore), Err(AlreadySet));
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlreadySet;

impl fmt::Display for AlreadySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the hook is already set; only one runtime per process can set it")
    }
}

impl std::error::Error for AlreadySet {}

/// Sets the hook that names the running fiber of a runtime.
///
/// After this, a [`FiberContext`](crate::FiberContext) that is made inside one of the runtime's
/// fibers belongs to that fiber and cannot be resumed in another.
///
/// # Safety
/// Every resume calls the hook. The hook must return the number of the fiber that really runs, must
/// not switch contexts, and must not unwind. If it returned one number for two flows of control,
/// these could resume each other's fibers.
///
/// If the runtime moves its fibers between threads, code in them must not hold certain first-class
/// fibers across a wait. One kind is a fiber made outside of the runtime's fibers. The address of
/// its thread identifies its host, and a later thread may have the address of a thread that has
/// ended. The other kind is a fiber whose stack comes from an allocator that is not `Send`.
///
/// # Examples
/// ```standalone_crate
/// use sinew_context::{FiberContext, hook};
/// use std::{cell::Cell, num::NonZeroU64};
///
/// thread_local!(static RUNNING: Cell<u64> = const { Cell::new(0) });
///
/// // SAFETY: the hook returns the number of the running fiber, as set at each dispatch below.
/// unsafe { hook::set_host_hook(|| NonZeroU64::new(RUNNING.get())) }.unwrap();
///
/// RUNNING.set(1); // the runtime dispatches its fiber 1
/// let fiber = FiberContext::new(|caller| caller)?;
/// RUNNING.set(2);
/// assert!(!fiber.is_at_home());
/// RUNNING.set(1);
/// assert!(fiber.resume().is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
pub unsafe fn set_host_hook(hook: HostHook) -> Result<(), AlreadySet> {
    // Set the key first. A thread that sees the key but no hook falls back to its thread pointer.
    // ORDERING: Relaxed is enough. The start of the threads that run the runtime's fibers, or the
    // hand-over of work to them, publishes the key. Other threads may still use the thread pointer.
    HOST_KEY.store(ASK, Ordering::Relaxed);
    HOST.set(hook).map_err(|_| AlreadySet)
}

pub(crate) fn host() -> Option<HostHook> {
    HOST.get().copied()
}

/// A bit that is set in no thread's address and in no number of a runtime's fiber.
const ASK: usize = 1 << (usize::BITS - 1);

/// Returns zero while no host hook is set, then [`ASK`]. `Host::is_plain_thread` mixes this word
/// into its comparison, so that the comparison fails when the hook must be asked.
#[inline(always)]
pub(crate) fn host_key() -> usize {
    HOST_KEY.load(Ordering::Relaxed)
}

/// Sets the hook that receives reports. Without a hook, reports go to standard error.
///
/// # Safety
/// The hook must be safe to call in a signal handler, because overflows are reported from one. It
/// must not switch contexts and must not unwind.
///
/// # Examples
/// ```standalone_crate
/// use sinew_context::hook::{self, AlreadySet};
///
/// fn to_standard_output(message: &str) {
///     // SAFETY: the pointer and the length are those of `message`.
///     unsafe { libc::write(libc::STDOUT_FILENO, message.as_ptr().cast(), message.len()) };
/// }
///
/// // SAFETY: `write` may be called in a signal handler. The hook does nothing else.
/// unsafe {
///     assert_eq!(hook::set_report_hook(to_standard_output), Ok(()));
///     assert_eq!(hook::set_report_hook(to_standard_output), Err(AlreadySet));
/// }
/// ```
pub unsafe fn set_report_hook(hook: ReportHook) -> Result<(), AlreadySet> {
    REPORT.set(hook).map_err(|_| AlreadySet)
}

/// Sets the hook that names the fiber whose stack overflowed.
///
/// # Safety
/// The hook must be safe to call in a signal handler. It must not switch contexts and must not
/// unwind.
///
/// # Examples
/// ```standalone_crate
/// use sinew_context::hook;
/// use std::{fmt, ops::Range};
///
/// fn describe(stack: Range<usize>, out: &mut dyn fmt::Write) -> fmt::Result {
///     // A runtime looks up its fiber by the addresses.
///     write!(out, "the fiber at {:#x}", stack.start)
/// }
///
/// // SAFETY: writing a number neither allocates memory nor waits, switches or unwinds.
/// unsafe { hook::set_describe_hook(describe) }.unwrap();
///
/// let mut text = String::new();
/// describe(0x7000..0x8000, &mut text).unwrap();
/// assert_eq!(text, "the fiber at 0x7000");
/// ```
pub unsafe fn set_describe_hook(hook: DescribeHook) -> Result<(), AlreadySet> {
    DESCRIBE.set(hook).map_err(|_| AlreadySet)
}

/// Sets the hook that is called when the unwinding of a fiber begins and ends.
///
/// Fibers are unwound by a panic that no panic hook sees. The standard library counts panics by
/// thread, so a runtime must track by itself which of its fibers are unwinding.
///
/// # Safety
/// The hook must not switch contexts and must not unwind.
///
/// # Examples
/// ```standalone_crate
/// use sinew_context::{FiberContext, hook};
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// static BEGUN: AtomicUsize = AtomicUsize::new(0);
/// static ENDED: AtomicUsize = AtomicUsize::new(0);
///
/// fn count(begins: bool) {
///     let counter = if begins { &BEGUN } else { &ENDED };
///     counter.fetch_add(1, Ordering::Relaxed);
/// }
///
/// // SAFETY: the hook only counts.
/// unsafe { hook::set_unwind_hook(count) }.unwrap();
///
/// let suspended = FiberContext::new(|caller| caller.resume().unwrap())?.resume();
/// drop(suspended); // unwinds the fiber
/// assert_eq!((BEGUN.load(Ordering::Relaxed), ENDED.load(Ordering::Relaxed)), (1, 1));
/// # Ok::<(), std::io::Error>(())
/// ```
pub unsafe fn set_unwind_hook(hook: UnwindHook) -> Result<(), AlreadySet> {
    UNWIND.set(hook).map_err(|_| AlreadySet)
}

pub(crate) fn tell_unwinding(begins: bool) {
    if let Some(hook) = UNWIND.get() {
        hook(begins);
    }
}

pub(crate) fn describe() -> Option<DescribeHook> {
    DESCRIBE.get().copied()
}

/// Reports `message`: one or more lines, without the end of the last line.
pub(crate) fn report(message: fmt::Arguments<'_>) {
    let mut buffer = LineBuffer::new();
    // A message that is too long for the buffer is cut.
    let _ = fmt::Write::write_fmt(&mut buffer, message);
    buffer.end_line();
    match REPORT.get() {
        Some(hook) => hook(buffer.as_str()),
        None => {
            let bytes = buffer.as_str().as_bytes();
            // SAFETY: the buffer is valid, and `write` may be called in a signal handler. A failed
            // write is ignored: there is no other place to report it.
            let _ = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        }
    }
}

/// Reports and aborts: for states that cannot continue, and where unwinding would cross the root of
/// a stack.
#[cold]
#[inline(never)]
pub(crate) fn fatal(message: fmt::Arguments<'_>) -> ! {
    report(message);
    std::process::abort()
}

/// A buffer of fixed size, to format into where nothing may be allocated.
struct LineBuffer {
    bytes: [u8; 1024],
    len: usize,
}

impl LineBuffer {
    const fn new() -> Self {
        LineBuffer { bytes: [0; 1024], len: 0 }
    }

    fn end_line(&mut self) {
        self.len = self.len.min(self.bytes.len() - 1);
        self.bytes[self.len] = b'\n';
        self.len += 1;
    }

    fn as_str(&self) -> &str {
        let valid = match core::str::from_utf8(&self.bytes[..self.len]) {
            Ok(text) => return text,
            // The last character was cut in two.
            Err(error) => error.valid_up_to(),
        };
        core::str::from_utf8(&self.bytes[..valid]).unwrap_or("")
    }
}

impl fmt::Write for LineBuffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.len;
        let taken = room.min(text.len());
        self.bytes[self.len..self.len + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}
