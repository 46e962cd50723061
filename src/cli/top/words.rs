//! Numbers and states as they are shown: short, and the same width of meaning everywhere.

use ratatui::style::Color;

/// Where nothing is known.
pub const NOTHING: &str = "-";

pub fn span(ms: f64) -> String {
    match ms {
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms if ms < 10_000.0 => format!("{:.1} s", ms / 1000.0),
        ms if ms < 60_000.0 => format!("{:.0} s", ms / 1000.0),
        ms if ms < 3_600_000.0 => format!("{:.0} min", (ms / 60_000.0).floor()),
        ms => format!("{:.1} h", ms / 3_600_000.0),
    }
}

pub fn maybe(value: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| NOTHING.into(), shown)
}

pub fn count(value: u64) -> String {
    match value {
        value if value < 10_000 => value.to_string(),
        value if value < 1_000_000 => format!("{:.0}k", value as f64 / 1e3),
        value => format!("{:.1}M", value as f64 / 1e6),
    }
}

pub fn rate(value: Option<f64>) -> String {
    maybe(value, |value| count(value.round().max(0.0) as u64))
}

pub fn gigabytes(bytes: u64) -> String {
    format!("{:.*} GB", usize::from(bytes < 10_000_000_000), bytes as f64 / 1e9)
}

/// As many marks as there are slots, the used ones filled; numbers where there are too many.
pub fn slots(running: u64, slots: u64) -> String {
    const MARKS_MAX: u64 = 8;
    if slots == 0 || slots > MARKS_MAX {
        return String::new();
    }
    (0..slots).map(|slot| if slot < running { '■' } else { '□' }).collect()
}

/// A state and how bad it is; colour is never all that tells it.
pub fn state(name: &str) -> (&'static str, String, Color) {
    match name {
        "up" => ("✓", "up".into(), Color::Green),
        "draining" | "cooling" | "slow_start" | "starting" | "unknown" | "breaker_half_open" => {
            ("~", plain(name), Color::Yellow)
        }
        _ => ("!", plain(name), Color::Red),
    }
}

fn plain(name: &str) -> String {
    match name {
        "breaker_open" => "left alone".into(),
        "breaker_half_open" => "being tried".into(),
        name => name.replace('_', " "),
    }
}

pub fn warmth(affinity: &str) -> (&'static str, Color) {
    match affinity {
        "session" => ("kept", Color::Green),
        "moved" => ("moved", Color::Red),
        "home" => ("at home", Color::Cyan),
        "prefix" => ("known start", Color::Cyan),
        "new" => ("new", Color::Reset),
        _ => (NOTHING, Color::Reset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ms: f64, expected: &str) {
        assert_eq!(span(ms), expected);
    }

    #[test]
    fn spans() {
        check(0.4, "0 ms");
        check(999.4, "999 ms");
        check(1500.0, "1.5 s");
        check(59_400.0, "59 s");
        check(61_000.0, "1 min");
        check(5_400_000.0, "1.5 h");
    }

    #[test]
    fn slots_are_marks_while_they_are_few() {
        for (running, of, expected) in [(0, 4, "□□□□"), (3, 4, "■■■□"), (9, 2, "■■"), (1, 128, ""), (0, 0, "")]
        {
            assert_eq!(slots(running, of), expected);
        }
    }

    #[test]
    fn counts() {
        for (value, expected) in [(9999, "9999"), (12_345, "12k"), (2_500_000, "2.5M")] {
            assert_eq!(count(value), expected);
        }
    }
}
