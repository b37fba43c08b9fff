//! Four functions that a runtime above this crate may set, once.
//!
//! The hooks are configuration, not state about fibers. No variable of this crate holds the
//! running fiber; each switch hands it on. The other global state is in `stack::overflow` and
//! `census`.

use core::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the number of the runtime's fiber that runs on this thread: below 2^62 and never used
/// twice. Returns `None` outside of the runtime's fibers.
pub type HostHook = fn() -> Option<core::num::NonZeroU64>;

/// Receives a message for people: one or more whole lines.
pub type ReportHook = fn(message: &str);

/// Writes the name of the fiber whose stack spans the given addresses, for instance
/// `fiber "worker" (id 7)`.
pub type DescribeHook = fn(stack: core::ops::Range<usize>, out: &mut dyn fmt::Write) -> fmt::Result;

/// Called with `true` when the unwinding of a first-class fiber begins, and with `false` when it
/// has reached the fiber's first frame. Both times it runs on the stack of the fiber that is
/// unwound.
pub type UnwindHook = fn(begins: bool);

static HOST: OnceLock<HostHook> = OnceLock::new();
/// Zero until `HOST` is set, then [`ASK`]. A separate word, because each switch reads it.
static HOST_KEY: AtomicUsize = AtomicUsize::new(0);
static REPORT: OnceLock<ReportHook> = OnceLock::new();
static DESCRIBE: OnceLock<DescribeHook> = OnceLock::new();
static UNWIND: OnceLock<UnwindHook> = OnceLock::new();

/// A hook was set before; the first one stays.
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
/// After this, a [`Fiber`](crate::Fiber) made inside one of the runtime's fibers belongs to that
/// fiber and cannot be resumed in another.
///
/// # Safety
/// The hook is called at every resume. It must be right, must not switch contexts, and must not
/// unwind. If it returned one number for two flows of control, these could resume each other's
/// fibers.
///
/// If the runtime moves its fibers between threads, code in them must not hold certain first-class
/// fibers across a wait. One kind is a fiber made outside of the runtime's fibers: threads that do
/// not live at the same time may have the same address. The other is a fiber whose stack comes from
/// an allocator that is not `Send`.
pub unsafe fn set_host_hook(hook: HostHook) -> Result<(), AlreadySet> {
    // Set the key first. A thread that sees the key but no hook falls back to its thread pointer.
    // ORDERING: Relaxed is enough: the threads that run the runtime's fibers are started, or
    // receive their work, after this. Other threads may still use the thread pointer.
    HOST_KEY.store(ASK, Ordering::Relaxed);
    HOST.set(hook).map_err(|_| AlreadySet)
}

pub(crate) fn host() -> Option<HostHook> {
    HOST.get().copied()
}

/// A bit that is set in no thread's address and in no number of a runtime's fiber.
const ASK: usize = 1 << (usize::BITS - 1);

/// Returns zero while no host hook is set, then [`ASK`]. `host` mixes this word into its quick
/// check, so that the check fails when the hook must be asked.
#[inline(always)]
pub(crate) fn host_key() -> usize {
    HOST_KEY.load(Ordering::Relaxed)
}

/// Sets the hook that receives reports, instead of standard error.
///
/// # Safety
/// The hook must be safe to call in a signal handler, because overflows are reported from one. It
/// must not switch contexts and must not unwind.
pub unsafe fn set_report_hook(hook: ReportHook) -> Result<(), AlreadySet> {
    REPORT.set(hook).map_err(|_| AlreadySet)
}

/// Sets the hook that names the fiber whose stack overflowed.
///
/// # Safety
/// The hook must be safe to call in a signal handler. It must not switch contexts and must not
/// unwind.
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

/// Reports `message`, a whole line without its line end.
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

/// A fixed buffer to format into where nothing may be allocated.
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
