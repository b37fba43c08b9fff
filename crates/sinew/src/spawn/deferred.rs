//! Fibers that start when there is something to read.

use super::{Builder, JoinHandle, Unstarted};
use crate::cancel;
use crate::carrier::crew::Phase;
use crate::carrier::{Carrier, current as here};
use crate::fiber::task::{self, Vtable};
use crate::fiber::{Control, Flags};
use crate::io::Readable;
use crate::metrics;
use crate::reactor::Source;
use crate::reactor::deferred::{self, Armed};
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use std::io;
use std::sync::Arc;

/// Starts a fiber that runs `f` with `source` as soon as there is something to read from it.
///
/// Until then the fiber has no stack: a connection on which nothing happens costs some hundred bytes.
/// It starts on any carrier; a server's connections spread over all of them. If the source cannot be
/// waited for, is closed, or comes to its end, the fiber starts and finds out.
///
/// The fiber is cancelled like any other: it then ends without having begun, and drops the source. It
/// waits for the first byte as long as it takes, whatever timeout the source has; a server that wants to
/// be rid of silent clients keeps the handle, and cancels.
///
/// # Examples
/// ```
/// use sinew::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
///
/// sinew::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut client = TcpStream::connect(listener.local_addr()?)?;
///     let (stream, _) = listener.accept()?;
///     let handler = sinew::spawn_when_readable(stream, |mut stream| {
///         let mut first = [0];
///         stream.read_exact(&mut first).map(|()| first[0])
///     });
///     client.write_all(b"x")?;
///     assert_eq!(handler.join().unwrap()?, b'x');
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn spawn_when_readable<S, F, T>(source: S, f: F) -> JoinHandle<T>
where
    S: Readable + Send + 'static,
    F: FnOnce(S) -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new()
        .spawn_when_readable(source, f)
        .expect("the settings of a fiber for which nothing was set are in range")
}

impl Builder {
    /// Starts a fiber with these settings as soon as there is something to read from `source`; see
    /// [`spawn_when_readable`](crate::spawn_when_readable).
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    ///
    /// # Examples
    /// ```
    /// use std::io::Write;
    ///
    /// sinew::run(|| {
    ///     let (reader, mut writer) = sinew::io::pipe()?;
    ///     let fiber = sinew::Builder::new()
    ///         .name("reader")
    ///         .spawn_when_readable(reader, |reader| sinew::io::is_readable(&reader))?;
    ///     writer.write_all(b"x")?;
    ///     assert!(fiber.join().unwrap()?);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn_when_readable<S, F, T>(self, source: S, f: F) -> io::Result<JoinHandle<T>>
    where
        S: Readable + Send + 'static,
        F: FnOnce(S) -> T + Send + 'static,
        T: Send + 'static,
    {
        let kept = Kept::new(source, f);
        // SAFETY: just made, and nobody else's.
        let watched = unsafe { kept.watched() };
        let start = move || {
            let (source, f) = kept.take();
            f(source)
        };
        // SAFETY: closure and result are `Send` and borrow nothing. The closure keeps what is watched where it
        // is, and does not begin before the fiber is submitted.
        unsafe { self.spawn_armed(task::of(start), Flags(0), watched) }
    }

    /// Makes a fiber, and arms it.
    ///
    /// # Safety
    /// Closure and result may cross threads, and outlive the fiber; the closure owns what is watched, and keeps
    /// it where it is until it runs or is dropped.
    pub(super) unsafe fn spawn_armed<F, T>(
        self,
        closure: (&'static Vtable, F),
        flags: Flags,
        watched: Watched,
    ) -> io::Result<JoinHandle<T>> {
        if self.is_ordinary()
            && let Some((carrier, parent)) = here::fiber()
        {
            // SAFETY: as the caller promised; it runs there.
            return Ok(unsafe {
                spawn_here((carrier, parent), self.name, closure, flags, watched)
            });
        }
        // SAFETY: as the caller promised.
        unsafe {
            let unstarted: Unstarted<T> = self.build_any(closure, flags)?;
            Ok(unstarted.arm(watched.source, watched.armed))
        }
    }
}

/// What a fiber waits for before it starts, and where it is kept meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Watched {
    pub(super) source: *const Source,
    pub(super) armed: *const Armed,
}

/// Makes a fiber out of a running one, as `spawn` does, and arms it: nothing that carriers share is
/// touched.
///
/// # Safety
/// The caller runs on `carrier`, as `parent`. Otherwise as for [`Builder::spawn_armed`].
unsafe fn spawn_here<F, T>(
    (carrier, parent): (&'static Carrier, &Control),
    name: Option<Arc<str>>,
    closure: (&'static Vtable, F),
    flags: Flags,
    watched: Watched,
) -> JoinHandle<T> {
    // SAFETY: as the caller promised. The block is new, and nobody else's before it is armed.
    unsafe {
        let named = |vacant: &Control| *vacant.extra_or_new().name.get() = name;
        let (carrier, control) = super::make(carrier, parent, closure, flags, named);
        metrics::add(&carrier.counters.spawned, 1);
        let handle = JoinHandle::new(control);
        // A runtime that ends cancels its fibers after it has said so; the fence of arming is between that
        // and the second look. One that it has not seen yet would wait for ever. If it has ended long ago, nothing is to
        // be watched by its pollers, which is what the first look is for.
        let unless_open = || {
            if carrier.crew().phase() != Phase::Open {
                cancel::request(control);
            }
        };
        unless_open();
        deferred::arm(watched.source, watched.armed, control);
        unless_open();
        handle
    }
}

/// What a fiber keeps until it starts, at an address that others know: that of its first field.
#[repr(C)]
pub(super) struct Keep<S, F> {
    pub(super) armed: Armed,
    /// What is waited for: the source, or a part of it. Good as long as that is not changed.
    pub(super) watched: *const Source,
    pub(super) source: S,
    pub(super) f: F,
}

/// Owns it. Not a `Box`, which would claim to be the only way to what it owns.
pub(super) struct Kept<S, F>(pub(super) NonNull<Keep<S, F>>);

// SAFETY: it owns what may be sent; the node in it is touched under the lock of its slot.
unsafe impl<S: Send, F: Send> Send for Kept<S, F> {}

impl<S: Readable, F> Kept<S, F> {
    pub(super) fn new(source: S, f: F) -> Kept<S, F> {
        let keep = Box::new(Keep { armed: Armed::new(), watched: ptr::null(), source, f });
        let kept = Kept(NonNull::from(Box::leak(keep)));
        let keep = kept.0.as_ptr();
        // SAFETY: just made. It has its place, of which what is waited for may be a part.
        unsafe { (*keep).watched = (*keep).source.source() };
        kept
    }

    /// What is waited for.
    ///
    /// # Safety
    /// It is nobody else's.
    pub(super) unsafe fn watched(&self) -> Watched {
        let keep = self.0.as_ptr();
        // SAFETY: made from a box, and not given up.
        unsafe { Watched { source: (*keep).watched, armed: &raw const (*keep).armed } }
    }
}

impl<S, F> Kept<S, F> {
    fn take(self) -> (S, F) {
        let this = ManuallyDrop::new(self);
        // SAFETY: made from a box, and given up once.
        let keep = unsafe { *Box::from_raw(this.0.as_ptr()) };
        (keep.source, keep.f)
    }
}

impl<S, F> Drop for Kept<S, F> {
    fn drop(&mut self) {
        // SAFETY: made from a box, and given up once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
