//! Parses the query of a request for fibers: which ones, and in which order.

use super::words;
use crate::message::request::Request;
use core::cmp::Ordering;
use sinew::FiberState;
use sinew::inspect::FiberInfo;

/// How many fibers are sent by default, and at most.
const USUAL: usize = 500;
const MOST: usize = 10_000;

/// The parsed query of a request.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) limit: usize,
    pub(super) offset: usize,
    state: Option<FiberState>,
    words: Vec<Word>,
    sort: Sort,
    descends: bool,
}

/// A condition that a fiber must meet to be listed.
#[derive(Debug)]
enum Word {
    /// A word, in lower case, that is the id, or occurs in the name or another text of the fiber.
    Anywhere(String),
    /// The kind of the fiber's wait.
    Kind(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sort {
    Id,
    Name,
    FiberState,
    Wait,
    Since,
    Carrier,
    Age,
    Waits,
    Stack,
}

const SORTS: [(&str, Sort); 9] = [
    ("id", Sort::Id),
    ("name", Sort::Name),
    ("state", Sort::FiberState),
    ("wait", Sort::Wait),
    ("since", Sort::Since),
    ("carrier", Sort::Carrier),
    ("age", Sort::Age),
    ("waits", Sort::Waits),
    ("stack", Sort::Stack),
];

impl Query {
    /// Parses the query of a request. The error text gives the reason.
    pub(super) fn of(request: &Request) -> Result<Query, String> {
        Query::parse(request.query_pairs())
    }

    fn parse(pairs: impl Iterator<Item = (String, String)>) -> Result<Query, String> {
        let mut query = Query {
            limit: USUAL,
            offset: 0,
            state: None,
            words: Vec::new(),
            sort: Sort::Id,
            descends: false,
        };
        let number = |name: &str, value: &str| {
            value.parse::<usize>().map_err(|_| format!("{name} has to be a number, not {value:?}"))
        };
        for (name, value) in pairs {
            match &*name {
                "limit" => query.limit = number("limit", &value)?.min(MOST),
                "offset" => query.offset = number("offset", &value)?,
                "filter" => query.words = value.split_whitespace().map(Word::new).collect(),
                "state" if value.is_empty() => query.state = None,
                "state" => {
                    let known =
                        words::STATES.into_iter().find(|state| words::state(*state) == value);
                    query.state = Some(known.ok_or(format!("{value:?} is not a state"))?);
                }
                "sort" => {
                    let column = value.strip_prefix('-');
                    query.descends = column.is_some();
                    let column = column.unwrap_or(&value);
                    let known = SORTS.iter().find(|(name, _)| *name == column);
                    query.sort = known.ok_or(format!("cannot sort fibers by {column:?}"))?.1;
                }
                // Ignore unknown parameters: a client may be newer than this server.
                _ => {}
            }
        }
        Ok(query)
    }

    /// Whether a fiber matches the query.
    pub(super) fn wants(&self, info: &FiberInfo) -> bool {
        self.state.is_none_or(|state| state == info.state)
            && self.words.iter().all(|word| word.is_of(info))
    }

    /// Sorts fibers, which come in the order of their ids.
    pub(super) fn sort(&self, fibers: &mut [FiberInfo]) {
        if self.sort == Sort::Stack {
            // Each look at a stack asks the kernel, so cache the keys.
            fibers.sort_by_cached_key(|info| info.stack().map(|stack| stack.used));
            if self.descends {
                fibers.reverse();
            }
        } else if self.descends {
            fibers.sort_by(|a, b| self.sort.compare(b, a));
        } else {
            fibers.sort_by(|a, b| self.sort.compare(a, b));
        }
    }
}

impl Sort {
    fn compare(self, a: &FiberInfo, b: &FiberInfo) -> Ordering {
        let name = |info: &FiberInfo| (info.name().is_none(), info.name().map(str::to_lowercase));
        let kind = |info: &FiberInfo| info.wait.map(|wait| words::kind(wait.kind));
        let since = |info: &FiberInfo| info.wait.map(|wait| wait.since);
        match self {
            Sort::Id | Sort::Stack => a.id().cmp(&b.id()),
            Sort::Name => name(a).cmp(&name(b)),
            Sort::FiberState => words::state(a.state).cmp(words::state(b.state)),
            Sort::Wait => kind(a).cmp(&kind(b)).then(since(a).cmp(&since(b))),
            Sort::Since => since(a).cmp(&since(b)),
            Sort::Carrier => (&a.runtime, a.carrier).cmp(&(&b.runtime, b.carrier)),
            Sort::Age => a.age.cmp(&b.age),
            Sort::Waits => a.waits.cmp(&b.waits),
        }
    }
}

impl Word {
    fn new(word: &str) -> Word {
        let word = word.to_lowercase();
        match word.strip_prefix("wait:") {
            Some(kind) => Word::Kind(kind.into()),
            None => Word::Anywhere(word),
        }
    }

    fn is_of(&self, info: &FiberInfo) -> bool {
        let kind = info.wait.map(|wait| words::kind(wait.kind));
        match self {
            Word::Kind(wanted) => kind == Some(wanted),
            Word::Anywhere(word) => {
                let has = |text: &str| text.to_lowercase().contains(word);
                info.name().is_some_and(has)
                    || *word == info.id().to_string()
                    || has(words::state(info.state))
                    || kind.is_some_and(has)
                    || info.runtime.as_deref().is_some_and(has)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Query, String> {
        let owned = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Query::parse(owned.collect::<Vec<_>>().into_iter())
    }

    #[test]
    fn unset_parameters_have_defaults() {
        let query = parse(&[]).unwrap();
        assert_eq!((query.limit, query.offset, query.state), (USUAL, 0, None));
        assert_eq!((query.sort, query.descends), (Sort::Id, false));
    }

    #[test]
    fn limits_above_the_maximum_are_reduced() {
        assert_eq!(parse(&[("limit", "99999999")]).unwrap().limit, MOST);
    }

    #[test]
    fn bad_values_are_named_in_the_error() {
        assert!(parse(&[("limit", "-1")]).unwrap_err().contains("-1"));
        assert!(parse(&[("state", "tired")]).unwrap_err().contains("tired"));
        assert!(parse(&[("sort", "-colour")]).unwrap_err().contains("colour"));
    }
}
