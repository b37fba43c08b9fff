//! The entry of the access log for one request, written when the request is over.

use super::Connection;
use super::shared::AccessLog;
use crate::log::{AccessEntry, contain};
use crate::message::case::Case;
use http::StatusCode;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Writes an entry to the access log when it is dropped. Without a call of
/// [`complete`](Self::complete), the entry says that the response was cut off: a failure or a
/// cancellation has ended the request.
pub(super) struct Record<'a> {
    log: &'a AccessLog,
    connection: &'a Connection,
    case: &'a Case,
    start: Instant,
    /// The status of the response, once there is one.
    pub(super) status: Option<StatusCode>,
    /// How many bytes of the response body were sent.
    pub(super) bytes: u64,
    complete: bool,
}

impl<'a> Record<'a> {
    /// Begins the record of a request whose head was just received, if the server has an access
    /// log.
    pub(super) fn begin(connection: &'a Connection, case: &'a Case) -> Option<Record<'a>> {
        let log = connection.shared.access_log.as_ref()?;
        let start = Instant::now();
        Some(Record { log, connection, case, start, status: None, bytes: 0, complete: false })
    }

    /// Logs a request after its whole response was sent, or gathered to be sent.
    pub(super) fn complete(record: Option<Record<'a>>) {
        if let Some(mut record) = record {
            record.complete = true;
        }
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let head = &self.case.head;
        let entry = AccessEntry {
            peer: self.connection.origin.peer,
            method: Some(&head.method),
            target: head.target(),
            version: head.version(),
            status: self.status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            bytes: self.bytes,
            complete: self.complete,
            duration: self.start.elapsed(),
        };
        // The fiber may be unwinding already, and the log may panic or be cancelled.
        let _ = catch_unwind(AssertUnwindSafe(|| contain(|| (self.log)(&entry))));
    }
}
