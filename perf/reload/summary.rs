//! What is made of the rows, and what must be so.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Arguments;
use crate::crowd::Row;
use crate::numbers::{mean, percentile};
use crate::results::Target;

/// What the allocator keeps to itself moves by as much.
const GROWTH_MAX_MIB: f64 = 8.0;
const FIFTHS: usize = 5;

#[derive(Serialize)]
pub struct Summary {
    pub requests: usize,
    /// Of these, those that ended between the first reload and the last.
    pub during_reloads: usize,
    pub failed: usize,
    pub cut: usize,
    pub first_token_p50_s: f64,
    pub first_token_p99_s: f64,
    pub first_token_max_s: f64,
    pub files: BTreeMap<&'static str, usize>,
    pub reloads: BTreeMap<String, usize>,
    pub resident_before_mib: f64,
    /// Means over each fifth of the reloads.
    pub resident_mib: Vec<f64>,
    pub resident_after_mib: f64,
    pub left_at_the_end: u64,
}

impl Summary {
    pub fn of(
        rows: &[Row],
        during_reloads: usize,
        files: &BTreeMap<&'static str, usize>,
        reloads: &BTreeMap<String, usize>,
        resident_mib: &[f64],
        [resident_before_mib, resident_after_mib]: [f64; 2],
        left_at_the_end: u64,
    ) -> Summary {
        let waits: Vec<f64> =
            rows.iter().filter_map(|row| row.outcome.first_token).map(|wait| wait.as_secs_f64()).collect();
        let count = |is: fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
        Summary {
            requests: rows.len(),
            during_reloads,
            failed: count(Row::failed),
            cut: count(Row::was_cut),
            first_token_p50_s: percentile(&waits, 0.50),
            first_token_p99_s: percentile(&waits, 0.99),
            first_token_max_s: percentile(&waits, 1.0),
            files: files.clone(),
            reloads: reloads.clone(),
            resident_before_mib,
            resident_mib: resident_mib.chunks(resident_mib.len().div_ceil(FIFTHS).max(1)).map(mean).collect(),
            resident_after_mib,
            left_at_the_end,
        }
    }
}

pub fn targets(summary: &Summary, arguments: &Arguments) -> Vec<Target> {
    let ends = summary.resident_mib.first().zip(summary.resident_mib.last());
    let growth_mib = ends.map_or(0.0, |(first, last)| last - first);
    let counted = |outcome: &str| summary.reloads.get(outcome).copied().unwrap_or_default();
    let written = |outcome: &str| summary.files.get(outcome).copied().unwrap_or_default();
    let all: usize = summary.reloads.values().sum();
    vec![
        Target::new(summary.cut == 0, format!("{} of {} streams cut, none may be", summary.cut, summary.requests)),
        Target::new(summary.failed == 0, format!("{} requests failed, none may", summary.failed)),
        Target::new(
            all == arguments.reloads
                && ["applied", "refused"].iter().all(|outcome| counted(outcome) == written(outcome)),
            format!("{} files written, {:?}, and counted as {:?}", arguments.reloads, summary.files, summary.reloads),
        ),
        Target::new(
            growth_mib <= GROWTH_MAX_MIB,
            format!(
                "memory {growth_mib:+.1} MiB from the first fifth of the reloads to the last, at most {GROWTH_MAX_MIB}"
            ),
        ),
        Target::new(summary.left_at_the_end == 0, format!("{} booked or waiting at the end", summary.left_at_the_end)),
    ]
}
