//! The default runtime, for fibers that are started where no runtime is.

use super::{Builder, Handle, Runtime};
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

static DEFAULT: OnceLock<Runtime> = OnceLock::new();

/// Held while the default runtime is made, so that of several threads one makes it. A thread that panicked
/// with it has made none, and the next one tries again.
static MAKING: Mutex<()> = Mutex::new(());

impl Builder {
    /// Makes these the settings of the default runtime, and starts it.
    ///
    /// Call it before the first use of the default runtime, best as the first thing in `main`: the first
    /// [`spawn`](crate::spawn()) outside of a runtime starts the default runtime with the usual settings.
    /// [`run`](crate::run) does not use the default runtime; [`Builder::run`] is `run` with settings.
    ///
    /// # Errors
    /// As [`build`](Self::build); and [`AlreadyExists`](io::ErrorKind::AlreadyExists) if the default runtime has
    /// started already. It goes on as it is then.
    ///
    /// # Examples
    /// ```
    /// use sinew::Runtime;
    ///
    /// Runtime::builder().carriers(2).name("main").set_default()?;
    /// let name = sinew::spawn(|| sinew::Handle::current().name().to_owned());
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

impl Handle {
    /// The default runtime: the first use of it makes it, and it lives until the process ends.
    /// [`Builder::set_default`] gives it settings.
    ///
    /// # Panics
    /// If it cannot be made, because the process has no threads or descriptors left, or an
    /// [environment variable](crate::runtime#environment) has a value that cannot be used.
    ///
    /// # Examples
    /// ```
    /// let same = sinew::spawn(|| sinew::Handle::current()).join().unwrap();
    /// assert_eq!(same, sinew::Handle::default_runtime());
    /// ```
    pub fn default_runtime() -> Handle {
        DEFAULT.get().unwrap_or_else(make).handle().clone()
    }

    /// The runtime of the running fiber, or the default one.
    pub(crate) fn current_or_default() -> Handle {
        Handle::try_current().unwrap_or_else(Handle::default_runtime)
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
