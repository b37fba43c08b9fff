//! The responses of the servers in the suite `http`, and helpers for the servers written by hand.
//!
//! All contenders send equal status, type, length and body, and the date of the current second.
//! Some libraries add header fields of their own.

pub(crate) mod certificate;
pub(crate) mod conversation;
pub(crate) mod date;

use serde::Serialize;
use std::io::Write;

/// The body of a plain greeting, and the text inside the JSON body.
pub(crate) const GREETING: &str = "Hello, World!";

pub(crate) const TEXT: &str = "text/plain";
pub(crate) const JSON: &str = "application/json";

/// The response to every request.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// The greeting.
    Hello,
    /// An object with the greeting, which is serialised for each request.
    Json,
}

#[derive(Serialize)]
struct Message {
    message: &'static str,
}

/// Serialises the body of [`Answer::Json`].
pub(crate) fn json() -> Vec<u8> {
    serde_json::to_vec(&Message { message: GREETING }).expect("it can be serialised")
}

impl Answer {
    /// Appends a complete response. The caller has called [`date::start`] before.
    pub(crate) fn append_to(self, out: &mut Vec<u8>) {
        match self {
            Answer::Hello => {
                const _: () = assert!(GREETING.len() == 13, "the head below says 13");
                out.extend_from_slice(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\nDate: ",
                );
                out.extend_from_slice(date::now());
                out.extend_from_slice(b"\r\n\r\n");
                out.extend_from_slice(GREETING.as_bytes());
            }
            Answer::Json => {
                let body = json();
                out.extend_from_slice(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ",
                );
                let _ = write!(out, "{}\r\nDate: ", body.len());
                out.extend_from_slice(date::now());
                out.extend_from_slice(b"\r\n\r\n");
                out.extend_from_slice(&body);
            }
        }
    }
}
