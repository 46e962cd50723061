//! What a simulation found: a table to read, rows to reckon with, a plot to look at.

pub mod comparison;
pub mod plot;
pub mod table;

use serde::Serialize;

use super::run::record::Summary;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub plan: String,
    pub policy: &'static str,
    pub rate: f64,
    /// What that asks of what the nodes can do.
    pub load: f64,
    pub seed: u64,
    #[serde(flatten)]
    pub summary: Summary,
}

/// The runs of one policy at one rate, taken together.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    pub plan: String,
    pub policy: &'static str,
    pub rate: f64,
    pub load: f64,
    pub runs: usize,
    pub summary: Summary,
}

/// Means over the seeds, in the order of the rows.
pub fn means(rows: &[Row]) -> Vec<Mean> {
    let mut means: Vec<Mean> = Vec::new();
    for row in rows {
        if means.iter().any(|mean| mean.policy == row.policy && mean.rate == row.rate) {
            continue;
        }
        let same = rows.iter().filter(|other| other.policy == row.policy && other.rate == row.rate);
        let same: Vec<Summary> = same.map(|row| row.summary.clone()).collect();
        means.push(Mean {
            plan: row.plan.clone(),
            policy: row.policy,
            rate: row.rate,
            load: row.load,
            runs: same.len(),
            summary: Summary::mean(&same),
        });
    }
    means
}

/// One JSON object a line.
pub fn rows_as_json(rows: &[Row]) -> String {
    let lines = rows.iter().filter_map(|row| serde_json::to_string(row).ok());
    lines.map(|line| line + "\n").collect()
}
