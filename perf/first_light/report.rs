//! The table on the screen, and the files under `perf/results`.

use std::fmt::Write;

use serde_json::json;

use crate::plan::Plan;
use crate::provenance;
use crate::results::{self, Target};
use crate::summary::Summary;

/// A name, and the number under it.
type Line = (&'static str, fn(&Summary) -> f64);

pub fn print(plan: &Plan, fleet: &Summary, shuffle: &Summary, targets: &[Target]) {
    let (count, spread) = (plan.conversations.len(), plan.spread);
    println!("{count} conversations beginning within {spread:?}, seed {}", plan.seed);
    println!("{:<44}{:>10}{:>10}", "", fleet.policy, shuffle.policy);
    let lines: [Line; 10] = [
        ("follow-ups on the node of their last turn", |s| s.stayed),
        ("  or with a better score elsewhere", |s| s.stayed_or_better),
        ("cached share of prompt tokens", |s| s.cached_share),
        ("  ideal", |s| s.ideal_share),
        ("follow-ups' first token, mean s", |s| s.follow_up_mean_s),
        ("  p50", |s| s.follow_up_p50_s),
        ("  p95", |s| s.follow_up_p95_s),
        ("openings' first token, mean s", |s| s.opening_mean_s),
        ("depths confirmed by the node", |s| s.depths_agreeing),
        ("  requests apart, mean", |s| s.depth_apart_mean),
    ];
    for (name, value) in lines {
        println!("{name:<44}{:>10.3}{:>10.3}", value(fleet), value(shuffle));
    }
    results::print(targets);
}

/// Writes summary and rows, named by the date.
pub fn keep(plan: &Plan, runs: &[Summary], targets: &[Target]) {
    let summary = json!({
        "command": "cargo run --release --example first_light",
        "commit": provenance::commit(),
        "machine": provenance::machine(),
        "seed": plan.seed,
        "conversations": plan.conversations.len(),
        "spread_s": plan.spread.as_secs(),
        "runs": runs,
        "targets": targets,
        "run_again_when": "the score, the session key, the pins or the simulated engine change",
    });
    results::keep("first_light", &summary, Some(&csv(runs)));
}

fn csv(runs: &[Summary]) -> String {
    let mut text = String::from(
        "policy,conversation,turn,node,first_token_ms,prompt_tokens,cached_tokens,output_tokens,\
         better_elsewhere,decided_at_depth,arrived_at_depth\n",
    );
    for (policy, row) in runs.iter().flat_map(|run| run.rows.iter().map(|row| (run.policy, row))) {
        let _ = writeln!(
            text,
            "{policy},{},{},{},{},{},{},{},{},{},{}",
            row.conversation,
            row.turn,
            row.node,
            row.first_token.as_millis(),
            row.prompt_tokens,
            row.cached_tokens,
            row.output_tokens,
            row.better_elsewhere,
            row.decided_at_depth,
            row.arrived_at_depth,
        );
    }
    text
}
