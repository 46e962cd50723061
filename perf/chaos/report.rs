//! The table on the screen, and the files under `perf/results`.

use std::fmt::Write;

use serde_json::json;

use crate::conversation::Row;
use crate::results::{self, Target};
use crate::summary::Summary;
use crate::{Arguments, provenance, rig};

pub fn print(summary: &Summary, targets: &[Target]) {
    println!();
    let counts = [
        ("engines killed", summary.killed),
        ("  stopped for a minute", summary.stopped),
        ("  slowed", summary.slowed),
        ("requests", summary.requests),
        ("  answered whole", summary.whole),
        ("  failed before the first byte", summary.failed_before_first_byte),
        ("  cut and told so", summary.cut_marked),
        ("  cut otherwise", summary.cut - summary.cut_marked),
        ("  with more than one attempt", summary.more_than_one_attempt),
        ("  that waited in the queue", summary.waited_in_queue),
        ("  that waited longer than the ejection time", summary.waited_longer_than_ejection),
    ];
    for (what, count) in counts {
        println!("{what:<48}{count:>10}");
    }
    let figures = [
        ("first token, p50 s", summary.first_token_p50_s),
        ("  p95", summary.first_token_p95_s),
        ("  p99", summary.first_token_p99_s),
        ("  max", summary.first_token_max_s),
        ("ejection time by configuration, s", summary.ejection_s),
        ("  of stopped engines as seen, max", summary.stopped_noticed_after_max_s),
        ("resident memory, first minute, MiB", summary.resident_first_minute_mib),
        ("  last minute", summary.resident_last_minute_mib),
        ("  max", summary.resident_max_mib),
        ("cores used by warmgate", summary.cores.warmgate),
        ("  by the engines", summary.cores.engines),
        ("  by the load generator", summary.cores.load_generator),
    ];
    for (what, value) in figures {
        println!("{what:<48}{value:>10.3}");
    }
    results::print(targets);
}

pub fn keep(
    arguments: &Arguments,
    [commit, load_before]: [&str; 2],
    rows: &[Row],
    summary: &Summary,
    targets: &[Target],
) {
    let result = json!({
        "command": "cargo run --release --example chaos",
        "commit": commit,
        "machine": provenance::machine(),
        "note": arguments.note,
        "profile": if cfg!(debug_assertions) { "debug" } else { "release" },
        "load_averages_before": load_before,
        "load_averages_after": provenance::load(),
        "seed": arguments.seed,
        "minutes": arguments.minutes,
        "conversations": arguments.conversations,
        "workload": format!(
            "three simulated engines, each a process; conversations of 3 to 6 turns, streamed, half by each dialect; \
             openings of 200 to 1,000 tokens, turns of 25 to 200, answers of {}; pauses of 0.2 to 1.8 s; one engine \
             always well; before it 20,000 short requests, which fill all that is remembered up to its limits",
            rig::ANSWER_TOKENS
        ),
        "summary": summary,
        "targets": targets,
        "run_again_when": "retries, the breaker, health checks, stuck requests, the queue or the relaying of streams change",
    });
    results::keep("chaos", &result, Some(&csv(rows)));
}

fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "at_s,conversation,turn,again,dialect,node,attempts,queue_ms,status,first_token_ms,total_ms,tokens,end\n",
    );
    for row in rows {
        let outcome = &row.outcome;
        let _ = writeln!(
            text,
            "{:.3},{},{},{},{},{},{},{},{},{},{},{},{}",
            row.at.as_secs_f64(),
            row.conversation,
            row.turn,
            u8::from(row.is_again),
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
