//! Fibers that run whenever there is something to read.

use super::JoinHandle;
use super::builder::Builder;
use super::deferred::Kept;
use crate::fiber::task::{self, Recurring};
use crate::fiber::{Control, Flags};
use crate::io::Readable;
use crate::reactor::deferred;
use core::ops::ControlFlow;
use std::io;

/// Starts a fiber that calls `f` with `source` whenever there is something to read from it, until `f` breaks.
///
/// Between two calls the fiber *rests*: it has no stack, as one of
/// [`spawn_when_readable`](crate::spawn_when_readable) that has not started. It is the same fiber all the time, with
/// one id, name and handle, and what `f` and `source` own stays. But it may go on on another carrier, so its
/// fiber-locals are dropped when it rests, also those that it was given or has inherited. Nothing is allocated for a
/// call.
///
/// Each call should read what there is: what is left is reason enough for the next call. At the end of the source,
/// or if it fails or cannot be waited for, `f` is called and finds out; one that does not break then is called
/// again at once. Now and then it is called when there is nothing, as whoever waits may be woken for nothing: a read
/// waits then, as always.
///
/// A fiber that is cancelled while it rests ends there, and drops `f` and the source; so does one for which there is no
/// stack when it is to go on. A panic of `f` ends the fiber.
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
///     let counter = sinew::spawn_whenever_readable(stream, move |stream| {
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
pub fn spawn_whenever_readable<S, F, T>(source: S, f: F) -> JoinHandle<T>
where
    S: Readable + Send + 'static,
    F: FnMut(&mut S) -> ControlFlow<T> + Send + 'static,
    T: Send + 'static,
{
    Builder::new()
        .spawn_whenever_readable(source, f)
        .expect("the settings of a fiber for which nothing was set are in range")
}

impl Builder {
    /// Starts a fiber with these settings that runs whenever there is something to read from `source`; see
    /// [`spawn_whenever_readable`](crate::spawn_whenever_readable).
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
    ///     let fiber = sinew::Builder::new().name("reader").spawn_whenever_readable(reader, |reader| {
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
    pub fn spawn_whenever_readable<S, F, T>(self, source: S, f: F) -> io::Result<JoinHandle<T>>
    where
        S: Readable + Send + 'static,
        F: FnMut(&mut S) -> ControlFlow<T> + Send + 'static,
        T: Send + 'static,
    {
        let kept = Kept::new(source, f);
        // SAFETY: just made, and nobody else's.
        let watched = unsafe { kept.watched() };
        // SAFETY: closure and result are `Send` and borrow nothing. What is watched is kept where it is.
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
        // SAFETY: made from a box, and not given up; the fiber runs, so that nobody else knows of it.
        let keep = unsafe { self.0.as_mut() };
        match (keep.f)(&mut keep.source) {
            ControlFlow::Continue(()) => {
                // Which it is may be for the user to say, whose code runs here and not when it rests.
                keep.watched = keep.source.source();
                None
            }
            ControlFlow::Break(result) => Some(result),
        }
    }

    unsafe fn rest(this: *const Self, control: &'static Control) {
        // SAFETY: as the caller promised: it is there until the fiber is armed.
        unsafe {
            let keep = (*this).0.as_ptr();
            deferred::arm((*keep).watched, &raw const (*keep).armed, control);
        }
    }
}
