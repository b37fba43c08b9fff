//! The parts of a path that the parameters of a route have matched.
//!
//! Most values are parts of the path as the client sent it, so a request keeps only their places,
//! and allocates nothing. Values that were percent-encoded are kept decoded.
//!
//! `router` finds the values. Next: `request`, which shows them to handlers.

use core::ops::Range;
use std::sync::Arc;

/// The names of a route's parameters, in the order of the path. All requests of a route share them.
pub(crate) type Names = Arc<[Box<str>]>;

/// At most so many values are kept as places.
pub(crate) const MOST_PLACES: usize = 4;

/// The values of a route's parameters.
#[derive(Default)]
pub(crate) enum Params {
    #[default]
    None,
    /// The values are parts of the path.
    Places(Names, [Range<u32>; MOST_PLACES]),
    Decoded(Names, Box<[Box<str>]>),
}

impl Params {
    /// Returns the value of the parameter `name`. `path` is the path of the request.
    pub(crate) fn get<'a>(&'a self, name: &str, path: &'a str) -> Option<&'a str> {
        let position = |names: &Names| names.iter().position(|known| **known == *name);
        match self {
            Params::None => None,
            Params::Places(names, places) => {
                let Range { start, end } = places.get(position(names)?)?;
                path.get(*start as usize..*end as usize)
            }
            Params::Decoded(names, values) => values.get(position(names)?).map(|value| &**value),
        }
    }
}
