//! Values pulled out of a function, and pushed into one.

use sinew_context::{Generator, scope};
use std::io::{self, Write};

pub(super) fn show(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "== generators: functions with a stack of their own, as iterators")?;
    let fibonacci = Generator::new(|numbers| {
        let (mut a, mut b) = (0_u64, 1);
        loop {
            numbers.give(a);
            (a, b) = (b, a + b);
        }
    })?;
    let first: Vec<String> = fibonacci.take(10).map(|number| number.to_string()).collect();
    writeln!(out, "fibonacci: {}", first.join(" "))?;

    // The reverse: the closure sees an iterator, and this function pushes words into `columns`. In
    // a scope the closure may borrow the text that it writes to.
    let mut text = String::new();
    scope(|s| {
        let mut columns = s.consumer(|words| {
            for (index, word) in words.enumerate() {
                let end = if index % 5 == 4 { "\n" } else { "" };
                text.push_str(&format!("{word:>10}{end}"));
            }
        })?;
        columns.extend(
            "peas porridge hot peas porridge cold peas porridge in the pot nine days old"
                .split(' '),
        );
        columns.close();
        Ok::<(), io::Error>(())
    })?;
    writeln!(out, "words in columns:\n{text}\n")
}
