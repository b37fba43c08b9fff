//! A request, as a handler sees it.

use super::body::Body;
use super::case::Case;
use super::params::Params;
use crate::parse::head::Head;
use crate::parse::target::Form;
use bytes::Bytes;
use core::fmt;
use http::header::{AsHeaderName, HeaderName};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Uri, Version};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// A request: the client's address, the method, the target, the header fields, and a [`Body`] to
/// read.
///
/// # Examples
/// ```
/// use sinew_http::{Request, Response};
///
/// fn greet(request: Request) -> Response {
///     let name = request.query_value("name").unwrap_or("world".into());
///     Response::text(format!("hello, {name}\n"))
/// }
/// ```
pub struct Request {
    case: Arc<Case>,
    /// Made on first use: many handlers look only at the path.
    headers: OnceLock<Box<HeaderMap>>,
    uri: OnceLock<Box<Uri>>,
    params: Params,
    body: Body,
}

impl Request {
    pub(crate) fn new(case: Arc<Case>, body: Body) -> Request {
        let (headers, uri) = (OnceLock::new(), OnceLock::new());
        Request { case, headers, uri, params: Params::None, body }
    }

    /// Returns the method.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response, http};
    /// fn only_reads(request: &Request) -> bool {
    ///     request.method() == http::Method::GET
    /// }
    /// ```
    pub fn method(&self) -> &Method {
        &self.case.head.method
    }

    /// Returns the path as the client sent it, still percent-encoded. The path of `OPTIONS *` is
    /// `*`; the path of `CONNECT` is the host and port.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn is_root(request: &Request) -> bool {
    ///     request.path() == "/"
    /// }
    /// ```
    pub fn path(&self) -> &str {
        self.case.head.path_and_query().0
    }

    /// Whether the request is `OPTIONS *`, which asks about the server rather than a path.
    pub(crate) fn is_about_the_server(&self) -> bool {
        self.case.head.form == Form::Asterisk
    }

    /// Returns the path, percent-decoded: `%20` becomes a space. `None` if the result is not UTF-8.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn title(request: &Request) -> Option<String> {
    ///     request.decoded_path().map(|path| path.trim_start_matches('/').to_owned())
    /// }
    /// ```
    pub fn decoded_path(&self) -> Option<Cow<'_, str>> {
        percent_decode_str(self.path()).decode_utf8().ok()
    }

    /// Returns the query, the part behind the question mark, as it was sent.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn is_verbose(request: &Request) -> bool {
    ///     request.query() == Some("verbose")
    /// }
    /// ```
    pub fn query(&self) -> Option<&str> {
        self.case.head.path_and_query().1
    }

    /// Returns the pairs of the query, decoded: `a=1&b=x+y` has `a` with `1` and `b` with `x y`.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn sum(request: &Request) -> u64 {
    ///     request.query_pairs().filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
    /// }
    /// ```
    pub fn query_pairs(&self) -> impl Iterator<Item = (String, String)> {
        let pairs = self.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_of_form(name), decode_of_form(value))
        })
    }

    /// Returns the first value of the query with this name, decoded.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn page(request: &Request) -> usize {
    ///     request.query_value("page").and_then(|page| page.parse().ok()).unwrap_or(1)
    /// }
    /// ```
    pub fn query_value(&self, name: &str) -> Option<String> {
        self.query_pairs().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// Returns the request target as a URI.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn is_for_a_proxy(request: &Request) -> bool {
    ///     request.uri().authority().is_some()
    /// }
    /// ```
    pub fn uri(&self) -> &Uri {
        self.uri
            .get_or_init(|| Box::new(Uri::try_from(self.case.head.target()).unwrap_or_default()))
    }

    /// Returns the version: HTTP/1.0 or HTTP/1.1.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response, http};
    /// fn knows_chunks(request: &Request) -> bool {
    ///     request.version() == http::Version::HTTP_11
    /// }
    /// ```
    pub fn version(&self) -> Version {
        self.case.head.version()
    }

    /// Returns the header fields.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response, http};
    /// fn agent(request: &Request) -> Option<&str> {
    ///     request.headers().get(http::header::USER_AGENT)?.to_str().ok()
    /// }
    /// ```
    pub fn headers(&self) -> &HeaderMap {
        self.headers.get_or_init(|| Box::new(headers(&self.case.head)))
    }

    /// Returns the first value of a header field, if it is text.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn host(request: &Request) -> Option<&str> {
    ///     request.header("host")
    /// }
    /// ```
    pub fn header(&self, name: impl AsHeaderName) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    /// Returns the requested host, with the port if there is one: the host of the target if it
    /// names one, or else the value of the field `host`.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn is_for_us(request: &Request) -> bool {
    ///     request.host() == Some("example.org")
    /// }
    /// ```
    pub fn host(&self) -> Option<&str> {
        match self.case.head.form {
            Form::Absolute | Form::Authority => self.uri().authority().map(Authority::as_str),
            Form::Origin | Form::Asterisk => self.header("host"),
        }
    }

    /// Returns the part of the path that matched a parameter of the route, decoded; see
    /// [`Router`](crate::Router).
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Response, Router};
    ///
    /// let router = Router::new().get("/users/{id}", |request: Request| {
    ///     Response::text(request.param("id").unwrap_or_default().to_owned())
    /// });
    /// ```
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name, self.path())
    }

    pub(crate) fn set_params(&mut self, params: Params) {
        self.params = params;
    }

    /// Returns the address of the client.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn is_local(request: &Request) -> bool {
    ///     request.peer_addr().ip().is_loopback()
    /// }
    /// ```
    pub fn peer_addr(&self) -> SocketAddr {
        self.case.origin.peer
    }

    /// Returns the server's address, at which the request was received.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn port(request: &Request) -> u16 {
    ///     request.local_addr().port()
    /// }
    /// ```
    pub fn local_addr(&self) -> SocketAddr {
        self.case.origin.local
    }

    /// Whether the request came over TLS.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn scheme(request: &Request) -> &'static str {
    ///     if request.is_secure() { "https" } else { "http" }
    /// }
    /// ```
    pub fn is_secure(&self) -> bool {
        self.case.origin.is_secure
    }

    /// Whether the client asks to speak another protocol on this connection; see
    /// [`Response::upgrade`](crate::Response::upgrade).
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// fn wants_websocket(request: &Request) -> bool {
    ///     request.is_upgrade() && request.header("upgrade") == Some("websocket")
    /// }
    /// ```
    pub fn is_upgrade(&self) -> bool {
        self.case.head.upgrades
    }

    /// Returns the body, to read it.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// use std::io::Read;
    ///
    /// fn count(mut request: Request) -> std::io::Result<Response> {
    ///     let mut text = String::new();
    ///     request.body().read_to_string(&mut text)?;
    ///     Ok(Response::text(format!("{}\n", text.lines().count())))
    /// }
    /// ```
    pub fn body(&mut self) -> &mut Body {
        &mut self.body
    }

    /// Returns the body, and drops the rest of the request.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Request, Response};
    /// /// Sends the body back while it is being received.
    /// fn echo(request: Request) -> Response {
    ///     Response::reader(request.into_body(), None)
    /// }
    /// ```
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Converts the request to the type of the crate `http`, for libraries that take it.
    ///
    /// # Examples
    /// ```
    /// # use sinew_http::{Body, Request, Response, http};
    /// fn forward(request: Request) -> http::Request<Body> {
    ///     request.into_http()
    /// }
    /// ```
    pub fn into_http(self) -> http::Request<Body> {
        let (method, uri, version) = (self.method().clone(), self.uri().clone(), self.version());
        let headers =
            self.headers.into_inner().map_or_else(|| headers(&self.case.head), |headers| *headers);
        let mut request = http::Request::new(self.body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.version_mut() = version;
        *request.headers_mut() = headers;
        request
    }
}

fn headers(head: &Head) -> HeaderMap {
    let fields = head.fields();
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        // The parser has checked names and values, so these conversions succeed.
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes())
            && let Ok(value) = HeaderValue::from_maybe_shared(Bytes::copy_from_slice(value))
        {
            headers.append(name, value);
        }
    }
    headers
}

fn decode_of_form(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", self.method())
            .field("target", &self.case.head.target())
            .field("version", &self.version())
            .field("peer", &self.case.origin.peer)
            .field("headers", self.headers())
            .field("body", &self.body)
            .finish()
    }
}
