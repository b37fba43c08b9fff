//! A directory is served: what is in it, as it is asked for, and nothing else.

mod bodies;
mod conditions;
mod directories;
mod escapes;
mod names;
mod ranges;
mod site;
