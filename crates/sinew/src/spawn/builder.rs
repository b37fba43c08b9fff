//! Settings of a single fiber: name, stack size, carrier, runtime, initial fiber-locals.

use super::birth::{self, Traits, Unborn};
use super::{JoinHandle, Scope, ScopedJoinHandle, Unstarted, local_carrier};
use crate::carrier::Crew;
use crate::clock;
use crate::fiber::Flags;
use crate::fiber::local::{FiberLocal, Inherited};
use crate::fiber::task::{self, Vtable};
use crate::metrics;
use crate::runtime::RuntimeHandle;
use std::io;
use std::sync::Arc;

/// Settings of one fiber: its name, stack, carrier, runtime, and initial fiber-locals.
///
/// # Examples
/// ```
/// let fiber = sinew::FiberBuilder::new()
///     .name("worker")
///     .stack_size(64 * 1024)
///     .spawn(|| sinew::current().name().map(str::to_owned))?;
/// assert_eq!(fiber.join().unwrap().as_deref(), Some("worker"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct FiberBuilder {
    pub(super) name: Option<Arc<str>>,
    stack_size: Option<usize>,
    carrier: Option<usize>,
    runtime: Option<RuntimeHandle>,
    locals: Vec<Inherited>,
    migratable: bool,
}

impl FiberBuilder {
    /// Creates the settings that [`spawn`](crate::spawn()) uses.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::FiberBuilder::new().spawn(|| 7)?;
    /// assert_eq!(fiber.join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> FiberBuilder {
        FiberBuilder::default()
    }

    /// Names the fiber, for panics, reports and dumps.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::FiberBuilder::new().name("worker").spawn(sinew::current)?;
    /// assert_eq!(fiber.join().unwrap().name(), Some("worker"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(mut self, name: impl Into<Arc<str>>) -> FiberBuilder {
        self.name = Some(name.into());
        self
    }

    /// Sets the size of the fiber's stack in bytes: a multiple of the page size, at least 16 KiB.
    /// The size reserves addresses; memory is taken page by page.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::FiberBuilder::new().stack_size(1000).spawn(|| ()).is_err());
    /// let deep = sinew::FiberBuilder::new().stack_size(8 << 20).spawn(|| 7)?;
    /// assert_eq!(deep.join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> FiberBuilder {
        self.stack_size = Some(bytes);
        self
    }

    /// Keeps the fiber on one carrier of its runtime, counted from zero.
    ///
    /// Without this setting the runtime chooses a carrier when the fiber starts, so that all
    /// carriers have equally many fibers that wait.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::FiberBuilder::new().carrier(0).spawn(sinew::current_carrier)?;
    /// assert_eq!(fiber.join().unwrap(), Some(0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn carrier(mut self, index: usize) -> FiberBuilder {
        self.carrier = Some(index);
        self
    }

    /// Starts the fiber on `runtime` instead of the caller's runtime.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// let fiber = sinew::FiberBuilder::new().runtime(runtime.handle()).spawn(|| sinew::RuntimeHandle::current())?;
    /// assert_eq!(&fiber.join().unwrap(), runtime.handle());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn runtime(mut self, runtime: &RuntimeHandle) -> FiberBuilder {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Sets the initial value of one of the fiber's locals.
    ///
    /// # Examples
    /// ```
    /// sinew::fiber_local!(static USER: String = "nobody".into());
    ///
    /// let fiber = sinew::FiberBuilder::new().local(&USER, "alice".into()).spawn(|| USER.get())?;
    /// assert_eq!(fiber.join().unwrap(), "alice");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local<T: Send>(mut self, key: &'static FiberLocal<T>, value: T) -> FiberBuilder {
        self.locals.push(key.initial(value));
        self
    }

    /// Lets the fiber move to another carrier whenever it waits, so that an idle carrier can take
    /// it from a busy one.
    ///
    /// # Safety
    /// In the closure and in everything that it calls, none of these lives across a wait or a
    /// yield: a value that is not `Send` (an `Rc`, a guard of an operating system lock), a
    /// reference to a thread-local, or an address of a thread-local that the compiler keeps. The
    /// last rule means that no function may both wait and use a thread-local, directly or through a
    /// function that is inlined into it.
    ///
    /// # Examples
    /// ```
    /// // SAFETY: the closure uses numbers only.
    /// let builder = unsafe { sinew::FiberBuilder::new().migratable() };
    /// let fiber = builder.spawn(|| {
    ///     sinew::yield_now();
    ///     7
    /// })?;
    /// assert_eq!(fiber.join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub unsafe fn migratable(mut self) -> FiberBuilder {
        self.migratable = true;
        self
    }

    /// Starts a fiber with these settings.
    ///
    /// # Errors
    /// If the stack size or the carrier is out of range. The error names the value.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::FiberBuilder::new().name("seven").spawn(|| 7)?;
    /// assert_eq!(fiber.join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        Ok(self.build(f)?.submit())
    }

    /// Starts a fiber with these settings on the caller's carrier, with a closure that need not be
    /// `Send`. See [`spawn_local`](crate::spawn_local).
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn), and if the settings name another carrier or runtime than the
    /// caller's, or ask for a migratable fiber.
    ///
    /// # Panics
    /// Outside of a fiber, and in a migratable fiber, which has no carrier to stay on.
    ///
    /// # Examples
    /// ```
    /// use std::rc::Rc;
    ///
    /// sinew::run(|| {
    ///     let text = Rc::new("shared by fibers of one carrier");
    ///     let theirs = text.clone();
    ///     let fiber = sinew::FiberBuilder::new().name("local").spawn_local(move || theirs.len()).unwrap();
    ///     assert_eq!(fiber.join().unwrap(), text.len());
    /// });
    /// ```
    #[track_caller]
    pub fn spawn_local<F, T>(mut self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        let (owner, _) = local_carrier("FiberBuilder::spawn_local");
        let here = RuntimeHandle::current();
        if self.migratable {
            return Err(invalid("a migratable fiber cannot be local to one carrier".into()));
        }
        if let Some(other) = self.runtime.as_ref().filter(|runtime| **runtime != here) {
            return Err(invalid(format!(
                "a local fiber belongs to the caller's runtime \"{}\", not to \"{}\"",
                here.name(),
                other.name()
            )));
        }
        if let Some(other) = self.carrier.filter(|index| *index != owner.index()) {
            return Err(invalid(format!(
                "a local fiber runs on the caller's carrier {}, not on carrier {other}",
                owner.index()
            )));
        }
        self.runtime = Some(here);
        self.carrier = Some(owner.index());
        // SAFETY: the fiber is put into this carrier's own queue below, and never leaves its
        // thread.
        let unstarted = unsafe { self.build_any(task::of(f), Flags(0)) }?;
        let (handle, _, control) = unstarted.release();
        metrics::add(&owner.shared().counters.spawned, 1);
        // SAFETY: the fiber is new and in no queue, so its link is free.
        unsafe { owner.ready.push(control) };
        Ok(handle)
    }

    /// Starts a child of `scope` with these settings. The child may borrow; see [`Scope::spawn`].
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn). Then the closure is dropped, and the scope has no such child.
    ///
    /// # Panics
    /// Where [`Scope::spawn`] panics.
    ///
    /// # Examples
    /// ```
    /// let text = String::from("borrowed");
    /// sinew::scope(|s| {
    ///     let child = sinew::FiberBuilder::new().name("counts").spawn_scoped(s, || text.len())?;
    ///     assert_eq!(child.fiber().name(), Some("counts"));
    ///     assert_eq!(child.join().unwrap(), 8);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        scope.spawn_with(self, f)
    }

    /// Makes a fiber that does not run until it is submitted.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::FiberBuilder::new().build(|| 7)?;
    /// assert_eq!(fiber.fiber().state(), sinew::FiberState::Created);
    /// assert_eq!(fiber.submit().join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn build<F, T>(self, f: F) -> io::Result<Unstarted<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: closure and result are `Send` and borrow nothing.
        unsafe { self.build_any(task::of(f), Flags(0)) }
    }

    /// Whether no setting but the name was made.
    pub(super) fn is_ordinary(&self) -> bool {
        self.stack_size.is_none()
            && self.carrier.is_none()
            && self.runtime.is_none()
            && self.locals.is_empty()
            && !self.migratable
    }

    /// Makes an unstarted fiber with these settings from a closure of any kind.
    ///
    /// # Safety
    /// The closure and its result live as long as the fiber, and may go to any thread where the
    /// fiber goes. The vtable belongs to the closure.
    pub(super) unsafe fn build_any<F, T>(
        self,
        (vtable, f): (&'static Vtable, F),
        flags: Flags,
    ) -> io::Result<Unstarted<T>> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => RuntimeHandle::current_or_default(),
        };
        let crew = runtime.crew();
        let mut flags = flags;
        if let Some(size) = self.stack_size {
            crew.pool_of(size)?;
        }
        if let Some(index) = self.carrier {
            check_carrier(index, crew)?;
            flags.0 |= Flags::AFFINE.0;
        }
        if self.migratable {
            if self.carrier.is_some() {
                return Err(invalid("a migratable fiber cannot be kept on one carrier".into()));
            }
            flags.0 |= Flags::MIGRATABLE.0 | Flags::ROAMING.0;
        }
        let inherited = birth::inherited_here();
        let unborn = Unborn::anywhere();
        let traits = Traits { name: self.name, stack_size: self.stack_size, timed: false };
        flags.0 |= unborn.endow(crew, traits).0;
        unborn.hold_back();
        unborn.adopt(inherited.unwrap_or_default());
        unborn.adopt(self.locals);
        unborn.store(f);
        // SAFETY: the caller vouches for the closure and its vtable.
        let control = unsafe { unborn.bear(crew, vtable, flags, 2, clock::now()) };
        if let Some(index) = self.carrier {
            control.set_carrier(crew.carriers[index]);
        }
        // SAFETY: `bear` counted a reference for the handle, and the fiber is in no queue.
        Ok(unsafe { Unstarted::of(control, runtime) })
    }
}

fn check_carrier(index: usize, crew: &Crew) -> io::Result<()> {
    let count = crew.carriers.len();
    if index >= count {
        return Err(invalid(format!(
            "carrier {index} does not exist: the runtime \"{}\" has {count}, counted from zero",
            crew.settings.name
        )));
    }
    Ok(())
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

impl std::fmt::Debug for FiberBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FiberBuilder")
            .field("name", &self.name)
            .field("stack_size", &self.stack_size)
            .field("carrier", &self.carrier)
            .field("migratable", &self.migratable)
            .finish_non_exhaustive()
    }
}
