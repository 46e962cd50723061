//! Prometheus' text form, read as strictly as it is written down, and what promtool's linter says of names.
//!
//! No crate that is well kept reads it strictly, `promtool` is no crate, and the form is small. `.ci/run` asks
//! promtool itself as well.

use std::collections::{BTreeMap, BTreeSet};

/// All that one answer of `/metrics` tells.
#[derive(Debug, Default)]
pub struct Exposition {
    pub families: BTreeMap<String, Family>,
}

#[derive(Debug, Default)]
pub struct Family {
    pub help: String,
    pub kind: String,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// What a histogram adds to its name.
pub const PARTS: [&str; 3] = ["_bucket", "_sum", "_count"];

impl Exposition {
    /// The whole text, or the first thing that is wrong with it.
    pub fn parse(text: &str) -> Result<Exposition, String> {
        let mut told = Exposition::default();
        let mut current = String::new();
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        for line in text.lines() {
            told.line(line, &mut current).map_err(|wrong| format!("{wrong}: {line}"))?;
        }
        told.families
            .iter()
            .try_for_each(|(name, family)| family.check().map_err(|wrong| format!("{name}: {wrong}")))?;
        Ok(told)
    }

    fn line(&mut self, line: &str, current: &mut String) -> Result<(), String> {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or("HELP without a text")?;
            if !is_name(name, true) || self.families.contains_key(name) {
                return Err("no name, or one that was there before".into());
            }
            self.families.insert(name.to_owned(), Family { help: help.to_owned(), ..Family::default() });
            *current = name.to_owned();
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("TYPE without a kind")?;
            let family = self.families.get_mut(name).ok_or("TYPE without HELP")?;
            if name != current || !family.kind.is_empty() || !family.samples.is_empty() {
                return Err("TYPE out of its place".into());
            }
            if !["counter", "gauge", "histogram"].contains(&kind) {
                return Err("a kind that nobody knows".into());
            }
            family.kind = kind.to_owned();
            return Ok(());
        }
        let sample = sample(line)?;
        let family = self.families.get_mut(current.as_str()).ok_or("a sample without HELP")?;
        let own = match (sample.name.strip_prefix(current.as_str()), family.kind.as_str()) {
            (Some(part), "histogram") => PARTS.contains(&part),
            (Some(""), "counter" | "gauge") => true,
            _ => false,
        };
        if !own {
            return Err(format!("does not belong to {current}"));
        }
        family.samples.push(sample);
        Ok(())
    }

    /// The sum of all samples of that name with these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let wanted = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|v| v == value))
        };
        self.samples().filter(wanted).map(|sample| sample.value).sum()
    }

    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.families.values().flat_map(|family| &family.samples)
    }

    /// The names and labels of all samples, without their values.
    pub fn series(&self) -> BTreeSet<String> {
        self.samples().map(|sample| format!("{}{:?}", sample.name, sample.labels)).collect()
    }

    /// What promtool would say of names and helps.
    pub fn complaints(&self) -> Vec<String> {
        let of = |(name, family): (&String, &Family)| {
            complaints(name, family).into_iter().map(|wrong| format!("{name}: {wrong}")).collect::<Vec<_>>()
        };
        self.families.iter().flat_map(of).collect()
    }
}

impl Family {
    fn check(&self) -> Result<(), String> {
        if self.kind.is_empty() || self.samples.is_empty() {
            return Err("nothing but a name".into());
        }
        let mut seen = BTreeSet::new();
        for sample in &self.samples {
            if !seen.insert(format!("{}{:?}", sample.name, sample.labels)) {
                return Err(format!("twice: {sample:?}"));
            }
            if self.kind != "gauge" && !(sample.value.is_finite() && sample.value >= 0.0) {
                return Err(format!("no count: {sample:?}"));
            }
        }
        if self.kind == "histogram" { self.check_buckets() } else { Ok(()) }
    }

    fn check_buckets(&self) -> Result<(), String> {
        #[derive(Default)]
        struct Series<'a>(Vec<(f64, f64)>, BTreeMap<&'a str, f64>);
        let mut of_series: BTreeMap<String, Series> = BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            let le = labels.remove("le");
            let Series(buckets, rest) = of_series.entry(format!("{labels:?}")).or_default();
            let part = PARTS.iter().find(|part| sample.name.ends_with(*part)).ok_or("no part of a histogram")?;
            match le {
                Some(le) if *part == "_bucket" => buckets.push((number(&le)?, sample.value)),
                None if *part != "_bucket" => {
                    rest.insert(part, sample.value);
                }
                _ => return Err(format!("`le` is missing or out of place: {sample:?}")),
            }
        }
        for (labels, Series(buckets, rest)) in of_series {
            let rising = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
            let whole = buckets.last().filter(|(le, _)| *le == f64::INFINITY).map(|(_, count)| count);
            if !rising || whole.is_none() || whole != rest.get("_count") || !rest.contains_key("_sum") {
                return Err(format!("{labels}: buckets {buckets:?} of {rest:?}"));
            }
        }
        Ok(())
    }
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(mut inner) = rest.strip_prefix('{') {
        while !inner.starts_with('}') {
            let (label, after) = inner.split_once("=\"").ok_or("a label without a value")?;
            let (value, after) = quoted(after)?;
            if !is_name(label, false) || labels.insert(label.to_owned(), value).is_some() {
                return Err(format!("the label {label}"));
            }
            inner = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &inner[1..];
    }
    let value = rest.strip_prefix(' ').ok_or("no value")?;
    if !is_name(name, true) || value.contains(' ') {
        return Err("no name, or a time".into());
    }
    Ok(Sample { name: name.to_owned(), labels, value: number(value)? })
}

/// A value up to its closing quote, and what follows.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next().map(|(_, escaped)| escaped) {
                Some('n') => value.push('\n'),
                Some(escaped @ ('\\' | '"')) => value.push(escaped),
                _ => return Err("an escape that nobody knows".into()),
            },
            char => value.push(char),
        }
    }
    Err("no closing quote".into())
}

fn number(text: &str) -> Result<f64, String> {
    match text {
        "+Inf" => Ok(f64::INFINITY),
        _ => text.parse().map_err(|_| format!("no number: {text}")),
    }
}

fn is_name(name: &str, colon: bool) -> bool {
    let may = |char: char| char.is_ascii_alphanumeric() || char == '_' || (colon && char == ':');
    name.chars().all(may) && name.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Units that are no base units, as whole words of a name.
const UNITS: [&str; 22] = [
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "ms",
    "us",
    "ns",
    "sec",
    "secs",
    "minutes",
    "hours",
    "days",
    "kilobytes",
    "megabytes",
    "gigabytes",
    "kb",
    "mb",
    "gb",
    "kib",
    "mib",
    "gib",
    "bits",
    "percent",
];

fn complaints(name: &str, family: &Family) -> Vec<String> {
    let words: Vec<&str> = name.split('_').collect();
    let is_counter = family.kind == "counter";
    let labels = || family.samples.iter().flat_map(|sample| sample.labels.keys());
    let rules = [
        (!name.starts_with("warmgate_"), "not ours"),
        (family.help.trim().is_empty(), "no help"),
        (is_counter && !name.ends_with("_total"), "a counter without _total"),
        (!is_counter && name.ends_with("_total"), "_total on what is no counter"),
        (PARTS.iter().any(|part| name.ends_with(part)), "ends like a part of a histogram"),
        (name.contains(':'), "colons are for recording rules"),
        (name.chars().any(|char| char.is_ascii_uppercase()), "not in snake case"),
        (words.iter().any(|word| UNITS.contains(word)), "no base unit"),
        (
            words.iter().any(|word| ["counter", "gauge", "histogram", "summary"].contains(word)),
            "its kind is in its name",
        ),
        (family.kind != "histogram" && labels().any(|label| label == "le"), "`le` belongs to histograms"),
        (labels().any(|label| label == "quantile" || label.starts_with("__")), "a label that is taken"),
    ];
    rules.into_iter().filter(|(broken, _)| *broken).map(|(_, what)| what.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP warmgate_a_total A\n# TYPE warmgate_a_total counter\nwarmgate_a_total{x=\"1\\\"\"} 3\n\
        # HELP warmgate_h_seconds H\n# TYPE warmgate_h_seconds histogram\nwarmgate_h_seconds_bucket{le=\"1\"} 2\n\
        warmgate_h_seconds_bucket{le=\"+Inf\"} 3\nwarmgate_h_seconds_sum 4.5\nwarmgate_h_seconds_count 3\n";

    #[test]
    fn what_is_right_passes() {
        let told = Exposition::parse(GOOD).expect("good text");
        assert_eq!(told.complaints(), [""; 0]);
        assert_eq!(told.sum("warmgate_a_total", &[("x", "1\"")]), 3.0);
        assert_eq!(told.series().len(), 5);
    }

    #[test]
    fn whatever_is_wrong_is_found() {
        let breaks = [
            ("# HELP warmgate_a_total A\n", ""),
            ("# TYPE warmgate_a_total counter\n", ""),
            ("counter\n", "count\n"),
            ("warmgate_a_total{", "warmgate_b_total{"),
            ("x=\"1\\\"\"", "x=\"1\""),
            ("x=\"1\\\"\"", "1x=\"1\\\"\""),
            ("} 3\n#", "} -3\n#"),
            ("} 3\n#", "} 3 17\n#"),
            ("} 3\n#", "} 3\nwarmgate_a_total{x=\"1\\\"\"} 3\n#"),
            ("\"1\"} 2", "\"1\"} 4"),
            ("\"+Inf\"} 3", "\"+Inf\"} 4"),
            ("{le=\"+Inf\"} 3\n", "{le=\"9\"} 3\n"),
            ("warmgate_h_seconds_sum 4.5\n", ""),
            ("count 3\n", "count 3"),
        ];
        for (from, to) in breaks {
            assert!(GOOD.contains(from), "{from}");
            let text = GOOD.replacen(from, to, 1);
            let broken = from != "x=\"1\\\"\"" || to.starts_with('1');
            assert_eq!(Exposition::parse(&text).is_err(), broken, "{from:?} -> {to:?}");
        }
        let named =
            |from: &str, to: &str| Exposition::parse(&GOOD.replace(from, to)).map(|told| told.complaints().len());
        for (from, to) in [
            ("warmgate_a_total", "warmgate_a"),
            ("warmgate_h_seconds", "warmgate_h_ms"),
            ("warmgate_h_seconds", "other_h_seconds"),
            ("warmgate_h_seconds", "warmgate_hSeconds"),
            ("x=", "quantile="),
        ] {
            assert_eq!(named(from, to), Ok(1), "{from} -> {to}");
        }
    }
}
