//! What does Warmgate cost, beside the best there is?
//!
//! The same chats over the same upstreams, through each contestant in turn, several rounds: no proxy at all,
//! nginx, HAProxy, a Pingora proxy that reads nothing, Warmgate with all of its routing, SGLang's router,
//! LiteLLM and Ollama Herd. Each proxy has one core; load and upstreams share the other. Then how Warmgate's cost grows with
//! connections, upstreams and conversations, and what memory it takes. Builds what it measures, installs what
//! it measures beside, prints the table of the design's targets, and keeps all under `perf/results`.
//!
//! ```text
//! cargo run --release --example compare               # all of it: most of an hour
//! cargo run --release --example compare -- --scaling  # how the cost grows, and memory: ten minutes
//! cargo run --release --example compare -- --quick    # whether all works; keeps nothing
//! ```

#[path = "../body.rs"]
mod body;
#[path = "../fleet.rs"]
mod fleet;
#[path = "../../tests/it/http1.rs"]
#[allow(dead_code)]
mod http1;
#[path = "../numbers.rs"]
#[allow(dead_code)]
mod numbers;
#[path = "../program.rs"]
mod program;
#[path = "../provenance.rs"]
mod provenance;
#[path = "../results.rs"]
#[allow(dead_code)]
mod results;
#[path = "../usage.rs"]
#[allow(dead_code)]
mod usage;

mod contestant;
mod core;
mod measure;
mod process;
mod report;
mod summary;
mod upstream;
mod work;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use rustix::process::{Resource, getrlimit};

use contestant::{Contestant, NAMES, Running, Setting};
use measure::{Load, Row, Rows};
use process::{Cores, Process, free_ports};
use summary::{Counts, Medians};

/// Engines behind each contestant.
pub const UPSTREAMS: u16 = 4;

const CONNECTIONS: [usize; 3] = [1, 8, 64];
const STREAMS: usize = 16;
const IDLE_STREAMS: usize = 10_000;
const KB_220: usize = 220_000;
const KIB_2: usize = 2048;

/// Of how Warmgate's cost grows.
const GROWING: [&str; 2] = ["bare", "warmgate"];
const CONNECTIONS_MANY: usize = 512;
const UPSTREAM_COUNTS: [u16; 2] = [64, 1_000];

/// Python takes its time: these are not asked for thousands of streams.
const SLOW: [&str; 2] = ["litellm", "ollama-herd"];
const IDLE_STREAMS_SLOW: usize = 200;

#[derive(Parser)]
pub struct Arguments {
    /// Only these, by name; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A look whether all works: one short round, few streams, nothing kept.
    #[arg(long)]
    quick: bool,
    /// Measures what was built before.
    #[arg(long)]
    no_build: bool,
    /// Only how the cost of Warmgate and of bare Pingora grows, and what memory they take.
    #[arg(long)]
    scaling: bool,
    /// Requests after which memory is looked at.
    #[arg(long, default_value_t = 1_000_000)]
    requests: usize,
    /// Conversations that these belong to.
    #[arg(long, default_value_t = 100_000)]
    sessions: usize,
    /// What else is to be known of this run.
    #[arg(long, default_value = "")]
    note: String,
}

impl Arguments {
    fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds }
    }

    fn seconds(&self) -> u64 {
        if self.quick { 1 } else { 4 }
    }

    fn wants(&self, name: &str) -> bool {
        let scales = !self.scaling || GROWING.contains(&name);
        scales && (self.only.is_empty() || self.only.iter().any(|only| only == name))
    }

    /// Idle streams: a proxy needs two descriptors for each.
    fn idle_streams(&self) -> usize {
        const OTHER_DESCRIPTORS: u64 = 400;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = (limit.saturating_sub(OTHER_DESCRIPTORS) / 2) as usize;
        if self.quick { 200 } else { IDLE_STREAMS.min(most) }
    }

    fn requests(&self) -> usize {
        if self.quick { 5_000 } else { self.requests }
    }

    fn sessions(&self) -> usize {
        if self.quick { 1_000 } else { self.sessions.max(1) }
    }
}

fn main() -> ExitCode {
    upstream::role();
    let arguments = Arguments::parse();
    // Started from this thread: what is started ends with it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(compare(&arguments))
}

async fn compare(arguments: &Arguments) -> ExitCode {
    if let Some(unknown) = arguments.only.iter().find(|only| !NAMES.contains(&only.as_str())) {
        eprintln!("nobody is called {unknown}; there are {}", NAMES.join(", "));
        return ExitCode::FAILURE;
    }
    if !arguments.no_build {
        build();
    }
    let folder = folder();
    contestant::install("wrk", &folder).expect("wrk makes the load");
    let load_before = provenance::load();
    let cores = Cores::split();
    let first = free_ports(UPSTREAM_COUNTS[1]);
    let _upstreams = start_upstreams(first, UPSTREAM_COUNTS[1], cores, &folder).await;
    let setting = Setting { upstreams: (first..first + UPSTREAMS).collect(), cores, folder: folder.clone() };
    let mut contestants = Vec::new();
    for name in NAMES.into_iter().filter(|name| arguments.wants(name)) {
        contestants.push(Contestant::start(name, &setting).await);
    }
    // We make the load of streams, so we share the load's core.
    stay_on(cores.load);

    let mut rows = Vec::new();
    if arguments.wants("warmgate") {
        eprintln!("the routing core by itself");
        let mut rows = Rows { round: 0, contestant: "warmgate", all: &mut rows };
        rows.decisions();
        rows.remembered(arguments.sessions());
    }
    rest(&contestants, &mut rows).await;
    for round in 0..if arguments.scaling { 0 } else { arguments.rounds() } {
        for n in 0..contestants.len() {
            let one = &contestants[(n + round) % contestants.len()];
            if let Ok(running) = &one.running {
                eprintln!("round {} of {}: {}", round + 1, arguments.rounds(), one.name);
                let mut rows = Rows { round, contestant: one.name, all: &mut rows };
                take(&mut rows, running, arguments, &folder, cores).await;
            }
        }
    }
    let idle_streams = arguments.idle_streams();
    for one in &contestants {
        if let Ok(running) = &one.running {
            eprintln!("idle streams: {}", one.name);
            let count = if SLOW.contains(&one.name) { IDLE_STREAMS_SLOW } else { idle_streams };
            Rows { round: 0, contestant: one.name, all: &mut rows }.idle_streams(running, count).await;
        }
    }
    drop_processes(&mut contestants);
    grow(arguments, &setting, first, &mut rows).await;

    let counts = Counts { streams: STREAMS, idle_streams, sessions: arguments.sessions() };
    let medians = Medians::of(&rows);
    let targets = summary::targets(&medians, &counts);
    report::print(&contestants, &rows, &medians, &targets);
    if !arguments.quick && arguments.only.is_empty() {
        report::keep(arguments, &load_before, &contestants, &rows, &medians, &targets);
    }
    let missed = targets.iter().any(|target| target.met == Some(false));
    if missed && !arguments.quick { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Memory and work of those that nobody has asked anything.
async fn rest(contestants: &[Contestant], rows: &mut Vec<Row>) {
    for one in contestants {
        if let Ok(running) = &one.running {
            let mut rows = Rows { round: 0, contestant: one.name, all: &mut *rows };
            rows.at_rest(running, "rest", Duration::from_secs(2)).await;
        }
    }
}

/// One contestant's turn in a round.
async fn take(rows: &mut Rows<'_>, running: &Running, arguments: &Arguments, folder: &Path, cores: Cores) {
    let (small, large) = bodies(folder);
    let duration = Duration::from_secs(arguments.seconds());
    for connections in CONNECTIONS {
        rows.closed(running, "2KiB", &small, Load { connections, duration, cores });
    }
    rows.closed(running, "220KB", &large, Load { connections: 8, duration, cores });
    rows.streams(running, STREAMS).await;
}

/// How the cost grows with connections, upstreams and conversations; of Warmgate, and beside bare Pingora where
/// that can be compared.
async fn grow(arguments: &Arguments, setting: &Setting, first: u16, rows: &mut Vec<Row>) {
    let (small, _) = bodies(&setting.folder);
    let duration = Duration::from_secs(arguments.seconds());
    for name in GROWING.into_iter().filter(|name| arguments.wants(name)) {
        let one = Contestant::start(name, setting).await;
        let Ok(running) = &one.running else { continue };
        let mut rows = Rows { round: 0, contestant: name, all: rows };
        // The others were measured in the rounds.
        let few = CONNECTIONS.into_iter().filter(|_| arguments.scaling);
        for connections in few.chain([CONNECTIONS_MANY]) {
            rows.closed(running, "2KiB", &small, Load { connections, duration, cores: setting.cores });
        }
        rows.sessions(running, &small, (arguments.requests(), arguments.sessions()), setting.cores);
    }
    for count in UPSTREAM_COUNTS {
        for name in GROWING.into_iter().filter(|name| arguments.wants(name)) {
            let one = Contestant::start(name, &setting.over((first..first + count).collect())).await;
            let Ok(running) = &one.running else { continue };
            let mut rows = Rows { round: 0, contestant: name, all: rows };
            rows.at_rest(running, &format!("rest_{count}_upstreams"), Duration::from_secs(4)).await;
            let load = Load { connections: 64, duration, cores: setting.cores };
            rows.closed(running, &format!("2KiB_{count}_upstreams"), &small, load);
        }
    }
}

fn bodies(folder: &Path) -> (PathBuf, PathBuf) {
    let body = |size| work::keep_body(folder, size).expect("a body's file");
    (body(KIB_2), body(KB_220))
}

/// The program and the bare proxy, in the profile of this one.
fn build() {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--quiet", "--bin", "warmgate", "--example", "bare"]);
    command.args((!cfg!(debug_assertions)).then_some("--release"));
    let built = command.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(built.is_ok_and(|status| status.success()), "cargo build failed");
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/compare");
    std::fs::create_dir_all(&folder).expect("target/compare");
    folder
}

async fn start_upstreams(first: u16, count: u16, cores: Cores, folder: &Path) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("our own path"));
    command.args([upstream::ROLE, "--first-port", &first.to_string(), "--count", &count.to_string()]);
    let mut process = Process::start(command, cores.load, folder.join("upstreams.log")).expect("the upstreams");
    while work::ask(process::loopback(first + count - 1), "perf-whole").await.is_err() {
        assert!(process.ended().is_none(), "the upstreams ended");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process
}

fn stay_on(core: Option<usize>) {
    if let Some(core) = core {
        let id = std::process::id().to_string();
        let _ = Command::new("taskset").args(["-a", "-p", "-c", &core.to_string(), &id]).output();
    }
}

fn drop_processes(contestants: &mut [Contestant]) {
    for one in contestants {
        if let Ok(running) = &mut one.running {
            running.process = None;
        }
    }
}
