//! Writes the text format of Prometheus, version 0.0.4.
//!
//! Guarantee: all samples of a metric follow its `HELP` and `TYPE` lines, and label values are
//! escaped.

use core::fmt::{Display, Write};
use sinew::inspect::Histogram;
use std::borrow::Cow;

/// A growing text of metrics.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
}

/// Adds the samples of one metric.
pub(super) struct Metric<'a> {
    text: &'a mut String,
    name: &'static str,
}

/// Names and values of labels.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Exposition {
    pub(super) fn gauge(&mut self, name: &'static str, help: &str) -> Metric<'_> {
        debug_assert!(!name.ends_with("_total"), "{name}");
        self.begin(name, "gauge", help)
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &str) -> Metric<'_> {
        debug_assert!(name.ends_with("_total"), "{name}");
        self.begin(name, "counter", help)
    }

    pub(super) fn histogram(&mut self, name: &'static str, help: &str) -> Metric<'_> {
        self.begin(name, "histogram", help)
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) -> Metric<'_> {
        let text = &mut self.text;
        add(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Metric { text, name }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

impl Metric<'_> {
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line("", labels, value);
    }

    /// Adds the samples of a histogram, in seconds.
    pub(super) fn durations(&mut self, labels: Labels<'_>, times: &Histogram) {
        let mut counts = times.buckets().peekable();
        let (mut total, mut bound) = (0, LEAST_BOUND);
        while bound <= LAST_BOUND {
            while let Some((_, count)) = counts.next_if(|(most, _)| most.as_nanos() <= bound.into())
            {
                total += count;
            }
            let le = (bound as f64 / 1e9).to_string();
            self.line("_bucket", &[labels, &[("le", &le)]].concat(), total);
            bound *= 2;
        }
        self.line("_bucket", &[labels, &[("le", "+Inf")]].concat(), times.count());
        self.line("_sum", labels, times.sum().as_secs_f64());
        self.line("_count", labels, times.count());
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: impl Display) {
        add(self.text, format_args!("{}{suffix}", self.name));
        for (index, (name, value)) in labels.iter().enumerate() {
            let separator = if index == 0 { '{' } else { ',' };
            add(self.text, format_args!("{separator}{name}=\"{}\"", escape(value)));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        add(self.text, format_args!("{end} {value}\n"));
    }
}

/// The bounds of buckets: powers of two in nanoseconds, from a microsecond to 17 seconds. Each
/// bucket of [`Histogram`] lies between two neighbouring powers of two, so none crosses a bound.
const LEAST_BOUND: u64 = 1 << 10;
const LAST_BOUND: u64 = 1 << 34;

fn add(text: &mut String, arguments: core::fmt::Arguments<'_>) {
    let added = text.write_fmt(arguments);
    debug_assert!(added.is_ok(), "writing to a string does not fail");
}

/// Escapes a label value.
fn escape(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return value.into();
    }
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let mut text = Exposition::default();
        text.gauge("sinew_fibers", "How many.").sample(&[("runtime", "a\\b\"c\nd")], 7);
        assert_eq!(
            text.into_text(),
            "# HELP sinew_fibers How many.\n# TYPE sinew_fibers gauge\n\
             sinew_fibers{runtime=\"a\\\\b\\\"c\\nd\"} 7\n"
        );
    }

    #[test]
    fn a_sample_without_labels_has_no_braces() {
        let mut text = Exposition::default();
        text.counter("sinew_x_total", "X.").sample(&[], 1.5);
        assert!(text.into_text().ends_with("\nsinew_x_total 1.5\n"));
    }
}
