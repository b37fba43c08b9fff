//! Makes a runtime from its settings: checks them, fills gaps from the environment, and starts the
//! carriers.

use super::builder::MOST_CARRIERS;
use super::{Builder, Runtime, RuntimeHandle, environment, hooks};
use crate::carrier::crew::{Crew, Settings};
use crate::carrier::{Carrier, run, thread as owned};
use crate::reactor::Reactor;
use crate::sync::Event;
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::thread;

impl Builder {
    /// Makes the runtime and starts its threads.
    ///
    /// If a setting or an [environment variable](crate::runtime#environment) is out of range, or
    /// the process can get no more threads or descriptors.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::Runtime::builder().carriers(0).build().is_err());
    /// ```
    pub fn build(self) -> io::Result<Runtime> {
        self.check()?;
        let count = match self.carriers {
            Some(count) => count,
            None => environment::carriers()?.unwrap_or_else(available_cpus),
        };
        let backend = match self.backend {
            Some(backend) => backend,
            None => environment::backend()?,
        };
        let stalls = match self.stalls {
            Some(threshold) => Some(threshold),
            None => environment::stalls()?,
        };
        let settings = Settings {
            name: self.name,
            pinned_wait: environment::pinned_wait(self.pinned_wait)?,
            idle_hook: self.idle_hook,
            stack_size: self.stack_size,
            max_stacks: self.max_stacks,
            guard_size: self.guard_size,
            max_warm: self.max_warm_stacks,
            decay: self.stack_decay,
            dump_on_panic: self.dump_on_panic,
            embedded: false,
            measured: false,
        };
        hooks::install(self.panic_hook);
        let crew = Crew::new(count, settings, |bell| Box::new(Reactor::new(backend, bell)))?;
        if self.measures {
            crew.observers.measure(true, count);
        }
        let mut runtime = Runtime {
            handle: RuntimeHandle::new(crew.clone()),
            watchers: Vec::new(),
            patience: self.patience,
            shut_down: false,
            ended: Arc::new(Event::new()),
        };
        for (started, carrier) in crew.carriers.iter().enumerate() {
            if let Err(error) = start(carrier, &crew, &runtime.ended) {
                // Dropping the runtime waits for the threads of all carriers, so count the threads
                // that never began as ended.
                for _ in started..count {
                    drop(Ended(crew.clone(), runtime.ended.clone()));
                }
                drop(runtime);
                let message = format!(
                    "no thread for carrier {started} of {count}: {error}; see `ulimit -u`, or ask \
                     for fewer carriers"
                );
                return Err(io::Error::new(error.kind(), message));
            }
        }
        if let Some(threshold) = stalls {
            runtime.watchers.push(crate::inspect::watch_carriers(
                &crew,
                threshold,
                self.dump_on_stall,
            )?);
        }
        if let Some(period) = self.deadlocks {
            runtime.watchers.push(crate::inspect::watch_waits(&crew, period)?);
        }
        if let Some(signal) = self.dump_on_signal {
            crate::inspect::dump_on(signal)?;
        }
        Ok(runtime)
    }

    /// Rejects settings that are out of range, as far as the stack pool does not check them itself.
    fn check(&self) -> io::Result<()> {
        let zero = Some(Duration::ZERO);
        let message = match self.carriers {
            Some(0) => "a runtime needs at least 1 carrier, not 0".into(),
            Some(count) if count > MOST_CARRIERS => {
                format!(
                    "{count} carriers are more than the {MOST_CARRIERS} that a runtime can have"
                )
            }
            _ if self.max_stacks == Some(0) => {
                "without a stack no fiber can run: max_stacks(0)".into()
            }
            _ if self.stack_decay == zero => {
                "giving stacks back all the time leaves none for fibers: stack_decay(0)".into()
            }
            _ if self.stalls == zero => {
                "every fiber keeps its carrier for longer than 0 ns: report_stalls(0)".into()
            }
            _ if self.deadlocks == zero => {
                "a search without a pause leaves fibers no time: report_deadlocks(0)".into()
            }
            _ if self.name.contains('\0') => {
                format!("the name {:?} has a zero byte in it", self.name)
            }
            _ => match self.backend {
                Some(backend) if !backend.is_supported() => {
                    format!("this platform has no {backend:?}")
                }
                _ => return Ok(()),
            },
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

/// Returns the number of CPUs that the process may use, by its affinity mask and the quota of its
/// control group.
fn available_cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(MOST_CARRIERS)
}

/// Counts a carrier as ended when this value is dropped. The shutdown waits until all carriers are
/// counted. A carrier's thread may stay longer, for first-class fibers.
struct Ended(Arc<Crew>, Arc<Event>);

impl Drop for Ended {
    fn drop(&mut self) {
        if self.0.thread_ended() {
            self.1.set();
        }
    }
}

fn start(carrier: &'static Carrier, crew: &Arc<Crew>, ended: &Arc<Event>) -> io::Result<()> {
    let name = format!("{}-{}", crew.settings.name, carrier.index());
    let crew = crew.clone();
    let ended = ended.clone();
    owned::start(name, move || {
        let ended = Ended(crew.clone(), ended);
        run::run(carrier, crew);
        drop(ended);
    })?;
    Ok(())
}
