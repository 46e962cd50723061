//! The load run of reloads: does any client notice?
//!
//! Simulated engines in processes of their own behind the real `warmgate` program, and two hundred streams at a
//! time, half of them by Ollama's dialect and half by OpenAI's. All the time the configuration is written
//! anew and read again: nodes come, go and get other weights and slots, keys and names change, and every fifth
//! file is broken. No stream may be cut and no request fail, each file must count as one reload of the right
//! outcome, and memory must stay what it was. Prints a table, keeps summary and raw rows under
//! `perf/results`, and fails if a target is missed. Every process that it starts ends with it.
//!
//! ```text
//! cargo build --release && cargo run --release --example reload
//! ```

#[path = "../kit.rs"]
mod kit;
#[path = "../patience.rs"]
mod patience;

mod crowd;
mod editor;
mod report;
mod rig;
mod summary;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;

use crowd::Crowd;
use editor::Editor;
use kit::*;
use rig::Rig;
use summary::Summary;

/// A configuration that changes all the time under load: what do clients see of it?
#[derive(Parser, Clone, Debug)]
pub struct Arguments {
    /// Files that are written, every fifth of them broken.
    #[arg(long, default_value_t = 100)]
    reloads: usize,
    /// Streams at a time.
    #[arg(long, default_value_t = 200)]
    streams: usize,
    /// Of texts and files.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What else is to be known of this run.
    #[arg(long, default_value = "")]
    note: String,
    /// Writes no result files.
    #[arg(long)]
    dry: bool,
}

/// With all streams and no reload yet, before memory is looked at.
const WARM_UP: Duration = Duration::from_secs(15);
/// Over which memory is averaged, before and after.
const LOOK: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    engine_process::role().await;
    let arguments = Arguments::parse();
    let (commit, load_before) = (provenance::commit(), provenance::load());
    let mut rig = Rig::start().await;
    crowd::fill(rig.gate.address, arguments.seed).await;
    let crowd = Arc::new(Crowd::new(rig.gate.address, arguments.seed));
    let streams = tokio::spawn(crowd.clone().keep_asking(arguments.streams));
    tokio::time::sleep(WARM_UP).await;
    let before_mib = rig.resident_mib(LOOK).await;
    let mut editor = Editor::new(arguments.seed);
    let began = crowd.rows().len();
    let mut resident_mib = Vec::new();
    for n in 0..arguments.reloads {
        editor.edit(&rig, n).await;
        resident_mib.push(rig.resident_now_mib());
    }
    let during = crowd.rows().len() - began;
    let after_mib = rig.resident_mib(LOOK).await;
    crowd.no_more();
    streams.await.expect("the streams");
    let left = rig.what_is_left().await;
    assert!(rig.gate.lives(), "warmgate ended during the run:\n{}", rig.gate.log());

    let summary = Summary::of(
        &crowd.rows(),
        during,
        editor.files(),
        &rig.reloads().await,
        &resident_mib,
        [before_mib, after_mib],
        left,
    );
    let targets = summary::targets(&summary, &arguments);
    report::print(&summary, &targets);
    if !arguments.dry {
        report::keep(&arguments, [&commit, &load_before], &crowd.rows(), &summary, &targets);
    }
    results::exit_code(&targets)
}
