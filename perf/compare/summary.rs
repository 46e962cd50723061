//! Medians over the rounds, and the targets that they answer.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::contestant::Contestant;
use crate::measure::Row;
use crate::numbers::percentile;
use crate::upstream::CHUNKS;

/// Medians by contestant and measure.
pub struct Medians(BTreeMap<(&'static str, String), Median>);

#[derive(Clone, Copy, Serialize)]
pub struct Median {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    pub rounds: usize,
    pub unit: &'static str,
}

impl Medians {
    pub fn of(rows: &[Row]) -> Medians {
        let mut values: BTreeMap<_, (&str, Vec<f64>)> = BTreeMap::new();
        for row in rows {
            let entry = values.entry((row.contestant, row.measure.clone()));
            entry.or_insert((row.unit, Vec::new())).1.push(row.value);
        }
        let median = |(unit, values): (&'static str, Vec<f64>)| Median {
            median: percentile(&values, 0.5),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            rounds: values.len(),
            unit,
        };
        Medians(values.into_iter().map(|(key, values)| (key, median(values))).collect())
    }

    pub fn get(&self, contestant: &'static str, measure: &str) -> Option<f64> {
        self.0.get(&(contestant, measure.to_owned())).map(|median| median.median)
    }

    /// By contestant, as it is kept.
    pub fn all(&self) -> BTreeMap<&'static str, BTreeMap<&str, Median>> {
        let mut all: BTreeMap<_, BTreeMap<&str, Median>> = BTreeMap::new();
        for ((contestant, measure), median) in &self.0 {
            all.entry(*contestant).or_default().insert(measure, *median);
        }
        all
    }
}

/// A row of the design's table: what is wanted and what was found.
#[derive(Serialize)]
pub struct Target {
    pub what: &'static str,
    pub target: &'static str,
    pub measured: String,
    /// `None`: not measured in this run.
    pub met: Option<bool>,
}

/// Streams of one measure, and idle ones; the names of their rows hold these.
pub struct Counts {
    pub streams: usize,
    pub idle_streams: usize,
    pub sessions: usize,
}

pub fn targets(medians: &Medians, counts: &Counts) -> Vec<Target> {
    let get = |contestant, measure: &str| medians.get(contestant, measure);
    let ratio = |measure: &str, other| Some(get("warmgate", measure)? / get(other, measure)?);
    // What a contestant adds to the way without it.
    let added = |contestant, measure: &str| Some(get(contestant, measure)? - get("direct", measure)?);
    let added_ratio = |measure: &str| Some(added("warmgate", measure)? / added("nginx", measure)?.max(1.0));
    let stream = |figure: &str| format!("stream/{}/{figure}", counts.streams);
    let idle = format!("idle_streams/{}/each", counts.idle_streams);
    let mut all = Vec::new();
    let mut add = |what, target, value: Option<f64>, unit: &str, met: &dyn Fn(f64) -> bool| {
        let measured = value.map_or("not measured".into(), |value| format!("{value:.3}{unit}"));
        all.push(Target { what, target, measured, met: value.map(met) });
    };
    for (what, at) in [
        ("rate, 2 KiB, 1 connection, of bare Pingora", "2KiB/1/rate"),
        ("rate, 2 KiB, 8 connections, of bare Pingora", "2KiB/8/rate"),
        ("rate, 2 KiB, 64 connections, of bare Pingora", "2KiB/64/rate"),
    ] {
        add(what, ">= 0.9", ratio(at, "bare"), "", &|v| v >= 0.9);
    }
    add("rate, 2 KiB, 64 connections, of nginx", "reported", ratio("2KiB/64/rate", "nginx"), "", &|_| true);
    add("rate, 2 KiB, 64 connections, of LiteLLM", ">= 100", ratio("2KiB/64/rate", "litellm"), "", &|v| v >= 100.0);
    add("rate, 2 KiB, 64 connections, of SGLang's router", "> 1", ratio("2KiB/64/rate", "sglang-router"), "", &|v| {
        v > 1.0
    });
    add("added latency p50, 1 connection, of nginx's", "<= 1.5", added_ratio("2KiB/1/p50"), "", &|v| v <= 1.5);
    add("added latency p99, 1 connection, of nginx's", "<= 2", added_ratio("2KiB/1/p99"), "", &|v| v <= 2.0);
    let late = added("warmgate", &stream("delay_p50")).map(|us| us / 1e3);
    add("chunk relayed, added p50", "<= 0.2 ms", late, " ms", &|v| v <= 0.2);
    add("chunk relayed p99, of nginx's", "<= 2", ratio(&stream("delay_p99"), "nginx"), "", &|v| v <= 2.0);
    let pieces = get("warmgate", &stream("pieces"));
    add("chunks received, 101 written", "101", pieces, "", &|v| v == (CHUNKS + 1) as f64);
    add("rate, 220 KB prompts, of bare Pingora", ">= 0.8", ratio("220KB/8/rate", "bare"), "", &|v| v >= 0.8);
    let core = get("warmgate", "220KB/8/cpu").map(|us| us / 1e6);
    add("core per request a second, 220 KB prompts", "<= 0.02", core, "", &|v| v <= 0.02);
    add("memory idle", "<= 40 MiB", get("warmgate", "rest/memory").map(|kib| kib / 1024.0), " MiB", &|v| v <= 40.0);
    let beyond = get("warmgate", &idle).zip(get("bare", &idle)).map(|(ours, bare)| ours - bare);
    add("an open stream, beyond bare Pingora's", "<= 8 KiB", beyond, " KiB", &|v| v <= 8.0);
    let grown = get("warmgate", &format!("sessions/{}/grown", counts.sessions)).map(|kib| kib / 1024.0);
    add("memory grown by so many requests", "reported", grown, " MiB", &|_| true);
    let second_half = get("warmgate", &format!("sessions/{}/grown_in_second_half", counts.sessions));
    let second_half = second_half.map(|kib| kib / 1024.0);
    add("memory grown by their second half", "<= 8 MiB: flat", second_half, " MiB", &|v| v <= 8.0);
    let remembered = get("warmgate", &format!("remembered/{}/grown", counts.sessions)).map(|kib| kib / 1024.0);
    add("conversations of six turns, remembered", "<= 64 MiB", remembered, " MiB", &|v| v <= 64.0);
    let decision = |of: &str| get("warmgate", &format!("decide/{of}/p99"));
    add("decision p99, 64 upstreams", "<= 20 us", decision("64_of_64"), " us", &|v| v <= 20.0);
    add("decision p99, 1,000 upstreams", "<= 200 us", decision("1000_of_1000"), " us", &|v| v <= 200.0);
    let middle = |of: &str| get("warmgate", &format!("decide/{of}/p50"));
    let by_fleet = middle("64_of_1000").zip(middle("64_of_64")).map(|(many, few)| many / few);
    add("decision p50, 64 holders among 1,000, of among 64", "<= 1.5", by_fleet, "", &|v| v <= 1.5);
    for (what, target, elsewhere) in [
        ("reload under load", "0 failed, 0 cut", "see tests/it/reload"),
        ("a node killed under load", "0 failed before the first byte", "see perf/chaos"),
    ] {
        all.push(Target { what, target, measured: elsewhere.into(), met: None });
    }
    all
}

/// Why the others are not in the table.
pub fn missing(contestants: &[Contestant]) -> BTreeMap<&'static str, &str> {
    contestants.iter().filter_map(|one| Some((one.name, one.running.as_ref().err()?.as_str()))).collect()
}
