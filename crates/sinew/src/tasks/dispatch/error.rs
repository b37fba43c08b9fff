//! The errors of a batch.

use core::any::Any;
use core::fmt;
use std::error::Error;
use std::sync::Arc;

/// The most tokens that a message names.
const NAMED: usize = 10;

/// The reason why a batch has no results. Every future of the batch gets a copy of it.
///
/// Report errors of the work itself in the results: a dispatch function may return a vector of
/// `Result<T, E>`.
///
/// # Examples
/// ```
/// use sinew::tasks::{BatchDispatcher, DispatchError};
///
/// sinew::run(|| {
///     let dispatcher = BatchDispatcher::new(|_: Vec<u32>| vec!["only one"]);
///     let (first, second) = (dispatcher.add(1), dispatcher.add(2));
///     let error = first.get().unwrap_err();
///     assert_eq!(error, DispatchError::WrongCount { values: 2, results: 1 });
///     assert_eq!(second.get().unwrap_err(), error);
/// });
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DispatchError {
    /// The dispatch function panicked, with this message if it had one.
    Panicked(Option<Arc<str>>),
    /// The dispatch function returned more or fewer results than it got values.
    WrongCount {
        /// How many values the function got.
        values: usize,
        /// How many results the function returned.
        results: usize,
    },
    /// The fiber in which the dispatch function ran was cancelled.
    Cancelled,
    /// The batch was dropped before it was dispatched: by its executor, or together with a fiber
    /// that did not begin.
    Dropped,
    /// These tokens of an [`AtomicBatchDispatcher`](super::AtomicBatchDispatcher) were dropped
    /// unused.
    TokensDropped(Arc<[usize]>),
    /// The [`AtomicBatchDispatcher`](super::AtomicBatchDispatcher) was dropped before its `commit`.
    NotCommitted,
}

impl DispatchError {
    pub(super) fn panicked(payload: &(dyn Any + Send)) -> DispatchError {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        DispatchError::Panicked(text.map(Arc::from))
    }
}

impl fmt::Display for DispatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DispatchError::Panicked(Some(text)) => {
                write!(f, "the dispatch function panicked: {text}")
            }
            DispatchError::Panicked(None) => f.write_str("the dispatch function panicked"),
            DispatchError::WrongCount { values, results } => {
                write!(f, "the dispatch function returned {results} results for {values} values")
            }
            DispatchError::Cancelled => {
                f.write_str("the fiber of the dispatch function was cancelled")
            }
            DispatchError::Dropped => f.write_str("the batch was dropped before it was dispatched"),
            DispatchError::TokensDropped(tokens) => {
                let named = tokens.iter().take(NAMED).map(usize::to_string).collect::<Vec<_>>();
                let more = if tokens.len() > NAMED { ", …" } else { "" };
                let count = tokens.len();
                let tokens = if count == 1 { "token" } else { "tokens" };
                let were = if count == 1 { "was" } else { "were" };
                write!(f, "{count} {tokens} of the batch {were} dropped unused: ")?;
                write!(f, "{}{more}", named.join(", "))
            }
            DispatchError::NotCommitted => {
                f.write_str("the dispatcher was dropped before its batch was committed")
            }
        }
    }
}

impl Error for DispatchError {}
