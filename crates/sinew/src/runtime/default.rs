//! The runtime that is there when nobody made one.

use super::{Handle, Runtime};
use std::sync::OnceLock;

static DEFAULT: OnceLock<Runtime> = OnceLock::new();

impl Handle {
    /// The default runtime: made by the first who needs it, and there until the process ends.
    ///
    /// # Panics
    /// If it cannot be made, because the process has no threads or descriptors left, or the environment
    /// variable `SINEW_IO` names what there is not.
    ///
    /// # Examples
    /// ```
    /// let same = sinew::spawn(|| sinew::Handle::current()).join().unwrap();
    /// assert_eq!(same, sinew::Handle::default_runtime());
    /// ```
    pub fn default_runtime() -> Handle {
        DEFAULT
            .get_or_init(|| match Runtime::new() {
                Ok(runtime) => runtime,
                Err(error) => panic!("cannot start the default runtime: {error}"),
            })
            .handle()
            .clone()
    }

    /// The runtime of the running fiber, or the default one.
    pub(crate) fn current_or_default() -> Handle {
        Handle::try_current().unwrap_or_else(Handle::default_runtime)
    }
}
