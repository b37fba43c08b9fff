//! Interprets the header fields that govern the message: framing, connection, host, expectation.

use super::{Refusal, authority};
use http::StatusCode;

/// How long the body of a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
}

/// The facts gathered from the fields of one head.
#[derive(Default, Debug)]
pub(crate) struct Gathered {
    length: Option<u64>,
    coding: Coding,
    hosts: u32,
    pub(crate) closes: bool,
    pub(crate) keeps_alive: bool,
    pub(crate) wants_upgrade: bool,
    pub(crate) names_upgrade: bool,
    pub(crate) expects_continue: bool,
}

/// The transfer codings seen so far.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
enum Coding {
    #[default]
    None,
    Chunked,
}

impl Gathered {
    /// Interprets the next field.
    pub(crate) fn take(&mut self, name: &str, value: &[u8]) -> Result<(), Refusal> {
        // The length rules out most other fields before a comparison.
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => self.host(value),
            6 if name.eq_ignore_ascii_case("expect") => self.expect(value),
            7 if name.eq_ignore_ascii_case("upgrade") => {
                self.names_upgrade = true;
                Ok(())
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                self.connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case("content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case("transfer-encoding") => self.transfer_encoding(value),
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.hosts += 1;
        if self.hosts > 1 {
            return Err(Refusal::bad("the request has more than one Host"));
        }
        if authority::parse(value).is_none() {
            return Err(Refusal::bad("the Host is malformed"));
        }
        Ok(())
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let mut expectations = tokens(value).peekable();
        let any = expectations.peek().is_some();
        // The field is a list, and a proxy may have joined two fields of the client.
        if !(any && expectations.all(|one| one.eq_ignore_ascii_case(b"100-continue"))) {
            let status = StatusCode::EXPECTATION_FAILED;
            return Err(Refusal::new(status, "this server meets no expectation but 100-continue"));
        }
        self.expects_continue = true;
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        // Most values are this one word.
        if value.eq_ignore_ascii_case(b"keep-alive") {
            self.keeps_alive = true;
            return;
        }
        for token in tokens(value) {
            self.closes |= token.eq_ignore_ascii_case(b"close");
            self.keeps_alive |= token.eq_ignore_ascii_case(b"keep-alive");
            self.wants_upgrade |= token.eq_ignore_ascii_case(b"upgrade");
        }
    }

    /// Accepts one number, once. HTTP would allow a list of equal numbers, but no honest client
    /// sends one.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.length.is_some() {
            return Err(Refusal::bad("the request has more than one Content-Length"));
        }
        self.length =
            Some(decimal(value).ok_or(Refusal::bad("the Content-Length is not a number"))?);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let mut any = false;
        for token in tokens(value) {
            any = true;
            if self.coding == Coding::Chunked {
                return Err(Refusal::bad("chunked is not the last transfer coding"));
            }
            if !token.eq_ignore_ascii_case(b"chunked") {
                let status = StatusCode::NOT_IMPLEMENTED;
                return Err(Refusal::new(
                    status,
                    "this server knows no transfer coding but chunked",
                ));
            }
            self.coding = Coding::Chunked;
        }
        if any { Ok(()) } else { Err(Refusal::bad("the Transfer-Encoding is empty")) }
    }

    /// The length of the body, once all fields are known. `old` says that the request is HTTP/1.0.
    pub(crate) fn framing(&self, old: bool) -> Result<Framing, Refusal> {
        match (self.coding, self.length) {
            (Coding::None, length) => Ok(Framing::Length(length.unwrap_or(0))),
            (Coding::Chunked, Some(_)) => {
                Err(Refusal::bad("the request has a Content-Length and a Transfer-Encoding"))
            }
            (Coding::Chunked, None) if old => {
                Err(Refusal::bad("a request of HTTP/1.0 has a Transfer-Encoding"))
            }
            (Coding::Chunked, None) => Ok(Framing::Chunked),
        }
    }

    pub(crate) fn has_host(&self) -> bool {
        self.hosts > 0
    }
}

/// The members of a list, without surrounding space. Empty members are skipped.
pub(crate) fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

/// Parses a number that consists of digits and nothing else.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_and_fit() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"007"), Some(7));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for text in ["", " 1", "1 ", "+1", "-1", "0x1", "1,1", "18446744073709551616", "\u{661}"] {
            assert_eq!(decimal(text.as_bytes()), None, "{text:?}");
        }
    }
}
