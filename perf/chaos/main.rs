//! The load run of broken nodes: does any client notice?
//!
//! Three simulated engines in processes of their own behind the real `warmgate` program, and sixty-four
//! conversations at a time, streamed, half of them by Ollama's dialect and half by OpenAI's. All the time
//! engines are killed and started again, stopped for a minute and continued, and slowed, by a seeded
//! plan that always leaves one alone. A client must not see a request fail before its first byte nor wait
//! for longer than it takes to notice a node that hangs; of a node killed in the middle of an answer it must
//! be told. At the end nothing is left booked or waiting, and memory is what it was. Prints a line every few
//! seconds and a table, keeps summary and raw rows under `perf/results`, and fails if a target is missed.
//! Every process that it starts ends with it.
//!
//! ```text
//! cargo build --release && cargo run --release --example chaos
//! ```

#[path = "../kit.rs"]
mod kit;
#[path = "../patience.rs"]
mod patience;

mod conversation;
mod disturber;
mod prelude;
mod report;
mod rig;
mod summary;
mod watcher;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use conversation::Crowd;
use disturber::Disturber;
use kit::*;
use rig::Rig;
use summary::Summary;
use watcher::Watcher;

/// Engines killed, stopped and slowed at random under load: what do clients see of it?
#[derive(Parser, Clone, Debug)]
pub struct Arguments {
    /// How long nodes are disturbed.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Of texts, pauses and disturbances: the same seed, the same plan.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Conversations at a time.
    #[arg(long, default_value_t = 64)]
    conversations: usize,
    /// Seconds between two progress lines.
    #[arg(long, default_value_t = 5)]
    progress: u64,
    /// What else is to be known of this run.
    #[arg(long, default_value = "")]
    note: String,
    /// Keeps warmgate's log and configuration in this directory.
    #[arg(long)]
    log: Option<std::path::PathBuf>,
    /// Writes no result files.
    #[arg(long)]
    dry: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    engine_process::role().await;
    let arguments = Arguments::parse();
    let (mut interrupted, mut ended) = (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
    // On this thread and no other, since the engines end with the thread that starts them.
    tokio::select! {
        code = run(&arguments) => code,
        _ = interrupted.recv() => stopped(),
        _ = ended.recv() => stopped(),
    }
}

fn listen(kind: SignalKind) -> tokio::signal::unix::Signal {
    signal(kind).expect("a signal handler")
}

fn stopped() -> ExitCode {
    eprintln!("interrupted: all processes of the run have ended");
    ExitCode::FAILURE
}

async fn run(arguments: &Arguments) -> ExitCode {
    let (commit, load_before) = (provenance::commit(), provenance::load());
    let mut rig = Rig::start().await;
    prelude::fill(rig.gate.address, arguments.seed).await;
    rig.began = Instant::now();
    let crowd = Arc::new(Crowd::new(arguments, rig.gate.address, rig.began));
    let watcher = Arc::new(Watcher::new(&rig, arguments, crowd.clone()));
    let watching = tokio::spawn(watcher.clone().watch());
    let talking = tokio::spawn(crowd.clone().talk());

    let length = Duration::from_secs_f64(arguments.minutes * 60.0);
    let mut disturber = Disturber::new(arguments.seed, watcher.clone());
    disturber.disturb(&mut rig, length).await;
    crowd.no_more();
    disturber.restore(&mut rig).await;
    talking.await.expect("the conversations");
    let left = watcher.what_is_left().await;
    watching.abort();

    assert!(rig.gate.lives(), "warmgate ended during the run:\n{}", rig.gate.log());
    if let Some(directory) = &arguments.log {
        std::fs::create_dir_all(directory).expect("a directory for the log");
        std::fs::write(directory.join("warmgate.log"), rig.gate.log()).expect("the log");
    }
    let summary = Summary::of(&crowd.rows(), &watcher, disturber.events(), left);
    let targets = summary::targets(&summary);
    report::print(&summary, &targets);
    if !arguments.dry {
        report::keep(arguments, [&commit, &load_before], &crowd.rows(), &summary, &targets);
    }
    results::exit_code(&targets)
}
