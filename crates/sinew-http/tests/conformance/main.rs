//! The answers of a server to raw bytes, well-formed and malformed.
//!
//! Most tests are tables of [`table::Case`]s. Each case is sent in several cuts to servers of both
//! kinds. A case that needs a waiting client, or a handler of its own, is a test of its own.

mod chunks;
mod client;
mod connections;
mod cuts;
mod expectations;
mod fields;
mod first_line;
mod lengths;
mod limits;
mod responses;
mod site;
mod smuggling;
mod table;
mod timeouts;
mod upgrades;
