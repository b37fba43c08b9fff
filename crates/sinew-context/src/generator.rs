//! Generators: a function that yields values, used as an iterator. Consumers are the opposite: a
//! function that iterates over the values pushed into it.
//!
//! Two fibers take part and switch only to each other: the fiber that uses the generator or
//! consumer, and the fiber that runs the function. An exchange on the heap carries values, the end
//! of the values, and panics from one to the other.

mod consumer;

pub use consumer::{Consumer, Input, PushError};

use crate::entry::{self, EntryFunction};
use crate::fiber::FiberContext;
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
/// The first [`next`](Iterator::next) starts the function, which runs until it yields. Each further
/// `next` continues it from there. A panic in the function comes out of `next`. Dropping the
/// generator unwinds the function: its destructors run. [`take_result`](Self::take_result) gives
/// the value that the function returned.
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
    fiber: Option<FiberContext>,
    exchange: Rc<Exchange<T, R>>,
    borrows: PhantomData<&'a ()>,
}

impl<T, R> Generator<'static, T, R> {
    /// Makes a generator of the values that `f` yields.
    ///
    /// # Errors
    /// If there is no memory for a stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::Generator;
    ///
    /// let mut countdown = Generator::new(|out| {
    ///     out.give(2);
    ///     out.give(1);
    /// })?;
    /// assert_eq!(countdown.next(), Some(2));
    /// assert_eq!(countdown.next(), Some(1));
    /// assert_eq!(countdown.next(), None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    /// If the allocator has no stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{Generator, stack::StackPool};
    ///
    /// let pool = StackPool::builder().stack_size(64 * 1024).build()?;
    /// let digits = Generator::with_allocator(&pool, |out| out.extend('0'..='9'))?;
    /// assert_eq!(pool.stats().in_use, 1);
    /// assert_eq!(digits.collect::<String>(), "0123456789");
    /// assert_eq!(pool.stats().in_use, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    /// Makes a generator of `body`, on a fiber made by `make`.
    pub(crate) fn create<F>(
        body: F,
        make: impl FnOnce(GeneratorEntry<T, R, F>) -> io::Result<FiberContext>,
    ) -> io::Result<Self> {
        let exchange = Rc::new(Exchange::new());
        let fiber = make(GeneratorEntry { exchange: exchange.clone(), body })?;
        Ok(Generator { fiber: Some(fiber), exchange, borrows: PhantomData })
    }

    /// Whether the function has ended; [`next`](Iterator::next) returns `None` from then on.
    ///
    /// # Examples
    /// ```
    /// # use sinew_context::Generator;
    /// let mut once = Generator::new(|out| out.give(7))?;
    /// assert_eq!(once.next(), Some(7));
    /// assert!(!once.is_finished()); // the function waits in `give`
    /// assert_eq!(once.next(), None);
    /// assert!(once.is_finished());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.fiber.is_none()
    }

    /// Takes the value that the function returned. `None` before the function has ended, and when
    /// the value was taken already.
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
        self.exchange.result.take()
    }
}

impl<T, R> Iterator for Generator<'_, T, R> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        match self.fiber.take()?.resume() {
            Some(fiber) => {
                // Only the function's yielder holds the fiber that waits here. (If a program swaps
                // two yielders, their generators find no values.)
                self.fiber = Some(fiber);
                self.exchange.value.take()
            }
            None => {
                self.exchange.pass_panic_on();
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

/// The handle through which the function of a [`Generator`] yields.
///
/// # Examples
/// ```
/// use sinew_context::{Generator, Yielder};
///
/// fn digits(number: u32, out: &mut Yielder<u32>) {
///     if number >= 10 {
///         digits(number / 10, out);
///     }
///     out.give(number % 10);
/// }
///
/// let all: Vec<u32> = Generator::new(|out| digits(1402, out))?.collect();
/// assert_eq!(all, [1, 4, 0, 2]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Yielder<T> {
    /// The fiber that asked for the next value; `None` only while it is being resumed.
    caller: Option<FiberContext>,
    value: Rc<Cell<Option<T>>>,
}

impl<T> Yielder<T> {
    /// Yields a value and waits until the next one is requested.
    ///
    /// # Panics
    /// In a destructor, while the function is being unwound: no further value will be requested.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::Generator;
    ///
    /// let mut words = Generator::new(|out| {
    ///     out.give("pease");
    ///     unreachable!("no second word was requested");
    /// })?;
    /// assert_eq!(words.next(), Some("pease"));
    /// drop(words); // unwinds the function out of `give`
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

/// The state that the two sides share.
struct Exchange<T, R> {
    value: Rc<Cell<Option<T>>>,
    /// Set by the holder of a consumer: there will be no more values.
    closed: Rc<Cell<bool>>,
    result: Cell<Option<R>>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

impl<T, R> Exchange<T, R> {
    fn new() -> Self {
        Exchange {
            value: Rc::default(),
            closed: Rc::default(),
            result: Cell::new(None),
            panic: Cell::new(None),
        }
    }

    /// Runs the user's function and keeps its result, or its panic, for the other side.
    fn run<P>(&self, body: impl FnOnce(&mut P) -> R, partner: &mut P) {
        // The call takes the closure out of the `Option`. To pass a large closure along would copy
        // it on this small stack with each call.
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

/// Switches to the other side, and keeps the fiber that switches back: the fiber that used the
/// generator, or another fiber if the generator was moved to it.
fn hand_over(caller: &mut Option<FiberContext>) {
    let to = caller.take().expect("a function that is being unwound exchanges no more values");
    *caller = to.resume();
}

/// The entry function of a generator's fiber.
pub(crate) struct GeneratorEntry<T, R, F> {
    exchange: Rc<Exchange<T, R>>,
    body: F,
}

impl<T, R, F: FnOnce(&mut Yielder<T>) -> R> EntryFunction for GeneratorEntry<T, R, F> {
    fn call(self, from: Option<FiberContext>) -> FiberContext {
        let GeneratorEntry { exchange, body } = self;
        let mut yielder = Yielder { caller: from, value: exchange.value.clone() };
        exchange.run(body, &mut yielder);
        returning(yielder.caller.take())
    }
}

/// Returns the fiber to end with. It is missing only if the function was unwound and swallowed the
/// unwinding.
fn returning(caller: Option<FiberContext>) -> FiberContext {
    caller.unwrap_or_else(|| {
        crate::hook::fatal(format_args!(
            "sinew: the function of a generator or consumer ended, but the fiber that used it is \
             gone; aborting, since the function swallowed its unwinding"
        ))
    })
}
