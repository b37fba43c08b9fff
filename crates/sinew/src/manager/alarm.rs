//! One thread that watches deadlines and descriptors for loops that cannot watch them.
//!
//! An alarm goes off once. The run of the manager that follows sets it again. The thread polls a
//! copy of the alarms. So it may report a descriptor that was closed meanwhile, or whose number
//! another file has by now. Then a loop runs once without need.

use super::Until;
use crate::carrier::bell::{Bell, poll};
use crate::report;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

type Hook = Arc<dyn Fn() + Send + Sync>;

/// Calls a hook when a manager is to be run again, for a [`LoopController`](super::LoopController)
/// whose loop cannot watch deadlines and descriptors itself.
///
/// # Examples
/// ```
/// use sinew::manager::{Alarm, Until};
/// use std::sync::{Arc, mpsc};
/// use std::time::{Duration, Instant};
///
/// let (sender, rings) = mpsc::channel();
/// let alarm = Alarm::new(Arc::new(move || drop(sender.send(()))));
/// let mut until = Until::default();
/// until.deadline = Some(Instant::now() + Duration::from_millis(1));
/// alarm.set(until);
/// rings.recv().unwrap();
/// ```
pub struct Alarm {
    number: u64,
    hook: Hook,
}

#[derive(Default)]
struct Set {
    alarms: BTreeMap<u64, (Until, Hook)>,
    numbers: u64,
    runs: bool,
}

static SET: Mutex<Set> = Mutex::new(Set { alarms: BTreeMap::new(), numbers: 0, runs: false });
static BELL: LazyLock<io::Result<Bell>> = LazyLock::new(Bell::new);

fn set() -> MutexGuard<'static, Set> {
    SET.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Alarm {
    /// Makes an alarm that calls `hook`, on a thread that all alarms of the process share.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    ///
    /// let alarm = sinew::manager::Alarm::new(Arc::new(|| println!("the time has come")));
    /// # drop(alarm);
    /// ```
    pub fn new(hook: Arc<dyn Fn() + Send + Sync>) -> Alarm {
        let mut set = set();
        set.numbers += 1;
        Alarm { number: set.numbers, hook }
    }

    /// Sets the alarm to go off once, at the deadline of `until` or when its descriptor is
    /// readable, whichever comes first. Replaces the previous setting.
    ///
    /// # Examples
    /// ```
    /// use sinew::manager::{Alarm, Until};
    /// use std::sync::Arc;
    ///
    /// let alarm = Alarm::new(Arc::new(|| unreachable!("nothing is waited for")));
    /// alarm.set(Until::default());
    /// ```
    pub fn set(&self, until: Until) {
        let mut set = set();
        let before = if until == Until::default() {
            set.alarms.remove(&self.number)
        } else {
            set.alarms.insert(self.number, (until, self.hook.clone()))
        };
        let changed = before.as_ref().map_or(Until::default(), |(until, _)| *until) != until;
        let starts = !set.runs && !set.alarms.is_empty();
        let started = if starts { start() } else { Ok(()) };
        if starts {
            set.runs = started.is_ok();
        }
        // The hooks of users run under no lock: the report hook may set an alarm.
        drop(set);
        drop(before);
        if let Err(error) = started {
            report::say(format_args!(
                "cannot watch the deadlines and descriptors of managers: {error}; their fibers may \
                 wait too long"
            ));
        }
        if changed
            && !starts
            && let Ok(bell) = &*BELL
        {
            bell.ring();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let removed = set().alarms.remove(&self.number);
        drop(removed);
    }
}

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alarm").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Starts the thread.
///
/// # Errors
/// If the system has no descriptor or thread for it.
fn start() -> Result<(), String> {
    // Without a bell the thread could not be told of changes, so it is not started.
    BELL.as_ref().map_err(ToString::to_string)?;
    let thread = crate::carrier::thread::start("sinew-alarm".into(), watch);
    thread.map(drop).map_err(|error| error.to_string())
}

fn watch() {
    let Ok(bell) = &*BELL else { return };
    let mut fds = Vec::new();
    loop {
        fds.clear();
        fds.push(polled(bell.as_fd().as_raw_fd()));
        let mut numbers = vec![0];
        let mut earliest: Option<Instant> = None;
        for (number, (until, _)) in &set().alarms {
            if let Some(deadline) = until.deadline {
                earliest = Some(earliest.map_or(deadline, |earliest| earliest.min(deadline)));
            }
            if let Some(fd) = until.fd {
                fds.push(polled(fd));
                numbers.push(*number);
            }
        }
        poll(&mut fds, earliest.map(|earliest| earliest.saturating_duration_since(Instant::now())));
        if fds[0].revents != 0 {
            bell.clear();
        }
        let ready: Vec<u64> =
            fds.iter().zip(&numbers).filter(|(fd, _)| fd.revents != 0).map(|(_, n)| *n).collect();
        for hook in due(&ready) {
            if report::contain(|| hook()).is_none() {
                report::say(format_args!("the hook of an alarm panicked"));
            }
        }
    }
}

/// Takes out the alarms that go off: the alarms in `ready`, and the alarms whose deadline has
/// passed.
fn due(ready: &[u64]) -> Vec<Hook> {
    let now = Instant::now();
    let mut set = set();
    let goes_off = |number: &u64, until: &Until| {
        ready.contains(number) || until.deadline.is_some_and(|deadline| deadline <= now)
    };
    let numbers: Vec<u64> = set
        .alarms
        .iter()
        .filter(|(number, (until, _))| goes_off(number, until))
        .map(|(number, _)| *number)
        .collect();
    numbers.iter().filter_map(|number| set.alarms.remove(number)).map(|(_, hook)| hook).collect()
}

fn polled(fd: i32) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}
