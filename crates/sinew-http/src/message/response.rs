//! A response, as a handler makes it.

use super::body::{Body, BodyError};
use super::outgoing::{BodyWriter, Outgoing};
use crate::parse::Refusal;
use crate::upgrade::Upgraded;
use bytes::Bytes;
use core::fmt;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::io::{self, Read};

/// A response: a status, header fields, and a body.
///
/// The server adds `date`, unless the handler has set it. It tells the client the length of the
/// body: by `content-length` if it knows the length, otherwise by sending the body in chunks. A
/// client of HTTP/1.0 does not know chunks; for it, the end of the connection ends the body. A
/// `content-length` from the handler counts only where the server does not know the length itself.
/// A `connection: close` from the handler ends the connection after the response.
///
/// # Examples
/// ```
/// use sinew_http::{Response, http::StatusCode};
///
/// let made = Response::text("made\n").with_status(StatusCode::CREATED).with_header("location", "/7");
/// assert_eq!(made.status(), 201);
/// ```
pub struct Response {
    pub(crate) status: StatusCode,
    /// `None` if there are none. Most responses have only a content type.
    headers: Option<Box<HeaderMap>>,
    /// The only field of most responses, as the line that is sent. It is kept out of the map, to
    /// save the memory of a map.
    content_type: Option<ContentType>,
    pub(crate) body: Outgoing,
    /// The error behind a 500, for the problem log.
    pub(crate) cause: Option<Box<io::Error>>,
}

/// Whether responses with this status never have a body.
pub(crate) fn is_bodiless(status: StatusCode) -> bool {
    status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::RESET_CONTENT
        || status == StatusCode::NOT_MODIFIED
}

/// A content type, as it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentType(&'static str);

const TEXT: ContentType = ContentType("content-type: text/plain; charset=utf-8\r\n");
const HTML: ContentType = ContentType("content-type: text/html; charset=utf-8\r\n");
const JSON: ContentType = ContentType("content-type: application/json\r\n");

impl ContentType {
    /// The whole line: the name, the value and the line end.
    pub(crate) fn line(self) -> &'static str {
        self.0
    }

    fn value(self) -> &'static str {
        self.0["content-type: ".len()..].trim_end()
    }
}

impl Response {
    /// Makes a response with this body, text or bytes.
    ///
    /// # Examples
    /// ```
    /// let response = sinew_http::Response::new(vec![1, 2, 3]);
    /// assert_eq!(response.status(), 200);
    /// ```
    pub fn new(body: impl Into<Bytes>) -> Response {
        Response::of(Outgoing::Whole(body.into()))
    }

    pub(crate) fn of(body: Outgoing) -> Response {
        Response { status: StatusCode::OK, headers: None, content_type: None, body, cause: None }
    }

    fn typed(body: impl Into<Bytes>, content_type: ContentType) -> Response {
        Response { content_type: Some(content_type), ..Response::new(body) }
    }

    /// Makes a response with a status and no body.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Response, http::StatusCode};
    ///
    /// assert_eq!(Response::empty(StatusCode::NO_CONTENT).status(), 204);
    /// ```
    pub fn empty(status: StatusCode) -> Response {
        Response { status, ..Response::new(Bytes::new()) }
    }

    /// Makes a response of plain text.
    ///
    /// # Examples
    /// ```
    /// let response = sinew_http::Response::text("hello\n");
    /// assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    /// ```
    pub fn text(body: impl Into<Bytes>) -> Response {
        Response::typed(body, TEXT)
    }

    /// Makes a response of HTML.
    ///
    /// # Examples
    /// ```
    /// let response = sinew_http::Response::html("<!doctype html><title>hello</title>");
    /// assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"));
    /// ```
    pub fn html(body: impl Into<Bytes>) -> Response {
        Response::typed(body, HTML)
    }

    /// Makes a response of JSON text, such as the result of `serde_json::to_string`.
    ///
    /// # Examples
    /// ```
    /// let response = sinew_http::Response::json(r#"{"hello": "world"}"#);
    /// assert_eq!(response.header("content-type"), Some("application/json"));
    /// ```
    pub fn json(body: impl Into<Bytes>) -> Response {
        Response::typed(body, JSON)
    }

    /// Makes a response with a body that is read while it is sent: a file, a connection to another
    /// server, the body of the request. It is sent in chunks unless `length` is given. If the
    /// reader fails, or has fewer bytes than `length`, the connection is closed, so that the client
    /// notices.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::Response;
    ///
    /// fn download() -> std::io::Result<Response> {
    ///     let file = sinew::fs::File::open("Cargo.toml")?;
    ///     let len = file.metadata()?.len();
    ///     Ok(Response::reader(file, Some(len)))
    /// }
    /// ```
    pub fn reader(reader: impl Read + Send + 'static, length: Option<u64>) -> Response {
        Response::of(Outgoing::Reader(Box::new(reader), length))
    }

    /// Makes a response with a body that `write` writes piece by piece. `write` may wait in
    /// between. The writer gathers written bytes; [`flush`](io::Write::flush) sends them at once.
    ///
    /// `write` runs on the handler's fiber, after the handler has returned. It is not called for a
    /// `HEAD` request. If it fails or panics, the connection is closed, so that the client notices
    /// that something is missing. `write` learns that the client has gone when a write or a flush
    /// fails. An endless body keeps a [shutdown](crate::ServerHandle::shutdown) waiting for all of
    /// its patience.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::Response;
    /// use std::io::Write;
    ///
    /// let counting = Response::stream(|body| {
    ///     for n in 1..=10 {
    ///         writeln!(body, "{n}")?;
    ///         body.flush()?;
    ///         sinew::sleep(std::time::Duration::from_millis(100));
    ///     }
    ///     Ok(())
    /// });
    /// ```
    pub fn stream(
        write: impl FnOnce(&mut BodyWriter<'_>) -> io::Result<()> + Send + 'static,
    ) -> Response {
        Response::of(Outgoing::Stream(Box::new(write)))
    }

    /// Makes a response that switches to another protocol. The status is `101 Switching Protocols`;
    /// set it to 200 to accept a `CONNECT`. After the response, `f` has the connection until `f`
    /// returns.
    ///
    /// The response field `upgrade` names the protocol; by default it is the one that the client
    /// names. A client that has not asked for an upgrade gets `426 Upgrade Required` instead, or
    /// 400 if neither side names a protocol.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Request, Response};
    /// use std::io::{Read, Write};
    ///
    /// fn shout(request: Request) -> Response {
    ///     if !request.is_upgrade() {
    ///         return Response::text("ask for an upgrade\n");
    ///     }
    ///     Response::upgrade(|mut stream| {
    ///         let mut buffer = [0; 256];
    ///         while let Ok(count @ 1..) = stream.read(&mut buffer) {
    ///             buffer[..count].make_ascii_uppercase();
    ///             if stream.write_all(&buffer[..count]).is_err() {
    ///                 return;
    ///             }
    ///         }
    ///     })
    ///     .with_header("upgrade", "shouting")
    /// }
    /// ```
    pub fn upgrade(f: impl FnOnce(Upgraded) + Send + 'static) -> Response {
        let status = StatusCode::SWITCHING_PROTOCOLS;
        Response { status, ..Response::of(Outgoing::Upgrade(Box::new(f))) }
    }

    /// Makes a response that sends the client elsewhere, with status 303: the client requests the
    /// location with `GET`. To make the client repeat its own method, [set a
    /// status](Self::with_status) such as 307.
    ///
    /// # Panics
    /// If `location` is not a valid value of a header field. Check a location that comes from a
    /// client with `HeaderValue::from_str`, and [insert](Self::headers_mut) the result.
    ///
    /// # Examples
    /// ```
    /// let response = sinew_http::Response::redirect("/login");
    /// assert_eq!((response.status().as_u16(), response.header("location")), (303, Some("/login")));
    /// ```
    #[track_caller]
    pub fn redirect(location: &str) -> Response {
        Response::empty(StatusCode::SEE_OTHER).with_header("location", location)
    }

    /// Returns the status.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(sinew_http::Response::text("").status(), 200);
    /// ```
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Sets the status.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Response, http::StatusCode};
    ///
    /// let response = Response::text("no such page\n").with_status(StatusCode::NOT_FOUND);
    /// assert_eq!(response.status(), 404);
    /// ```
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Response {
        self.status = status;
        self
    }

    /// Sets a header field, replacing all fields with this name.
    ///
    /// # Panics
    /// If the name or the value is invalid. Convert names and values that come from elsewhere
    /// yourself, and use [`headers_mut`](Self::headers_mut).
    ///
    /// # Examples
    /// ```
    /// let response = sinew_http::Response::text("").with_header("x-answer", "42");
    /// assert_eq!(response.header("x-answer"), Some("42"));
    /// ```
    #[must_use]
    #[track_caller]
    pub fn with_header<N, V>(mut self, name: N, value: V) -> Response
    where
        HeaderName: TryFrom<N, Error: fmt::Debug>,
        HeaderValue: TryFrom<V, Error: fmt::Debug>,
    {
        let name = HeaderName::try_from(name).expect("a header field must have a valid name");
        let value = HeaderValue::try_from(value).expect("a header field must have a valid value");
        if name == CONTENT_TYPE {
            self.content_type = None;
        }
        self.headers.get_or_insert_default().insert(name, value);
        self
    }

    /// Returns the first value of a header field, if it is text.
    ///
    /// # Examples
    /// ```
    /// let response = sinew_http::Response::text("").with_header("etag", "\"7\"");
    /// assert_eq!(response.header("etag"), Some("\"7\""));
    /// ```
    pub fn header(&self, name: &str) -> Option<&str> {
        match self.content_type {
            Some(known) if name.eq_ignore_ascii_case("content-type") => Some(known.value()),
            _ => self.fields()?.get(name)?.to_str().ok(),
        }
    }

    /// Returns the header fields, to change them.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::http::{HeaderValue, header::SET_COOKIE};
    ///
    /// let mut response = sinew_http::Response::text("");
    /// response.headers_mut().append(SET_COOKIE, HeaderValue::from_static("a=1"));
    /// response.headers_mut().append(SET_COOKIE, HeaderValue::from_static("b=2"));
    /// ```
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        let headers = self.headers.get_or_insert_default();
        if let Some(content_type) = self.content_type.take() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type.value()));
        }
        headers
    }

    /// The header fields except the content type, if there are any.
    pub(crate) fn fields(&self) -> Option<&HeaderMap> {
        self.headers.as_deref()
    }

    /// Sets a header field unless it is set already.
    pub(crate) fn set_default(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.get_or_insert_default().entry(name).or_insert(value);
    }

    pub(crate) fn content_type(&self) -> Option<ContentType> {
        self.content_type
    }

    /// Returns the body of a plain response: the body is in memory, it has to be sent, and the
    /// handler has set no header field but the content type.
    pub(crate) fn plain_body(&self) -> Option<&[u8]> {
        match &self.body {
            Outgoing::Whole(bytes)
                if self.headers.is_none() && self.cause.is_none() && !is_bodiless(self.status) =>
            {
                Some(bytes)
            }
            _ => None,
        }
    }

    /// The response to a refused request.
    pub(crate) fn refusing(refusal: Refusal) -> Response {
        Response::text(format!("{}\n", refusal.reason)).with_status(refusal.status)
    }
}

/// A type that a handler may return.
///
/// # Examples
/// An application's own errors:
/// ```
/// use sinew_http::{IntoResponse, Request, Response, http::StatusCode};
///
/// enum Failure {
///     BadNumber,
///     Io(std::io::Error),
/// }
///
/// impl IntoResponse for Failure {
///     fn into_response(self) -> Response {
///         match self {
///             Failure::BadNumber => (StatusCode::BAD_REQUEST, "that is no number\n").into_response(),
///             Failure::Io(error) => error.into_response(),
///         }
///     }
/// }
///
/// fn double(mut request: Request) -> Result<String, Failure> {
///     let body = request.body().read_all().map_err(Failure::Io)?;
///     let number = str::from_utf8(&body).ok().and_then(|text| text.trim().parse::<u64>().ok());
///     number.map(|number| format!("{}\n", 2 * number)).ok_or(Failure::BadNumber)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a response",
    label = "returned by a handler",
    note = "a handler returns text, bytes, a status, a `Response`, or a `Result` of those; \
            an error type needs `impl IntoResponse`; handlers are not async"
)]
pub trait IntoResponse {
    /// Converts the value to a response.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{IntoResponse, Response};
    ///
    /// struct Temperature(f64);
    ///
    /// impl IntoResponse for Temperature {
    ///     fn into_response(self) -> Response {
    ///         let text = format!("{} degrees\n", self.0);
    ///         Response::text(text).with_header("cache-control", "no-store")
    ///     }
    /// }
    ///
    /// let response = Temperature(20.5).into_response();
    /// assert_eq!(response.header("cache-control"), Some("no-store"));
    /// ```
    fn into_response(self) -> Response;
}

impl IntoResponse for Response {
    fn into_response(self) -> Response {
        self
    }
}

impl IntoResponse for StatusCode {
    fn into_response(self) -> Response {
        match self.canonical_reason() {
            Some(reason) if !self.is_success() && !self.is_informational() => {
                Response::text(format!("{reason}\n")).with_status(self)
            }
            _ => Response::empty(self),
        }
    }
}

impl IntoResponse for &'static str {
    fn into_response(self) -> Response {
        Response::text(self)
    }
}

impl IntoResponse for String {
    fn into_response(self) -> Response {
        Response::text(self)
    }
}

impl IntoResponse for Vec<u8> {
    fn into_response(self) -> Response {
        Response::new(self)
    }
}

impl IntoResponse for Bytes {
    fn into_response(self) -> Response {
        Response::new(self)
    }
}

impl<T: IntoResponse> IntoResponse for (StatusCode, T) {
    fn into_response(self) -> Response {
        self.1.into_response().with_status(self.0)
    }
}

impl<T: IntoResponse, E: IntoResponse> IntoResponse for Result<T, E> {
    fn into_response(self) -> Response {
        match self {
            Ok(response) => response.into_response(),
            Err(error) => error.into_response(),
        }
    }
}

/// An error of reading a body becomes 400, 408 or 413 if it is the client's fault. Any other error
/// becomes 500 without details, and the server reports it to the
/// [problem log](crate::Server::problem_log).
impl IntoResponse for io::Error {
    fn into_response(self) -> Response {
        if let Some(refusal) = BodyError::refusal(&self) {
            return Response::refusing(refusal).with_header("connection", "close");
        }
        let response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        Response { cause: Some(Box::new(self)), ..response }
    }
}

impl<B: Into<Bytes>> IntoResponse for http::Response<B> {
    fn into_response(self) -> Response {
        let (parts, body) = self.into_parts();
        let mut response = Response::new(body).with_status(parts.status);
        response.headers = Some(Box::new(parts.headers));
        response
    }
}

impl From<Body> for Response {
    /// Makes a response that sends the body of a request back.
    fn from(body: Body) -> Response {
        let length = body.remaining();
        Response::reader(body, length)
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("headers", &self.headers)
            .field("body", &self.body)
            .finish()
    }
}
