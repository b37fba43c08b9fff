//! Serves a directory.
//!
//! `path` turns the requested path into a checked name, and `root` opens it without leaving the
//! directory. `validators` and `range` decide how much of the file the client wants, and `section`
//! is the body that is sent. `types` chooses the content type, and `listing` makes the page that
//! lists a directory.
//!
//! Guarantee: the server sends only regular files that are beneath the root when they are opened,
//! and lists of directories beneath the root.

mod listing;
mod path;
mod range;
mod root;
mod section;
mod types;
mod validators;

use crate::handler::Handler;
use crate::message::outgoing::Outgoing;
use crate::message::request::Request;
use crate::message::response::{IntoResponse, Response};
use core::fmt;
use http::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_RANGE, DATE, ETAG, LAST_MODIFIED, LOCATION, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, StatusCode};
use path::Wanted;
use range::Part;
use root::{Node, Root};
use section::Section;
use sinew::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use validators::{Validators, Verdict};

/// Serves the files of a directory.
///
/// The path of the file is the parameter `path` of the route ([`param`](Self::param)), or else the
/// path of the request without its [`prefix`](Self::prefix). A directory is answered with its
/// `index.html`.
///
/// No request reads anything outside of the directory, even if the directory changes meanwhile. A
/// path with `..` gets 404, and so does a symbolic link that leads out. Only regular files
/// are served. Names that begin with a dot are served like others.
///
/// Clients may request a range, and may ask whether a file has changed: responses have an `etag`
/// and `last-modified`. The extension of the name determines the content type. A request for
/// several ranges gets the whole file, as HTTP allows: hardly any client needs them, and many small
/// ranges make a server do much work for little input. If a file becomes shorter while it is sent,
/// the connection ends, so that the client notices.
///
/// A file that is being sent takes a descriptor. A server without a limit on connections counts
/// such a file as a connection. Files leave a quarter of the room to connections, so that clients
/// that read slowly do not use up the descriptors of the process. When there is no room, the
/// response is 503; see [`Limits::connections`](crate::Limits::connections).
///
/// [`new`](Self::new) opens the directory. If another directory takes its name later, that other
/// directory is not served. Clones share the open directory.
///
/// # Examples
/// ```
/// use sinew_http::{Files, Router, Server};
///
/// let router = Router::new().get("/files/{*path}", Files::new("src")?);
/// let server = Server::bind("127.0.0.1:0").start(router)?;
/// # server.shutdown(std::time::Duration::ZERO);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Files {
    root: Arc<Root>,
    param: Arc<str>,
    /// Without a slash at the end.
    prefix: Arc<str>,
    listing: bool,
}

impl Files {
    /// Serves this directory.
    ///
    /// # Errors
    /// If `root` is not a directory, or cannot be opened. The message names it.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::Files;
    ///
    /// let files = Files::new("src")?;
    /// let error = Files::new("Cargo.toml").unwrap_err();
    /// assert!(error.to_string().contains("Cargo.toml"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Files> {
        let root = root.into();
        let opened = sinew::blocking(|| Root::new(&root)).map_err(|error| {
            let message = format!("cannot serve the directory {root:?}: {error}");
            io::Error::new(error.kind(), message)
        })?;
        Ok(Files {
            root: Arc::new(opened),
            param: "path".into(),
            prefix: "".into(),
            listing: false,
        })
    }

    /// Sets whether a request for a directory without an `index.html` gets a list of its files. By
    /// default it gets 404. The list leaves out names that begin with a dot.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Files, Router};
    ///
    /// let router = Router::new().get("/files/{*path}", Files::new("src")?.listing(true));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn listing(mut self, listing: bool) -> Files {
        self.listing = listing;
        self
    }

    /// Sets which parameter of the route has the path: `path` by default. If the route has no such
    /// parameter, the path of the request is used.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Files, Router};
    ///
    /// let router = Router::new().get("/files/{*name}", Files::new("src")?.param("name"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn param(mut self, name: &str) -> Files {
        self.param = name.into();
        self
    }

    /// Sets the part of the request path that comes before the path of the file. It applies if the
    /// route has no [parameter](Self::param) for the path. Requests without this prefix get 404.
    ///
    /// If the directory is not served at `/`, routes for the directory itself need the prefix: they
    /// have no parameter, because `{*path}` matches at least one character.
    ///
    /// # Examples
    /// ```
    /// use sinew_http::{Files, Router};
    ///
    /// let files = Files::new("src")?.prefix("/files").listing(true);
    /// let router = Router::new()
    ///     .get("/files", files.clone())
    ///     .get("/files/", files.clone())
    ///     .get("/files/{*path}", files);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Files {
        self.prefix = prefix.trim_end_matches('/').into();
        self
    }

    fn answer(&self, request: &Request) -> io::Result<Response> {
        let not_found = || Ok(StatusCode::NOT_FOUND.into_response());
        let wanted = match request.param(&self.param) {
            Some(path) => Wanted::decoded(path.as_bytes()),
            None => Wanted::of_request(request.path(), &self.prefix),
        };
        let Some(wanted) = wanted.filter(|_| !hides_a_slash(request.path())) else {
            return not_found();
        };
        let ends_with_slash = request.path().ends_with('/');
        if !wanted.is_directory {
            return match self.root.open(&wanted.path)? {
                Node::File(file, about) => answer_file(request, &wanted.path, file, &about),
                Node::Directory(_) if !ends_with_slash => Ok(redirect(request)),
                Node::Directory(_) => not_found(),
            };
        }
        if !ends_with_slash {
            // The path is either the prefix alone, or it ends with an encoded slash. For the
            // client, an encoded slash does not end a path, so the client would resolve the links
            // of a page wrongly.
            let is_root = wanted.path.as_os_str().is_empty();
            return if is_root { Ok(redirect(request)) } else { not_found() };
        }
        let index = wanted.path.join("index.html");
        match self.root.open(&index) {
            Ok(Node::File(file, about)) => return answer_file(request, &index, file, &about),
            Ok(Node::Directory(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if !self.listing {
            return not_found();
        }
        match self.root.open(&wanted.path)? {
            Node::File(..) => not_found(),
            Node::Directory(directory) => {
                let is_root = wanted.path.as_os_str().is_empty();
                let page = sinew::blocking(|| listing::page(directory, request.path(), is_root))?;
                Ok(Response::html(page))
            }
        }
    }
}

impl Handler for Files {
    fn handle(&self, request: Request) -> Response {
        if request.is_about_the_server() {
            let response = Response::empty(StatusCode::NO_CONTENT);
            return response.with_header(ALLOW, "GET, HEAD, OPTIONS");
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let refused = StatusCode::METHOD_NOT_ALLOWED.into_response();
            return refused.with_header(ALLOW, "GET, HEAD");
        }
        let mut response = self.answer(&request).unwrap_or_else(explain);
        // The extension alone determines the type, whatever the file contains. Otherwise a script
        // that was uploaded as a picture could run.
        let nosniff = HeaderValue::from_static("nosniff");
        response.set_default(X_CONTENT_TYPE_OPTIONS, nosniff);
        response
    }
}

/// The response for a file that cannot be served.
fn explain(error: io::Error) -> Response {
    match error.kind() {
        io::ErrorKind::NotFound => StatusCode::NOT_FOUND.into_response(),
        io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN.into_response(),
        _ => error.into_response(),
    }
}

/// Whether a path has an encoded slash, which could lead into a directory past a route that guards
/// the path.
fn hides_a_slash(path: &str) -> bool {
    path.as_bytes().windows(3).any(|bytes| bytes.eq_ignore_ascii_case(b"%2f"))
}

/// Answers with a file, or with the part that the client wants.
fn answer_file(
    request: &Request,
    path: &Path,
    file: File,
    about: &Metadata,
) -> io::Result<Response> {
    let validators = Validators::of(about, SystemTime::now());
    let len = about.len();
    let response = match validators.judge(request.headers()) {
        Verdict::Failed => StatusCode::PRECONDITION_FAILED.into_response(),
        Verdict::NotModified => Response::empty(StatusCode::NOT_MODIFIED),
        Verdict::Wanted => match wanted_part(request, &validators, len) {
            Part::Unsatisfiable => StatusCode::RANGE_NOT_SATISFIABLE
                .into_response()
                .with_header(CONTENT_RANGE, format!("bytes */{len}")),
            Part::Whole => typed(Section::new(file, 0, len), path),
            Part::Range { first, last } => typed(Section::new(file, first, last - first + 1), path)
                .with_status(StatusCode::PARTIAL_CONTENT)
                .with_header(CONTENT_RANGE, format!("bytes {first}-{last}/{len}")),
        },
    };
    let mut response =
        response.with_header(ACCEPT_RANGES, "bytes").with_header(ETAG, validators.etag());
    for (name, date) in [(LAST_MODIFIED, validators.last_modified()), (DATE, validators.date())] {
        if let Some(date) = date {
            response = response.with_header(name, date);
        }
    }
    Ok(response)
}

fn wanted_part(request: &Request, validators: &Validators, len: u64) -> Part {
    let headers = request.headers();
    // Ranges are defined for `GET` alone.
    match headers.get(RANGE) {
        Some(range) if request.method() == Method::GET && validators.allow_range(headers) => {
            range::parse(range.as_bytes(), len)
        }
        _ => Part::Whole,
    }
}

fn typed(section: Section, path: &Path) -> Response {
    let len = section.len();
    Response::of(Outgoing::File(Box::new(section), len))
        .with_header("content-type", types::of(path))
}

/// Redirects to the path with a slash at its end. Without it, the client would resolve the links of
/// a page in the directory wrongly.
fn redirect(request: &Request) -> Response {
    let location = path::with_slash(request.path(), request.query());
    StatusCode::MOVED_PERMANENTLY.into_response().with_header(LOCATION, location)
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("root", &self.root.path())
            .field("param", &self.param)
            .field("prefix", &self.prefix)
            .field("listing", &self.listing)
            .finish()
    }
}
