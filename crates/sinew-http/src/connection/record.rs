//! What the owner's log is told of a request, when it is over, however that comes about.

use super::Connection;
use crate::log::{AccessEntry, contain};
use crate::message::case::Case;
use crate::server::shared::AccessLog;
use http::StatusCode;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Tells of a request when it is dropped: then it was not answered whole, by a failure or because its fiber was
/// cancelled.
pub(super) struct Record<'a> {
    log: &'a AccessLog,
    connection: &'a Connection,
    case: &'a Case,
    start: Instant,
    /// That of the response, as soon as there is one.
    pub(super) status: Option<StatusCode>,
    /// How much of its body was sent.
    pub(super) bytes: u64,
    complete: bool,
}

impl<'a> Record<'a> {
    /// That of a request whose head was received just now, if somebody wants to be told.
    pub(super) fn begin(connection: &'a Connection, case: &'a Case) -> Option<Record<'a>> {
        let log = connection.shared.access_log.as_ref()?;
        let start = Instant::now();
        Some(Record { log, connection, case, start, status: None, bytes: 0, complete: false })
    }

    /// Tells of one that was answered whole.
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
        // The fiber may be unwound already.
        let _ = catch_unwind(AssertUnwindSafe(|| contain(|| (self.log)(&entry))));
    }
}
