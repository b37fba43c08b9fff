//! Fibers with settings of their own.

use super::{JoinHandle, adopt, fill, inherited_here, submit};
use crate::carrier::Crew;
use crate::clock;
use crate::fiber::local::{FiberLocal, Inherited};
use crate::fiber::task::{self, Vtable};
use crate::fiber::{Control, Flags, slab};
use crate::primitive::Ordering;
use crate::reactor::Source;
use crate::reactor::deferred::{self, Armed};
use crate::runtime::Handle;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Settings of one fiber: name, stack, where it runs, what its locals begin with.
///
/// # Examples
/// ```
/// let fiber = sinew::Builder::new()
///     .name("worker")
///     .stack_size(64 * 1024)
///     .spawn(|| sinew::current().name().map(str::to_owned))?;
/// assert_eq!(fiber.join().unwrap().as_deref(), Some("worker"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Default)]
#[must_use]
pub struct Builder {
    pub(super) name: Option<Arc<str>>,
    stack_size: Option<usize>,
    carrier: Option<usize>,
    runtime: Option<Handle>,
    locals: Vec<Inherited>,
    migratable: bool,
}

impl Builder {
    /// A fiber like those of [`spawn`](crate::spawn()).
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::Builder::new().spawn(|| 7)?;
    /// assert_eq!(fiber.join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Its name, for panics, reports and views.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::Builder::new().name("worker").spawn(sinew::current)?;
    /// assert_eq!(fiber.join().unwrap().name(), Some("worker"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Bytes of its stack: a multiple of the page, at least 16 KiB. Addresses, not memory: that is
    /// taken page by page.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::Builder::new().stack_size(1000).spawn(|| ()).is_err());
    /// let deep = sinew::Builder::new().stack_size(8 << 20).spawn(|| 7)?;
    /// assert_eq!(deep.join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// The carrier it must run on, counted from zero.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::Builder::new().carrier(0).spawn(sinew::current_carrier)?;
    /// assert_eq!(fiber.join().unwrap(), Some(0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn carrier(mut self, index: usize) -> Builder {
        self.carrier = Some(index);
        self
    }

    /// The runtime it belongs to, instead of the caller's.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).build()?;
    /// let fiber = sinew::Builder::new().runtime(runtime.handle()).spawn(|| sinew::Handle::current())?;
    /// assert_eq!(&fiber.join().unwrap(), runtime.handle());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn runtime(mut self, runtime: &Handle) -> Builder {
        self.runtime = Some(runtime.clone());
        self
    }

    /// What one of its fiber-locals begins with.
    ///
    /// # Examples
    /// ```
    /// sinew::fiber_local!(static USER: String = "nobody".into());
    ///
    /// let fiber = sinew::Builder::new().local(&USER, "alice".into()).spawn(|| USER.get())?;
    /// assert_eq!(fiber.join().unwrap(), "alice");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local<T: Send>(mut self, key: &'static FiberLocal<T>, value: T) -> Builder {
        self.locals.push(key.initial(value));
        self
    }

    /// Lets the fiber move between carriers whenever it waits, so that an idle one can take over
    /// from one that is busy.
    ///
    /// # Safety
    /// In the closure and in everything that it calls, nothing of the following lives across a wait
    /// or a yield: a value that is not `Send` (an `Rc`, a guard of a lock of the operating system),
    /// a reference to a thread-local, or an address of one that the compiler has kept. The last
    /// means that no function may both wait and use a thread-local, directly or through what is
    /// inlined into it.
    ///
    /// # Examples
    /// ```
    /// // SAFETY: the closure uses numbers only.
    /// let builder = unsafe { sinew::Builder::new().migratable() };
    /// let fiber = builder.spawn(|| {
    ///     sinew::yield_now();
    ///     7
    /// })?;
    /// assert_eq!(fiber.join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub unsafe fn migratable(mut self) -> Builder {
        self.migratable = true;
        self
    }

    /// Starts a fiber with these settings.
    ///
    /// # Errors
    /// If the stack size or the carrier is out of range; the error names it.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::Builder::new().name("seven").spawn(|| 7)?;
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

    /// Makes a fiber that does not run until it is submitted.
    ///
    /// # Errors
    /// As for [`spawn`](Self::spawn).
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::Builder::new().build(|| 7)?;
    /// assert_eq!(fiber.fiber().state(), sinew::State::Created);
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

    /// Whether nothing is set but the name.
    pub(super) fn is_ordinary(&self) -> bool {
        self.stack_size.is_none()
            && self.carrier.is_none()
            && self.runtime.is_none()
            && self.locals.is_empty()
            && !self.migratable
    }

    /// # Safety
    /// The closure and its result may go where the fiber goes, and live as long; the vtable is theirs.
    pub(super) unsafe fn build_any<F, T>(
        self,
        closure: (&'static Vtable, F),
        flags: Flags,
    ) -> io::Result<Unstarted<T>> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Handle::current_or_default(),
        };
        let crew = runtime.crew();
        let mut flags = flags;
        if let Some(size) = self.stack_size {
            crew.pool_of(size)?;
            if size != crew.settings.stack_size {
                flags.0 |= Flags::SIZED.0;
            }
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
        let inherited = inherited_here();
        let (control, id) = slab::take_common();
        let extra = control.extra_or_new();
        // SAFETY: a vacant block is ours.
        unsafe { *extra.name.get() = self.name };
        extra.stack_size.set(self.stack_size.unwrap_or(crew.settings.stack_size));
        extra.held_back.store(true, Ordering::Relaxed);
        // SAFETY: the same; the rest is the caller's promise.
        unsafe { fill(control, id, (crew, clock::now()), closure, flags) };
        if let Some(index) = self.carrier {
            control.set_carrier(crew.carriers[index]);
        }
        adopt(control, inherited);
        adopt(control, self.locals);
        // SAFETY: the handle's reference.
        let handle = unsafe { JoinHandle::new(control) };
        Ok(Unstarted { handle: ManuallyDrop::new(handle), control, runtime })
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

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("stack_size", &self.stack_size)
            .field("carrier", &self.carrier)
            .field("migratable", &self.migratable)
            .finish_non_exhaustive()
    }
}

/// A fiber that was made and not submitted. Dropping it drops its closure.
#[must_use = "a fiber runs when it is submitted"]
pub struct Unstarted<T> {
    handle: ManuallyDrop<JoinHandle<T>>,
    control: &'static Control,
    runtime: Handle,
}

impl<T> Unstarted<T> {
    /// Starts the fiber.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::Builder::new().build(|| 7)?;
    /// assert_eq!(fiber.submit().join().unwrap(), 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn submit(self) -> JoinHandle<T> {
        let mut this = ManuallyDrop::new(self);
        if let Some(extra) = this.control.extra() {
            extra.held_back.store(false, Ordering::Relaxed);
        }
        // SAFETY: not submitted before; handle and runtime are moved out once.
        unsafe {
            let runtime = std::ptr::read(&this.runtime);
            submit(runtime.crew(), this.control);
            ManuallyDrop::take(&mut this.handle)
        }
    }

    /// Starts the fiber when there is something to read from `source`, instead of now.
    ///
    /// # Safety
    /// The fiber's closure owns both, and keeps them where they are until it runs or is dropped.
    pub(super) unsafe fn arm(self, source: *const Source, armed: *const Armed) -> JoinHandle<T> {
        let mut this = ManuallyDrop::new(self);
        if let Some(extra) = this.control.extra() {
            extra.held_back.store(false, Ordering::Relaxed);
        }
        // SAFETY: not submitted before; handle and runtime are moved out once. The rest is the
        // caller's promise.
        unsafe {
            let runtime = std::ptr::read(&this.runtime);
            if super::admit(runtime.crew(), this.control) {
                deferred::arm(source, armed, this.control);
            }
            ManuallyDrop::take(&mut this.handle)
        }
    }

    /// A handle that says who the fiber is.
    ///
    /// # Examples
    /// ```
    /// let fiber = sinew::Builder::new().name("later").build(|| 7)?;
    /// assert_eq!(fiber.fiber().name(), Some("later"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fiber(&self) -> super::Fiber {
        self.handle.fiber()
    }
}

impl<T> Drop for Unstarted<T> {
    fn drop(&mut self) {
        // SAFETY: never submitted, so closure, handle and the runtime's reference are ours. The
        // result that stands for "never ran" is dropped with the handle.
        unsafe {
            (self.control.vtable.get().refuse)(self.control, crate::cancel::payload());
            crate::carrier::launch::finish_outside(self.control);
            ManuallyDrop::drop(&mut self.handle);
        }
    }
}

// SAFETY: the closure is `Send`: `build` asks for it.
unsafe impl<T: Send> Send for Unstarted<T> {}
// SAFETY: by reference it only says who it is.
unsafe impl<T: Send> Sync for Unstarted<T> {}

impl<T> std::fmt::Debug for Unstarted<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unstarted").field("fiber", &self.fiber()).finish_non_exhaustive()
    }
}
