//! A measured server, in a process of its own.
//!
//! The process serves on a port of the loopback address and prints the port on a line. Afterwards
//! it answers each line of its input with the processor time that it has used: user and system
//! time, in nanoseconds. It ends when its input ends. Servers in another language speak this
//! protocol too. If a server cannot speak it, another process starts the server and speaks for
//! it. After the port, this process prints the process numbers of the real server.
//!
//! Next: `client` creates the load.

mod foreign;

pub(crate) use foreign::Foreign;

use crate::apart::Process;
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

/// The number of connections that may wait to be accepted: as many as the kernel allows by default.
/// With a shorter queue the kernel would drop a connection of a burst, and the client would try
/// again a second later.
pub(crate) const BACKLOG: i32 = 4096;

/// The process of a server, seen from outside.
pub(crate) struct Server {
    process: Process,
    port: u16,
    /// The processes that serve: `process`, or the processes that it speaks for.
    serving: Vec<u32>,
}

/// Processor time of a server.
#[derive(Clone, Copy)]
pub(crate) struct Used {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
}

impl Used {
    pub(crate) fn total(self) -> Duration {
        self.user + self.system
    }
}

impl Server {
    pub(crate) fn start(command: Command) -> Result<Server, String> {
        let mut process = Process::start(command)?;
        let mut numbers = process.hear_all::<u32>()?.into_iter();
        let port = numbers.next().and_then(|port| port.try_into().ok());
        let port = port.ok_or("a server has printed no port")?;
        let mut serving: Vec<u32> = numbers.collect();
        if serving.is_empty() {
            serving.push(process.id());
        }
        Ok(Server { process, port, serving })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn used(&mut self) -> Result<Used, String> {
        self.process.tell("")?;
        let [user, system] = self.process.hear()?.map(Duration::from_nanos);
        Ok(Used { user, system })
    }

    /// Returns how many files the server has open, connections included.
    pub(crate) fn files(&self) -> usize {
        let files = |id| std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count);
        self.serving.iter().map(files).sum()
    }

    /// Returns the bytes of resident memory and the bytes of page tables.
    pub(crate) fn memory(&self) -> [usize; 2] {
        let each = self.serving.iter().map(|id| crate::floor::memory_of(&id.to_string()));
        each.fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
    }
}

/// Runs in the server's process: prints the port, and answers until the input ends.
pub(crate) fn answer(port: u16) -> Result<(), String> {
    converse(&port.to_string(), used)
}

/// Prints the first line, then the result of `used` for each line of the input.
fn converse(first: &str, used: impl Fn() -> Used) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let mut tell = |line: &str| {
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
    };
    tell(first)?;
    for line in std::io::stdin().lines() {
        line.map_err(|error| format!("cannot read: {error}"))?;
        let used = used();
        tell(&format!("{} {}", used.user.as_nanos(), used.system.as_nanos()))?;
    }
    Ok(())
}

/// Returns the processor time of this process.
pub(crate) fn used() -> Used {
    // SAFETY: an all-zero `rusage` is valid, and the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let time = |value: libc::timeval| {
        Duration::from_secs(value.tv_sec as u64) + Duration::from_micros(value.tv_usec as u64)
    };
    Used { user: time(usage.ru_utime), system: time(usage.ru_stime) }
}

/// Returns a listener on a free port, and the port. Raises the limit of open files to the hard
/// limit.
pub(crate) fn listen() -> (TcpListener, u16) {
    allow_files();
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback address can be bound");
    // SAFETY: the descriptor belongs to `listener`, which is open; a second `listen` only sets the
    // backlog.
    unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
    let port = listener.local_addr().expect("the listener is bound").port();
    (listener, port)
}

/// Raises the limit of open files to the hard limit; returns the limit.
pub(crate) fn allow_files() -> u64 {
    // SAFETY: an all-zero `rlimit` is valid; the calls read and write it alone.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        limit.rlim_max
    }
}
