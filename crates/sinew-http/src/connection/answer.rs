//! Turns a response into bytes: the status line, the header fields, and a short body.
//!
//! Next: `sending`, which sends the other bodies.

use crate::date;
use crate::message::outgoing::Delimiter;
use crate::message::response::Response;
use crate::parse::head::Head;
use crate::wire::buffers::Writer;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{Method, StatusCode};

/// The facts that the head of a response depends on, besides the response itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Whether the request used HTTP/1.0.
    pub(crate) old: bool,
    /// Whether the request was a `HEAD`.
    pub(crate) bare: bool,
    /// Whether the connection stays open for another request.
    pub(crate) persists: bool,
    /// The current time in seconds since 1970, for `date`.
    pub(crate) now: u64,
}

/// Chooses how the client learns where the body of a response ends.
pub(crate) fn delimiter(response: &Response, head: &Head) -> Delimiter {
    // After a successful `CONNECT`, the client takes all further bytes for the tunnel, even if the
    // handler has not made one.
    if head.method == Method::CONNECT && response.status.is_success() {
        return Delimiter::Close;
    }
    // A 205 has no body. Unlike a 204, it has to say so (RFC 9110, section 15.3.6).
    if response.status == StatusCode::RESET_CONTENT {
        return Delimiter::Length(0);
    }
    match response.body.length().or_else(|| told_length(response)) {
        Some(length) => Delimiter::Length(length),
        None if head.old => Delimiter::Close,
        None => Delimiter::Chunks,
    }
}

/// The `content-length` that the handler set, if it is a number.
fn told_length(response: &Response) -> Option<u64> {
    crate::parse::fields::decimal(response.fields()?.get(CONTENT_LENGTH)?.as_bytes())
}

/// Writes a response with a [plain body](Response::plain_body), to a request with a plain head.
pub(crate) fn write_plain(out: &mut Vec<u8>, response: &Response, body: &[u8], now: u64) {
    if response.status == StatusCode::OK {
        date::write_ok_and_field(now, out);
    } else {
        write_status(out, response.status);
        date::write_field(now, out);
    }
    if let Some(content_type) = response.content_type() {
        out.extend_from_slice(content_type.line().as_bytes());
    }
    out.extend_from_slice(b"content-length: ");
    out.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}

/// Writes the status line and the header fields.
pub(crate) fn write_head(
    writer: &mut Writer,
    response: &Response,
    delimiter: Delimiter,
    terms: Terms,
) {
    let out = writer.gather();
    // The server itself writes the length of the body and the fate of the connection.
    let said = |name: &HeaderName| {
        *name == CONTENT_LENGTH || *name == TRANSFER_ENCODING || *name == CONNECTION
    };
    match response.fields() {
        None if response.status == StatusCode::OK => date::write_ok_and_field(terms.now, out),
        fields => {
            write_status(out, response.status);
            if fields.is_none_or(|fields| !fields.contains_key(DATE)) {
                date::write_field(terms.now, out);
            }
            for (name, value) in fields.into_iter().flatten().filter(|(name, _)| !said(name)) {
                write_field(out, name.as_str().as_bytes(), value.as_bytes());
            }
        }
    }
    if let Some(content_type) = response.content_type() {
        out.extend_from_slice(content_type.line().as_bytes());
    }
    write_length(out, response, delimiter, terms);
    // `upgrade` concerns this connection only, so `connection` has to list it. A proxy then does
    // not forward it.
    let names_upgrade = response.fields().is_some_and(|fields| fields.contains_key(UPGRADE));
    let is_switch = response.status == StatusCode::SWITCHING_PROTOCOLS;
    debug_assert!(names_upgrade || !is_switch);
    let fate = match terms {
        _ if is_switch => None,
        Terms { persists: false, .. } => Some("close"),
        Terms { old: true, .. } => Some("keep-alive"),
        Terms { old: false, .. } => None,
    };
    let options: Vec<&str> = names_upgrade.then_some("upgrade").into_iter().chain(fate).collect();
    if !options.is_empty() {
        write_field(out, b"connection", options.join(", ").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

fn write_status(out: &mut Vec<u8>, status: StatusCode) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_length(out: &mut Vec<u8>, response: &Response, delimiter: Delimiter, terms: Terms) {
    let status = response.status;
    match delimiter {
        // These statuses never have a body. A 304 may state the length that the body would have.
        _ if status.is_informational() || status == StatusCode::NO_CONTENT => {}
        Delimiter::Length(0) if status == StatusCode::NOT_MODIFIED => {}
        Delimiter::Length(mut length) => {
            // In the response to a `HEAD`, the handler may state the length that the body of a
            // `GET` would have.
            if length == 0 && terms.bare && status != StatusCode::RESET_CONTENT {
                length = told_length(response).unwrap_or(0);
            }
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        Delimiter::Chunks if status == StatusCode::NOT_MODIFIED => {}
        Delimiter::Chunks => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        Delimiter::Close => {}
    }
}

fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
