//! How much clients may ask for.

use crate::parse::head::HeadLimits;
use core::time::Duration;
use sinew::sync::Semaphore;

/// What a server puts up with. The defaults are safe for a server that anybody can reach.
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

/// The least that a head can be limited to: a request for a root.
const LEAST_HEAD: usize = 64;

/// The longest that [`http::Uri`] can be: of a longer one, a handler would see two different targets.
const LONGEST_TARGET: usize = u16::MAX as usize - 1;

/// What is never and what is at once cannot be added to the time that it is.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Limits {
    /// How many bytes the first line and the header fields of a request may have together: 16 KiB unless
    /// set, 64 at least and 1 MiB at most. One that has more is answered with 431.
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

    /// How many header fields a request may have: 100 unless set, 1000 at most. One that has more is answered with
    /// 431.
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

    /// How long the request target may be: 8 KiB unless set, 65534 bytes at most. One that is longer is
    /// answered with 414.
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

    /// How many bytes the body of a request may have: 8 MiB unless set. One that has more is answered
    /// with 413, before the handler is called if it says so itself.
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

    /// How long a client may take for the head of a request, from its first byte on, and for the first
    /// byte of a new connection; for a TLS handshake as well. 10 s unless set. Who is late is answered
    /// with 408 if anything came.
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

    /// How long a read of a body may wait: 30 s unless set. The read fails then, and if the handler returns
    /// its error, the answer is 408.
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

    /// How many bytes of a body have to come in a second, on the average: 1024 unless set, and zero for none. A
    /// client that sends less, after [`body_timeout`](Self::body_timeout) has passed once, is treated as one that
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

    /// How long a connection may be idle between requests: 60 s unless set, and right within a quarter of
    /// it or a second. It is closed then.
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

    /// How long a write may wait for a client that does not read: 30 s unless set. The connection is closed
    /// then. On Linux, a client reads if it takes some 64 KiB in that time: smaller steps are not told of. Elsewhere it
    /// depends on how much the kernel keeps for a connection.
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

    /// How many connections there may be at a time: those that come when there are as many wait until one
    /// is closed. Unless set, as many as the process may have descriptors, less an eighth for files and
    /// connections of the handlers. Files that [`Files`](crate::Files) sends count as connections then; if a limit is
    /// set, they have the descriptors beyond it.
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

    /// How many descriptors files may have that connections cannot take; `None` if connections may take all.
    pub(super) fn descriptors_besides(&self) -> Option<usize> {
        let all = descriptors();
        // A limit that leaves hardly any is no reason to send no file.
        self.connections.map(|taken| all.saturating_sub(taken).max(all / 8))
    }
}

/// How many descriptors a server may have: all of the process, less an eighth.
fn descriptors() -> usize {
    use rustix::process::{Resource, getrlimit};
    // What is unlimited is more than there are numbers for descriptors.
    let most = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).min(1 << 20) as usize;
    (most - most / 8).max(16)
}
