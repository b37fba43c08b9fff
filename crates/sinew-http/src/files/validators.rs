//! Evaluates the conditions of a request (RFC 9110, section 13): does the client have the present
//! state of a file, or another one?

use http::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};
use http::{HeaderMap, HeaderValue};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The values that tell one state of a file from another.
#[derive(Debug)]
pub(super) struct Validators {
    /// In quotes. Made of the time of the last change and the length.
    tag: String,
    /// Whether no two states of the file can have this tag. Two changes within one tick of the file
    /// system's clock leave equal times.
    is_strong: bool,
    /// The time of the last change in seconds since 1970; `None` if it was earlier.
    modified: Option<u64>,
    /// The time in seconds at which the metadata was read.
    seen: u64,
}

fn date(second: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second))
}

/// The result of the conditions of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Wanted,
    NotModified,
    Failed,
}

/// The tick of the slowest clock of a file system, in seconds. FAT has this clock.
const TICK: u64 = 2;

impl Validators {
    /// Makes the validators of a file from its metadata, read just now.
    pub(super) fn of(about: &Metadata, now: SystemTime) -> Validators {
        Validators::made_of((about.mtime(), about.mtime_nsec()), about.len(), now)
    }

    fn made_of((seconds, nanos): (i64, i64), len: u64, now: SystemTime) -> Validators {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let modified = u64::try_from(seconds).ok();
        Validators {
            tag: format!("\"{seconds:x}.{nanos:x}-{len:x}\""),
            is_strong: modified.is_none_or(|modified| modified.saturating_add(TICK) < now),
            // `last-modified` must not be later than the response.
            modified: modified.map(|modified| modified.min(now)),
            seen: now,
        }
    }

    /// The value of the field `etag`.
    pub(super) fn etag(&self) -> String {
        if self.is_strong { self.tag.clone() } else { format!("W/{}", self.tag) }
    }

    /// The value of the field `last-modified`.
    pub(super) fn last_modified(&self) -> Option<String> {
        self.modified.map(date)
    }

    /// The value of the field `date` for a file that was changed just now. The server's clock may
    /// be behind, and `date` must not be earlier than `last-modified`.
    pub(super) fn date(&self) -> Option<String> {
        (!self.is_strong).then(|| date(self.seen))
    }

    /// Evaluates the conditions in the order of RFC 9110, section 13.2.2, for a method that only
    /// reads.
    pub(super) fn judge(&self, headers: &HeaderMap) -> Verdict {
        if headers.contains_key(IF_MATCH) {
            if !self.is_among(headers, IF_MATCH, Comparison::Strong) {
                return Verdict::Failed;
            }
        } else if self.is_later_than(headers, IF_UNMODIFIED_SINCE) == Some(true) {
            return Verdict::Failed;
        }
        let is_known = if headers.contains_key(IF_NONE_MATCH) {
            self.is_among(headers, IF_NONE_MATCH, Comparison::Weak)
        } else {
            self.is_later_than(headers, IF_MODIFIED_SINCE) == Some(false)
        };
        if is_known { Verdict::NotModified } else { Verdict::Wanted }
    }

    /// Whether a range may be sent. A client that has a part of another state must get the whole
    /// file.
    pub(super) fn allow_range(&self, headers: &HeaderMap) -> bool {
        if !headers.contains_key(IF_RANGE) {
            return true;
        }
        let Some(value) = only(headers, IF_RANGE) else { return false };
        let value = value.as_bytes();
        // The comparison is strong, so weak tags never match. A date has to match as text.
        self.is_strong
            && (value == self.tag.as_bytes()
                || self.last_modified().is_some_and(|date| value == date.as_bytes()))
    }

    /// Whether a list of tags contains this tag, or a star, which matches any.
    fn is_among(&self, headers: &HeaderMap, name: HeaderName, comparison: Comparison) -> bool {
        headers.get_all(name).iter().any(|value| {
            let value = value.as_bytes().trim_ascii();
            value == b"*" || Tags(value).any(|tag| self.equals(tag, comparison))
        })
    }

    fn equals(&self, tag: Tag<'_>, comparison: Comparison) -> bool {
        let is_allowed = comparison == Comparison::Weak || (self.is_strong && !tag.is_weak);
        is_allowed && tag.quoted == self.tag.as_bytes()
    }

    /// Whether the last change was after the date in a field; `None` if the field or the time of
    /// the change is missing. A field that occurs more than once is ignored (sections 13.1.3 and
    /// 13.1.4).
    fn is_later_than(&self, headers: &HeaderMap, name: HeaderName) -> Option<bool> {
        let date = httpdate::parse_http_date(only(headers, name)?.to_str().ok()?).ok()?;
        let second = date.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Some(self.modified? > second)
    }
}

/// The value of a field that occurs exactly once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

/// Which comparison applies to tags (RFC 9110, section 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Comparison {
    Strong,
    Weak,
}

/// One tag of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tag<'a> {
    is_weak: bool,
    quoted: &'a [u8],
}

/// Iterates over the tags of a list, up to the first malformed one. Tags may contain commas.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = Tag<'a>;

    fn next(&mut self) -> Option<Tag<'a>> {
        let is_between = |byte: &&u8| matches!(byte, b' ' | b'\t' | b',');
        let skipped = self.0.iter().take_while(is_between).count();
        let rest = &self.0[skipped..];
        let (is_weak, rest) = match rest.strip_prefix(b"W/") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let inside = rest.strip_prefix(b"\"")?;
        let len = 2 + memchr::memchr(b'"', inside)?;
        self.0 = &rest[len..];
        Some(Tag { is_weak, quoted: &rest[..len] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 784_111_777;
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn at(second: i64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second as u64)
    }

    /// The validators of a file that was changed long ago.
    fn settled() -> Validators {
        Validators::made_of((SECOND, 5), 10, at(SECOND + 1000))
    }

    fn headers(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn judged(fields: &[(HeaderName, &str)]) -> Verdict {
        settled().judge(&headers(fields))
    }

    #[test]
    fn each_state_has_its_tag() {
        let now = at(SECOND + 1000);
        let tag = |time, len| Validators::made_of(time, len, now).etag();
        let one = tag((SECOND, 5), 10);
        assert!(one.starts_with('"') && one.ends_with('"'), "{one}");
        assert_ne!(one, tag((SECOND, 6), 10));
        assert_ne!(one, tag((SECOND + 1, 5), 10));
        assert_ne!(one, tag((SECOND, 5), 11));
    }

    #[test]
    fn a_tag_is_weak_while_a_change_might_not_change_it() {
        let fresh = Validators::made_of((SECOND, 5), 10, at(SECOND + 1));
        assert_eq!(fresh.etag(), format!("W/{}", settled().etag()));
        let of_the_future = Validators::made_of((SECOND, 5), 10, at(SECOND - 100));
        assert!(of_the_future.etag().starts_with("W/"));
    }

    #[test]
    fn dates_that_cannot_be_told_are_left_out() {
        let old = Validators::made_of((-1, 5), 10, at(SECOND));
        assert_eq!(old.last_modified(), None);
        let of_the_future = Validators::made_of((i64::MAX, 5), 10, at(SECOND));
        assert_eq!(of_the_future.last_modified().as_deref(), Some(DATE));
        // `date` is not before `last-modified`, even if the server's clock is behind.
        assert_eq!(of_the_future.date().as_deref(), Some(DATE));
        assert_eq!(settled().date(), None);
    }

    #[test]
    fn a_known_tag_is_not_modified() {
        let tag = settled().etag();
        for value in [
            tag.clone(),
            format!("W/{tag}"),
            format!("\"other\", {tag}"),
            format!("\"with, comma\",W/{tag} , \"more\""),
            "*".into(),
        ] {
            let fields = [(IF_NONE_MATCH, &*value)];
            assert_eq!(judged(&fields), Verdict::NotModified, "{value}");
        }
        for value in ["\"other\"", "", "garbage", "\"open", &tag[1..tag.len() - 1], "w/\"x\""] {
            assert_eq!(judged(&[(IF_NONE_MATCH, value)]), Verdict::Wanted, "{value}");
        }
        let in_a_second_field = [(IF_NONE_MATCH, "\"other\""), (IF_NONE_MATCH, &*tag)];
        assert_eq!(judged(&in_a_second_field), Verdict::NotModified);
    }

    #[test]
    fn another_tag_overrules_the_date() {
        let fields = [(IF_NONE_MATCH, "\"other\""), (IF_MODIFIED_SINCE, AFTER)];
        assert_eq!(judged(&fields), Verdict::Wanted);
    }

    #[test]
    fn dates_are_compared_by_the_second() {
        assert_eq!(judged(&[(IF_MODIFIED_SINCE, BEFORE)]), Verdict::Wanted);
        assert_eq!(judged(&[(IF_MODIFIED_SINCE, DATE)]), Verdict::NotModified);
        assert_eq!(judged(&[(IF_MODIFIED_SINCE, AFTER)]), Verdict::NotModified);
        assert_eq!(judged(&[(IF_MODIFIED_SINCE, "yesterday")]), Verdict::Wanted);
        assert_eq!(judged(&[(IF_UNMODIFIED_SINCE, BEFORE)]), Verdict::Failed);
        assert_eq!(judged(&[(IF_UNMODIFIED_SINCE, DATE)]), Verdict::Wanted);
        assert_eq!(judged(&[(IF_UNMODIFIED_SINCE, "yesterday")]), Verdict::Wanted);
    }

    #[test]
    fn a_match_has_to_be_strong() {
        let tag = settled().etag();
        assert_eq!(judged(&[(IF_MATCH, &tag)]), Verdict::Wanted);
        assert_eq!(judged(&[(IF_MATCH, "*")]), Verdict::Wanted);
        assert_eq!(judged(&[(IF_MATCH, &format!("W/{tag}"))]), Verdict::Failed);
        assert_eq!(judged(&[(IF_MATCH, "\"other\"")]), Verdict::Failed);
        let overrules_the_date = [(IF_MATCH, &*tag), (IF_UNMODIFIED_SINCE, BEFORE)];
        assert_eq!(judged(&overrules_the_date), Verdict::Wanted);
        let fails_before_it_is_known = [(IF_MATCH, "\"other\""), (IF_NONE_MATCH, &*tag)];
        assert_eq!(judged(&fails_before_it_is_known), Verdict::Failed);
    }

    #[test]
    fn a_range_needs_a_validator_of_the_present_state() {
        let tag = settled().etag();
        let allows = |validators: &Validators, value: &str| {
            validators.allow_range(&headers(&[(IF_RANGE, value)]))
        };
        assert!(settled().allow_range(&HeaderMap::new()));
        assert!(allows(&settled(), &tag));
        assert!(allows(&settled(), DATE));
        for value in [&format!("W/{tag}"), "\"other\"", BEFORE, AFTER, "", "*"] {
            assert!(!allows(&settled(), value), "{value}");
        }
        let fresh = Validators::made_of((SECOND, 5), 10, at(SECOND + 1));
        assert!(!allows(&fresh, &fresh.etag()));
        assert!(!allows(&fresh, &tag));
        assert!(!allows(&fresh, DATE));
    }
}
