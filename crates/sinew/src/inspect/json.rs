//! A writer for as much of JSON as inspection needs.

use std::io::{self, Write};

/// A JSON document under construction.
pub(super) struct Json<'a, W: Write> {
    out: &'a mut W,
    /// Whether a value was written at this level, so that a comma is due.
    some: bool,
}

impl<'a, W: Write> Json<'a, W> {
    pub(super) fn new(out: &'a mut W) -> Json<'a, W> {
        Json { out, some: false }
    }

    fn comma(&mut self) -> io::Result<()> {
        if core::mem::replace(&mut self.some, true) { self.out.write_all(b",") } else { Ok(()) }
    }

    fn within(
        &mut self,
        (open, close): (&[u8], &[u8]),
        content: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(open)?;
        self.some = false;
        content(self)?;
        self.some = true;
        self.out.write_all(close)
    }

    /// Writes an object; `content` writes its keys.
    pub(super) fn object(
        &mut self,
        content: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.within((b"{", b"}"), content)
    }

    /// Writes a list; `each` writes one element.
    pub(super) fn list<T>(
        &mut self,
        all: impl Iterator<Item = T>,
        each: impl Fn(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.within((b"[", b"]"), |json| {
            for element in all {
                json.comma()?;
                each(json, element)?;
            }
            Ok(())
        })
    }

    /// Writes a key. The caller writes its value next.
    pub(super) fn key(&mut self, key: &str) -> io::Result<()> {
        self.comma()?;
        self.string(key)?;
        self.out.write_all(b":")
    }

    pub(super) fn text(&mut self, key: &str, value: &str) -> io::Result<()> {
        self.key(key)?;
        self.string(value)
    }

    pub(super) fn text_or_null(&mut self, key: &str, value: Option<&str>) -> io::Result<()> {
        self.key(key)?;
        match value {
            Some(value) => self.string(value),
            None => self.null(),
        }
    }

    /// Writes a time in microseconds, with nanoseconds as decimals.
    pub(super) fn micros(&mut self, key: &str, value: core::time::Duration) -> io::Result<()> {
        self.key(key)?;
        write!(self.out, "{}.{:03}", value.as_micros(), value.subsec_nanos() % 1000)
    }

    pub(super) fn number(&mut self, key: &str, value: u64) -> io::Result<()> {
        self.number_or_null(key, Some(value))
    }

    pub(super) fn number_or_null(&mut self, key: &str, value: Option<u64>) -> io::Result<()> {
        self.key(key)?;
        match value {
            Some(value) => write!(self.out, "{value}"),
            None => self.out.write_all(b"null"),
        }
    }

    pub(super) fn boolean(&mut self, key: &str, value: bool) -> io::Result<()> {
        self.key(key)?;
        write!(self.out, "{value}")
    }

    pub(super) fn null(&mut self) -> io::Result<()> {
        self.out.write_all(b"null")
    }

    fn string(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(b"\"")?;
        for character in text.chars() {
            match character {
                '"' => self.out.write_all(b"\\\"")?,
                '\\' => self.out.write_all(b"\\\\")?,
                '\n' => self.out.write_all(b"\\n")?,
                control if control < ' ' => write!(self.out, "\\u{:04x}", u32::from(control))?,
                other => write!(self.out, "{other}")?,
            }
        }
        self.out.write_all(b"\"")
    }

    /// Ends the document.
    pub(super) fn end(self) -> io::Result<()> {
        self.out.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        let mut out = Vec::new();
        let mut json = Json::new(&mut out);
        json.object(|json| {
            json.text("a\"b", "tab\tline\nback\\ \u{1F600}")?;
            json.key("list")?;
            json.list([1_u64, 2].into_iter(), |json, number| {
                json.object(|json| json.number("n", number))
            })?;
            json.text_or_null("none", None)
        })
        .unwrap();
        json.end().unwrap();
        let expected = "{\"a\\\"b\":\"tab\\u0009line\\nback\\\\ \u{1F600}\",\
                        \"list\":[{\"n\":1},{\"n\":2}],\"none\":null}\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
