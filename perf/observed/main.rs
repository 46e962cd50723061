//! What does it cost that all is observed?
//!
//! The whole program twice, from one build: with everything that observes on (metrics, the last hour, receipts,
//! what is live, an access line for each request, a collector that comes every second), and with all of that off.
//! Both stand on one core, load and upstreams on the other; they take turns, each first in every second round, so
//! that what the machine does otherwise meets both alike. Told is the median of the rounds' ratios.
//!
//! ```text
//! cargo run --release --example observed
//! ```

#[path = "../body.rs"]
mod body;
#[path = "../../tests/it/http1.rs"]
#[allow(dead_code)]
mod http1;
#[path = "../numbers.rs"]
#[allow(dead_code)]
mod numbers;
#[path = "../compare/process.rs"]
#[allow(dead_code)]
mod process;
#[path = "../provenance.rs"]
mod provenance;
#[path = "../results.rs"]
mod results;
#[path = "../compare/upstream.rs"]
#[allow(dead_code)]
mod upstream;
#[path = "../usage.rs"]
#[allow(dead_code)]
mod usage;
#[path = "../compare/work.rs"]
#[allow(dead_code)]
mod work;

mod side;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use serde_json::json;

use numbers::percentile;
use process::{Cores, Process, free_ports};
use results::Target;
use side::{Side, Taken};
use work::CONVERSATIONS;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const UPSTREAMS: u16 = 4;
const BODY_BYTES: usize = 2048;
const CONNECTIONS: usize = 16;

/// Of throughput.
const LOSS_MAX: f64 = 0.05;

/// At which the loss is to be told as a share of a core.
const RATE: f64 = 5000.0;

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Of each side in each round.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// A look whether all works: nothing is kept, and no target is missed.
    #[arg(long)]
    quick: bool,
    /// What else is to be known of this run.
    #[arg(long, default_value = "")]
    note: String,
}

fn main() -> ExitCode {
    upstream::role();
    side::role();
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(observe(&arguments))
}

async fn observe(arguments: &Arguments) -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/observed");
    std::fs::create_dir_all(&folder).expect("target/observed");
    install_load(&folder);
    let load_before = provenance::load();
    let cores = Cores::split();
    let first = free_ports(UPSTREAMS);
    let _upstreams = start_upstreams(first, cores, &folder).await;
    let upstreams: Vec<u16> = (first..first + UPSTREAMS).collect();
    let mut sides = Vec::new();
    for observes in [true, false] {
        sides.push(Side::start(observes, &upstreams, cores, &folder).await);
    }
    let _collector = sides[0].collected_every(Duration::from_secs(1));

    let body = work::keep_body(&folder, BODY_BYTES).expect("a body's file");
    let seconds = if arguments.quick { 1 } else { arguments.seconds };
    let load = side::Load { body, connections: CONNECTIONS, duration: Duration::from_secs(seconds), cores };
    for side in &sides {
        side.take(&load);
    }
    let mut rounds: Vec<[Taken; 2]> = Vec::new();
    for round in 0..if arguments.quick { 2 } else { arguments.rounds } {
        let mut taken = [Taken::default(); 2];
        for n in [round % 2, (round + 1) % 2] {
            taken[n] = sides[n].take(&load);
        }
        println!("{:>3}  on {}  off {}  ratio {:.3}", round + 1, taken[0], taken[1], taken[0].rate / taken[1].rate);
        rounds.push(taken);
    }
    tell(arguments, &load_before, &rounds)
}

fn tell(arguments: &Arguments, load_before: &str, rounds: &[[Taken; 2]]) -> ExitCode {
    let of =
        |figure: &dyn Fn(&[Taken; 2]) -> f64, share| percentile(&rounds.iter().map(figure).collect::<Vec<_>>(), share);
    let ratio = |[on, off]: &[Taken; 2]| on.rate / off.rate;
    let cost_us = |[on, off]: &[Taken; 2]| on.cpu_us - off.cpu_us;
    let (loss, loss_cpu) = (1.0 - of(&ratio, 0.5), of(&|[on, off]| on.cpu_us / off.cpu_us, 0.5) - 1.0);
    let failed: u64 = rounds.iter().flatten().map(|taken| taken.failed).sum();
    let cost_us = of(&cost_us, 0.5);
    println!(
        "observation costs {:.1} % of throughput (quarters of the rounds {:.1} and {:.1} %), {:.1} us of {:.1} us of \
         processor time a request ({:.1} %); at {RATE} requests/s that is {:.1} % of a core",
        loss * 100.0,
        (1.0 - of(&ratio, 0.75)) * 100.0,
        (1.0 - of(&ratio, 0.25)) * 100.0,
        cost_us,
        of(&|[on, _]| on.cpu_us, 0.5),
        loss_cpu * 100.0,
        cost_us * RATE / 1e4,
    );
    let targets = [
        Target::new(loss < LOSS_MAX, format!("observation costs {:.1} % of throughput, at most 5 %", loss * 100.0)),
        Target::new(failed == 0, format!("{failed} requests failed")),
    ];
    results::print(&targets);
    if arguments.quick {
        return ExitCode::SUCCESS;
    }
    let result = json!({
        "command": "cargo run --release --example observed",
        "date": provenance::date(),
        "commit": provenance::commit(),
        "machine": provenance::machine(),
        "load_before": load_before,
        "note": arguments.note,
        "workload": format!("{BODY_BYTES} byte chats over {CONNECTIONS} connections and {CONVERSATIONS} conversations, \
                             {UPSTREAMS} upstreams, one core; {} rounds of {} s a side", rounds.len(), arguments.seconds),
        "loss_of_throughput": loss,
        "loss_by_processor_time": loss_cpu,
        "cost_us_per_request": cost_us,
        "targets": targets,
        "rounds": rounds,
        "run_again_when": "something more is counted, logged or kept of each request",
    });
    results::keep("observed", &result, None);
    results::exit_code(&targets)
}

/// What makes the load, installed where it is not there.
fn install_load(folder: &Path) {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("perf/compare/rivals");
    let installed = Command::new(script).arg("wrk").arg(folder).output();
    assert!(installed.is_ok_and(|output| output.status.success()), "wrk makes the load");
}

async fn start_upstreams(first: u16, cores: Cores, folder: &Path) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.args([upstream::ROLE, "--first-port", &first.to_string(), "--count", &UPSTREAMS.to_string()]);
    let mut process = Process::start(command, cores.load, folder.join("upstreams.log")).expect("the upstreams");
    while work::ask(process::loopback(first + UPSTREAMS - 1), "perf-whole").await.is_err() {
        assert!(process.ended().is_none(), "the upstreams ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process
}
