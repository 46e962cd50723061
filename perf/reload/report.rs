//! The table on the screen, and the files under `perf/results`.

use std::fmt::Write;

use serde_json::json;

use crate::crowd::Row;
use crate::results::{self, Target};
use crate::summary::Summary;
use crate::{Arguments, provenance, rig};

pub fn print(summary: &Summary, targets: &[Target]) {
    println!();
    let figures = [
        ("requests", summary.requests as f64),
        ("  during the reloads", summary.during_reloads as f64),
        ("  failed", summary.failed as f64),
        ("  cut", summary.cut as f64),
        ("first token, p50 s", summary.first_token_p50_s),
        ("  p99", summary.first_token_p99_s),
        ("  max", summary.first_token_max_s),
        ("resident memory before, MiB", summary.resident_before_mib),
        ("  after", summary.resident_after_mib),
    ];
    for (what, value) in figures {
        println!("{what:<40}{value:>10.3}");
    }
    println!("  by fifths of the reloads: {:.1?}", summary.resident_mib);
    results::print(targets);
}

pub fn keep(
    arguments: &Arguments,
    [commit, load_before]: [&str; 2],
    rows: &[Row],
    summary: &Summary,
    targets: &[Target],
) {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let result = json!({
        "command": "cargo run --release --example reload",
        "commit": commit,
        "machine": provenance::machine(),
        "note": arguments.note,
        "profile": profile,
        "load_averages_before": load_before,
        "load_averages_after": provenance::load(),
        "seed": arguments.seed,
        "streams": arguments.streams,
        "workload": format!(
            "four simulated engines, each a process; {} streams at a time of {} tokens, half by each dialect; {} files, \
             every fifth broken, the others with two to four of the engines, other weights, slots, keys, names and times; \
             a third asked for, a third by SIGHUP, a third left to the file watch",
            arguments.streams, rig::ANSWER_TOKENS, arguments.reloads
        ),
        "summary": summary,
        "targets": targets,
        "run_again_when": "reloading, the roster, the file watch or the relaying of streams change",
    });
    results::keep("reload", &result, Some(&csv(rows)));
}

fn csv(rows: &[Row]) -> String {
    let mut text = String::from("at_s,dialect,node,attempts,queue_ms,status,first_token_ms,total_ms,tokens,end\n");
    for row in rows {
        let outcome = &row.outcome;
        let _ = writeln!(
            text,
            "{:.3},{},{},{},{},{},{},{},{},{}",
            row.at.as_secs_f64(),
            row.dialect.name(),
            outcome.node,
            outcome.attempts,
            outcome.queue_ms,
            outcome.status,
            outcome.first_token.map_or(String::new(), |time| time.as_millis().to_string()),
            outcome.total.as_millis(),
            outcome.tokens,
            outcome.end.name().replace(", ", " "),
        );
    }
    text
}
