//! Renders one self-contained page with a plot for each benchmark.

use super::Machine;
use crate::measure::Measured;
use crate::series::Series;
use crate::target::{Outcome, SUBJECT};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;\
color:#1c2128;background:#fff}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2.2rem}\
table{border-collapse:collapse;width:100%}td,th{padding:.2rem .6rem;text-align:right}\
td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}th{border-bottom:1px solid #8886}\
.met{color:#1a7f37}.missed{color:#cf222e}.unclear,.unknown{color:#9a6700}small{color:#6a737d}\
@media(prefers-color-scheme:dark){body{color:#d8dee4;background:#14181d}text{fill:#d8dee4}}";

pub(crate) fn render(machine: &Machine, benchmarks: &[Measured]) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width\"><title>sinew benchmarks</title>\
         <style>{STYLE}</style><h1>sinew benchmarks</h1><p>{}</p>",
        escape(&machine.line())
    );
    for one in benchmarks {
        let _ = write_benchmark(&mut out, one);
    }
    out.push_str("</html>\n");
    out
}

fn write_benchmark(out: &mut String, one: &Measured) -> std::fmt::Result {
    write!(out, "<h2>{}/{}</h2><p>{} ({})</p>", one.suite, one.name, escape(one.what), one.unit)?;
    write_plot(out, one)?;
    write!(
        out,
        "<table><tr><th>contender<th>median<th>least<th>greatest<th>sinew is<th>settings</tr>"
    )?;
    let subject = one.results.iter().find(|series| series.contender == SUBJECT);
    for series in &one.results {
        if series.is_empty() {
            write!(
                out,
                "<tr><td>{}<td colspan=4>missing<td>{}</tr>",
                series.contender,
                escape(series.problem.as_deref().unwrap_or_default())
            )?;
            continue;
        }
        let ratio = subject.map_or(f64::NAN, |subject| subject.median() / series.median());
        write!(
            out,
            "<tr><td>{}<td>{:.2}<td>{:.2}<td>{:.2}<td>{ratio:.2}x<td>{}</tr>",
            series.contender,
            series.median(),
            series.least(),
            series.greatest(),
            escape(&series.remark())
        )?;
    }
    out.push_str("</table>");
    for verdict in &one.verdicts {
        let (class, word) = match verdict.outcome {
            Outcome::Met => ("met", "met"),
            Outcome::Missed => ("missed", "missed"),
            Outcome::Unclear => ("unclear", "unclear"),
            Outcome::Unknown => ("unknown", "unknown"),
        };
        write!(
            out,
            "<p>target {}: <b class={class}>{word}</b>{}</p>",
            escape(&verdict.target),
            verdict.figures()
        )?;
    }
    write!(out, "<small>other processes took {:.0} % of a processor</small>", one.noise * 100.0)
}

/// Writes a line for each contender, from least to greatest, with a dot for each repeat and a bar
/// for the median.
fn write_plot(out: &mut String, one: &Measured) -> std::fmt::Result {
    const ROW: usize = 26;
    const LEFT: f64 = 110.0;
    const WIDTH: f64 = 760.0;
    let shown: Vec<&Series> = one.results.iter().filter(|one| !one.is_empty()).collect();
    // A contender far beyond the others would squeeze them together. It is cut off, and a note says
    // so.
    let mut medians: Vec<f64> = shown.iter().map(|series| series.median()).collect();
    medians.sort_by(f64::total_cmp);
    let middle = medians.get(medians.len() / 2).copied().unwrap_or(1.0);
    let end = shown.iter().map(|series| series.greatest()).fold(0.0, f64::max).min(middle * 6.0);
    let x = |figure: f64| LEFT + (figure / end).min(1.0) * (WIDTH - LEFT - 70.0);
    let height = ROW * shown.len() + 10;
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"100%\" role=img>")?;
    for (row, series) in shown.iter().enumerate() {
        let y = (row * ROW + ROW / 2 + 4) as f64;
        let colour = if series.contender == SUBJECT { "#0969da" } else { "#8b949e" };
        write!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=end font-size=13>{}</text>\
             <rect x=\"{LEFT}\" y=\"{}\" width=\"{:.1}\" height=14 fill=\"{colour}\" opacity=.35 />",
            LEFT - 8.0,
            y + 4.0,
            series.contender,
            y - 7.0,
            x(series.median()) - LEFT
        )?;
        for figure in series.present() {
            write!(out, "<circle cx=\"{:.1}\" cy=\"{y}\" r=2.5 fill=\"{colour}\" />", x(figure))?;
        }
        let note = if series.median() > end { " (cut off)" } else { "" };
        write!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" font-size=12>{:.2}{note}</text>",
            x(series.greatest()) + 8.0,
            y + 4.0,
            series.median()
        )?;
    }
    out.push_str("</svg>");
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
