//! Fibers that run whenever a source is readable.

use super::JoinHandle;
use super::builder::FiberBuilder;
use super::deferred::Kept;
use crate::fiber::task::{self, Recurring};
use crate::fiber::{Control, Flags};
use crate::io::Readable;
use crate::reactor::deferred;
use core::ops::ControlFlow;
use std::io;

/// Starts a fiber that calls `f` with `source` whenever `source` is readable, until `f` breaks.
///
/// Between two calls the fiber *rests*: it has no stack, like a fiber of
/// [`spawn_when_readable`](crate::spawn_when_readable) that has not started. It stays one fiber,
/// with one id, name and handle, and keeps `f` and `source`. It may continue on another carrier, so
/// its fiber-locals are dropped when it rests, including values that it was given or has inherited.
/// A call allocates nothing.
///
/// Each call should read all available data; unread data causes another call. At the end of the
/// source, or if it fails or cannot be watched, `f` is called, and its read shows the reason. If
/// `f` does not break then, it is called again at once. Occasionally `f` is called although nothing
/// is there, since wakes may be spurious. A read then waits as usual.
///
/// A fiber that is cancelled while it rests ends there, and drops `f` and the source. It ends in
/// the same way if there is no stack when it should go on. A panic of `f` ends the fiber.
///
/// # Examples
/// ```
/// use sinew::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
/// use std::ops::ControlFlow;
///
/// sinew::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut client = TcpStream::connect(listener.local_addr()?)?;
///     let (stream, _) = listener.accept()?;
///     let mut total = 0;
///     let counter = sinew::spawn_for_each_arrival(stream, move |stream| {
///         match stream.read(&mut [0; 1024]) {
///             Ok(0) | Err(_) => ControlFlow::Break(total),
///             Ok(count) => {
///                 total += count;
///                 ControlFlow::Continue(())
///             }
///         }
///     });
///     client.write_all(b"one")?;
///     client.write_all(b"another")?;
///     drop(client);
///     assert_eq!(counter.join().unwrap(), 10);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn spawn_for_each_arrival<S, F, T>(source: S, f: F) -> JoinHandle<T>
where
    S: Readable + Send + 'static,
    F: FnMut(&mut S) -> ControlFlow<T> + Send + 'static,
    T: Send + 'static,
{
    FiberBuilder::new()
        .spawn_for_each_arrival(source, f)
        .expect("the settings of a fiber for which nothing was set are in range")
}

impl FiberBuilder {
    /// Starts a fiber with these settings that runs whenever `source` is readable; see
    /// [`spawn_for_each_arrival`](crate::spawn_for_each_arrival).
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    ///
    /// # Examples
    /// ```
    /// use std::io::{Read, Write};
    /// use std::ops::ControlFlow;
    ///
    /// sinew::run(|| {
    ///     let (reader, mut writer) = sinew::io::pipe()?;
    ///     let fiber = sinew::FiberBuilder::new().name("reader").spawn_for_each_arrival(reader, |reader| {
    ///         let mut byte = [0];
    ///         match reader.read(&mut byte) {
    ///             Ok(1) if byte[0] == b'.' => ControlFlow::Break(true),
    ///             Ok(1) => ControlFlow::Continue(()),
    ///             _ => ControlFlow::Break(false),
    ///         }
    ///     })?;
    ///     writer.write_all(b"the end.")?;
    ///     assert!(fiber.join().unwrap());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn_for_each_arrival<S, F, T>(self, source: S, f: F) -> io::Result<JoinHandle<T>>
    where
        S: Readable + Send + 'static,
        F: FnMut(&mut S) -> ControlFlow<T> + Send + 'static,
        T: Send + 'static,
    {
        let kept = Kept::new(source, f);
        // SAFETY: the value is new, and no other thread knows it.
        let watched = unsafe { kept.watched() };
        // SAFETY: closure and result are `Send` and borrow nothing. `kept` holds the source and the
        // node in place.
        unsafe {
            self.spawn_armed((task::recurring::<Kept<S, F>>(), kept), Flags::RECURRING, watched)
        }
    }
}

impl<S, F, T> Recurring for Kept<S, F>
where
    S: Readable,
    F: FnMut(&mut S) -> ControlFlow<T>,
{
    type Result = T;

    fn run(&mut self) -> Option<T> {
        // SAFETY: the pointer came from a box that has not been freed. The fiber runs, so the node
        // is in no list and no other thread uses the box.
        let keep = unsafe { self.0.as_mut() };
        match (keep.f)(&mut keep.source) {
            ControlFlow::Continue(()) => {
                // `Readable::source` may be user code. It runs here, in the fiber, and not in
                // `rest`.
                keep.watched = keep.source.source();
                None
            }
            ControlFlow::Break(result) => Some(result),
        }
    }

    // # Safety: as in the trait.
    unsafe fn rest(this: *const Self, control: &'static Control) {
        // SAFETY: the caller promises that `this` is alive until the fiber is armed.
        unsafe {
            let keep = (*this).0.as_ptr();
            deferred::arm((*keep).watched, &raw const (*keep).armed, control);
        }
    }
}
