//! Settings that an operator makes through environment variables, without a new build.
//!
//! A setting of the program wins: a variable is read only where the program left the setting open.
//! An empty variable counts as unset. An invalid value is an error, which names the variable, the
//! value, and the allowed values.
//!
//! The table for users is in `docs/guide.md`. Next: `runtime::build`, which reads the variables
//! here.

use super::PinnedWait;
use super::builder::MOST_CARRIERS;
use crate::reactor::Backend;
use core::time::Duration;
use std::ffi::OsString;
use std::io;

/// Returns the number of carriers that `SINEW_CARRIERS` asks for.
pub(super) fn carriers() -> io::Result<Option<usize>> {
    let Some(value) = Variable::read("SINEW_CARRIERS") else {
        return Ok(None);
    };
    match value.text().and_then(|text| text.parse().ok()) {
        Some(count) if (1..=MOST_CARRIERS).contains(&count) => Ok(Some(count)),
        _ => Err(value.refuse("", &format!("a number from 1 to {MOST_CARRIERS}"))),
    }
}

/// Returns the time in `SINEW_STALLS`, after which a fiber that keeps its carrier is reported.
pub(super) fn stalls() -> io::Result<Option<Duration>> {
    let Some(value) = Variable::read("SINEW_STALLS") else {
        return Ok(None);
    };
    match value.text().and_then(duration) {
        Some(threshold) if !threshold.is_zero() => Ok(Some(threshold)),
        _ => {
            Err(value.refuse("", "a whole number above 0 with a unit (us, ms or s), such as 100ms"))
        }
    }
}

/// Returns the policy for pinned waits: the program's own, else the one that `SINEW_PINNED` names,
/// else a warning.
pub(crate) fn pinned_wait(own: Option<PinnedWait>) -> io::Result<PinnedWait> {
    if let Some(policy) = own {
        return Ok(policy);
    }
    let Some(value) = Variable::read("SINEW_PINNED") else {
        return Ok(PinnedWait::default());
    };
    match value.text() {
        Some("warn") => Ok(PinnedWait::Warn),
        Some("error") => Ok(PinnedWait::Error),
        Some("silent") => Ok(PinnedWait::Silent),
        _ => Err(value.refuse("", "one of warn, error, silent")),
    }
}

/// Returns the backend that `SINEW_IO` names, or the best backend of this system.
pub(crate) fn backend() -> io::Result<Backend> {
    let Some(value) = Variable::read("SINEW_IO") else {
        return Ok(Backend::best());
    };
    let refuse = |reason: &str| {
        let supported = |(_, backend): &&(_, Backend)| backend.is_supported();
        let names = Backend::NAMES.iter().filter(supported).map(|(name, _)| *name);
        let names = names.collect::<Vec<_>>().join(", ");
        value.refuse(reason, &format!("one of {names}"))
    };
    match Backend::NAMES.iter().find(|(known, _)| value.text() == Some(*known)) {
        Some((_, backend)) if backend.is_supported() => Ok(*backend),
        Some(_) => Err(refuse(", which this system does not have")),
        None => Err(refuse(", which is no way to wait for descriptors")),
    }
}

/// An environment variable that is set and not empty.
struct Variable {
    name: &'static str,
    value: OsString,
}

impl Variable {
    fn read(name: &'static str) -> Option<Variable> {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        Some(Variable { name, value })
    }

    /// Returns the value, or `None` if it is not UTF-8. Every allowed value is UTF-8.
    fn text(&self) -> Option<&str> {
        self.value.to_str()
    }

    fn refuse(&self, reason: &str, allowed: &str) -> io::Error {
        let message = format!("{} is {:?}{reason}; use {allowed}", self.name, self.value);
        io::Error::new(io::ErrorKind::InvalidInput, message)
    }
}

/// Parses a whole number with a unit, such as `100ms`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number = number.parse().ok()?;
    match unit {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("100ms"), Some(Duration::from_millis(100)));
        assert_eq!(duration("7us"), Some(Duration::from_micros(7)));
        assert_eq!(duration("2s"), Some(Duration::from_secs(2)));
        for bad in
            ["", "100", "ms", "-1s", "+1s", "1.5s", "1 s", "1h", "1ms2", "99999999999999999999s"]
        {
            assert_eq!(duration(bad), None, "{bad:?}");
        }
    }
}
