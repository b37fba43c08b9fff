//! Fibers that start when there is something to read.

use super::JoinHandle;
use super::builder::{Builder, Unstarted};
use crate::cancel;
use crate::carrier::crew::Phase;
use crate::carrier::{Carrier, current as here};
use crate::fiber::{Control, Flags};
use crate::io::Readable;
use crate::metrics;
use crate::reactor::Source;
use crate::reactor::deferred::Armed;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
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
        let address = kept.0;
        let start = move || {
            let (source, f) = kept.take();
            f(source)
        };
        // SAFETY: the closure keeps it where it is, and does not begin before the fiber is submitted:
        // which is what becomes of it when it is taken out of the slot.
        let (armed, source) =
            unsafe { (&address.as_ref().armed, address.as_ref().source.source()) };
        if self.is_ordinary()
            && let Some((carrier, parent)) = here::fiber()
        {
            // SAFETY: the same; closure and result are `Send` and borrow nothing.
            return Ok(unsafe { spawn_here((carrier, parent), self.name, start, (armed, source)) });
        }
        let unstarted: Unstarted<T> = self.build(start)?;
        // SAFETY: the same.
        Ok(unsafe { unstarted.arm(source, armed) })
    }
}

/// Makes a fiber out of a running one, as `spawn` does, and arms it: nothing that carriers share is
/// touched.
///
/// # Safety
/// The caller runs on `carrier`, as `parent`. Closure and result may cross threads, and outlive the fiber;
/// the closure owns `armed` and `source`, and keeps them where they are until it runs or is dropped.
unsafe fn spawn_here<F, T>(
    (carrier, parent): (&'static Carrier, &Control),
    name: Option<Arc<str>>,
    start: F,
    (armed, source): (&Armed, &Source),
) -> JoinHandle<T>
where
    F: FnOnce() -> T,
{
    // SAFETY: as the caller promised. The block is new, and nobody else's before it is armed.
    unsafe {
        let named = |vacant: &Control| *vacant.extra_or_new().name.get() = name;
        let (carrier, control) = super::make(carrier, parent, start, Flags(0), named);
        metrics::add(&carrier.counters.spawned, 1);
        let handle = JoinHandle::new(control);
        source.start_when_readable(armed, control);
        // A runtime that ends cancels its fibers after it has said so; the fence of arming is between that
        // and this look. One that it has not seen yet would wait for ever.
        if carrier.crew().phase() != Phase::Open {
            cancel::request(control);
        }
        handle
    }
}

/// What a fiber keeps until it starts, at an address that others know.
struct Keep<S, F> {
    armed: Armed,
    source: S,
    f: F,
}

/// Owns it. Not a `Box`, which would claim to be the only way to what it owns.
struct Kept<S, F>(NonNull<Keep<S, F>>);

// SAFETY: it owns what may be sent; the node in it is touched under the lock of its slot.
unsafe impl<S: Send, F: Send> Send for Kept<S, F> {}

impl<S, F> Kept<S, F> {
    fn new(source: S, f: F) -> Kept<S, F> {
        let keep = Box::new(Keep { armed: Armed::new(), source, f });
        Kept(NonNull::from(Box::leak(keep)))
    }

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
