//! Sources that start a fiber when they become readable.

use super::{Async, PipeReader};
use crate::reactor::Source;
use std::sync::Arc;

/// A source that becomes readable, for [`spawn_when_readable`](crate::spawn_when_readable): a
/// socket of [`net`](crate::net), a [`PipeReader`], or another descriptor in an [`Async`]. An
/// [`Arc`] of a source and a [`Within`] are sources too.
///
/// # Examples
/// ```
/// use sinew::io::Readable;
/// use std::io::{Read, Write};
///
/// /// Reads to the end, in a fiber that starts when there is something to read.
/// fn text_of(source: impl Readable + Read + Send + 'static) -> sinew::JoinHandle<String> {
///     sinew::spawn_when_readable(source, |mut source| {
///         let mut text = String::new();
///         source.read_to_string(&mut text).map_or_else(|error| error.to_string(), |_| text)
///     })
/// }
///
/// let (reader, mut writer) = sinew::io::pipe()?;
/// let fiber = text_of(reader);
/// writer.write_all(b"hello")?;
/// drop(writer);
/// assert_eq!(fiber.join().unwrap(), "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Readable: sealed::HasSource {}

impl<S: sealed::HasSource> Readable for S {}

/// Only types of this crate are sources. Each of them owns the [`Source`] of its descriptor, and so
/// ends the registration before it closes the descriptor.
pub(crate) mod sealed {
    use super::Source;

    pub trait HasSource {
        /// Returns the registration of the descriptor to wait for.
        fn source(&self) -> &Source;
    }
}

impl<T> sealed::HasSource for Async<T> {
    fn source(&self) -> &Source {
        Async::source(self)
    }
}

impl sealed::HasSource for PipeReader {
    fn source(&self) -> &Source {
        self.io().source()
    }
}

impl<S: sealed::HasSource> sealed::HasSource for Arc<S> {
    fn source(&self) -> &Source {
        (**self).source()
    }
}

/// A source that is a part of another value: the socket of a connection that has other fields too,
/// for instance.
///
/// # Examples
/// ```
/// use sinew::io::Within;
/// use sinew::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
/// use std::ops::ControlFlow;
///
/// struct Connection {
///     stream: TcpStream,
///     received: u64,
/// }
///
/// sinew::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let mut client = TcpStream::connect(listener.local_addr()?)?;
///     let connection = Connection { stream: listener.accept()?.0, received: 0 };
///     let source = Within::new(connection, |connection| &connection.stream);
///     let counter = sinew::spawn_for_each_arrival(source, |source| {
///         let connection = source.whole_mut();
///         match connection.stream.read(&mut [0; 1024]) {
///             Ok(count @ 1..) => {
///                 connection.received += count as u64;
///                 ControlFlow::Continue(())
///             }
///             _ => ControlFlow::Break(connection.received),
///         }
///     });
///     client.write_all(b"hello")?;
///     drop(client);
///     assert_eq!(counter.join().unwrap(), 5);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Within<W, S> {
    whole: W,
    part: fn(&W) -> &S,
}

impl<W, S> Within<W, S> {
    /// Makes a source of `whole`. `part` returns the part of it that becomes readable.
    ///
    /// # Examples
    /// ```
    /// let (reader, _writer) = sinew::io::pipe()?;
    /// let source = sinew::io::Within::new((reader, "for later"), |pair| &pair.0);
    /// assert_eq!(source.whole().1, "for later");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(whole: W, part: fn(&W) -> &S) -> Within<W, S> {
        Within { whole, part }
    }

    /// Returns a reference to the whole value.
    ///
    /// # Examples
    /// ```
    /// # let (reader, _writer) = sinew::io::pipe()?;
    /// let source = sinew::io::Within::new((reader, 7), |pair| &pair.0);
    /// assert_eq!(source.whole().1, 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn whole(&self) -> &W {
        &self.whole
    }

    /// Returns a mutable reference to the whole value.
    ///
    /// # Examples
    /// ```
    /// # let (reader, _writer) = sinew::io::pipe()?;
    /// let mut source = sinew::io::Within::new((reader, 7), |pair| &pair.0);
    /// source.whole_mut().1 += 1;
    /// assert_eq!(source.into_whole().1, 8);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn whole_mut(&mut self) -> &mut W {
        &mut self.whole
    }

    /// Returns the whole value.
    ///
    /// # Examples
    /// ```
    /// # let (reader, _writer) = sinew::io::pipe()?;
    /// let source = sinew::io::Within::new((reader, 7), |pair| &pair.0);
    /// let (_reader, seven) = source.into_whole();
    /// assert_eq!(seven, 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn into_whole(self) -> W {
        self.whole
    }
}

impl<W, S: sealed::HasSource> sealed::HasSource for Within<W, S> {
    fn source(&self) -> &Source {
        (self.part)(&self.whole).source()
    }
}
