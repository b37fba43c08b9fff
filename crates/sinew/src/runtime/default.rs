//! The default runtime, for fibers that are started outside of any runtime.

use super::{Builder, Runtime, RuntimeHandle};
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

static DEFAULT: OnceLock<Runtime> = OnceLock::new();

/// Held while a thread makes the default runtime, so that only one thread makes it. A thread that
/// panics meanwhile has made none, and the next thread tries again.
static MAKING: Mutex<()> = Mutex::new(());

impl Builder {
    /// Starts the default runtime with these settings.
    ///
    /// Call it before the first use of the default runtime, best as the first thing in `main`: the
    /// first [`spawn`](crate::spawn()) outside of a runtime starts the default runtime with default
    /// settings. [`run`](crate::run) does not use the default runtime; [`Builder::run`] is `run`
    /// with settings.
    ///
    /// # Errors
    /// As for [`build`](Self::build), and [`AlreadyExists`](io::ErrorKind::AlreadyExists) if the
    /// default runtime has started before. Then it goes on unchanged.
    ///
    /// # Examples
    /// ```
    /// use sinew::Runtime;
    ///
    /// Runtime::builder().carriers(2).name("main").set_default()?;
    /// let name = sinew::spawn(|| sinew::RuntimeHandle::current().name().to_owned());
    /// assert_eq!(name.join().unwrap(), "main");
    /// assert!(Runtime::builder().set_default().is_err()); // too late
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_default(self) -> io::Result<()> {
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if DEFAULT.get().is_some() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the default runtime has started already; call set_default before the first spawn \
                 outside of a runtime",
            ));
        }
        let runtime = self.build()?;
        DEFAULT.get_or_init(|| runtime);
        Ok(())
    }
}

impl RuntimeHandle {
    /// Returns the default runtime. The first use starts it, and it lives until the process ends.
    /// [`Builder::set_default`] gives it settings.
    ///
    /// # Panics
    /// If the default runtime cannot be made, because the process can get no more threads or
    /// descriptors, or an [environment variable](crate::runtime#environment) has an invalid value.
    ///
    /// # Examples
    /// ```
    /// let same = sinew::spawn(|| sinew::RuntimeHandle::current()).join().unwrap();
    /// assert_eq!(same, sinew::RuntimeHandle::default_runtime());
    /// ```
    pub fn default_runtime() -> RuntimeHandle {
        DEFAULT.get().unwrap_or_else(make).handle().clone()
    }

    /// Returns the runtime of the running fiber, or else the default runtime.
    pub(crate) fn current_or_default() -> RuntimeHandle {
        RuntimeHandle::try_current().unwrap_or_else(RuntimeHandle::default_runtime)
    }
}

#[cold]
fn make() -> &'static Runtime {
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    DEFAULT.get_or_init(|| match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => panic!("cannot start the default runtime: {error}"),
    })
}
