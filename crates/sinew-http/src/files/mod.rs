//! Serving a directory.
//!
//! `path` makes a checked name of what was asked for, `root` opens it without leaving the directory,
//! `validators` and `range` say how much of it the client wants, `section` is the body that is sent;
//! `types` and `listing` are for what the client shows.
//!
//! Guarantee: nothing is sent but regular files that are beneath the root at the time they are opened, and
//! lists of directories there.

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
/// The path is what stood for the parameter `path` of the route, see [`param`](Self::param), or else the
/// whole path of the request, see [`prefix`](Self::prefix). A directory is answered with its `index.html`.
///
/// Nothing outside of the directory is served, whatever the request says and whatever becomes of the
/// directory meanwhile: a path with `..` in it is not found, nor is a symbolic link that leads out. Nor is
/// anything but regular files. Names that begin with a dot are served like others.
///
/// Clients may ask for a range, and whether a file has changed: responses have an `etag` and
/// `last-modified`. The type is told by the extension of the name. A request for several ranges gets the
/// whole file, as HTTP allows: hardly any client asks for them, and many small ones are a way to have a
/// server do much for little. A file that becomes shorter while it is sent ends the connection, so that the
/// client knows.
///
/// A file that is being sent takes as much room as a connection, and leaves a quarter of the room to connections, so that
/// clients that read slowly do not use up the descriptors of the process. When there is no room, the answer is 503:
/// [`Limits::connections`](crate::Limits::connections).
///
/// The directory is that which has the name when this is made: if another one gets the name later, it is
/// not served. Clones share it.
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
    /// Has no slash at its end.
    prefix: Arc<str>,
    listing: bool,
}

impl Files {
    /// Serves this directory.
    ///
    /// # Errors
    /// If it is none, or cannot be opened: the message names it.
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

    /// Answers a directory that has no `index.html` with a list of what is in it, rather than with 404.
    /// Names that begin with a dot are not in the list.
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

    /// The parameter of the route that has the path: `path` unless it is told here. If the route has no
    /// such parameter, the path is that of the request.
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

    /// What the path of a request begins with that is no part of the path of a file, if that is not the
    /// parameter of a route. What begins otherwise is not found.
    ///
    /// It is needed where a directory is not served at `/`, and what has its path is to be answered, too: the
    /// parameter `{*path}` stands for one character at least.
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
            // The prefix alone; or a slash that is encoded, which is no end of a path for the client:
            // it would look for what a page refers to elsewhere.
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
        // The type is what the extension says, whatever the file looks like: who may upload pictures is not
        // to upload scripts.
        let nosniff = HeaderValue::from_static("nosniff");
        response.set_default(X_CONTENT_TYPE_OPTIONS, nosniff);
        response
    }
}

/// What is said of a file that cannot be served.
fn explain(error: io::Error) -> Response {
    match error.kind() {
        io::ErrorKind::NotFound => StatusCode::NOT_FOUND.into_response(),
        io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN.into_response(),
        _ => error.into_response(),
    }
}

/// Whether a slash is encoded: it would lead into a directory past whoever guards its path.
fn hides_a_slash(path: &str) -> bool {
    path.as_bytes().windows(3).any(|bytes| bytes.eq_ignore_ascii_case(b"%2f"))
}

/// Answers with a file, or what the client wants of it.
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

/// Has the client ask for a directory with the slash without which it misunderstands what a page there
/// refers to.
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
