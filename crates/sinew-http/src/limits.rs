//! Limits on what clients may send, and on how long they may take.

use crate::parse::head::HeadLimits;
use core::time::Duration;
use sinew::sync::Semaphore;

/// Limits on requests, connections and waiting times. The defaults are safe for a server on the
/// internet.
///
/// # Examples
/// ```
/// use sinew_http::{Limits, Server};
/// use std::time::Duration;
///
/// let limits = Limits::default().body_size(100 << 20).idle_timeout(Duration::from_secs(10));
/// let server = Server::bind("127.0.0.1:0").limits(limits);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub(crate) head: HeadLimits,
    pub(crate) body_size: u64,
    pub(crate) head_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) body_rate: u64,
    pub(crate) idle_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) connections: Option<usize>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head: HeadLimits { bytes: 16 * 1024, fields: 100, target: 8 * 1024 },
            body_size: 8 << 20,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            body_rate: 1024,
            idle_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(30),
            connections: None,
        }
    }
}

/// The smallest limit for a head. A request for `/` fits.
const LEAST_HEAD: usize = 64;

/// The longest [`http::Uri`]. The URI of a longer target would differ from the target that was
/// received.
const LONGEST_TARGET: usize = u16::MAX as usize - 1;

/// The range of all timeouts. A longer one might overflow when it is added to the present time, and
/// sockets refuse a timeout of zero.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Limits {
    /// Sets how many bytes the first line and the header fields of a request may have together: 16
    /// KiB by default, at least 64 bytes and at most 1 MiB. A larger head is answered with 431.
    ///
    /// # Examples
    /// ```
    /// let limits = sinew_http::Limits::default().head_size(4096);
    /// ```
    #[must_use]
    pub fn head_size(mut self, bytes: usize) -> Limits {
        self.head.bytes = bytes.clamp(LEAST_HEAD, 1 << 20);
        self
    }

    /// Sets how many header fields a request may have: 100 by default, at most 1000. A request with
    /// more is answered with 431.
    ///
    /// # Examples
    /// ```
    /// let limits = sinew_http::Limits::default().header_count(20);
    /// ```
    #[must_use]
    pub fn header_count(mut self, count: usize) -> Limits {
        self.head.fields = count.min(1000);
        self
    }

    /// Sets how long the request target may be: 8 KiB by default, at most 65534 bytes. A longer one
    /// is answered with 414.
    ///
    /// # Examples
    /// ```
    /// let limits = sinew_http::Limits::default().target_size(1024);
    /// ```
    #[must_use]
    pub fn target_size(mut self, bytes: usize) -> Limits {
        self.head.target = bytes.min(LONGEST_TARGET);
        self
    }

    /// Sets how many bytes the body of a request may have: 8 MiB by default. The client gets 413
    /// for a larger body, before the handler is called if the request declares the length.
    ///
    /// # Examples
    /// ```
    /// let limits = sinew_http::Limits::default().body_size(1 << 30);
    /// ```
    #[must_use]
    pub fn body_size(mut self, bytes: u64) -> Limits {
        self.body_size = bytes;
        self
    }

    /// Sets how long a client may take for the head of a request, counted from its first byte: 10 s
    /// by default. The limit also applies to the wait for the first byte on a new connection, and
    /// to a TLS handshake. A client that has sent only a part of a head when the time is over gets
    /// 408.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let limits = sinew_http::Limits::default().head_timeout(Duration::from_secs(3));
    /// ```
    #[must_use]
    pub fn head_timeout(mut self, timeout: Duration) -> Limits {
        self.head_timeout = timeout.clamp(SHORTEST, LONGEST);
        self
    }

    /// Sets how long a read of a body may wait: 30 s by default. After that the read fails. If the
    /// handler returns the error, the response is 408.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let limits = sinew_http::Limits::default().body_timeout(Duration::from_secs(3));
    /// ```
    #[must_use]
    pub fn body_timeout(mut self, timeout: Duration) -> Limits {
        self.body_timeout = timeout.clamp(SHORTEST, LONGEST);
        self
    }

    /// Sets how many bytes per second of a body have to come on average: 1024 by default, 0 for no
    /// minimum. The average counts once the server has waited for
    /// [`body_timeout`](Self::body_timeout) in total. A slower client is treated like one that
    /// sends nothing.
    ///
    /// # Examples
    /// ```
    /// let limits = sinew_http::Limits::default().body_rate(100 << 10);
    /// ```
    #[must_use]
    pub fn body_rate(mut self, bytes: u64) -> Limits {
        self.body_rate = bytes;
        self
    }

    /// Sets how long a connection may be idle between requests before it is closed: 60 s by
    /// default. The server may close the connection later than that, by up to a quarter of the
    /// limit or a second, whichever is less.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let limits = sinew_http::Limits::default().idle_timeout(Duration::from_secs(5));
    /// ```
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Limits {
        self.idle_timeout = timeout.clamp(SHORTEST, LONGEST);
        self
    }

    /// Sets how long a write may wait for a client that does not read, before the connection is
    /// closed: 30 s by default. On Linux, a client has to take about 64 KiB in that time, because
    /// the kernel does not report smaller steps. On other systems the amount depends on the
    /// kernel's send buffer.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let limits = sinew_http::Limits::default().write_timeout(Duration::from_secs(5));
    /// ```
    #[must_use]
    pub fn write_timeout(mut self, timeout: Duration) -> Limits {
        self.write_timeout = timeout.clamp(SHORTEST, LONGEST);
        self
    }

    /// Sets how many connections may be open at a time. Further clients wait until a connection is
    /// closed.
    ///
    /// By default the limit is seven eighths of the descriptors that the process may have; the rest
    /// is for the files and connections of handlers. By default, a file that
    /// [`Files`](crate::Files) is sending counts as a connection, too. If a limit is set, files use
    /// the descriptors beyond that limit.
    ///
    /// # Examples
    /// ```
    /// let limits = sinew_http::Limits::default().connections(1000);
    /// ```
    #[must_use]
    pub fn connections(mut self, count: usize) -> Limits {
        self.connections = Some(count.clamp(1, Semaphore::MAX_PERMITS));
        self
    }

    pub(crate) fn most_connections(&self) -> usize {
        self.connections.unwrap_or_else(descriptors)
    }

    /// How many descriptors are reserved for files. `None` if files and connections share all
    /// descriptors.
    pub(crate) fn descriptors_besides(&self) -> Option<usize> {
        let all = descriptors();
        // A connection limit close to the descriptor limit still leaves some for files.
        self.connections.map(|taken| all.saturating_sub(taken).max(all / 8))
    }
}

/// How many descriptors a server may use: seven eighths of the limit of the process.
fn descriptors() -> usize {
    use rustix::process::{Resource, getrlimit};
    // The kernel has no descriptor numbers beyond this, even if the limit is infinite.
    let most = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).min(1 << 20) as usize;
    (most - most / 8).max(16)
}
