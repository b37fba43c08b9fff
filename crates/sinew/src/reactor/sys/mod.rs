//! The kernel's ways to wait for many descriptors, behind one trait.
//!
//! Each platform supplies a type that implements [`Poller`], in a file of its own, and a line in
//! [`Backend::open`]. Only `reactor` uses them: it makes one poller for each carrier.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod epoll;
#[cfg(any(
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly"
))]
mod kqueue;
mod poll;
#[cfg(target_os = "linux")]
mod uring;

pub(super) use poll::ppoll;

#[cfg(target_os = "linux")]
use super::ring::Ring;
use crate::carrier::bell::Bell;
use core::mem::MaybeUninit;
use core::time::Duration;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// The number that a poller gives to the kernel with a descriptor. The kernel returns it with each
/// event of the descriptor. It holds the descriptor number and the generation of the registration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token(u64);

/// The bit that distinguishes the token of a descriptor from the address of an operation.
pub(super) const POLLED: u64 = 1 << 63;

impl Token {
    /// The token of a carrier's bell.
    pub(super) const BELL: Token = Token(u64::MAX);
    /// The token of a ring.
    #[cfg(target_os = "linux")]
    const RING: Token = Token(u64::MAX - 1);

    pub(super) fn new(fd: RawFd, generation: u32) -> Token {
        Token(POLLED | u64::from(generation) << 32 | fd as u32 as u64)
    }

    pub(super) fn fd(self) -> RawFd {
        self.0 as u32 as RawFd
    }

    pub(super) fn generation(self) -> u32 {
        ((self.0 & !POLLED) >> 32) as u32
    }

    /// Returns the next generation. Generations have 31 bits.
    pub(super) fn next_generation(generation: u32) -> u32 {
        generation.wrapping_add(1) & (u32::MAX >> 1)
    }
}

/// A direction that can be waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read = 0,
    Write = 1,
}

impl Direction {
    pub(super) const BOTH: [Direction; 2] = [Direction::Read, Direction::Write];
}

/// A set of events of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ready(u8);

impl Ready {
    pub(super) const READ: Ready = Ready(1);
    pub(super) const WRITE: Ready = Ready(2);
    pub(super) const BOTH: Ready = Ready(3);
    /// A hang-up, an error, or urgent data.
    pub(super) const SPECIAL: Ready = Ready(4);
    /// The kernel has ended its watch without being asked.
    pub(super) const ENDED: Ready = Ready(8);

    /// Returns the union of the elements with a true condition.
    fn of<const N: usize>(all: [(Ready, bool); N]) -> Ready {
        let bits = all.iter().filter(|(_, is)| *is).fold(0, |bits, (ready, _)| bits | ready.0);
        Ready(bits)
    }

    pub(super) fn has(self, any_of: Ready) -> bool {
        self.0 & any_of.0 != 0
    }

    pub(super) fn direction(direction: Direction) -> Ready {
        match direction {
            Direction::Read => Ready::READ,
            Direction::Write => Ready::WRITE,
        }
    }
}

/// The most events that one look takes.
pub(super) const HARVEST: usize = 64;

/// Events, in the order in which the kernel reported them.
pub(super) struct Events {
    /// The first `len` elements are initialised.
    events: [MaybeUninit<(Token, Ready)>; HARVEST],
    len: usize,
}

impl Events {
    pub(super) const fn new() -> Events {
        Events { events: [const { MaybeUninit::uninit() }; HARVEST], len: 0 }
    }

    /// How many more events there is room for.
    #[cfg(target_os = "linux")]
    fn room(&self) -> usize {
        HARVEST - self.len
    }

    /// Adds an event, if there is room.
    fn push(&mut self, token: Token, ready: Ready) {
        if let Some(place) = self.events.get_mut(self.len) {
            place.write((token, ready));
            self.len += 1;
        }
    }

    pub(super) fn as_slice(&self) -> &[(Token, Ready)] {
        // SAFETY: the first `len` elements are initialised, and `MaybeUninit` has the layout of its
        // content.
        unsafe { core::slice::from_raw_parts(self.events.as_ptr().cast(), self.len) }
    }
}

/// A way to wait for many descriptors. Any thread may call any method at any time.
pub(super) trait Poller: Send + Sync {
    /// Watches a descriptor in both directions. The kernel then reports the directions that are
    /// ready at this moment.
    ///
    /// # Errors
    /// Fails with `PermissionDenied` if the descriptor's kind is always ready.
    fn add(&self, fd: RawFd, token: Token) -> io::Result<()>;

    /// Makes sure that a descriptor which should be watched as `old` is watched as `new` from now
    /// on. The kernel then reports the directions that are ready at this moment.
    fn renew(&self, fd: RawFd, old: Token, new: Token) -> io::Result<()>;

    /// Stops watching a descriptor. Does nothing if the descriptor is not watched. `here` says
    /// whether the caller is the thread of the poller's carrier. Returns true if the caller has to
    /// ring the carrier's bell.
    fn remove(&self, fd: RawFd, token: Token, here: bool) -> bool;

    /// Whether `arm` has to be called before each wait of a fiber.
    fn wants_arming(&self) -> bool {
        false
    }

    /// Announces that a fiber is about to wait. Returns true if the caller has to ring the bell, so
    /// that a thread which waits in the kernel takes note.
    fn arm(&self, _token: Token, _direction: Direction) -> bool {
        false
    }

    /// Waits until there are events or `timeout` is over. Adds the events to `events`, which is
    /// empty at the call, as far as there is room. A signal may end the wait early.
    fn wait(&self, timeout: Option<Duration>, events: &mut Events) -> io::Result<()>;

    /// Whether other carriers may call `wait` when the poller's own carrier is busy.
    fn is_for_neighbours(&self) -> bool {
        true
    }

    /// The ring for operations that the kernel performs, if there is one.
    #[cfg(target_os = "linux")]
    fn ring(&self) -> Option<&Ring> {
        None
    }

    /// Whether a busy carrier should look here even if it watches no descriptor, because fibers
    /// wait for operations of a ring.
    fn is_active(&self) -> bool {
        false
    }

    /// A descriptor that is readable when there are events, if there is one.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Fails if the descriptor is not open, or if it is a file or a directory, which are always ready.
/// Returns true for a socket or a pipe, which are not always ready. Returns false for kinds that
/// may be either.
fn check_watchable(fd: RawFd) -> io::Result<bool> {
    // SAFETY: all zero is a valid `stat`, and the kernel writes only to it. A wrong descriptor is
    // only an error.
    let status = unsafe {
        let mut status = core::mem::zeroed::<libc::stat>();
        if libc::fstat(fd, &raw mut status) < 0 {
            return Err(io::Error::last_os_error());
        }
        status
    };
    match status.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR => Err(io::ErrorKind::PermissionDenied.into()),
        kind => Ok(matches!(kind, libc::S_IFSOCK | libc::S_IFIFO)),
    }
}

/// Makes the poller that uses `poll`. It opens nothing in the kernel, so it cannot fail.
pub(super) fn fallback(bell: &Bell) -> Box<dyn Poller> {
    Box::new(poll::List::new(bell))
}

/// The way in which the carriers of a runtime wait for sockets, pipes and other descriptors.
///
/// # Examples
/// ```
/// use sinew::runtime::Backend;
///
/// let wanted = if Backend::Uring.is_supported() { Backend::Uring } else { Backend::Poll };
/// let runtime = sinew::Runtime::builder().backend(wanted).build()?;
/// runtime.run(|| {
///     let (_reader, mut writer) = sinew::io::pipe()?;
///     std::io::Write::write_all(&mut writer, b"hello")
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Backend {
    /// `epoll`, on Linux.
    Epoll,
    /// `kqueue`, on the BSDs and macOS.
    Kqueue,
    /// `io_uring`, on Linux.
    Uring,
    /// `poll`, on every platform. The more descriptors fibers wait for, the longer each call takes.
    Poll,
}

impl Backend {
    /// All backends, with their names in the environment variable `SINEW_IO`.
    pub(crate) const NAMES: [(&'static str, Backend); 4] = [
        ("epoll", Backend::Epoll),
        ("kqueue", Backend::Kqueue),
        ("uring", Backend::Uring),
        ("poll", Backend::Poll),
    ];

    /// Returns the best backend of this platform.
    pub(crate) fn best() -> Backend {
        if cfg!(any(target_os = "linux", target_os = "android")) {
            Backend::Epoll
        } else if Backend::Kqueue.is_supported() {
            Backend::Kqueue
        } else {
            Backend::Poll
        }
    }

    /// Returns whether this system has the backend. For [`Uring`](Self::Uring) this asks the
    /// kernel, which may be too old or may forbid its use.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::runtime::Backend::Poll.is_supported());
    /// ```
    pub fn is_supported(self) -> bool {
        match self {
            Backend::Epoll => cfg!(any(target_os = "linux", target_os = "android")),
            Backend::Kqueue => cfg!(any(
                target_vendor = "apple",
                target_os = "freebsd",
                target_os = "netbsd",
                target_os = "openbsd",
                target_os = "dragonfly"
            )),
            // Not every kernel has `io_uring`, or lets every process use it.
            #[cfg(target_os = "linux")]
            Backend::Uring => Ring::new().is_ok(),
            #[cfg(not(target_os = "linux"))]
            Backend::Uring => false,
            Backend::Poll => true,
        }
    }

    /// Makes a poller that watches `bell` as well.
    pub(super) fn open(self, bell: &Bell) -> io::Result<Box<dyn Poller>> {
        match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Backend::Epoll => Ok(Box::new(epoll::Epoll::new(bell)?)),
            #[cfg(any(
                target_vendor = "apple",
                target_os = "freebsd",
                target_os = "netbsd",
                target_os = "openbsd",
                target_os = "dragonfly"
            ))]
            Backend::Kqueue => Ok(Box::new(kqueue::Kqueue::new(bell)?)),
            #[cfg(target_os = "linux")]
            Backend::Uring => Ok(Box::new(uring::Uring::new(bell)?)),
            Backend::Poll => Ok(fallback(bell)),
            #[allow(unreachable_patterns, reason = "the set of backends depends on the platform")]
            other => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("this platform has no {other:?}"),
            )),
        }
    }
}
