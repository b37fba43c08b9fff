//! Chooses the handler for a path and a method.
//!
//! A router is itself a handler. The crate `matchit` finds the route of a path.

use crate::handler::Handler;
use crate::message::params::{MOST_PLACES, Names, Params};
use crate::message::request::Request;
use crate::message::response::{IntoResponse, Response};
use core::fmt;
use http::header::ALLOW;
use http::{HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::sync::OnceLock;

/// Chooses a handler by path and method.
///
/// - `{name}` matches one segment of a path, `{*name}` the rest of the path. [`Request::param`]
///   returns the matched part.
/// - An unknown path is answered with 404. An unknown method is answered with 405 and the list of
///   known methods.
/// - `HEAD` is answered like `GET`, without the body.
/// - `OPTIONS`, which browsers send to ask for permission, is a method like any other; see
///   [`route`](Self::route). `OPTIONS *` asks about the server. It is answered with 204 and all
///   methods of the router, unless the path `*` has a route.
/// - Letters, digits and `-._~` match whether they are percent-encoded or not. An encoded slash
///   does not end a segment.
/// - A router within a router sees the whole path.
///
/// # Examples
/// ```
/// use sinew_http::{Request, Response, Router, Server};
///
/// let router = Router::new()
///     .get("/", |_: Request| "hello\n")
///     .get("/users/{id}", |request: Request| {
///         Response::text(format!("user {}\n", request.param("id").unwrap_or_default()))
///     })
///     .post("/users", |mut request: Request| -> std::io::Result<Response> {
///         let body = request.body().read_all()?;
///         Ok(Response::text(format!("{} bytes\n", body.len())))
///     });
/// let server = Server::bind("127.0.0.1:0").start(router)?;
/// # server.shutdown(std::time::Duration::ZERO);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Default)]
pub struct Router {
    paths: matchit::Router<usize>,
    routes: Vec<Route>,
    fallback: Option<Box<dyn Handler>>,
}

struct Route {
    path: String,
    /// The names of the parameters, since the route was first found.
    names: OnceLock<Names>,
    handlers: Vec<(Option<Method>, Box<dyn Handler>)>,
}

impl Router {
    /// Makes a router without routes.
    ///
    /// # Examples
    /// ```
    /// let router = sinew_http::Router::new();
    /// ```
    pub fn new() -> Router {
        Router::default()
    }

    /// Answers `GET` and `HEAD` for a path.
    ///
    /// # Panics
    /// Panics like [`route`](Self::route).
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Router};
    /// let router = Router::new().get("/hello", |_: Request| "hello\n");
    /// ```
    #[must_use]
    #[track_caller]
    pub fn get(self, path: &str, handler: impl Handler) -> Router {
        self.route(Method::GET, path, handler)
    }

    /// Answers `POST` for a path.
    ///
    /// # Panics
    /// Panics like [`route`](Self::route).
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Router};
    /// let router = Router::new().post("/echo", |request: Request| sinew_http::Response::from(request.into_body()));
    /// ```
    #[must_use]
    #[track_caller]
    pub fn post(self, path: &str, handler: impl Handler) -> Router {
        self.route(Method::POST, path, handler)
    }

    /// Answers `PUT` for a path.
    ///
    /// # Panics
    /// Panics like [`route`](Self::route).
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Router};
    /// let router = Router::new().put("/things/{id}", |_: Request| "done\n");
    /// ```
    #[must_use]
    #[track_caller]
    pub fn put(self, path: &str, handler: impl Handler) -> Router {
        self.route(Method::PUT, path, handler)
    }

    /// Answers `DELETE` for a path.
    ///
    /// # Panics
    /// Panics like [`route`](Self::route).
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Router};
    /// let router = Router::new().delete("/things/{id}", |_: Request| "done\n");
    /// ```
    #[must_use]
    #[track_caller]
    pub fn delete(self, path: &str, handler: impl Handler) -> Router {
        self.route(Method::DELETE, path, handler)
    }

    /// Answers `PATCH` for a path.
    ///
    /// # Panics
    /// Panics like [`route`](Self::route).
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Router};
    /// let router = Router::new().patch("/things/{id}", |_: Request| "done\n");
    /// ```
    #[must_use]
    #[track_caller]
    pub fn patch(self, path: &str, handler: impl Handler) -> Router {
        self.route(Method::PATCH, path, handler)
    }

    /// Answers requests with this method for a path.
    ///
    /// # Panics
    /// If the path is malformed, conflicts with another one, or has a handler for this method
    /// already. The message names the path.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Router, http::{Method, StatusCode}};
    /// let router = Router::new()
    ///     .route(Method::DELETE, "/users/{id}", |_: Request| StatusCode::NO_CONTENT);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn route(mut self, method: Method, path: &str, handler: impl Handler) -> Router {
        self.add(Some(method), path, Box::new(handler));
        self
    }

    /// Answers requests for a path whose method has no handler of its own.
    ///
    /// # Panics
    /// Panics like [`route`](Self::route).
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Router};
    /// let router = Router::new().any("/{*path}", |request: Request| request.method().to_string());
    /// ```
    #[must_use]
    #[track_caller]
    pub fn any(mut self, path: &str, handler: impl Handler) -> Router {
        self.add(None, path, Box::new(handler));
        self
    }

    /// Answers requests that match no path, instead of 404.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response, Router, http::StatusCode};
    /// let router = Router::new().fallback(|_: Request| {
    ///     Response::html("<h1>not here</h1>").with_status(StatusCode::NOT_FOUND)
    /// });
    /// ```
    #[must_use]
    pub fn fallback(mut self, handler: impl Handler) -> Router {
        self.fallback = Some(Box::new(handler));
        self
    }

    #[track_caller]
    fn add(&mut self, method: Option<Method>, path: &str, handler: Box<dyn Handler>) {
        let index = match self.routes.iter().position(|route| route.path == path) {
            Some(index) => index,
            None => {
                if let Err(error) = self.paths.insert(path, self.routes.len()) {
                    panic!("the route {path:?} cannot be added: {error}");
                }
                self.routes.push(Route {
                    path: path.into(),
                    names: OnceLock::new(),
                    handlers: Vec::new(),
                });
                self.routes.len() - 1
            }
        };
        let handlers = &mut self.routes[index].handlers;
        if handlers.iter().any(|(known, _)| *known == method) {
            let method = method.as_ref().map_or("any method", Method::as_str);
            panic!("the route {path:?} has a handler for {method} already");
        }
        handlers.push((method, handler));
    }
}

impl Handler for Router {
    fn handle(&self, mut request: Request) -> Response {
        let path = normal(request.path());
        let Ok(found) = self.paths.at(&path) else {
            if request.is_about_the_server() {
                let response = Response::empty(StatusCode::NO_CONTENT);
                return allowing(response, &self.routes, Some("OPTIONS"));
            }
            return match &self.fallback {
                Some(fallback) => fallback.handle(request),
                None => StatusCode::NOT_FOUND.into_response(),
            };
        };
        let route = &self.routes[*found.value];
        let Some(handler) = route.handler(request.method()) else {
            return allowing(StatusCode::METHOD_NOT_ALLOWED.into_response(), [route], None);
        };
        let Some(params) = route.params(&found.params, &path, matches!(path, Cow::Owned(_))) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        drop(path);
        request.set_params(params);
        handler.handle(request)
    }
}

/// Decodes all characters of a path that need not be encoded. So `/%61` becomes `/a`, and a route
/// that guards `/a` also guards `/%61`. In a path, two digits follow each percent sign
/// (`parse::target`), so decoding creates no new escape.
fn normal(path: &str) -> Cow<'_, str> {
    if memchr::memchr(b'%', path.as_bytes()).is_none() {
        return path.into();
    }
    let mut normal = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        normal.push_str(&rest[..at]);
        let digits = rest.get(at + 1..at + 3);
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                normal.push(byte.into());
                rest = &rest[at + 3..];
            }
            _ => {
                normal.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    normal.push_str(rest);
    normal.into()
}

impl Route {
    /// Returns the values that `found` has matched in `path`, decoded; `None` if a value is not UTF-8.
    /// `is_encoded` says whether the path has percent signs.
    fn params(
        &self,
        found: &matchit::Params<'_, '_>,
        path: &str,
        is_encoded: bool,
    ) -> Option<Params> {
        let names = self.names.get_or_init(|| found.iter().map(|(name, _)| name.into()).collect());
        if is_encoded || names.len() > MOST_PLACES {
            let decoded = |(_, value)| Some(percent_decode_str(value).decode_utf8().ok()?.into());
            let values: Option<_> = found.iter().map(decoded).collect();
            return Some(Params::Decoded(names.clone(), values?));
        }
        let mut places = [const { 0..0 }; MOST_PLACES];
        for (name, place) in names.iter().zip(&mut places) {
            let value = found.get(name)?;
            let start = value.as_ptr().addr() - path.as_ptr().addr();
            *place = start as u32..(start + value.len()) as u32;
        }
        Some(Params::Places(names.clone(), places))
    }

    fn handler(&self, method: &Method) -> Option<&dyn Handler> {
        let find = |wanted: Option<&Method>| {
            let mut handlers = self.handlers.iter();
            handlers.find(|(known, _)| known.as_ref() == wanted).map(|(_, handler)| &**handler)
        };
        let as_get = || (method == Method::HEAD).then(|| find(Some(&Method::GET))).flatten();
        find(Some(method)).or_else(as_get).or_else(|| find(None))
    }
}

/// Lists the allowed methods in a response: the methods of `routes`, and `more`.
fn allowing<'a>(
    mut response: Response,
    routes: impl IntoIterator<Item = &'a Route>,
    more: Option<&'a str>,
) -> Response {
    let handlers = routes.into_iter().flat_map(|route| &route.handlers);
    let mut allowed = Vec::from_iter(more);
    for method in handlers.filter_map(|(method, _)| method.as_ref()) {
        allowed.push(method.as_str());
        if method == Method::GET {
            allowed.push("HEAD");
        }
    }
    allowed.sort_unstable();
    allowed.dedup();
    if let Ok(allowed) = HeaderValue::try_from(allowed.join(", ")) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.routes.iter().map(|route| &route.path)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needless_encoding_is_removed() {
        for (path, expected) in [
            ("/a", "/a"),
            ("/%61dmin", "/admin"),
            ("/%7Euser/%2e%2e", "/~user/.."),
            ("/a%2Fb", "/a%2Fb"),
            ("/%2561", "/%2561"),
            ("/%2532f", "/%2532f"),
            ("/%61%25%36%31", "/a%2561"),
        ] {
            assert_eq!(normal(path), expected);
        }
    }
}
