//! The number of a signal.

use std::fmt;

/// The number of a signal. It is displayed with its name.
///
/// Use one of the constants, or convert the number that the system has for the signal.
///
/// # Examples
/// ```
/// use sinew::signal::Signal;
///
/// assert_eq!(Signal::TERM.to_string(), "SIGTERM");
/// assert_eq!(Signal::from(15), Signal::TERM);
/// assert_eq!(Signal::from(1000).to_string(), "signal 1000");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

impl Signal {
    /// Returns the number.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew::signal::Signal::INT.as_raw(), 2);
    /// ```
    pub const fn as_raw(self) -> i32 {
        self.0
    }

    /// Returns the reason why the signal cannot be waited for, if there is one.
    pub(crate) fn refusal(self) -> Option<&'static str> {
        match self.0 {
            libc::SIGKILL | libc::SIGSTOP => Some("no process can catch it"),
            // If the handler returned, the thread would repeat the faulting instruction forever.
            libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE => {
                Some("it reports a fault of the thread that gets it")
            }
            _ => None,
        }
    }
}

macro_rules! signals {
    ($($(#[$doc:meta])* $name:ident = $number:ident,)*) => {
        impl Signal {
            $($(#[$doc])* pub const $name: Signal = Signal(libc::$number);)*

            pub(super) fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$number => Some(stringify!($number)),)*
                    libc::SIGKILL => Some("SIGKILL"),
                    libc::SIGSTOP => Some("SIGSTOP"),
                    libc::SIGSEGV => Some("SIGSEGV"),
                    libc::SIGBUS => Some("SIGBUS"),
                    libc::SIGILL => Some("SIGILL"),
                    libc::SIGFPE => Some("SIGFPE"),
                    _ => None,
                }
            }
        }
    };
}

signals! {
    /// An interrupt from the terminal: Ctrl-C.
    INT = SIGINT,
    /// A request to end.
    TERM = SIGTERM,
    /// The terminal is gone. By convention, servers read their configuration again.
    HUP = SIGHUP,
    /// A request to end and leave a core dump: Ctrl-\.
    QUIT = SIGQUIT,
    /// For the program's own use.
    USR1 = SIGUSR1,
    /// For the program's own use.
    USR2 = SIGUSR2,
    /// A child has ended, stopped or resumed.
    CHLD = SIGCHLD,
    /// The size of the terminal has changed.
    WINCH = SIGWINCH,
    /// A timer of `alarm` or `setitimer` has expired.
    ALRM = SIGALRM,
    /// The process wrote to a pipe or socket without a reader. Rust programs ignore it from the
    /// start.
    PIPE = SIGPIPE,
    /// The process resumes after a stop.
    CONT = SIGCONT,
    /// A request to stop from the terminal: Ctrl-Z.
    TSTP = SIGTSTP,
    /// A descriptor is ready for reading or writing.
    IO = SIGIO,
}

impl From<i32> for Signal {
    fn from(number: i32) -> Signal {
        Signal(number)
    }
}

impl From<Signal> for i32 {
    fn from(signal: Signal) -> i32 {
        signal.0
    }
}

impl PartialEq<i32> for Signal {
    fn eq(&self, number: &i32) -> bool {
        self.0 == *number
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signal({}, {self})", self.0)
    }
}
