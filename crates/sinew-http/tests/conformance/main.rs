//! What a server says to raw bytes, right and wrong ones.
//!
//! Most of it are tables of [`table::Case`]s: each is sent in several cuts to servers of both kinds. What
//! needs a client that waits, or a handler of its own, is a test of its own.

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
