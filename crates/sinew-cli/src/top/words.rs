//! Formats numbers for people.

/// A duration, as short as possible.
pub(super) fn time(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..60_000_000 => format!("{:.1} s", micros as f64 / 1e6),
        _ if seconds < 3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ if seconds < 86400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86400, seconds / 3600 % 24),
    }
}

/// A number per second.
pub(super) fn rate(number: f64) -> String {
    match number {
        0.0 => "0".into(),
        ..9.95 => format!("{number:.1}"),
        ..1e4 => format!("{number:.0}"),
        ..1e5 => format!("{:.1}k", number / 1e3),
        ..1e6 => format!("{:.0}k", number / 1e3),
        _ => format!("{:.1}M", number / 1e6),
    }
}

pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..102_400 if !count.is_multiple_of(1024) => format!("{:.1} KiB", count as f64 / 1024.0),
        1024..0x10_0000 => format!("{} KiB", count / 1024),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", count as f64 / f64::from(1 << 20)),
        _ => format!("{:.2} GiB", count as f64 / f64::from(1 << 30)),
    }
}

/// A small chart, one character for each number. The number `most` fills its character.
pub(super) fn sparkline(
    numbers: impl ExactSizeIterator<Item = f64>,
    most: f64,
    width: usize,
) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let missing = width.saturating_sub(numbers.len());
    let skipped = numbers.len().saturating_sub(width);
    let height = |number: f64| {
        let share = if most > 0.0 { number / most } else { 0.0 };
        HEIGHTS[((share * 7.0).round() as usize).min(7)]
    };
    " ".repeat(missing).chars().chain(numbers.skip(skipped).map(height)).collect()
}

/// A bar with a filled share.
pub(super) fn bar(share: f64, width: usize) -> String {
    let filled = ((share.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
    "█".repeat(filled) + &"░".repeat(width - filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (micros, words) in [
            (0, "0 µs"),
            (9_900, "9.9 ms"),
            (120_000, "120 ms"),
            (1_500_000, "1.5 s"),
            (61_000_000, "1 min 1 s"),
            (3_700_000_000, "1 h 1 min"),
            (90_000_000_000, "1 d 1 h"),
        ] {
            assert_eq!(time(micros), words);
        }
    }

    #[test]
    fn amounts_have_units() {
        assert_eq!([bytes(7), bytes(1536), bytes(262_144)], ["7 B", "1.5 KiB", "256 KiB"]);
        assert_eq!(bytes(3 << 20), "3.0 MiB");
        assert_eq!([rate(0.0), rate(1.25), rate(12_345.0)], ["0", "1.2", "12.3k"]);
    }

    #[test]
    fn charts_are_as_wide_as_asked_for() {
        let line = |numbers: &[f64]| sparkline(numbers.iter().copied(), 8.0, 4);
        assert_eq!(line(&[8.0]), "   █");
        assert_eq!(line(&[8.0, 0.0, 0.0, 0.0, 8.0]), "▁▁▁█");
        assert_eq!(bar(0.5, 4), "██░░");
        assert_eq!(bar(7.0, 2), "██");
    }
}
