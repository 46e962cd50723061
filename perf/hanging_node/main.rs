//! What does one node that hangs cost the others, and whoever asks for lists?
//!
//! Five simulated nodes behind the real `warmgate` program. First all answer; then one of them hangs on
//! every path, with requests stuck at it, from the moment it begins to hang until after the health
//! checks have taken it out. Meanwhile one client asks for `/api/tags` and another chats with a model of
//! the other nodes, each one request after the other at a steady pace, so that times are those of a
//! machine that is not full. Prints a table, keeps it under `perf/results`, and fails if a target is
//! missed.
//!
//! ```text
//! cargo build --release && cargo run --release --example hanging_node
//! ```

#[path = "../kit.rs"]
mod kit;
#[path = "../../tests/it/patience.rs"]
#[allow(dead_code)]
mod patience;

mod door;
mod phase;
mod rig;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde_json::json;

use kit::*;
use phase::Phase;
use results::Target;
use rig::Rig;

/// Of `/api/tags` while a node hangs.
const TAGS_P99_MAX: Duration = Duration::from_millis(5);

/// Of chats, while a node hangs beside while none does: by so much the machine's own noise differs.
const CHATS_P99_RATIO_MAX: f64 = 2.0;
const CHATS_P99_NOISE_MS: f64 = 1.0;

#[derive(Parser)]
struct Arguments {
    /// Requests for `/api/tags` in each phase.
    #[arg(long, default_value_t = 2_000)]
    requests: usize,
    /// Milliseconds between them. Together they should outlast the health checks, which take a node out
    /// after some 15 s.
    #[arg(long, default_value_t = 9)]
    pace_ms: u64,
    /// What else is to be known of this run.
    #[arg(long, default_value = "")]
    note: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (count, pace) = (arguments.requests, Duration::from_millis(arguments.pace_ms));
    let load_before = provenance::load();
    let mut rig = Rig::start().await;
    let fine = Phase::run("all answer", &rig, count, pace).await;
    rig.hang().await;
    let hung = Phase::run("one hangs", &rig, count, pace).await;
    assert!(rig.gate.lives(), "warmgate ended during the run");
    let was_taken_out = rig.gate.log().contains("hung: taken out");

    let ratio_limit_ms = CHATS_P99_RATIO_MAX * fine.chats.p99_ms + CHATS_P99_NOISE_MS;
    let targets = [
        Target::new(
            hung.tags.p99_ms < TAGS_P99_MAX.as_secs_f64() * 1e3,
            format!("/api/tags p99 {:.3} ms, below 5", hung.tags.p99_ms),
        ),
        Target::new(
            hung.chats.p99_ms <= ratio_limit_ms,
            format!("chats elsewhere p99 {:.3} ms, at most {ratio_limit_ms:.3}", hung.chats.p99_ms),
        ),
        Target::new(hung.chats.failed + hung.tags.failed == 0, "no request failed"),
        Target::new(was_taken_out, "the run outlasts the health checks"),
    ];
    println!("load averages before: {load_before}");
    for phase in [&fine, &hung] {
        for (what, times) in [("/api/tags", &phase.tags), ("chat", &phase.chats)] {
            println!(
                "{:<12}{what:<10}{:>6} requests  p50 {:>8.3}  p99 {:>8.3}  max {:>8.3} ms",
                phase.name, times.count, times.p50_ms, times.p99_ms, times.max_ms
            );
        }
    }
    results::print(&targets);
    let result = json!({
        "command": "cargo run --release --example hanging_node",
        "commit": provenance::commit(),
        "machine": provenance::machine(),
        "note": arguments.note,
        "client_profile": if cfg!(debug_assertions) { "debug" } else { "release" },
        "load_averages_before": load_before,
        "nodes": "four simulated ones that hold moss:7b and answer within milliseconds, one that holds fern:3b and hangs",
        "stuck_requests": rig::STUCK,
        "pace_ms": arguments.pace_ms,
        "phases": [fine, hung],
        "targets": targets,
        "run_again_when": "the lists, the health checks, telemetry or the fleet's lock change",
    });
    results::keep("hanging_node", &result, None);
    results::exit_code(&targets)
}
