//! A line of text that fits the screen.
//!
//! Guarantee: the line has no control characters, although a fiber's name may have, and takes no
//! more columns than its width.

use core::fmt;
use unicode_width::UnicodeWidthChar;

/// How a piece of a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    Plain,
    Bold,
    Soft,
    Accent,
    Good,
    Warning,
    Bad,
}

/// Pieces of text next to each other.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pieces: Vec<(Style, String)>,
    /// The columns that are left.
    room: usize,
    /// Whether the user has chosen this line.
    pub(super) chosen: bool,
}

impl Line {
    pub(super) fn new(width: usize) -> Line {
        Line { pieces: Vec::new(), room: width, chosen: false }
    }

    /// Appends a text, as much of it as fits.
    pub(super) fn with(mut self, style: Style, text: impl AsRef<str>) -> Line {
        let (text, width) = cut(text.as_ref(), self.room);
        self.room -= width;
        self.pieces.push((style, text));
        self
    }

    /// Appends a text in a column of this width, and a space.
    pub(super) fn column(self, style: Style, text: &str, width: usize) -> Line {
        let (text, taken) = cut(text, width);
        self.with(style, text).with(Style::Plain, " ".repeat(width - taken + 1))
    }

    /// Appends a right-aligned text in a column of this width, and a space.
    pub(super) fn number(self, style: Style, text: &str, width: usize) -> Line {
        let (text, taken) = cut(text, width);
        self.with(Style::Plain, " ".repeat(width - taken)).with(style, text + " ")
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = (Style, &str)> {
        self.pieces.iter().map(|(style, text)| (*style, &**text))
    }
}

/// The part of a text that fits, and its width. An ellipsis marks a cut.
fn cut(text: &str, room: usize) -> (String, usize) {
    let shown = |char: char| if char.is_control() { '\u{fffd}' } else { char };
    let width = |char: char| char.width().unwrap_or(0);
    let total: usize = text.chars().map(shown).map(width).sum();
    let room_for_text = if total <= room { room } else { room.saturating_sub(1) };
    let (mut cut, mut taken) = (String::new(), 0);
    for char in text.chars().map(shown) {
        if taken + width(char) > room_for_text {
            break;
        }
        taken += width(char);
        cut.push(char);
    }
    if total > room && room > 0 {
        cut.push('…');
        taken += 1;
    }
    (cut, taken)
}

/// Displays the text without its style.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = self.pieces().map(|(_, text)| text).collect();
        f.write_str(text.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_by_columns() {
        assert_eq!(cut("fiber", 5), ("fiber".into(), 5));
        assert_eq!(cut("fibers", 5), ("fibe…".into(), 5));
        assert_eq!(cut("纤维纤维", 5), ("纤维…".into(), 5));
        assert_eq!(cut("纤维纤维", 4), ("纤…".into(), 3));
        assert_eq!(cut("x", 0), (String::new(), 0));
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        let line = Line::new(20).column(Style::Plain, "a\u{1b}[2Jb\nc", 10);
        assert_eq!(line.to_string(), "a\u{fffd}[2Jb\u{fffd}c");
    }
}
