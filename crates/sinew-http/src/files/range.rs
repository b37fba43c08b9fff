//! Parses the requested range of a file.

/// The part of a file that the `range` of a request selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// The whole file: no range, or an ignored one.
    Whole,
    /// From the byte `first` to the byte `last`, inclusive.
    Range { first: u64, last: u64 },
    /// A range beyond the end of the file.
    Unsatisfiable,
}

/// Parses the value of a `range` field (RFC 9110, section 14.2) for a file of `len` bytes.
///
/// HTTP demands that malformed ranges and unknown units are ignored. It allows ignoring others:
/// several ranges, and ranges of an empty file, which `content-range` cannot express.
pub(super) fn parse(value: &[u8], len: u64) -> Part {
    let Some(range) = single(value) else { return Part::Whole };
    let Some((first, last)) = ends(range) else { return Part::Whole };
    if len == 0 {
        return Part::Whole;
    }
    match (first, last) {
        (Some(first), Some(last)) if first > last => Part::Whole,
        (Some(first), _) if first >= len => Part::Unsatisfiable,
        (Some(first), last) => Part::Range { first, last: last.unwrap_or(u64::MAX).min(len - 1) },
        (None, Some(0)) => Part::Unsatisfiable,
        (None, Some(count)) => Part::Range { first: len.saturating_sub(count), last: len - 1 },
        (None, None) => Part::Whole,
    }
}

/// The range, without the unit, if there is exactly one.
fn single(value: &[u8]) -> Option<&[u8]> {
    let at = value.iter().position(|&byte| byte == b'=')?;
    let (unit, ranges) = (&value[..at], &value[at + 1..]);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut ranges = ranges.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    // Lists may have empty elements.
    let mut filled = ranges.by_ref().filter(|range| !range.is_empty());
    let only = filled.next()?;
    filled.next().is_none().then_some(only)
}

/// The numbers before and after the dash.
fn ends(range: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
    let at = range.iter().position(|&byte| byte == b'-')?;
    Some((number(&range[..at])?, number(&range[at + 1..])?))
}

/// Parses a number. Returns `Some(None)` if there are no digits, and `None` if there is anything
/// but digits. Any count of digits is allowed: a number that overflows becomes the largest one,
/// which also lies beyond the end of any file.
fn number(digits: &[u8]) -> Option<Option<u64>> {
    let mut number = None::<u64>;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let value = u64::from(digit - b'0');
        number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(value));
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: &str = "99999999999999999999999999";

    fn of_ten(value: &str) -> Part {
        parse(value.as_bytes(), 10)
    }

    #[test]
    fn ranges_are_clipped_to_the_file() {
        for (value, first, last) in [
            ("bytes=0-0", 0, 0),
            ("bytes=0-9", 0, 9),
            ("bytes=3-5", 3, 5),
            ("bytes=9-9", 9, 9),
            ("bytes=0-10", 0, 9),
            ("bytes=3-", 3, 9),
            ("bytes=-1", 9, 9),
            ("bytes=-10", 0, 9),
            ("bytes=-11", 0, 9),
            ("Bytes=1-2", 1, 2),
            ("bytes= 1-2 ", 1, 2),
            ("bytes=,1-2,", 1, 2),
            ("bytes=007-008", 7, 8),
            (&format!("bytes=2-{HUGE}"), 2, 9),
            (&format!("bytes=-{HUGE}"), 0, 9),
            ("bytes=0-18446744073709551615", 0, 9),
        ] {
            assert_eq!(of_ten(value), Part::Range { first, last }, "{value}");
        }
    }

    #[test]
    fn ranges_beyond_the_end_are_unsatisfiable() {
        let huge = format!("bytes={HUGE}-");
        for value in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=18446744073709551615-", &huge]
        {
            assert_eq!(of_ten(value), Part::Unsatisfiable, "{value}");
        }
    }

    #[test]
    fn malformed_ranges_are_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=,",
            "bytes=5-3",
            "bytes=a-b",
            "bytes=1-2x",
            "bytes=1--2",
            "bytes=--1",
            "bytes=+1-2",
            "bytes=1 - 2",
            "bytes=1",
            "bytes=0x1-2",
            "bytes 1-2",
            "lines=1-2",
            " bytes=1-2",
            "bytes =1-2",
            "bytes=-1.5",
        ] {
            assert_eq!(of_ten(value), Part::Whole, "{value}");
        }
        assert_eq!(parse(b"bytes=\xff-2", 10), Part::Whole);
    }

    #[test]
    fn several_ranges_are_ignored() {
        for value in ["bytes=0-0,2-3", "bytes=0-0, -1", "bytes=20-,0-0"] {
            assert_eq!(of_ten(value), Part::Whole, "{value}");
        }
    }

    #[test]
    fn an_empty_file_has_no_ranges() {
        for value in ["bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0", "bytes=5-"] {
            assert_eq!(parse(value.as_bytes(), 0), Part::Whole, "{value}");
        }
    }

    #[test]
    fn every_range_is_within_the_file() {
        let numbers = ["", "0", "1", "2", "3", "4", "18446744073709551615", HUGE];
        for len in 0..4 {
            for first in numbers {
                for last in numbers {
                    let value = format!("bytes={first}-{last}");
                    if let Part::Range { first, last } = parse(value.as_bytes(), len) {
                        assert!(first <= last && last < len, "{value} of {len}");
                    }
                }
            }
        }
    }
}
