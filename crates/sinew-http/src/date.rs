//! Writes the `date` of responses.

use core::cell::RefCell;
use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

/// The status line of most responses. It is written together with the date.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\n";

thread_local! {
    /// A second since 1970, and [`OK`] followed by the `date` of that second. Thousands of
    /// responses share one rendered date.
    static WRITTEN: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
}

/// Writes the field `date` for this second since 1970.
pub(crate) fn write_field(second: u64, out: &mut Vec<u8>) {
    written(second, |text| out.extend_from_slice(&text[OK.len()..]));
}

/// Writes [`OK`], followed by the field `date`.
pub(crate) fn write_ok_and_field(second: u64, out: &mut Vec<u8>) {
    written(second, |text| out.extend_from_slice(text));
}

fn written(second: u64, write: impl FnOnce(&[u8])) {
    WRITTEN.with_borrow_mut(|(written, text)| {
        if *written != second {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            *text = format!("{OK}date: {date}\r\n");
            *written = second;
        }
        write(text.as_bytes());
    });
}

/// The current time, in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    #[test]
    fn seconds_are_written_as_they_come() {
        for (second, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778, "Sun, 06 Nov 1994 08:49:38 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        ] {
            let mut out = Vec::new();
            super::write_field(second, &mut out);
            super::write_ok_and_field(second, &mut out);
            let field = format!("date: {text}\r\n");
            assert_eq!(str::from_utf8(&out).unwrap(), format!("{field}HTTP/1.1 200 OK\r\n{field}"));
        }
    }
}
