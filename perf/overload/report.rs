//! The table on the screen, and the files under `perf/results`.

use std::fmt::Write;

use serde_json::json;

use crate::results::{self, Target};
use crate::rig::{self, capacity_per_s};
use crate::summary::Phase;
use crate::{Arguments, provenance};

/// A name, and the number under it.
type Line = (&'static str, fn(&Phase) -> f64);

const LINES: [Line; 21] = [
    ("asked a second", |p| p.asked_per_s),
    ("answers a second", |p| p.answers_per_s),
    ("tokens a second", |p| p.tokens_per_s),
    ("interactive asked", |p| p.interactive.asked as f64),
    ("  answered", |p| p.interactive.answered as f64),
    ("  refused", |p| p.interactive.refused as f64),
    ("  first token p50 ms", |p| p.interactive.first_token_p50_ms),
    ("  p95", |p| p.interactive.first_token_p95_ms),
    ("  max", |p| p.interactive.first_token_max_ms),
    ("batch asked", |p| p.batch.asked as f64),
    ("  answered", |p| p.batch.answered as f64),
    ("  first token p95 ms", |p| p.batch.first_token_p95_ms),
    ("refused at once", |p| p.refused_at_once as f64),
    ("  after ms, p99", |p| p.refused_at_once_p99_ms),
    ("refused after waiting", |p| p.refused_after_waiting as f64),
    ("longest wait in the queue, ms", |p| p.queue_longest_ms),
    ("Retry-After, most s", |p| p.retry_after_s_max as f64),
    ("sent late, p99 ms", |p| p.sent_late_p99_ms),
    ("cores used by warmgate", |p| p.cores.warmgate),
    ("  by the engines", |p| p.cores.engines),
    ("  by the load generator", |p| p.cores.load_generator),
];

pub fn print(phases: &[Phase], targets: &[Target]) {
    print!("{:<32}", "");
    phases.iter().for_each(|phase| print!("{:>19}", phase.name));
    println!();
    for (name, value) in LINES {
        print!("{name:<32}");
        phases.iter().for_each(|phase| print!("{:>19.3}", value(phase)));
        println!();
    }
    results::print(targets);
}

pub fn keep(arguments: &Arguments, [commit, load_before]: [&str; 2], phases: &[Phase], targets: &[Target]) {
    let result = json!({
        "command": "cargo run --release --example overload",
        "commit": commit,
        "machine": provenance::machine(),
        "note": arguments.note,
        "profile": if cfg!(debug_assertions) { "debug" } else { "release" },
        "load_averages_before": load_before,
        "load_averages_after": provenance::load(),
        "seed": arguments.seed,
        "seconds_measured": arguments.seconds,
        "seconds_before": crate::WARM_UP.as_secs(),
        "capacity_per_s": capacity_per_s(),
        "workload": format!(
            "three simulated engines, each a process; prompts of {} tokens, each its own, answers of {}, streamed; \
             arrivals at random; queue_timeout {:?}, max_queue {}",
            rig::PROMPT_TOKENS, rig::ANSWER_TOKENS, rig::QUEUE_TIMEOUT, rig::MAX_QUEUE
        ),
        "phases": phases,
        "targets": targets,
        "run_again_when": "admission, the queue, its fairness or refusals change",
    });
    results::keep("overload", &result, Some(&csv(phases)));
}

fn csv(phases: &[Phase]) -> String {
    let mut text = String::from(
        "phase,class,at_s,late_ms,node,queue_ms,status,retry_after_s,first_token_ms,total_ms,tokens,end\n",
    );
    for (phase, row) in phases.iter().flat_map(|phase| phase.rows.iter().map(move |row| (phase.name, row))) {
        let outcome = &row.outcome;
        let number = |number: Option<u128>| number.map_or(String::new(), |number| number.to_string());
        let _ = writeln!(
            text,
            "{phase},{},{:.3},{},{},{},{},{},{},{},{},{}",
            row.class.name(),
            row.at.as_secs_f64(),
            row.late.as_millis(),
            outcome.node,
            outcome.queue_ms,
            outcome.status,
            number(outcome.retry_after_s.map(u128::from)),
            number(outcome.first_token.map(|time| time.as_millis())),
            outcome.total.as_millis(),
            outcome.tokens,
            outcome.end.name().replace(", ", " "),
        );
    }
    text
}
