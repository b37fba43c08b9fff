//! Renders the results as a table for a terminal.

use super::Machine;
use crate::measure::Measured;
use crate::target::SUBJECT;
use std::fmt::Write;

pub(crate) fn render(machine: &Machine, benchmarks: &[Measured]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", machine.line());
    for one in benchmarks {
        let _ = write_benchmark(&mut out, one);
    }
    out
}

fn write_benchmark(out: &mut String, one: &Measured) -> std::fmt::Result {
    writeln!(out, "\n{}/{}: {}", one.suite, one.name, one.what)?;
    writeln!(out, "  {:<13}     median      least   greatest sinew is  settings", one.unit)?;
    let subject = one.results.iter().find(|series| series.contender == SUBJECT);
    for series in &one.results {
        if series.is_empty() {
            let reason = series.problem.as_deref().unwrap_or_default();
            writeln!(out, "  {:<13} missing: {reason}", series.contender)?;
            continue;
        }
        let ratio = subject.map_or(f64::NAN, |subject| subject.median() / series.median());
        writeln!(
            out,
            "  {:<13} {:>10.2} {:>10.2} {:>10.2} {:>7.2}x  {}",
            series.contender,
            series.median(),
            series.least(),
            series.greatest(),
            ratio,
            series.remark()
        )?;
    }
    for verdict in &one.verdicts {
        writeln!(out, "  target {}: {:?}{}", verdict.target, verdict.outcome, verdict.figures())?;
    }
    if one.noise > 0.05 {
        writeln!(out, "  other processes took {:.0} % of a processor", one.noise * 100.0)?;
    }
    Ok(())
}
