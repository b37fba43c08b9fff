//! A response becomes bytes.

use super::wire::Writer;
use crate::date;
use crate::message::outgoing::Delimiter;
use crate::message::response::Response;
use crate::parse::head::Head;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{Method, StatusCode};

/// What the head of a response depends on besides the response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Whether the request was one of HTTP/1.0.
    pub(crate) old: bool,
    /// Whether the request was a `HEAD`.
    pub(crate) bare: bool,
    /// Whether the connection is to be used again.
    pub(crate) persists: bool,
    /// The time, in seconds, for the date.
    pub(crate) now: u64,
}

/// How the end of the body of a response is told.
pub(crate) fn delimiter(response: &Response, head: &Head) -> Delimiter {
    // Whatever follows is the tunnel's for the client, even if the handler has made none.
    if head.method == Method::CONNECT && response.status.is_success() {
        return Delimiter::Close;
    }
    // It has no body, and unlike 204 it has to say so (RFC 9110, section 15.3.6).
    if response.status == StatusCode::RESET_CONTENT {
        return Delimiter::Length(0);
    }
    match response.body.length().or_else(|| told_length(response)) {
        Some(length) => Delimiter::Length(length),
        None if head.old => Delimiter::Close,
        None => Delimiter::Chunks,
    }
}

/// The length that the handler said, if it is one.
fn told_length(response: &Response) -> Option<u64> {
    crate::parse::fields::decimal(response.fields()?.get(CONTENT_LENGTH)?.as_bytes())
}

/// Writes a response that has a [plain body](Response::plain_body), to a request to which nothing special applies.
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

/// Writes status line and header fields.
pub(crate) fn write_head(
    writer: &mut Writer,
    response: &Response,
    delimiter: Delimiter,
    terms: Terms,
) {
    let out = writer.gather();
    // How long the body is and what becomes of the connection is for the server to say.
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
    // What names a protocol is for this connection, and not for one behind a proxy.
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
        // These never have a body; 304 may say how long it would be.
        _ if status.is_informational() || status == StatusCode::NO_CONTENT => {}
        Delimiter::Length(0) if status == StatusCode::NOT_MODIFIED => {}
        Delimiter::Length(mut length) => {
            // To a HEAD, the handler may have said how long the body of a GET would be.
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
