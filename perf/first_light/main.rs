//! The load run of first light: what does it gain to send a conversation back to its node?
//!
//! Three simulated nodes behind the real `warmgate` program, sixty conversations of six turns from a
//! seeded plan; once with `policy: fleet`, once with `policy: shuffle`. What was cached is the
//! nodes' own count, why a turn went where it went is the receipt's word, and first-token times are
//! what a client sees. Prints a table, keeps summary and raw rows under `perf/results`, and fails
//! if a target is missed.
//!
//! ```text
//! cargo build --release && cargo run --release --example first_light
//! ```

mod conversation;
#[path = "../kit.rs"]
mod kit;
mod patience;
mod plan;
mod report;
mod rig;
mod summary;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use kit::*;
use plan::Plan;
use rig::Rig;
use summary::Summary;

#[derive(Parser)]
struct Arguments {
    /// The plan's seed: same seed, same texts and pauses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Fewer conversations, for a look whether all works; the targets are for sixty.
    #[arg(long, default_value_t = 60)]
    conversations: usize,
    /// All conversations begin within so many seconds; 0: at once.
    #[arg(long, default_value_t = 60)]
    spread: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let spread = Duration::from_secs(arguments.spread);
    let plan = Plan::new(arguments.seed, arguments.conversations, spread);
    let fleet = run(&plan, "fleet").await;
    let shuffle = run(&plan, "shuffle").await;
    let targets = summary::targets(&fleet, &shuffle);
    report::print(&plan, &fleet, &shuffle, &targets);
    report::keep(&plan, &[fleet, shuffle], &targets);
    results::exit_code(&targets)
}

/// All conversations under one policy, on nodes that hold nothing at the start.
async fn run(plan: &Plan, policy: &'static str) -> Summary {
    eprintln!("policy {policy}: {} conversations …", plan.conversations.len());
    let mut rig = Rig::start(policy).await;
    let rows = conversation::hold_all(plan, &rig).await;
    assert!(rig.gate.lives(), "warmgate ended during the run");
    Summary::of(policy, rows)
}
