//! The kinds of waits: the names under which snapshots, dumps and messages show them.
//!
//! A fiber's block records the kind of its current wait ([`Control::record_wait`]).
//!
//! [`Control::record_wait`]: super::Control::record_wait

/// The event that a fiber waits for; see [`Fiber::waits_for`](crate::Fiber::waits_for).
///
/// # Examples
/// ```
/// use sinew::WaitKind;
///
/// let (sender, receiver) = sinew::sync::channel::unbounded();
/// let fiber = sinew::spawn(move || receiver.recv());
/// sinew::wait_until(|| fiber.fiber().waits_for() == Some(WaitKind::Receive));
/// sender.send(7).unwrap();
/// assert_eq!(fiber.join().unwrap(), Ok(7));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum WaitKind {
    /// Nothing: the fiber does not wait.
    None = 0,
    /// A moment: `sleep` and `sleep_deadline`.
    Sleep,
    /// A call of `unpark`.
    Park,
    /// The end of another fiber.
    Join,
    /// A predicate of `wait_until`.
    Predicate,
    /// A future, in `block_on`.
    Future,
    /// The children of a scope.
    Scope,
    /// A lock: exclusively, or shared for a reader of a `RwLock`.
    Lock,
    /// A key of a `MultiLock`.
    Key,
    /// A condition variable.
    Condvar,
    /// A `Futex`, an `Event`, a `Sequencer`, or a primitive built on them.
    Event,
    /// One or several `FiberFuture`s.
    Value,
    /// Permits of a semaphore.
    Semaphore,
    /// A channel: room to send.
    Send,
    /// A channel: a message to receive.
    Receive,
    /// The first of several operations, in `select!`.
    Select,
    /// A descriptor: something to read, or a connection to accept.
    Readable,
    /// A descriptor: room to write, or a connection to be made.
    Writable,
    /// Blocking work on another thread.
    Blocking,
}

impl WaitKind {
    pub(crate) fn from_bits(bits: u8) -> WaitKind {
        const ALL: [WaitKind; 19] = [
            WaitKind::None,
            WaitKind::Sleep,
            WaitKind::Park,
            WaitKind::Join,
            WaitKind::Predicate,
            WaitKind::Future,
            WaitKind::Scope,
            WaitKind::Lock,
            WaitKind::Key,
            WaitKind::Condvar,
            WaitKind::Event,
            WaitKind::Value,
            WaitKind::Semaphore,
            WaitKind::Send,
            WaitKind::Receive,
            WaitKind::Select,
            WaitKind::Readable,
            WaitKind::Writable,
            WaitKind::Blocking,
        ];
        ALL.get(usize::from(bits)).copied().unwrap_or(WaitKind::None)
    }

    /// Names the operation, for messages.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            WaitKind::None => "nothing",
            WaitKind::Sleep => "sleep",
            WaitKind::Park => "park",
            WaitKind::Join => "join",
            WaitKind::Predicate => "wait_until",
            WaitKind::Future => "block_on",
            WaitKind::Scope => "the end of a scope",
            WaitKind::Lock | WaitKind::Key => "lock",
            WaitKind::Condvar => "a condition variable",
            WaitKind::Event => "an event",
            WaitKind::Value => "a future",
            WaitKind::Semaphore => "a semaphore",
            WaitKind::Send => "send",
            WaitKind::Receive => "recv",
            WaitKind::Select => "select",
            WaitKind::Readable => "reading from a descriptor",
            WaitKind::Writable => "writing to a descriptor",
            WaitKind::Blocking => "blocking work",
        }
    }
}
