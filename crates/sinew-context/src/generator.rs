//! Generators: a function that yields values, seen as an iterator, and the opposite, a function
//! that iterates over values pushed into it.
//!
//! Both are two fibers that only talk to each other: the one that holds the value, and the one
//! that runs the function. A slot on the heap carries values, the end, and panics across.

mod consumer;

pub use consumer::{Consumer, Input, PushError};

use crate::entry::{self, EntryFunction};
use crate::fiber::Fiber;
use crate::stack::{ProtectedFixedSize, StackAllocator};
use crate::unwind::catch_panic;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::panic::AssertUnwindSafe;
use std::any::Any;
use std::io;
use std::panic::resume_unwind;
use std::rc::Rc;

/// A function that yields values, as an iterator.
///
/// The function starts with the first [`next`](Iterator::next), runs until it yields, and goes on
/// from there with the following one. A panic in it comes out of `next`. Dropping the generator
/// unwinds the function: its destructors run. What the function returns is kept for
/// [`take_result`](Self::take_result).
///
/// # Examples
/// ```
/// use sinew_context::Generator;
///
/// let fibonacci = Generator::new(|numbers| {
///     let (mut a, mut b) = (0, 1);
///     loop {
///         numbers.give(a);
///         (a, b) = (b, a + b);
///     }
/// })?;
/// let first: Vec<u32> = fibonacci.take(10).collect();
/// assert_eq!(first, [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// The function may recurse, which an ordinary iterator cannot:
/// ```
/// # use sinew_context::{Generator, Yielder};
/// struct Tree(Vec<Tree>, u32);
///
/// fn walk(tree: &Tree, out: &mut Yielder<u32>) {
///     tree.0.iter().for_each(|child| walk(child, out));
///     out.give(tree.1);
/// }
///
/// let tree = Tree(vec![Tree(vec![Tree(vec![], 1)], 2), Tree(vec![], 3)], 4);
/// let numbers: Vec<u32> = Generator::new(move |out| walk(&tree, out))?.collect();
/// assert_eq!(numbers, [1, 2, 3, 4]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a generator does nothing until it is iterated over"]
pub struct Generator<'a, T, R = ()> {
    /// The suspended function; `None` once it has ended, and while it runs.
    fiber: Option<Fiber>,
    slot: Rc<Slot<T, R>>,
    borrows: PhantomData<&'a ()>,
}

impl<T, R> Generator<'static, T, R> {
    /// Makes a generator of what `f` yields.
    ///
    /// # Errors
    /// As [`Fiber::new`].
    pub fn new<F>(f: F) -> io::Result<Self>
    where
        F: FnOnce(&mut Yielder<T>) -> R + 'static,
        T: 'static,
        R: 'static,
    {
        Self::with_allocator(&ProtectedFixedSize::default(), f)
    }

    /// Makes a generator that runs on a stack of `allocator`.
    ///
    /// # Errors
    /// As [`Fiber::with_allocator`].
    pub fn with_allocator<A, F>(allocator: &A, f: F) -> io::Result<Self>
    where
        A: StackAllocator + ?Sized,
        F: FnOnce(&mut Yielder<T>) -> R + 'static,
        T: 'static,
        R: 'static,
    {
        // SAFETY: `f` borrows nothing.
        Self::create(f, |entry| unsafe { entry::create_in(allocator, entry) })
    }
}

impl<T, R> Generator<'_, T, R> {
    /// Makes a generator of `body`, whose fiber `make` makes.
    pub(crate) fn create<F>(
        body: F,
        make: impl FnOnce(GeneratorEntry<T, R, F>) -> io::Result<Fiber>,
    ) -> io::Result<Self> {
        let slot = Rc::new(Slot::new());
        let fiber = make(GeneratorEntry { slot: slot.clone(), body })?;
        Ok(Generator { fiber: Some(fiber), slot, borrows: PhantomData })
    }

    /// Whether the function has ended; [`next`](Iterator::next) returns `None` from then on.
    pub fn is_finished(&self) -> bool {
        self.fiber.is_none()
    }

    /// What the function returned, once it has ended; the first time it is asked for.
    ///
    /// # Examples
    /// ```
    /// # use sinew_context::Generator;
    /// let mut words = Generator::new(|out| {
    ///     for word in ["one", "two"] {
    ///         out.give(word);
    ///     }
    ///     Err::<(), _>("no third word")
    /// })?;
    /// assert_eq!(words.by_ref().count(), 2);
    /// assert_eq!(words.take_result(), Some(Err("no third word")));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn take_result(&mut self) -> Option<R> {
        self.slot.result.take()
    }
}

impl<T, R> Iterator for Generator<'_, T, R> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        match self.fiber.take()?.resume() {
            Some(fiber) => {
                // The function's yielder alone holds the fiber that waits here. (Two yielders that
                // were swapped lead their generators astray, to values that are not there.)
                self.fiber = Some(fiber);
                self.slot.value.take()
            }
            None => {
                self.slot.pass_panic_on();
                None
            }
        }
    }
}

impl<T, R> core::iter::FusedIterator for Generator<'_, T, R> {}

impl<T, R> fmt::Debug for Generator<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator").field("fiber", &self.fiber).finish_non_exhaustive()
    }
}

/// Through which the function of a [`Generator`] yields.
pub struct Yielder<T> {
    /// Whoever asked for the next value; `None` only while it is being resumed.
    caller: Option<Fiber>,
    value: Rc<Cell<Option<T>>>,
}

impl<T> Yielder<T> {
    /// Yields a value and waits until the next one is asked for.
    ///
    /// # Panics
    /// While the function is being unwound, in a destructor: nobody will ask any more.
    pub fn give(&mut self, value: T) {
        self.value.set(Some(value));
        hand_over(&mut self.caller);
    }
}

impl<T> Extend<T> for Yielder<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.give(value));
    }
}

impl<T> fmt::Debug for Yielder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yielder").finish_non_exhaustive()
    }
}

/// What the two sides share.
struct Slot<T, R> {
    value: Rc<Cell<Option<T>>>,
    /// Set by a consumer's holder: there will be no more values.
    closed: Rc<Cell<bool>>,
    result: Cell<Option<R>>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

impl<T, R> Slot<T, R> {
    fn new() -> Self {
        Slot {
            value: Rc::default(),
            closed: Rc::default(),
            result: Cell::new(None),
            panic: Cell::new(None),
        }
    }

    /// Runs the user's function; keeps what it returns, or its panic, for the other side.
    fn run<P>(&self, body: impl FnOnce(&mut P) -> R, partner: &mut P) {
        // Taken out inside: a large closure would be moved, on its small stack, with each call.
        let mut body = Some(body);
        let call = || body.take().map(|body| body(partner));
        match catch_panic(AssertUnwindSafe(call)) {
            Ok(result) => self.result.set(result),
            Err(payload) => self.panic.set(Some(payload)),
        }
    }

    fn pass_panic_on(&self) {
        if let Some(payload) = self.panic.take() {
            resume_unwind(payload);
        }
    }
}

/// Switches to the other side, and keeps who comes back from there: the one that used the
/// generator, or another if the generator was moved.
fn hand_over(caller: &mut Option<Fiber>) {
    let to = caller.take().expect("a function that is being unwound yields no more");
    *caller = to.resume();
}

/// What the fiber of a generator runs.
pub(crate) struct GeneratorEntry<T, R, F> {
    slot: Rc<Slot<T, R>>,
    body: F,
}

impl<T, R, F: FnOnce(&mut Yielder<T>) -> R> EntryFunction for GeneratorEntry<T, R, F> {
    fn call(self, from: Option<Fiber>) -> Fiber {
        let GeneratorEntry { slot, body } = self;
        let mut yielder = Yielder { caller: from, value: slot.value.clone() };
        slot.run(body, &mut yielder);
        returning(yielder.caller.take())
    }
}

/// The fiber to end with. It is missing only if the function was unwound, and swallowed that.
fn returning(caller: Option<Fiber>) -> Fiber {
    caller.unwrap_or_else(|| {
        crate::hook::fatal(format_args!(
            "sinew: a generator's function ended, but the fiber that used it is gone; aborting, \
             since there is nowhere to go"
        ))
    })
}
