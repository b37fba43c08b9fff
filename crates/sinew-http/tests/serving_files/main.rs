//! Serving a directory: files come as requested, and nothing outside of the directory is served.

mod bodies;
mod conditions;
mod directories;
mod escapes;
mod names;
mod ranges;
mod site;
