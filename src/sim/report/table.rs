//! The table: one for each rate, one line a policy, means over the seeds.

use std::fmt::Write;

use super::Mean;

const HEADS: [&str; 13] = [
    "policy", "cached", "mean", "p50", "p90", "p95", "p99", "total", "hottest", "busiest", "fairness", "loads",
    "refused",
];

pub fn table(means: &[Mean]) -> String {
    let mut rates: Vec<f64> = Vec::new();
    means.iter().map(|mean| mean.rate).for_each(|rate| {
        if !rates.contains(&rate) {
            rates.push(rate);
        }
    });
    let mut out = String::new();
    for rate in rates {
        let of_rate: Vec<&Mean> = means.iter().filter(|mean| mean.rate == rate).collect();
        one(rate, &of_rate, &mut out);
    }
    out
}

fn one(rate: f64, means: &[&Mean], out: &mut String) {
    let lines: Vec<[String; HEADS.len()]> = means.iter().map(|mean| cells(mean)).collect();
    let heads = HEADS.map(str::to_owned);
    let width = |column: usize| lines.iter().chain([&heads]).map(|line| line[column].len()).max().unwrap_or_default();
    let first = means.first();
    let (runs, requests) = first.map_or((0, 0), |mean| (mean.runs, mean.summary.requests));
    let seeds = if runs == 1 { "1 seed".into() } else { format!("mean of {runs} seeds") };
    // Writing to a string cannot fail.
    let load = first.map_or(0.0, |mean| 100.0 * mean.load);
    let _ = writeln!(
        out,
        "x{}, {load:.0} % of what the nodes can do: {requests} requests, {seeds}; first token and total in seconds\n",
        (1000.0 * rate).round() / 1000.0
    );
    for line in [&heads].into_iter().chain(&lines) {
        let _ = write!(out, "{:<width$}", line[0], width = width(0));
        for (column, cell) in line.iter().enumerate().skip(1) {
            let _ = write!(out, "  {cell:>width$}", width = width(column));
        }
        out.push('\n');
    }
    out.push('\n');
}

fn cells(mean: &Mean) -> [String; HEADS.len()] {
    let summary = &mean.summary;
    [
        mean.policy.to_string(),
        format!("{:.1}%", 100.0 * summary.cached_share),
        seconds(summary.ttft_mean_s),
        seconds(summary.ttft_p50_s),
        seconds(summary.ttft_p90_s),
        seconds(summary.ttft_p95_s),
        seconds(summary.ttft_p99_s),
        seconds(summary.total_mean_s),
        format!("{:.2}", summary.hottest),
        format!("{:.2}", summary.busiest),
        format!("{:.2}", summary.fairness),
        summary.loads.to_string(),
        summary.refused.to_string(),
    ]
}

fn seconds(seconds: f64) -> String {
    match seconds {
        long if long >= 100.0 => format!("{long:.0}"),
        middle if middle >= 10.0 => format!("{middle:.1}"),
        short => format!("{short:.2}"),
    }
}

/// What the columns mean.
pub const LEGEND: &str = "\
cached    of the tokens of all prompts, those found in a node's cache
hottest   the busiest node's share of requests over its share of speed, for requests of that kind; 1 is even
busiest   the same by work: the most seconds of a node's own, over its part of what the nodes with the model had to do
fairness  Jain's index over the conversations' slowdowns; 1 is alike
loads     models loaded into memory; refused: answered with an error
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::run::record::Summary;

    #[test]
    fn columns_are_aligned() {
        let summary = Summary { requests: 3, ttft_mean_s: 12.345, ttft_p99_s: 123.4, ..Summary::default() };
        let mean =
            |policy| Mean { plan: "toy".into(), policy, rate: 0.5, load: 0.25, runs: 2, summary: summary.clone() };
        let table = table(&[mean("fleet"), mean("round_robin")]);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[0],
            "x0.5, 25 % of what the nodes can do: 3 requests, mean of 2 seeds; first token and total in seconds"
        );
        assert!(lines[2].starts_with("policy       cached  mean"), "{table}");
        assert!(lines[3].starts_with("fleet          0.0%  12.3  0.00  0.00  0.00  123"), "{table}");
        assert_eq!(lines[2].len(), lines[4].len());
    }
}
