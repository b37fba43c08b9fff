//! Lines for a reader that may be slow or gone.
//!
//! The caller writes its line itself if the line fits the pipe, file or terminal at once, so
//! nothing is lost when the process ends right after. If the line does not fit, it goes to a
//! bounded queue, and a thread writes it when the reader has made room. If the queue is full as
//! well, the line is dropped and counted.
//!
//! Guarantees: `write_line` never waits for a reader. Accepted lines are written whole and in
//! order. At most one thread writes at a time.

use super::at_once;
use crate::threads;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A log that never waits for its reader, for example a program that reads standard output through
/// a pipe.
///
/// `println!` waits when the pipe is full, and so does the carrier with all its fibers. A line for
/// this log is written at once if there is room. Otherwise a thread writes it later, and the caller
/// goes on. That thread has a queue of 4 MiB, and a line that does not fit the queue is dropped.
/// [`dropped`](Self::dropped) counts dropped lines. When the reader has caught up, a line in the
/// log says how many lines were dropped.
///
/// At an orderly end (`main` returns, or [`std::process::exit`]) the process waits up to a second
/// for lines that are queued for standard output and standard error.
///
/// The metrics of `sinew-http` show the dropped lines of standard output and standard error as
/// `sinew_log_lines_dropped_total`.
///
/// # Examples
/// ```
/// use sinew::io::LineLog;
///
/// LineLog::stdout().write_line(format_args!("the answer is {}", 42));
/// ```
pub struct LineLog {
    shared: Arc<Shared>,
}

struct Shared {
    fd: RawFd,
    /// `None` for the standard descriptors, which belong to the process.
    _owner: Option<OwnedFd>,
    state: Mutex<State>,
    /// Notified when the state changes in a way that a thread may wait for.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Accepted lines that the writer has not taken yet, in order.
    pending: Vec<u8>,
    /// The thread that takes `pending` and writes it.
    writer: Writer,
    /// Whether the log's own thread was started.
    has_thread: bool,
    /// Whether the log was dropped. The thread ends when everything is written.
    closed: bool,
    dropped: u64,
    /// How many dropped lines were not announced to the reader yet.
    untold: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Writer {
    #[default]
    Absent,
    /// A caller of `write_line`, which gives up as soon as it would have to wait.
    Caller,
    /// The log's own thread, which waits for the reader.
    Thread,
}

/// The most bytes that wait in `pending`. The thread may hold as many again, which it has taken and
/// not yet written.
const CAPACITY: usize = 4 << 20;

/// How many times a caller takes and writes the pending lines. After that, the caller leaves to the
/// thread the lines that other callers have added meanwhile.
const ROUNDS: usize = 8;

/// The most bytes that the thread writes in one call. A longer call would return only after the
/// reader has read all of it.
const PIECE: usize = 64 << 10;

/// How long an orderly end of the process waits for a reader.
const PATIENCE: Duration = Duration::from_secs(1);

impl LineLog {
    /// Returns the log at standard output.
    ///
    /// The log does not flush the buffer of `print!`, so a line may overtake text in that buffer.
    ///
    /// # Examples
    /// ```
    /// sinew::io::LineLog::stdout().write_line("ready");
    /// ```
    pub fn stdout() -> &'static LineLog {
        static LOG: OnceLock<LineLog> = OnceLock::new();
        LOG.get_or_init(|| LineLog::with(libc::STDOUT_FILENO, None))
    }

    /// Returns the log at standard error, where sinew's own reports go unless there is a
    /// [hook](crate::set_report_hook).
    ///
    /// # Examples
    /// ```
    /// sinew::io::LineLog::stderr().write_line("nothing is wrong");
    /// ```
    pub fn stderr() -> &'static LineLog {
        static LOG: OnceLock<LineLog> = OnceLock::new();
        LOG.get_or_init(|| LineLog::with(libc::STDERR_FILENO, None))
    }

    /// Makes a log that writes to `descriptor` and owns it: a pipe, a file, a socket.
    ///
    /// When the log is dropped, its thread writes the queued lines and closes the descriptor. The
    /// process may end before that; [`flush_timeout`](Self::flush_timeout) waits.
    ///
    /// # Examples
    /// ```
    /// use sinew::io::LineLog;
    /// use std::io::Read;
    ///
    /// let (mut reader, writer) = std::io::pipe()?;
    /// let log = LineLog::new(writer);
    /// log.write_line("one line");
    /// drop(log);
    /// let mut text = String::new();
    /// reader.read_to_string(&mut text)?;
    /// assert_eq!(text, "one line\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(descriptor: impl Into<OwnedFd>) -> LineLog {
        let owner = descriptor.into();
        LineLog::with(owner.as_raw_fd(), Some(owner))
    }

    fn with(fd: RawFd, owner: Option<OwnedFd>) -> LineLog {
        let (state, changed) = (Mutex::default(), Condvar::new());
        LineLog { shared: Arc::new(Shared { fd, _owner: owner, state, changed }) }
    }

    /// Writes `line` and a line feed, without waiting for the reader. Returns false if the queue is
    /// full; then the line is dropped.
    ///
    /// If the descriptor is closed or broken, an accepted line is lost, and counts as dropped.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::io::LineLog::stderr().write_line("a line"));
    /// ```
    pub fn write_line(&self, line: impl fmt::Display) -> bool {
        // The user's `Display` code runs before the lock is taken.
        let line = format!("{line}\n");
        let mut state = self.shared.lock();
        // A single line may be longer than the queue.
        if !state.pending.is_empty() && state.pending.len() + line.len() > CAPACITY {
            state.dropped += 1;
            state.untold += 1;
            return false;
        }
        state.pending.extend_from_slice(line.as_bytes());
        if state.writer == Writer::Absent {
            state.writer = Writer::Caller;
            drop(state);
            self.shared.write_at_once();
        }
        true
    }

    /// Returns how many lines this log has dropped since it was made. A line is dropped if the
    /// queue is full, or if the descriptor is closed or broken.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::io::LineLog::stdout().dropped(), 0);
    /// ```
    pub fn dropped(&self) -> u64 {
        self.shared.lock().dropped
    }

    /// Waits until all accepted lines are written, at most for `timeout`. Returns whether all are
    /// written.
    ///
    /// The call blocks the whole thread, even in a fiber. Use it before the process ends.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let log = sinew::io::LineLog::stdout();
    /// log.write_line("the last words");
    /// assert!(log.flush_timeout(Duration::from_secs(1)));
    /// ```
    pub fn flush_timeout(&self, timeout: Duration) -> bool {
        self.shared.flush_until(Instant::now().checked_add(timeout))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes as the caller of `write_line`, until no lines are left or there is no room.
    fn write_at_once(self: &Arc<Self>) {
        let mut bytes = Vec::new();
        for _ in 0..ROUNDS {
            let mut state = self.lock();
            if state.pending.is_empty() {
                state.writer = Writer::Absent;
                self.changed.notify_all();
                if bytes.capacity() <= PIECE {
                    // Keep the buffer, so that the next line needs no allocation.
                    bytes.clear();
                    state.pending = bytes;
                }
                return;
            }
            bytes = std::mem::take(&mut state.pending);
            drop(state);
            let written = self.write_all_at_once(&bytes);
            if written < bytes.len() {
                bytes.drain(..written);
                let mut state = self.lock();
                bytes.append(&mut state.pending);
                state.pending = bytes;
                break;
            }
        }
        self.hand_over();
    }

    /// Writes as much as fits. Returns how many bytes were written, or lost by an error.
    fn write_all_at_once(&self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match at_once::write(self.fd, &bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return written,
                Err(_) => {
                    self.lose(&bytes[written..]);
                    return bytes.len();
                }
            }
        }
        written
    }

    /// Leaves the rest to the thread.
    fn hand_over(self: &Arc<Self>) {
        let mut state = self.lock();
        if !state.has_thread {
            let shared = self.clone();
            if threads::start("sinew log".into(), move || shared.run()).is_err() {
                // The next line tries again. A caller of `flush_timeout` learns that lines are left.
                state.writer = Writer::Absent;
                self.changed.notify_all();
                return;
            }
            state.has_thread = true;
            flush_at_exit();
        }
        state.writer = Writer::Thread;
        self.changed.notify_all();
    }

    /// The thread: writes whenever it is the writer, and waits for the reader.
    fn run(&self) {
        loop {
            let mut state = self.lock();
            while state.writer != Writer::Thread {
                if state.closed && state.writer == Writer::Absent {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.pending.is_empty() && state.untold > 0 {
                let notice = match std::mem::take(&mut state.untold) {
                    1 => "sinew: one line was dropped here, because nothing read this output\n"
                        .into(),
                    count => {
                        format!(
                            "sinew: {count} lines were dropped here, because nothing read this output\n"
                        )
                    }
                };
                state.pending.extend_from_slice(notice.as_bytes());
            }
            if state.pending.is_empty() {
                state.writer = Writer::Absent;
                self.changed.notify_all();
                continue;
            }
            let bytes = std::mem::take(&mut state.pending);
            drop(state);
            self.write_all(&bytes);
        }
    }

    fn write_all(&self, bytes: &[u8]) {
        let mut written = 0;
        while written < bytes.len() {
            let piece = &bytes[written..][..PIECE.min(bytes.len() - written)];
            match at_once::write_plainly(self.fd, piece) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The descriptor itself is in non-blocking mode.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    at_once::wait_writable(self.fd);
                }
                Err(_) => return self.lose(&bytes[written..]),
            }
        }
    }

    /// Counts lines that no reader will see.
    fn lose(&self, bytes: &[u8]) {
        let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
        self.lock().dropped += lines as u64;
    }

    fn flush_until(&self, deadline: Option<Instant>) -> bool {
        let mut state = self.lock();
        while state.writer != Writer::Absent {
            state = match deadline
                .map(|deadline| deadline.saturating_duration_since(Instant::now()))
            {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.pending.is_empty()
    }
}

impl Drop for LineLog {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for LineLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineLog")
            .field("descriptor", &self.shared.fd)
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}

/// Arranges that the standard logs are flushed at an orderly end of the process. Before a log has a
/// thread there is nothing to flush.
fn flush_at_exit() {
    extern "C" fn flush() {
        let deadline = Instant::now().checked_add(PATIENCE);
        LineLog::stdout().shared.flush_until(deadline);
        LineLog::stderr().shared.flush_until(deadline);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function neither unwinds nor ends the process. It is never unloaded, and
        // touches only statics that are never dropped.
        unsafe { libc::atexit(flush) };
    });
}
