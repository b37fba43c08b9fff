//! Lays out the view as lines of text.

use super::history::{History, Row};
use super::line::{Line, Style};
use super::view::{Fiber, View};
use super::words::{bar, bytes, rate, sparkline, time};

/// The process, and the totals of its fibers.
pub(super) fn totals(view: &View, history: Option<&History>, width: usize) -> Vec<Line> {
    let names: Vec<&str> = view.runtimes.iter().map(|runtime| &*runtime.name).collect();
    let mut first = Line::new(width)
        .with(Style::Bold, names.join(", "))
        .with(Style::Soft, format!("  pid {}", view.process.pid));
    if let Some(uptime) = view.process.uptime_seconds {
        first = first.with(Style::Soft, format!("  up {}", time((uptime * 1e6) as u64)));
    }
    let mut second = Line::new(width)
        .with(Style::Bold, view.totals.fibers.to_string())
        .with(Style::Soft, " fibers:");
    for state in ["running", "runnable", "suspended", "created"] {
        let count = view.totals.states.get(state).copied().unwrap_or(0);
        let comma = if state == "running" { "" } else { "," };
        second = second
            .with(Style::Soft, format!("{comma} "))
            .with(style_of(state), count.to_string())
            .with(Style::Soft, format!(" {state}"));
    }
    let sum =
        |get: fn(&super::view::Runtime) -> usize| -> usize { view.runtimes.iter().map(get).sum() };
    second = second.with(
        Style::Soft,
        format!(
            "   stacks: {} in use, {} warm, {} cold",
            sum(|runtime| runtime.stacks_in_use),
            sum(|runtime| runtime.stacks_warm),
            sum(|runtime| runtime.stacks_cold)
        ),
    );
    if let Some(resident) = view.process.resident_bytes {
        second = second.with(Style::Soft, format!("   memory: {}", bytes(resident)));
    }
    if let Some(cpu) = history.and_then(|history| history.cpu) {
        second = second.with(Style::Soft, format!("   cpu: {:.0} %", cpu * 100.0));
    }
    vec![first, second]
}

/// The load of each carrier, in at most `most` lines.
pub(super) fn carriers(view: &View, history: &History, width: usize, most: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let all = view
        .runtimes
        .iter()
        .flat_map(|runtime| (0..runtime.carriers.len()).map(|index| (&*runtime.name, index)));
    let all: Vec<_> = all.collect();
    let several = view.runtimes.len() > 1;
    let label = |(name, index): &(&str, usize)| match several {
        true => format!("{name} {index}"),
        false => format!("carrier {index}"),
    };
    let room = all.iter().map(|carrier| label(carrier).chars().count()).max().unwrap_or(0).min(20);
    // Every line also has a bar, and three charts with their labels.
    let chart = (width.saturating_sub(room + 1 + 18 + 3 * 20) / 3).clamp(4, 30);
    let shown = if all.len() > most { most.saturating_sub(1) } else { all.len() };
    for carrier in &all[..shown] {
        let mut line = Line::new(width).column(Style::Bold, &label(carrier), room);
        let Some(past) = history.of(carrier.0, carrier.1) else {
            lines.push(line.with(Style::Soft, "…"));
            continue;
        };
        if let Some(busy) = past.busy {
            let style = if busy > 0.9 { Style::Warning } else { Style::Good };
            line = line.with(style, bar(busy, 10)).number(
                Style::Plain,
                &format!("{:.0} %", busy * 100.0),
                6,
            );
        }
        let rows: [(&str, Row); 3] = [
            ("switches/s", |past| &past.switches),
            ("ready", |past| &past.ready),
            ("io/s", |past| &past.io_events),
        ];
        for (name, row) in rows {
            let numbers = row(past);
            let last = numbers.back().copied().unwrap_or(0.0);
            line = line
                .with(Style::Accent, sparkline(numbers.iter().copied(), history.most(row), chart))
                .number(Style::Plain, &rate(last), 7)
                .with(Style::Soft, format!("{name}  "));
        }
        lines.push(line);
    }
    if shown < all.len() {
        let more = format!("and {} more carriers", all.len() - shown);
        lines.push(Line::new(width).with(Style::Soft, more));
    }
    lines
}

/// The counts of each carrier, for output without history.
pub(super) fn counts(view: &View, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for runtime in &view.runtimes {
        for (index, carrier) in runtime.carriers.iter().enumerate() {
            lines.push(Line::new(width).with(
                Style::Plain,
                format!(
                    "{} {index}: {} switches, {} ready, {} io events{}",
                    runtime.name,
                    carrier.switches,
                    carrier.ready + carrier.shared,
                    carrier.io_events,
                    carrier.cpu_seconds.map_or(String::new(), |cpu| format!(", {cpu:.2} s of cpu")),
                ),
            ));
        }
    }
    lines
}

/// The fibers that wait for each other.
pub(super) fn deadlocks(view: &View, width: usize) -> Vec<Line> {
    let line = |members: &Vec<super::view::Other>| {
        let names: Vec<String> =
            members.iter().chain(members.first()).map(super::view::Other::words).collect();
        Line::new(width).with(Style::Warning, format!("deadlock: {}", names.join(" → ")))
    };
    view.deadlocks.iter().map(line).collect()
}

/// The widths of the table's columns. The text columns share the room that the numbers leave.
struct Widths {
    name: usize,
    wait: usize,
    /// Whether there is room for the less important columns.
    all: bool,
}

const ID: usize = 7;
const STATE: usize = 9;
const SINCE: usize = 11;
const CARRIER: usize = 7;
const AGE: usize = 11;
const WAITS: usize = 8;
const STACK: usize = 14;

impl Widths {
    fn of(width: usize) -> Widths {
        let least = ID + STATE + SINCE + 3 + 2;
        let all = least + CARRIER + AGE + WAITS + STACK + 4;
        // A name may show both ends of a connection, so names get room before the less important
        // columns.
        let (taken, all) = if width >= all + 64 { (all, true) } else { (least, false) };
        let rest = width.saturating_sub(taken).max(12);
        let name = rest * 3 / 5;
        Widths { name, wait: rest - name, all }
    }
}

pub(super) fn heads(width: usize) -> Line {
    let widths = Widths::of(width);
    let style = Style::Bold;
    let line = Line::new(width)
        .number(style, "id", ID)
        .column(style, "name", widths.name)
        .column(style, "state", STATE)
        .column(style, "waits for", widths.wait)
        .number(style, "for", SINCE);
    if !widths.all {
        return line;
    }
    line.number(style, "carrier", CARRIER)
        .number(style, "age", AGE)
        .number(style, "waits", WAITS)
        .number(style, "stack", STACK)
}

pub(super) fn row(fiber: &Fiber, view: &View, width: usize, chosen: bool) -> Line {
    let widths = Widths::of(width);
    let (name, name_style) = match &fiber.name {
        Some(name) => (&**name, Style::Plain),
        None => ("–", Style::Soft),
    };
    let since = fiber.wait.as_ref().map_or(String::new(), |wait| time(wait.since_us));
    let mut line = Line::new(width)
        .number(Style::Soft, &fiber.id.to_string(), ID)
        .column(name_style, name, widths.name)
        .column(style_of(&fiber.state), &fiber.state, STATE)
        .column(Style::Plain, &wait(fiber, view), widths.wait)
        .number(Style::Plain, &since, SINCE);
    if widths.all {
        let carrier = fiber.carrier.map_or(String::new(), |carrier| carrier.to_string());
        let carrier = match (&fiber.runtime, view.runtimes.len() > 1) {
            (Some(runtime), true) => format!("{runtime} {carrier}"),
            _ => carrier,
        };
        let stack = fiber.stack.as_ref().map_or(String::new(), |stack| {
            format!("{}/{}", bytes(stack.used).replace(" KiB", ""), bytes(stack.size))
        });
        line = line
            .number(Style::Soft, &carrier, CARRIER)
            .number(Style::Soft, &time(fiber.age_ms * 1000), AGE)
            .number(Style::Soft, &fiber.waits.to_string(), WAITS)
            .number(Style::Soft, &stack, STACK);
    }
    line.chosen = chosen;
    line
}

fn wait(fiber: &Fiber, view: &View) -> String {
    let Some(wait) = &fiber.wait else { return String::new() };
    if fiber.id == view.answered_by {
        return "this view".into();
    }
    let what = match wait.owner.as_ref().or(wait.joins.as_ref()) {
        Some(other) => {
            let word = if wait.owner.is_some() { "held by" } else { "of" };
            format!("{} {word} {}", wait.kind, other.words())
        }
        None => wait.kind.clone(),
    };
    match wait.left_us {
        Some(left) => format!("{what}, {} left", time(left)),
        None => what,
    }
}

fn style_of(state: &str) -> Style {
    match state {
        "running" => Style::Good,
        "runnable" => Style::Warning,
        "suspended" => Style::Plain,
        _ => Style::Soft,
    }
}
