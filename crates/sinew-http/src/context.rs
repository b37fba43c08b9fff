//! Which request a fiber is answering.

use crate::message::request::Origin;
use crate::parse::head::Head;
use core::cell::RefCell;
use core::fmt;
use http::Method;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// What the present fiber is answering: for code that is far from the handler, a logger for instance.
///
/// # Examples
/// ```
/// use sinew_http::RequestContext;
///
/// /// Says on whose behalf something happens.
/// fn log(message: &str) {
///     match RequestContext::current() {
///         Some(context) => println!("[{}] {message}", context.target()),
///         None => println!("{message}"),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct RequestContext {
    head: Arc<Head>,
    origin: Origin,
    number: u64,
}

sinew::fiber_local! {
    static CURRENT: CurrentContext = CurrentContext(Rc::default());
}

/// Where a fiber's context is.
pub(crate) struct CurrentContext(Rc<RefCell<Option<RequestContext>>>);

impl CurrentContext {
    /// That of the present fiber.
    pub(crate) fn of_fiber() -> CurrentContext {
        CURRENT.with(|current| CurrentContext(current.0.clone()))
    }

    pub(crate) fn set(&self, context: Option<RequestContext>) {
        *self.0.borrow_mut() = context;
    }
}

impl RequestContext {
    pub(crate) fn new(head: Arc<Head>, origin: Origin, number: u64) -> RequestContext {
        RequestContext { head, origin, number }
    }

    /// That of the request that the present fiber is answering, if it does.
    ///
    /// # Examples
    /// ```
    /// assert!(sinew_http::RequestContext::current().is_none());
    /// ```
    pub fn current() -> Option<RequestContext> {
        CURRENT.with(|current| current.0.borrow().clone())
    }

    /// Makes it the current one while `f` runs, on a fiber that works for the request's.
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
        CURRENT.set(CurrentContext(Rc::new(RefCell::new(Some(self)))), f)
    }

    /// The method.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::RequestContext;
    /// let method = RequestContext::current().map(|context| context.method().clone());
    /// ```
    pub fn method(&self) -> &Method {
        &self.head.method
    }

    /// What is asked for, as it was sent.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::RequestContext;
    /// let target = RequestContext::current().map(|context| context.target().to_owned());
    /// ```
    pub fn target(&self) -> &str {
        self.head.target()
    }

    /// Who asks.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::RequestContext;
    /// let peer = RequestContext::current().map(|context| context.peer_addr());
    /// ```
    pub fn peer_addr(&self) -> SocketAddr {
        self.origin.peer
    }

    /// Which request of its connection it is, counted from one.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::RequestContext;
    /// let number = RequestContext::current().map(|context| context.number());
    /// ```
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestContext")
            .field("peer", &self.origin.peer)
            .field("method", &self.head.method)
            .field("target", &self.target())
            .field("number", &self.number)
            .finish()
    }
}
