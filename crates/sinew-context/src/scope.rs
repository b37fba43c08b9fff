//! Fibers that borrow from the function that makes them.
//!
//! # Why it is sound
//!
//! A fiber's frames live until it has ended, and its value can be leaked, so a plain `FiberContext`
//! must not borrow. A [`Scope`] counts its borrowers: each fiber from its creation to the end of
//! its closure, and each injected function from its sending to its return. [`scope`] does not
//! return, and does not unwind further, unless that count is zero. In ordinary use it is zero,
//! because the end of the closure drops the fibers' values, which unwinds them. If the program
//! leaked a value or moved it out, the fiber cannot be ended, and the process aborts with a
//! message.

use crate::entry::{self, EntryFunction, FromAnyone, FromSuspended};
use crate::fiber::{FiberContext, Resumed};
use crate::generator::{Consumer, Generator, Input, Yielder};
use crate::hook::fatal;
use crate::stack::{ProtectedFixedSize, StackAllocator};
use core::cell::Cell;
use core::marker::PhantomData;
use core::panic::AssertUnwindSafe;
use std::io;

/// Runs `body` with a scope. Fibers made in the scope may borrow values that live outside of it.
///
/// When `scope` returns, every fiber made in it has ended.
///
/// # Aborts
/// If a fiber made in the scope has not ended, because its value was leaked or moved out.
///
/// # Examples
/// ```
/// let mut words = vec!["peas", "porridge"];
/// let mut count = 0;
/// sinew_context::scope(|s| {
///     let fiber = s.fiber(|caller| {
///         words.push("hot");
///         count = words.len();
///         caller
///     })?;
///     assert!(fiber.resume().is_none());
///     Ok::<(), std::io::Error>(())
/// })?;
/// assert_eq!((words.len(), count), (3, 3));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// The borrowed values must outlive the scope:
/// ```compile_fail,E0597
/// sinew_context::scope(|s| {
///     let short = String::new();
///     s.fiber(|caller| { println!("{short}"); caller }).unwrap();
/// });
/// ```
pub fn scope<'env, R, F>(body: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    let scope = Scope { borrowers: Cell::new(0), scope: PhantomData, env: PhantomData };
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| body(&scope)));
    let left = scope.borrowers.get();
    if left > 0 {
        fatal(format_args!(
            "sinew: a scope ended while {left} of its fibers had not; aborting, since they borrow \
             from it. Their values were leaked or moved out of the scope"
        ));
    }
    match result {
        Ok(value) => value,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// The scope of a call of [`scope`]: makes fibers that may borrow.
///
/// # Examples
/// ```
/// use sinew_context::{Generator, Scope};
/// use std::io;
///
/// fn doubled<'scope>(
///     scope: &'scope Scope<'scope, '_>,
///     numbers: &'scope [u32],
/// ) -> io::Result<Generator<'scope, u32>> {
///     scope.generator(|out| numbers.iter().for_each(|number| out.give(2 * number)))
/// }
///
/// let numbers = [1, 2, 3];
/// let sum = sinew_context::scope(|s| doubled(s, &numbers).map(|values| values.sum::<u32>()))?;
/// assert_eq!(sum, 12);
/// # Ok::<(), io::Error>(())
/// ```
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    /// The number of fibers and injected functions that may still use borrowed values.
    borrowers: Cell<usize>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Makes a fiber like [`FiberContext::new`]. Its function may borrow from outside of the scope.
    ///
    /// # Errors
    /// If there is no memory for a stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// let mut count = 0;
    /// sinew_context::scope(|s| {
    ///     let fiber = s.fiber(|caller| {
    ///         count += 1; // borrowed
    ///         caller
    ///     })?;
    ///     assert!(fiber.resume().is_none());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fiber<F>(&'scope self, f: F) -> io::Result<FiberContext>
    where
        F: FnOnce(FiberContext) -> FiberContext + 'scope,
    {
        self.fiber_with_allocator(&ProtectedFixedSize::default(), f)
    }

    /// Makes a fiber like [`FiberContext::with_allocator`]. Its function may borrow.
    ///
    /// # Errors
    /// If the allocator has no stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{scope, stack::StackPool};
    ///
    /// let pool = StackPool::new()?;
    /// let mut sum = 0;
    /// for number in 1..=4 {
    ///     scope(|s| {
    ///         let fiber = s.fiber_with_allocator(&pool, |caller| {
    ///             sum += number;
    ///             caller
    ///         });
    ///         assert!(fiber.unwrap().resume().is_none());
    ///     });
    /// }
    /// assert_eq!((sum, pool.stats().reused), (10, 3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fiber_with_allocator<A, F>(&'scope self, allocator: &A, f: F) -> io::Result<FiberContext>
    where
        A: StackAllocator + ?Sized,
        F: FnOnce(FiberContext) -> FiberContext + 'scope,
    {
        // SAFETY: `f` borrows for `'scope`, which outlives the scope.
        unsafe { self.create(allocator, FromSuspended(f)) }
    }

    /// Makes a fiber like [`FiberContext::with_entry`]. Its function may borrow.
    ///
    /// # Errors
    /// If the allocator has no stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{scope, stack::ProtectedFixedSize};
    ///
    /// let name = String::from("borrowed");
    /// scope(|s| {
    ///     let fiber = s.fiber_with_entry(&ProtectedFixedSize::default(), |from| {
    ///         assert_eq!(name, "borrowed");
    ///         from.expect("a suspended fiber has started this one")
    ///     });
    ///     assert!(fiber.unwrap().resume().is_none());
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn fiber_with_entry<A, F>(&'scope self, allocator: &A, f: F) -> io::Result<FiberContext>
    where
        A: StackAllocator + ?Sized,
        F: FnOnce(Option<FiberContext>) -> FiberContext + 'scope,
    {
        // SAFETY: `f` borrows for `'scope`, which outlives the scope.
        unsafe { self.create(allocator, FromAnyone(f)) }
    }

    /// Runs a function that may borrow on top of `fiber`; see [`FiberContext::resume_with`].
    ///
    /// `fiber` need not belong to the scope. The scope does not end before `f` has returned or has
    /// been unwound.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{FiberContext, scope};
    ///
    /// let fiber = FiberContext::new(|caller| caller.resume().expect("resumed once more"))?;
    /// let fiber = fiber.resume().unwrap();
    /// let mut on = None;
    /// scope(|s| {
    ///     let ended = s.resume_with(fiber, |caller| {
    ///         on = sinew_context::stack::remaining(); // `on` is borrowed
    ///         caller
    ///     });
    ///     assert!(ended.is_none());
    /// });
    /// assert!(on.is_some()); // the function ran on the fiber's stack
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    #[must_use = "dropping the fiber that switched back unwinds it"]
    pub fn resume_with<F, R>(&'scope self, fiber: FiberContext, f: F) -> Option<FiberContext>
    where
        F: FnOnce(FiberContext) -> R + 'scope,
        R: Resumed,
    {
        let counted = Counted { inner: f, borrower: self.borrower() };
        // SAFETY: the borrower is released after `f` and all it held are gone, and the scope does
        // not end before that.
        unsafe { fiber.inject(move |caller| counted.run(|f| f(caller))) }
    }

    /// Makes a generator like [`Generator::new`]. Its function may borrow.
    ///
    /// # Errors
    /// If there is no memory for a stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// let numbers = [1, 2, 3];
    /// let doubled: Vec<u32> = sinew_context::scope(|s| {
    ///     let values = s.generator(|out| numbers.iter().for_each(|number| out.give(2 * number)));
    ///     values.unwrap().collect()
    /// });
    /// assert_eq!(doubled, [2, 4, 6]);
    /// ```
    ///
    /// The values must outlive the scope too, because the function may keep some of them:
    /// ```compile_fail,E0597
    /// # use std::{cell::RefCell, rc::Rc};
    /// sinew_context::scope(|s| {
    ///     let mut generator = s.generator(|out| {
    ///         let cell = Rc::new(RefCell::new(None));
    ///         out.give(cell.clone());
    ///         println!("{:?}", cell.borrow());
    ///     }).unwrap();
    ///     let cell: Rc<RefCell<Option<&String>>> = generator.next().unwrap();
    ///     let short = String::from("dies before the generator");
    ///     *cell.borrow_mut() = Some(&short);
    /// });
    /// ```
    pub fn generator<T, R, F>(&'scope self, f: F) -> io::Result<Generator<'scope, T, R>>
    where
        F: FnOnce(&mut Yielder<T>) -> R + 'scope,
        T: 'scope,
        R: 'scope,
    {
        self.generator_with_allocator(&ProtectedFixedSize::default(), f)
    }

    /// Makes a generator like [`Generator::with_allocator`]. Its function may borrow.
    ///
    /// # Errors
    /// If the allocator has no stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{scope, stack::StackPool};
    ///
    /// let pool = StackPool::builder().stack_size(64 * 1024).build()?;
    /// let text = String::from("pease porridge");
    /// let words: Vec<&str> = scope(|s| {
    ///     s.generator_with_allocator(&pool, |out| out.extend(text.split(' '))).unwrap().collect()
    /// });
    /// assert_eq!(words, ["pease", "porridge"]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn generator_with_allocator<A, T, R, F>(
        &'scope self,
        allocator: &A,
        f: F,
    ) -> io::Result<Generator<'scope, T, R>>
    where
        A: StackAllocator + ?Sized,
        F: FnOnce(&mut Yielder<T>) -> R + 'scope,
        T: 'scope,
        R: 'scope,
    {
        // SAFETY: `f` and its values borrow for `'scope`, which outlives the scope.
        Generator::create(f, |entry| unsafe { self.create(allocator, entry) })
    }

    /// Makes a consumer like [`Consumer::new`]. Its function may borrow.
    ///
    /// # Errors
    /// If there is no memory for a stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// let mut words = Vec::new();
    /// sinew_context::scope(|s| {
    ///     let mut consumer = s.consumer(|input| words.extend(input)).unwrap();
    ///     consumer.extend(["pease", "porridge"]);
    ///     consumer.close();
    /// });
    /// assert_eq!(words, ["pease", "porridge"]);
    /// ```
    ///
    /// The values must outlive the scope too, because the function may keep some of them:
    /// ```compile_fail,E0597
    /// sinew_context::scope(|s| {
    ///     let mut consumer = s.consumer(|input| println!("{:?}", input.next())).unwrap();
    ///     let short = String::from("dies before the consumer");
    ///     consumer.push(&short).unwrap();
    ///     std::mem::forget(consumer);
    /// });
    /// ```
    pub fn consumer<T, R, F>(&'scope self, f: F) -> io::Result<Consumer<'scope, T, R>>
    where
        F: FnOnce(&mut Input<T>) -> R + 'scope,
        T: 'scope,
        R: 'scope,
    {
        self.consumer_with_allocator(&ProtectedFixedSize::default(), f)
    }

    /// Makes a consumer like [`Consumer::with_allocator`]. Its function may borrow.
    ///
    /// # Errors
    /// If the allocator has no stack, or `f` does not fit on it.
    ///
    /// # Examples
    /// ```
    /// use sinew_context::{scope, stack::StackPool};
    ///
    /// let pool = StackPool::builder().stack_size(64 * 1024).build()?;
    /// let mut text = String::new();
    /// scope(|s| {
    ///     let words = s.consumer_with_allocator(&pool, |words| text.extend(words));
    ///     words.unwrap().extend(["pease ", "porridge"]);
    /// });
    /// assert_eq!(text, "pease porridge");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn consumer_with_allocator<A, T, R, F>(
        &'scope self,
        allocator: &A,
        f: F,
    ) -> io::Result<Consumer<'scope, T, R>>
    where
        A: StackAllocator + ?Sized,
        F: FnOnce(&mut Input<T>) -> R + 'scope,
        T: 'scope,
        R: 'scope,
    {
        // SAFETY: `f` and its values borrow for `'scope`, which outlives the scope.
        Consumer::create(f, |entry| unsafe { self.create(allocator, entry) })
    }

    /// Makes a fiber that counts as a borrower until `function` and all it held are gone, whether
    /// the function ran, was unwound or never started. The scope does not end before that.
    ///
    /// # Safety
    /// Everything that `function` borrows outlives the scope.
    unsafe fn create<A, E>(&self, allocator: &A, function: E) -> io::Result<FiberContext>
    where
        A: StackAllocator + ?Sized,
        E: EntryFunction,
    {
        let counted = Counted { inner: function, borrower: self.borrower() };
        // SAFETY: the scope does not end before the fiber has ended, and the borrowed values
        // outlive the scope.
        unsafe { entry::create_in(allocator, counted) }
    }

    fn borrower(&self) -> Borrower {
        self.borrowers.set(self.borrowers.get() + 1);
        Borrower(&raw const self.borrowers)
    }
}

/// One count of a scope's borrowers. The pointer stays valid as long as this value exists: `scope`
/// does not return while the count is above zero, but aborts the process.
struct Borrower(*const Cell<usize>);

impl Drop for Borrower {
    fn drop(&mut self) {
        // SAFETY: the scope exists as long as the count is not zero, and it is on this thread.
        let count = unsafe { &*self.0 };
        count.set(count.get() - 1);
    }
}

/// A value that borrows, and the borrower that is released after it: fields are dropped in the
/// order of declaration.
struct Counted<T> {
    inner: T,
    borrower: Borrower,
}

impl<T> Counted<T> {
    fn run<R>(self, f: impl FnOnce(T) -> R) -> R {
        let Counted { inner, borrower } = self;
        let result = f(inner);
        drop(borrower);
        result
    }
}

impl<E: EntryFunction> EntryFunction for Counted<E> {
    fn call(self, from: Option<FiberContext>) -> FiberContext {
        self.run(|function| function.call(from))
    }
}
