//! Fibers that start when a source becomes readable.

use super::birth::{self, Unborn};
use super::{FiberBuilder, JoinHandle, Unstarted};
use crate::cancel;
use crate::carrier::crew::Phase;
use crate::carrier::{Owner, current};
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

/// Starts a fiber that runs `f` with `source` as soon as `source` is readable.
///
/// Until then the fiber has no stack: an idle connection costs a few hundred bytes. The fiber may
/// start on any carrier, so the connections of a server spread over all of them. If the source
/// cannot be watched, is closed, or reaches its end, the fiber starts, and its first read shows the
/// reason.
///
/// A fiber that is cancelled before it starts never runs, and drops the source. The start has no
/// time limit: the fiber waits for the first byte, whatever timeout the source has. A server that
/// wants to drop silent clients keeps the handle and cancels.
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
    FiberBuilder::new()
        .spawn_when_readable(source, f)
        .expect("the settings of a fiber for which nothing was set are in range")
}

impl FiberBuilder {
    /// Starts a fiber with these settings as soon as `source` is readable; see
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
    ///     let fiber = sinew::FiberBuilder::new()
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
        // SAFETY: the value is new, and no other thread knows it.
        let watched = unsafe { kept.watched() };
        let start = move || {
            let (source, f) = kept.take();
            f(source)
        };
        // SAFETY: closure and result are `Send` and borrow nothing. The closure owns `kept`, which
        // holds the source and the node in place, and does not run before the fiber is submitted.
        unsafe { self.spawn_armed(task::of(start), Flags(0), watched) }
    }

    /// Makes a fiber and arms it, so that it starts when the watched source is readable.
    ///
    /// # Safety
    /// The closure and its result may cross threads, and live as long as the fiber and its handle.
    /// The closure owns the watched source and keeps it in place until it runs or is dropped.
    pub(super) unsafe fn spawn_armed<F, T>(
        self,
        closure: (&'static Vtable, F),
        flags: Flags,
        watched: Watched,
    ) -> io::Result<JoinHandle<T>> {
        if self.is_ordinary()
            && let Some((owner, parent)) = current::fiber()
        {
            // SAFETY: the caller vouches for the closure and the watched source.
            return Ok(unsafe { spawn_here((owner, parent), self.name, closure, flags, watched) });
        }
        // SAFETY: the caller vouches for the closure and the watched source.
        unsafe {
            let unstarted: Unstarted<T> = self.build_any(closure, flags)?;
            Ok(unstarted.arm(watched.source, watched.armed))
        }
    }
}

/// The source that a fiber waits for before it starts, and the node that links the fiber to it.
#[derive(Clone, Copy)]
pub(super) struct Watched {
    pub(super) source: *const Source,
    pub(super) armed: *const Armed,
}

/// Makes a child of the running fiber, as `spawn` does, and arms it. Touches nothing that carriers
/// share.
///
/// # Safety
/// `parent` is the running fiber. Otherwise as for [`FiberBuilder::spawn_armed`].
unsafe fn spawn_here<F, T>(
    (owner, parent): (&'static Owner, &Control),
    name: Option<Arc<str>>,
    closure: (&'static Vtable, F),
    flags: Flags,
    watched: Watched,
) -> JoinHandle<T> {
    // SAFETY: the caller vouches for the closure. No other thread uses the new block before `arm`
    // links it.
    unsafe {
        let named = |unborn: &Unborn| unborn.set_name(name);
        let (owner, control) = birth::from_running(owner, parent, closure, flags, named);
        metrics::add(&owner.shared().counters.spawned, 1);
        let handle = JoinHandle::new(control);
        // A runtime that ends announces its end first, and then cancels the fibers that it finds. A
        // fiber that it has not found would wait for ever, so the second check cancels it; the
        // fence in `arm` is between the announcement and that check. The first check keeps the
        // pollers of a runtime that ended long ago from watching anything.
        let unless_open = || {
            if owner.crew().phase() != Phase::Open {
                cancel::request(control);
            }
        };
        unless_open();
        deferred::arm(watched.source, watched.armed, control);
        unless_open();
        handle
    }
}

/// The source and the closure of a fiber that has not started. The reactor knows its address, which
/// is the address of its first field, `armed`.
#[repr(C)]
pub(super) struct Keep<S, F> {
    pub(super) armed: Armed,
    /// The watched source: `source`, or a part of it. Valid as long as `source` is not changed.
    pub(super) watched: *const Source,
    pub(super) source: S,
    pub(super) f: F,
}

/// Owns a [`Keep`]. Not a `Box`, because a `Box` claims exclusive access, and the reactor has a
/// pointer to the node.
pub(super) struct Kept<S, F>(pub(super) NonNull<Keep<S, F>>);

// SAFETY: source and closure are `Send`. The node is touched only under its slot's lock.
unsafe impl<S: Send, F: Send> Send for Kept<S, F> {}

impl<S: Readable, F> Kept<S, F> {
    pub(super) fn new(source: S, f: F) -> Kept<S, F> {
        let keep = Box::new(Keep { armed: Armed::new(), watched: ptr::null(), source, f });
        let kept = Kept(NonNull::from(Box::leak(keep)));
        let keep = kept.0.as_ptr();
        // SAFETY: the allocation is new and does not move, so a pointer into `source` stays valid.
        unsafe { (*keep).watched = (*keep).source.source() };
        kept
    }

    /// Returns the watched source and the node.
    ///
    /// # Safety
    /// The caller alone uses the value.
    pub(super) unsafe fn watched(&self) -> Watched {
        let keep = self.0.as_ptr();
        // SAFETY: the pointer came from a box that has not been freed.
        unsafe { Watched { source: (*keep).watched, armed: &raw const (*keep).armed } }
    }
}

impl<S, F> Kept<S, F> {
    fn take(self) -> (S, F) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the pointer came from a box. `this` is never dropped, so the box is freed once.
        let keep = unsafe { *Box::from_raw(this.0.as_ptr()) };
        (keep.source, keep.f)
    }
}

impl<S, F> Drop for Kept<S, F> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box, which only `take` and this destructor free, and
        // `take` skips the destructor.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
