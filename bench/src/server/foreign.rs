//! A server that is another program and does not speak the protocol of `server`. This process reads
//! its processor time from `/proc`.

use super::{Used, converse};
use std::fs::{read_to_string, remove_dir_all};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// A running program. Dropping it ends the program and removes its directory.
pub(crate) struct Foreign {
    child: Child,
    port: u16,
    directory: PathBuf,
}

impl Foreign {
    pub(crate) fn new(child: Child, port: u16, directory: PathBuf) -> Foreign {
        Foreign { child, port, directory }
    }

    /// Returns the process that was started, and the processes that it has started itself.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let id = self.child.id();
        let children = read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|one| one.parse().ok());
        std::iter::once(id).chain(children).collect()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Speaks the protocol of `server` for the program, until the input ends.
    pub(crate) fn answer(self) -> Result<(), String> {
        let processes = self.processes();
        let numbers = std::iter::once(u32::from(self.port)).chain(processes.iter().copied());
        let first: Vec<String> = numbers.map(|number| number.to_string()).collect();
        converse(&first.join(" "), || {
            let none = Used { user: Duration::ZERO, system: Duration::ZERO };
            processes.iter().map(|id| used_by(*id)).fold(none, |sum, one| Used {
                user: sum.user + one.user,
                system: sum.system + one.system,
            })
        })
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if !self.has_ended() {
            // SAFETY: no preconditions. The child has not been waited for, so the number still
            // names it.
            unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
            let _ = self.child.wait();
        }
        let _ = remove_dir_all(&self.directory);
    }
}

/// Returns the processor time of a process, in steps of the kernel's tick.
fn used_by(id: u32) -> Used {
    let stat = read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name of the program may contain any character, but stands in parentheses. So count the
    // fields from the closing parenthesis on.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    // SAFETY: no preconditions.
    let hertz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let mut ticks = fields.split_whitespace().skip(11).map(|one| one.parse().unwrap_or(0.0));
    let mut next = || Duration::from_secs_f64(ticks.next().unwrap_or(0.0) / hertz);
    Used { user: next(), system: next() }
}
