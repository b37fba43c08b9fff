//! Tells code on a fiber which request the fiber is answering.

use crate::message::case::Case;
use core::cell::RefCell;
use core::fmt;
use http::Method;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// The request that the current fiber is answering, for code far from the handler, such as a
/// logger.
///
/// The context is set in the handler, in the closures of
/// [`Response::stream`](crate::Response::stream) and
/// [`Response::upgrade`](crate::Response::upgrade), and in the log functions of the server. The
/// context belongs to the fiber. Fibers that a handler spawns, scoped ones too, and closures in
/// `sinew::blocking` have no context unless they [enter](Self::enter) it.
///
/// # Examples
/// ```
/// use sinew_http::RequestContext;
///
/// /// Prints a message with the target of the current request.
/// fn log(message: &str) {
///     match RequestContext::current() {
///         Some(context) => println!("[{}] {message}", context.target()),
///         None => println!("{message}"),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct RequestContext {
    case: Arc<Case>,
}

sinew::fiber_local! {
    static CURRENT: RefCell<Option<Arc<Case>>> = RefCell::new(None);
}

/// The place where a fiber looks for its context.
#[derive(Clone, Default)]
pub(crate) struct Current(Rc<RefCell<Option<Arc<Case>>>>);

impl Current {
    /// Makes this the place where the current fiber looks while `f` runs.
    pub(crate) fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        CURRENT.set_shared(self.0.clone(), f)
    }

    pub(crate) fn set(&self, case: Option<Arc<Case>>) -> Option<Arc<Case>> {
        self.0.replace(case)
    }
}

impl RequestContext {
    /// Returns the context of the request that the current fiber is answering, if there is one.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew_http::RequestContext::current().is_none());
    /// ```
    pub fn current() -> Option<RequestContext> {
        let case = CURRENT.with(|current| current.borrow().clone())?;
        Some(RequestContext { case })
    }

    /// Makes this the context of the current fiber while `f` runs. Call it on a fiber that works
    /// for the request.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::RequestContext;
    ///
    /// fn spawn_with_context(f: impl FnOnce() + Send + 'static) {
    ///     let context = RequestContext::current();
    ///     sinew::spawn(move || match context {
    ///         Some(context) => context.enter(f),
    ///         None => f(),
    ///     });
    /// }
    /// ```
    pub fn enter<R>(self, f: impl FnOnce() -> R) -> R {
        CURRENT.set(RefCell::new(Some(self.case)), f)
    }

    /// Returns the method.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::RequestContext;
    /// let method = RequestContext::current().map(|context| context.method().clone());
    /// ```
    pub fn method(&self) -> &Method {
        &self.case.head.method
    }

    /// Returns the request target, as it was sent.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::RequestContext;
    /// let target = RequestContext::current().map(|context| context.target().to_owned());
    /// ```
    pub fn target(&self) -> &str {
        self.case.head.target()
    }

    /// Returns the address of the client.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::RequestContext;
    /// let peer = RequestContext::current().map(|context| context.peer_addr());
    /// ```
    pub fn peer_addr(&self) -> SocketAddr {
        self.case.origin.peer
    }

    /// Returns the number of the request within its connection, counted from one.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::RequestContext;
    /// let number = RequestContext::current().map(|context| context.number());
    /// ```
    pub fn number(&self) -> u64 {
        self.case.number
    }
}

impl fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestContext")
            .field("peer", &self.case.origin.peer)
            .field("method", &self.case.head.method)
            .field("target", &self.target())
            .field("number", &self.case.number)
            .finish()
    }
}
