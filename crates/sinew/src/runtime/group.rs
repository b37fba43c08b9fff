//! Fibers that are waited for together.

use super::Handle;
use crate::spawn::{Builder, JoinHandle};
use std::thread::Result;

/// Fibers whose results are collected in the order in which they were submitted.
///
/// # Examples
/// ```
/// use sinew::Group;
///
/// let mut group = Group::new();
/// for n in 0..4 {
///     group.submit(move || n * n);
/// }
/// let squares: Vec<i32> = group.finish().into_iter().map(|result| result.unwrap()).collect();
/// assert_eq!(squares, [0, 1, 4, 9]);
/// ```
#[derive(Debug)]
pub struct Group<T> {
    runtime: Handle,
    fibers: Vec<JoinHandle<T>>,
}

impl<T: Send + 'static> Group<T> {
    /// A group on the caller's runtime, or on the default one.
    ///
    /// # Examples
    /// ```
    /// let group = sinew::Group::<u32>::new();
    /// assert!(group.is_empty());
    /// ```
    pub fn new() -> Group<T> {
        Group::on(&Handle::current_or_default())
    }

    /// A group on another runtime.
    ///
    /// # Examples
    /// ```
    /// let runtime = sinew::Runtime::builder().carriers(1).name("other").build()?;
    /// let mut group = sinew::Group::on(runtime.handle());
    /// group.submit(|| sinew::Handle::current().name().to_owned());
    /// assert_eq!(group.finish()[0].as_ref().unwrap(), "other");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on(runtime: &Handle) -> Group<T> {
        Group { runtime: runtime.clone(), fibers: Vec::new() }
    }

    /// Starts a fiber in the group.
    ///
    /// # Examples
    /// ```
    /// let mut group = sinew::Group::new();
    /// group.submit(|| 1);
    /// group.submit(|| 2);
    /// assert_eq!(group.finish().len(), 2);
    /// ```
    pub fn submit(&mut self, f: impl FnOnce() -> T + Send + 'static) {
        self.fibers.push(self.runtime.spawn(f));
    }

    /// Starts a fiber with settings of its own in the group.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    ///
    /// # Examples
    /// ```
    /// let mut group = sinew::Group::new();
    /// group.submit_with(sinew::Builder::new().name("first"), || 1)?;
    /// assert_eq!(group.finish().remove(0).unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn submit_with(
        &mut self,
        builder: Builder,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<()> {
        self.fibers.push(builder.runtime(&self.runtime).spawn(f)?);
        Ok(())
    }

    /// Whether all have ended.
    ///
    /// # Examples
    /// ```
    /// let mut group = sinew::Group::new();
    /// group.submit(|| ());
    /// sinew::wait_until(|| group.is_done(), None);
    /// group.finish();
    /// ```
    pub fn is_done(&self) -> bool {
        self.fibers.iter().all(JoinHandle::is_finished)
    }

    /// How many were submitted.
    ///
    /// # Examples
    /// ```
    /// let mut group = sinew::Group::new();
    /// group.submit(|| ());
    /// assert_eq!(group.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.fibers.len()
    }

    /// Whether none was submitted.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew::Group::<()>::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.fibers.is_empty()
    }

    /// Asks all to end.
    ///
    /// # Examples
    /// ```
    /// let mut group = sinew::Group::new();
    /// group.submit(sinew::park);
    /// group.cancel();
    /// assert!(group.finish()[0].is_err());
    /// ```
    pub fn cancel(&self) {
        self.fibers.iter().for_each(JoinHandle::cancel);
    }

    /// Waits for all and returns their results, in the order of submission.
    ///
    /// # Examples
    /// ```
    /// let mut group = sinew::Group::new();
    /// group.submit(|| 1);
    /// group.submit(|| panic!("the second fails"));
    /// let results = group.finish();
    /// assert!(results[0].is_ok() && results[1].is_err());
    /// ```
    #[track_caller]
    pub fn finish(self) -> Vec<Result<T>> {
        self.fibers.into_iter().map(JoinHandle::join).collect()
    }
}

impl<T: Send + 'static> Default for Group<T> {
    fn default() -> Self {
        Group::new()
    }
}

/// Runs all closures as fibers and returns their results, in order.
///
/// # Examples
/// ```
/// let results = sinew::run_all((0..3).map(|n| move || n + 1));
/// let sum: i32 = results.into_iter().map(|result| result.unwrap()).sum();
/// assert_eq!(sum, 6);
/// ```
#[track_caller]
pub fn run_all<I, F, T>(closures: I) -> Vec<Result<T>>
where
    I: IntoIterator<Item = F>,
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let mut group = Group::new();
    closures.into_iter().for_each(|f| group.submit(f));
    group.finish()
}
