//! Backtraces of fibers: the functions on their stacks.

use super::memory;
use super::walk::{self, StackCopy};
use crate::fiber::Control;
use crate::fiber::Fiber;
use crate::fiber::life::STARTED;
use core::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The functions on the stack of a fiber, the innermost first. See [`Fiber::backtrace`].
///
/// # Examples
/// ```
/// let fiber = sinew::spawn(sinew::park);
/// sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
/// # if cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
/// let backtrace = fiber.fiber().backtrace()?;
/// println!("{backtrace}"); // a line for each function, with its file and line
/// assert!(!backtrace.is_empty());
/// # }
/// fiber.fiber().unpark();
/// # Ok::<(), sinew::inspect::BacktraceError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Backtrace {
    addresses: Vec<usize>,
}

/// A place in a [`Backtrace`]: a function, and the functions that were inlined there.
///
/// # Examples
/// ```
/// let fiber = sinew::spawn(sinew::park);
/// sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
/// # if cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
/// let backtrace = fiber.fiber().backtrace()?;
/// let innermost = &backtrace.frames()[0];
/// assert_eq!(innermost.address(), backtrace.addresses()[0]);
/// # }
/// fiber.fiber().unpark();
/// # Ok::<(), sinew::inspect::BacktraceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Frame {
    address: usize,
    symbols: Arc<[Symbol]>,
}

/// A function of a [`Frame`]. A field is `None` if the program has no debug tables that tell it.
///
/// # Examples
/// ```
/// let fiber = sinew::spawn(sinew::park);
/// sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
/// let frames = fiber.fiber().backtrace()?.frames();
/// let names = frames.iter().flat_map(|frame| frame.symbols()).filter_map(|s| s.name.as_deref());
/// # if cfg!(all(debug_assertions, target_os = "linux", target_arch = "x86_64")) {
/// assert!(names.into_iter().any(|name| name.contains("park")));
/// # }
/// fiber.fiber().unpark();
/// # Ok::<(), sinew::inspect::BacktraceError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Symbol {
    /// The name of the function, with its module.
    pub name: Option<String>,
    /// The source file of the function.
    pub file: Option<PathBuf>,
    /// The line in the source file.
    pub line: Option<u32>,
    /// The column in the line.
    pub column: Option<u32>,
}

/// Why [`Fiber::backtrace`] returned no backtrace.
///
/// # Examples
/// ```
/// use sinew::inspect::BacktraceError;
///
/// let thread = sinew::current(); // this is a plain thread
/// assert!(matches!(thread.backtrace(), Err(BacktraceError::Thread)));
/// sinew::run(|| {
///     let me = sinew::current();
///     assert!(matches!(me.backtrace(), Err(BacktraceError::Running)));
/// });
/// let fiber = sinew::spawn(|| ());
/// let handle = fiber.fiber();
/// fiber.join().unwrap();
/// assert!(matches!(handle.backtrace(), Err(BacktraceError::Ended)));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum BacktraceError {
    /// The fiber is running, so its stack changes all the time. A pinned fiber that waits also
    /// counts as running.
    Running,
    /// The fiber was woken, and may run at any moment.
    Runnable,
    /// The fiber has ended.
    Ended,
    /// The handle stands for a plain thread, not for a fiber.
    Thread,
    /// Sinew cannot read or walk stacks on this platform.
    Unsupported,
    /// The fiber's stack could not be read.
    Unreadable(io::Error),
}

impl fmt::Display for BacktraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BacktraceError::Running => f.write_str("the fiber is running"),
            BacktraceError::Runnable => f.write_str("the fiber was woken and is about to run"),
            BacktraceError::Ended => f.write_str("the fiber has ended"),
            BacktraceError::Thread => f.write_str("the handle stands for a thread, not a fiber"),
            BacktraceError::Unsupported => f.write_str("sinew cannot walk stacks on this platform"),
            BacktraceError::Unreadable(error) => write!(f, "the stack cannot be read: {error}"),
        }
    }
}

impl std::error::Error for BacktraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BacktraceError::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}

/// The most frames in a backtrace, unless the caller sets another limit.
const FRAMES: usize = 256;

/// The most bytes of a stack that are copied.
const MOST: usize = 1 << 20;

impl Fiber {
    /// Returns the functions that a suspended fiber is in. Any fiber or thread may call this
    /// function.
    ///
    /// The call does not disturb the fiber. It copies the fiber's stack, and uses the copy only if
    /// the fiber has not run meanwhile.
    ///
    /// The backtrace of an unstarted fiber is empty. The result has at most the innermost 256
    /// frames; [`backtrace_of`](Self::backtrace_of) takes another limit.
    ///
    /// # Errors
    /// Fails if the fiber runs, is about to run or has ended, or if its stack cannot be read;
    /// [`BacktraceError`] says which.
    ///
    /// # Examples
    /// ```
    /// fn waits_for_ever() {
    ///     sinew::park();
    /// }
    ///
    /// let fiber = sinew::spawn(waits_for_ever);
    /// sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
    /// let backtrace = fiber.fiber().backtrace()?;
    /// # if cfg!(all(debug_assertions, target_os = "linux", target_arch = "x86_64")) {
    /// assert!(backtrace.to_string().contains("waits_for_ever"), "{backtrace}");
    /// # }
    /// fiber.fiber().unpark();
    /// # Ok::<(), sinew::inspect::BacktraceError>(())
    /// ```
    pub fn backtrace(&self) -> Result<Backtrace, BacktraceError> {
        self.backtrace_of(FRAMES)
    }

    /// Returns the innermost functions that a suspended fiber is in, `frames` of them at most. See
    /// [`backtrace`](Self::backtrace).
    ///
    /// # Errors
    /// Fails as [`backtrace`](Self::backtrace) does.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::spawn(sinew::park);
    /// sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
    /// # if cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
    /// assert_eq!(fiber.fiber().backtrace_of(1)?.frames().len(), 1);
    /// # }
    /// fiber.fiber().unpark();
    /// # Ok::<(), sinew::inspect::BacktraceError>(())
    /// ```
    pub fn backtrace_of(&self, frames: usize) -> Result<Backtrace, BacktraceError> {
        capture(self.control(), frames)
    }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Fiber {
    /// Returns the functions that a fiber is in, even while it runs.
    ///
    /// The call stops the carrier of a running fiber for some microseconds, by the signal `SIGURG`.
    /// A system call that the carrier is in goes on afterwards; a system call with a timeout may
    /// fail with `Interrupted`.
    ///
    /// # Errors
    /// Fails as [`backtrace`](Self::backtrace) does, except that the fiber may run. Also fails if
    /// the carrier cannot be stopped, and for the calling fiber itself, which can use
    /// `std::backtrace`.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// let done = Arc::new(AtomicBool::new(false));
    /// let seen = done.clone();
    /// let busy = sinew::spawn(move || while !seen.load(Ordering::Relaxed) {});
    /// sinew::wait_until(|| busy.fiber().state() == sinew::FiberState::Running);
    /// assert!(!busy.fiber().backtrace_now()?.is_empty());
    /// done.store(true, Ordering::Relaxed);
    /// # Ok::<(), sinew::inspect::BacktraceError>(())
    /// ```
    pub fn backtrace_now(&self) -> Result<Backtrace, BacktraceError> {
        // The fiber may alternate between waiting and running, so either attempt may fail.
        let mut last = BacktraceError::Running;
        for _ in 0..8 {
            let attempt = match self.backtrace() {
                Err(BacktraceError::Running) => capture_running(self.control(), FRAMES),
                other => other,
            };
            match attempt {
                Err(BacktraceError::Running) => {}
                Err(error @ BacktraceError::Runnable) => last = error,
                other => return other,
            }
        }
        Err(last)
    }
}

/// Walks the stack of a running fiber.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn capture_running(
    control: &Control,
    frames: usize,
) -> Result<Backtrace, BacktraceError> {
    use crate::carrier::launch;
    use sinew_context::context::Registers;
    // SAFETY: carriers live forever.
    let carrier = unsafe { control.carrier().as_ref() }.ok_or(BacktraceError::Running)?;
    // The stopped thread may hold any lock, such as the allocator's. So the closure below takes no
    // lock, and the buffer is allocated before.
    let mut bytes = room_for(MOST)?;
    let seen = super::stop::stopped(carrier, |at| {
        let stack = sinew_context::stack::find_without_lock(at.stack)?;
        // In the middle of a switch, `current` is already the next fiber, and the stack still
        // belongs to the previous one. Stacks of first-class fibers do not name a fiber.
        let whose = launch::look_at(&stack, |address| memory::word(address).ok());
        let me = core::ptr::from_ref(control);
        let runs = core::ptr::eq(carrier.current(), me)
            && whose.is_none_or(|seen| seen.block == me.addr());
        let len = (stack.range().end - at.stack).min(MOST);
        let place = control.context.look().map(|context| context.address());
        let saved = place
            .and_then(|place| Registers::read_from(place, |address| memory::word(address).ok()));
        runs.then(|| (at, saved, len, memory::copy(at.stack, &mut bytes[..len])))
    })?;
    // The thread did not run during the copy, so the copy is consistent.
    let (mut at, saved, len, copied) = seen.ok_or(BacktraceError::Running)?;
    copied.map_err(unreadable)?;
    if let Some(saved) = saved
        && at.stack == saved.stack
        && !walk::is_same_function(at.instruction, saved.instruction)
    {
        // At the end of a switch: the stack pointer already belongs to the next fiber, the
        // instruction pointer does not.
        (at.instruction, at.frame, at.link) = (saved.instruction, saved.frame, 0);
    }
    bytes.truncate(len);
    let copy = StackCopy { base: at.stack, bytes };
    Ok(Backtrace { addresses: super::with_room(|| copy.frames_from(at, frames)) })
}

/// Captures the stack of a fiber, also of a running fiber where the platform allows it.
pub(super) fn anyhow(fiber: &Fiber) -> Result<Backtrace, BacktraceError> {
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    return fiber.backtrace_now();
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fiber.backtrace()
}

/// Walks the stack of a fiber, if it is suspended.
pub(super) fn capture(control: &Control, frames: usize) -> Result<Backtrace, BacktraceError> {
    use crate::fiber::Flags;
    if control.flags().has(Flags::PROXY) {
        return Err(BacktraceError::Thread);
    }
    if control.life.is_finished() {
        return Err(BacktraceError::Ended);
    }
    if control.life.marks() & STARTED == 0 {
        return Ok(Backtrace::default());
    }
    // The fiber may be woken while its stack is copied. If that happens at every attempt, the fiber
    // hardly ever waits.
    for _ in 0..8 {
        let Some(epoch) = control.wake.waiting() else { continue };
        let Some(context) = control.context.look() else { return Err(BacktraceError::Running) };
        let copied = copy_stack(context.address());
        memory::settle();
        if control.wake.is_waiting(epoch) {
            let copied = copied?;
            let addresses = super::with_room(|| copied.frames(frames));
            return Ok(Backtrace { addresses: addresses.ok_or(BacktraceError::Unsupported)? });
        }
    }
    match Fiber::new(control).state() {
        crate::FiberState::Running => Err(BacktraceError::Running),
        crate::FiberState::Dead => Err(BacktraceError::Ended),
        _ => Err(BacktraceError::Runnable),
    }
}

/// Captures the stack that is suspended at `address`. The caller ensures that it stays suspended.
pub(crate) fn suspended_at(address: usize) -> Result<Backtrace, BacktraceError> {
    let addresses = copy_stack(address)?.frames(FRAMES).ok_or(BacktraceError::Unsupported)?;
    Ok(Backtrace { addresses })
}

/// Copies the stack that is suspended at `address`.
fn copy_stack(address: usize) -> Result<StackCopy, BacktraceError> {
    let stack = sinew_context::stack::find(address).ok_or(BacktraceError::Unsupported)?;
    let mut bytes = room_for((stack.range().end - address).min(MOST))?;
    memory::copy(address, &mut bytes).map_err(unreadable)?;
    Ok(StackCopy { base: address, bytes })
}

fn room_for(len: usize) -> Result<Vec<u8>, BacktraceError> {
    let mut bytes = Vec::new();
    let reserved = bytes.try_reserve_exact(len);
    reserved.map_err(|error| BacktraceError::Unreadable(io::Error::other(error)))?;
    bytes.resize(len, 0);
    Ok(bytes)
}

fn unreadable(error: io::Error) -> BacktraceError {
    match error.kind() {
        io::ErrorKind::Unsupported => BacktraceError::Unsupported,
        _ => BacktraceError::Unreadable(error),
    }
}

impl Backtrace {
    /// Returns the places that the fiber is in, the innermost first. The first look-up of a place
    /// takes time: some milliseconds in a large program.
    ///
    /// # Examples
    /// ```
    /// # let fiber = sinew::spawn(sinew::park);
    /// # sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
    /// for frame in fiber.fiber().backtrace()?.frames() {
    ///     println!("{:#x}: {:?}", frame.address(), frame.symbols());
    /// }
    /// # fiber.fiber().unpark();
    /// # Ok::<(), sinew::inspect::BacktraceError>(())
    /// ```
    pub fn frames(&self) -> Vec<Frame> {
        let frame = |&address: &usize| Frame { address, symbols: walk::symbols(address) };
        super::with_room(|| self.addresses.iter().map(frame).collect())
    }

    /// Returns the addresses of the frames.
    ///
    /// # Examples
    /// ```
    /// # let fiber = sinew::spawn(sinew::park);
    /// # sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
    /// let backtrace = fiber.fiber().backtrace()?;
    /// assert_eq!(backtrace.addresses().len(), backtrace.frames().len());
    /// # fiber.fiber().unpark();
    /// # Ok::<(), sinew::inspect::BacktraceError>(())
    /// ```
    pub fn addresses(&self) -> &[usize] {
        &self.addresses
    }

    /// Describes the innermost function that belongs neither to sinew nor to the standard library,
    /// and its place.
    pub(super) fn place(&self) -> Option<String> {
        let frames = self.frames();
        let symbols = || {
            let all = frames.iter().flat_map(Frame::symbols);
            all.filter(|symbol| symbol.name.as_deref().is_some_and(|name| !is_ours(name)))
        };
        let innermost = symbols().next()?;
        let users = symbols().find(|symbol| !is_systems(symbol)).unwrap_or(innermost);
        let (name, called) = (users.name.as_deref()?, innermost.name.as_deref()?);
        let within = match core::ptr::eq(users, innermost) {
            true => String::new(),
            false => format!(", which has called {called}"),
        };
        Some(match (&users.file, users.line) {
            (Some(file), Some(line)) => format!("{name} at {}:{line}{within}", file.display()),
            // Some instructions that the compiler adds belong to no line.
            (Some(file), None) => format!("{name} in {}{within}", file.display()),
            _ => format!("{name}{within}"),
        })
    }

    /// Returns whether there is no frame. The backtrace of an unstarted fiber has none.
    ///
    /// # Examples
    /// ```
    /// # let fiber = sinew::spawn(sinew::park);
    /// # sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
    /// assert!(!fiber.fiber().backtrace()?.is_empty());
    /// # fiber.fiber().unpark();
    /// # Ok::<(), sinew::inspect::BacktraceError>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

impl Frame {
    /// Returns an address in the code of this place.
    ///
    /// # Examples
    /// ```
    /// # let fiber = sinew::spawn(sinew::park);
    /// # sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
    /// let innermost = &fiber.fiber().backtrace()?.frames()[0];
    /// assert_ne!(innermost.address(), 0);
    /// # fiber.fiber().unpark();
    /// # Ok::<(), sinew::inspect::BacktraceError>(())
    /// ```
    pub fn address(&self) -> usize {
        self.address
    }

    /// Returns the functions at this place: inlined functions first, the function that contains
    /// them last. Empty if the program has no tables for the place.
    ///
    /// # Examples
    /// ```
    /// # let fiber = sinew::spawn(sinew::park);
    /// # sinew::wait_until(|| fiber.fiber().state() == sinew::FiberState::Suspended);
    /// let innermost = &fiber.fiber().backtrace()?.frames()[0];
    /// for symbol in innermost.symbols() {
    ///     println!("{:?} at {:?}:{:?}", symbol.name, symbol.file, symbol.line);
    /// }
    /// # fiber.fiber().unpark();
    /// # Ok::<(), sinew::inspect::BacktraceError>(())
    /// ```
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }
}

/// Writes one line for each function, and one for its place in the source. The format `{}` leaves
/// out the functions of sinew at both ends of the stack, which every suspended fiber is in. The
/// format `{:#}` shows them as well.
impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames = self.frames();
        let lines: Vec<(usize, Option<&Symbol>)> = frames
            .iter()
            .flat_map(|frame| {
                let unknown = frame.symbols.is_empty().then_some((frame.address, None));
                let known = frame.symbols.iter().map(|symbol| (frame.address, Some(symbol)));
                unknown.into_iter().chain(known)
            })
            .collect();
        let shown = if f.alternate() { 0..lines.len() } else { users(&lines) };
        for (number, (address, symbol)) in lines[shown].iter().enumerate() {
            let name = symbol.and_then(|symbol| symbol.name.as_deref());
            match name {
                Some(name) => writeln!(f, "{number:4}: {name}")?,
                None => writeln!(f, "{number:4}: {address:#x}")?,
            }
            if let Some(Symbol { file: Some(file), line: Some(line), .. }) = symbol {
                writeln!(f, "             at {}:{line}", file.display())?;
            }
        }
        Ok(())
    }
}

/// The part of a backtrace between sinew's own functions.
fn users(lines: &[(usize, Option<&Symbol>)]) -> core::ops::Range<usize> {
    let ours = |(_, symbol): &(usize, Option<&Symbol>)| {
        symbol.and_then(|symbol| symbol.name.as_deref()).is_some_and(is_ours)
    };
    // Keep the function of sinew that the user called.
    let start = lines.iter().position(|line| !ours(line)).unwrap_or(lines.len());
    let end = lines.iter().rposition(|line| !ours(line)).map_or(start, |last| last + 1);
    start.saturating_sub(1)..end
}

/// Whether a function belongs to the standard library, or to a library without tables.
fn is_systems(symbol: &Symbol) -> bool {
    // Paths under which the standard library was built.
    symbol.file.as_ref().is_none_or(|file| {
        ["/rustc", "library", "./"].iter().any(|start| file.to_string_lossy().starts_with(start))
    })
}

fn is_ours(name: &str) -> bool {
    let name = name.trim_start_matches(['<', '&']);
    ["sinew::", "sinew_context::", "core::", "std::", "__rust_try", "lock_api::"]
        .iter()
        .any(|start| name.starts_with(start))
}
