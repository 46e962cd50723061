//! The load run of too much: four times what the engines can do.
//!
//! Three simulated engines with known slots, each a process, behind the real `warmgate` program. First as
//! much is asked as they can do, then four times as much: what is answered must not shrink, nobody may wait
//! for longer than `queue_timeout`, and who is refused must be told so at once, with a time to come back.
//! Then, with half of the slots reserved for interactive requests, these are asked alone, and together with
//! batch requests that make it four times as much again: their first tokens must come nearly as soon.
//! Arrivals do not wait for answers. Prints a table, keeps summary and raw rows under `perf/results`, and
//! fails if a target is missed. Every process that it starts ends with it.
//!
//! ```text
//! cargo build --release && cargo run --release --example overload
//! ```

#[path = "../kit.rs"]
mod kit;
#[path = "../patience.rs"]
mod patience;

mod load;
mod report;
mod rig;
mod summary;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use kit::*;
use load::{Class, Load};
use rig::Rig;
use summary::Phase;

/// Four times what the engines can do: is as much answered, and are interactive requests spared?
#[derive(Parser, Clone, Debug)]
pub struct Arguments {
    /// Seconds that are measured of each phase, after twenty that are not.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Of texts and arrivals.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What is asked beyond capacity, as a multiple of it.
    #[arg(long, default_value_t = 4.0)]
    times: f64,
    /// Interactive requests, as a share of capacity: on the average, so that at most half is in use at any time.
    #[arg(long, default_value_t = 0.3)]
    interactive: f64,
    /// What else is to be known of this run.
    #[arg(long, default_value = "")]
    note: String,
    /// Writes no result files.
    #[arg(long)]
    dry: bool,
}

/// Until queues are as long as they will be.
const WARM_UP: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> ExitCode {
    engine_process::role().await;
    let arguments = Arguments::parse();
    let (mut interrupted, mut ended) = (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
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
    let Arguments { times, interactive, .. } = *arguments;
    let alone = |share| vec![Load { class: Class::Interactive, share }];
    let mixed = vec![
        Load { class: Class::Interactive, share: interactive },
        Load { class: Class::Batch, share: times - interactive },
    ];
    let mut phases = Vec::new();
    for (reserve, name, loads) in [
        (0.0, "capacity", alone(1.0)),
        (0.0, "overload", alone(times)),
        (0.5, "interactive alone", alone(interactive)),
        (0.5, "with batch", mixed),
    ] {
        // Nothing is left over from the phase before: other texts, another warmgate, the same engines anew.
        let mut rig = Rig::start(reserve).await;
        eprintln!("{name}: {} s …", arguments.seconds + WARM_UP.as_secs());
        phases.push(Phase::run(name, &loads, &rig, arguments).await);
        assert!(rig.gate.lives(), "warmgate ended during the run:\n{}", rig.gate.log());
    }
    let targets = summary::targets(&phases);
    report::print(&phases, &targets);
    if !arguments.dry {
        report::keep(arguments, [&commit, &load_before], &phases, &targets);
    }
    results::exit_code(&targets)
}
