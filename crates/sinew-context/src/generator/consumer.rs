//! Consumers: the push form of a generator.

use super::{Exchange, hand_over, returning};
use crate::entry::{self, EntryFunction};
use crate::fiber::FiberContext;
use crate::stack::{ProtectedFixedSize, StackAllocator};
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use std::io;
use std::rc::Rc;

/// A function that iterates over the values pushed into it.
///
/// The opposite of a [`Generator`](super::Generator): the function sees an iterator, and the holder
/// pushes values, one by one or by [`extend`](Extend::extend). The first value starts the function.
/// If the consumer is closed before it gets a value, closing it starts the function.
///
/// [`close`](Self::close), or dropping the consumer, ends the input: the function sees the end of
/// the iterator and finishes. `close` returns the function's result. While a panic is unwinding,
/// dropping the consumer unwinds the function instead. A panic in the function comes out of the
/// call that ran it: `push`, `close` or the drop.
///
/// # Examples
/// ```
/// use sinew_context::Consumer;
///
/// let mut lines = Consumer::new(|words| {
///     while let Some(first) = words.next() {
///         println!("{first} {}", words.next().unwrap_or_default());
///     }
/// })?;
/// lines.extend(["pease", "porridge", "hot"].map(String::from));
/// lines.close();
///
/// let mut sum = Consumer::new(|numbers| numbers.sum::<u32>())?;
/// sum.extend(1..=4);
/// assert_eq!(sum.close(), 10);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a consumer that is dropped ends its input"]
pub struct Consumer<'a, T, R = ()> {
    /// The suspended function; `None` once it has ended, and while it runs.
    fiber: Option<FiberContext>,
    exchange: Rc<Exchange<T, R>>,
    borrows: PhantomData<&'a ()>,
}

impl<T, R> Consumer<'static, T, R> {
    /// Makes a consumer that passes its values to `f`.
    ///
    /// # Errors
    /// If there is no memory for a stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::Consumer;
    ///
    /// let mut longest = Consumer::new(|words| words.max_by_key(|word: &&str| word.len()))?;
    /// longest.extend(["pease", "porridge", "hot"]);
    /// assert_eq!(longest.close(), Some("porridge"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new<F>(f: F) -> io::Result<Self>
    where
        F: FnOnce(&mut Input<T>) -> R + 'static,
        T: 'static,
        R: 'static,
    {
        Self::with_allocator(&ProtectedFixedSize::default(), f)
    }

    /// Makes a consumer that runs on a stack of `allocator`.
    ///
    /// # Errors
    /// If the allocator has no stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{Consumer, stack::StackPool};
    ///
    /// let pool = StackPool::builder().stack_size(64 * 1024).build()?;
    /// let mut text = Consumer::with_allocator(&pool, |letters| letters.collect::<String>())?;
    /// text.extend('a'..='c');
    /// assert_eq!(pool.stats().in_use, 1);
    /// assert_eq!(text.close(), "abc");
    /// assert_eq!(pool.stats().in_use, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_allocator<A, F>(allocator: &A, f: F) -> io::Result<Self>
    where
        A: StackAllocator + ?Sized,
        F: FnOnce(&mut Input<T>) -> R + 'static,
        T: 'static,
        R: 'static,
    {
        // SAFETY: `f` borrows nothing.
        Self::create(f, |entry| unsafe { entry::create_in(allocator, entry) })
    }
}

impl<T, R> Consumer<'_, T, R> {
    /// Makes a consumer of `body`, on a fiber made by `make`.
    pub(crate) fn create<F>(
        body: F,
        make: impl FnOnce(ConsumerEntry<T, R, F>) -> io::Result<FiberContext>,
    ) -> io::Result<Self> {
        let exchange = Rc::new(Exchange::new());
        let fiber = make(ConsumerEntry { exchange: exchange.clone(), body })?;
        Ok(Consumer { fiber: Some(fiber), exchange, borrows: PhantomData })
    }

    /// Passes a value to the function and runs it until it asks for the next one.
    ///
    /// # Errors
    /// If the function has ended; the error gives the value back.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{Consumer, PushError};
    ///
    /// let mut pair = Consumer::new(|words| {
    ///     let mut next = || words.next().unwrap_or_default();
    ///     format!("{} {}", next(), next())
    /// })?;
    /// assert_eq!(pair.push("pease"), Ok(()));
    /// assert_eq!(pair.push("porridge"), Ok(())); // the function has both words and ends
    /// assert_eq!(pair.push("hot"), Err(PushError("hot")));
    /// assert_eq!(pair.close(), "pease porridge");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn push(&mut self, value: T) -> Result<(), PushError<T>> {
        if self.fiber.is_none() {
            return Err(PushError(value));
        }
        self.exchange.value.set(Some(value));
        self.run();
        // A function that ended without taking the value leaves it in the exchange.
        match self.exchange.value.take() {
            Some(value) => Err(PushError(value)),
            None => Ok(()),
        }
    }

    /// Whether the function has ended and takes no more values.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::Consumer;
    ///
    /// let mut first = Consumer::new(|input| input.next())?;
    /// assert!(!first.is_finished());
    /// first.extend([1, 2, 3]); // stops when the function has ended
    /// assert!(first.is_finished());
    /// assert_eq!(first.close(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.fiber.is_none()
    }

    /// Ends the input, lets the function finish, and returns its result.
    ///
    /// # Panics
    /// If the function panics, or has panicked before.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::Consumer;
    ///
    /// let mut mean = Consumer::new(|numbers| {
    ///     let (mut sum, mut count) = (0, 0);
    ///     numbers.for_each(|number: u32| (sum, count) = (sum + number, count + 1));
    ///     sum / count
    /// })?;
    /// mean.extend([2, 4, 9]);
    /// assert_eq!(mean.close(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn close(mut self) -> R {
        self.finish();
        self.exchange.result.take().expect("the function of the consumer has panicked before")
    }

    #[track_caller]
    fn finish(&mut self) {
        self.exchange.closed.set(true);
        self.run();
    }

    #[track_caller]
    fn run(&mut self) {
        let Some(fiber) = self.fiber.take() else {
            return;
        };
        self.fiber = fiber.resume();
        if self.fiber.is_none() {
            self.exchange.pass_panic_on();
        }
    }
}

/// Pushes values until there are no more, or the function has ended. In the second case the rest of
/// the iterator is not consumed.
impl<T, R> Extend<T> for Consumer<'_, T, R> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let mut values = values.into_iter();
        while !self.is_finished() {
            let Some(value) = values.next() else { break };
            if self.push(value).is_err() {
                break;
            }
        }
    }
}

impl<T, R> Drop for Consumer<'_, T, R> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Unwinds the function.
            self.fiber = None;
        } else {
            self.finish();
        }
    }
}

impl<T, R> fmt::Debug for Consumer<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("fiber", &self.fiber).finish_non_exhaustive()
    }
}

/// The values pushed into a [`Consumer`], as its function sees them.
///
/// # Examples
/// ```
/// use sinew_context::{Consumer, Input};
///
/// fn paragraph(lines: &mut Input<&str>) -> String {
///     lines.take_while(|line| !line.is_empty()).collect()
/// }
///
/// let mut text = Consumer::new(|lines| (paragraph(lines), paragraph(lines)))?;
/// text.extend(["one", "two", "", "three"]);
/// assert_eq!(text.close(), ("onetwo".into(), "three".into()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Input<T> {
    /// The fiber that pushes; `None` only while it is being resumed.
    caller: Option<FiberContext>,
    value: Rc<Cell<Option<T>>>,
    closed: Rc<Cell<bool>>,
}

impl<T> Iterator for Input<T> {
    type Item = T;

    /// Waits for the next value; `None` once the consumer is closed.
    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(value) = self.value.take() {
                return Some(value);
            }
            if self.closed.get() {
                return None;
            }
            hand_over(&mut self.caller);
        }
    }
}

impl<T> core::iter::FusedIterator for Input<T> {}

impl<T> fmt::Debug for Input<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").finish_non_exhaustive()
    }
}

/// The error of [`Consumer::push`]: the function has ended. Gives back the value that the function
/// did not take.
///
/// # Examples
/// ```
/// use sinew_context::{Consumer, PushError};
///
/// let mut closed = Consumer::new(|_| ())?; // ends without taking a value
/// let PushError(value) = closed.push(String::from("mine")).unwrap_err();
/// assert_eq!(value, "mine");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PushError<T>(pub T);

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushError").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the function of the consumer has ended and takes no more values")
    }
}

impl<T> std::error::Error for PushError<T> {}

/// The entry function of a consumer's fiber.
pub(crate) struct ConsumerEntry<T, R, F> {
    exchange: Rc<Exchange<T, R>>,
    body: F,
}

impl<T, R, F: FnOnce(&mut Input<T>) -> R> EntryFunction for ConsumerEntry<T, R, F> {
    fn call(self, from: Option<FiberContext>) -> FiberContext {
        let ConsumerEntry { exchange, body } = self;
        let (value, closed) = (exchange.value.clone(), exchange.closed.clone());
        let mut input = Input { caller: from, value, closed };
        exchange.run(body, &mut input);
        returning(input.caller.take())
    }
}
