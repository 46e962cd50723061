//! What does Warmgate cost, beside the best there is?
//!
//! The same chats over the same upstreams, through each contestant in turn, several rounds: no proxy at all,
//! nginx, HAProxy, a Pingora proxy that reads nothing, Warmgate with all of its routing, SGLang's router,
//! LiteLLM and Ollama Herd. Each proxy has one core; load and upstreams share the other. While one has its turn the
//! others are stopped. Then how Warmgate's cost grows with connections, upstreams and conversations, and what memory
//! it takes. Builds what it measures, installs what it measures beside, prints the table of the design's targets, and
//! keeps all under `perf/results`. `--help` has examples.

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
mod progress;
mod report;
mod summary;
mod upstream;
mod work;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use contestant::{Contestant, NAMES, Running, Setting};
use measure::{Load, Measured, Rows};
use process::{Alone, Cores, Process, free_ports};
use progress::Progress;
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

/// About what each takes, for telling how much is left.
const START: Duration = Duration::from_secs(4);
const REST: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(10);
const CORE: Duration = Duration::from_secs(20);
const GROW: Duration = Duration::from_secs(150);

/// Open files besides those of streams.
const OTHER_FILES: u64 = 400;

const EXAMPLES: &str = "\
Examples:
  cargo run --release --example compare                 all of it, 5 rounds: about 20 minutes
  cargo run --release --example compare -- --quick      whether all works: 2 minutes, keeps nothing
  cargo run --release --example compare -- --only bare --only warmgate --rounds 3
                                                        these two alone; keeps nothing
  cargo run --release --example compare -- --scaling    how the cost grows, and memory: 10 minutes

Nothing else should run meanwhile: two cores are measured to the full. Ctrl-C ends all that was started.";

#[derive(Parser)]
#[command(name = "compare", about = "Measures Warmgate beside other proxies, over the same upstreams.", after_help = EXAMPLES)]
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

    /// Of one load.
    fn seconds(&self) -> u64 {
        if self.quick { 1 } else { 3 }
    }

    fn wants(&self, name: &str) -> bool {
        let scales = !self.scaling || GROWING.contains(&name);
        scales && (self.only.is_empty() || self.only.iter().any(|only| only == name))
    }

    /// Idle streams, as far as so many open files allow: a proxy needs two for each.
    fn idle_streams(&self, open_files: u64) -> usize {
        let most = (open_files.saturating_sub(OTHER_FILES) / 2) as usize;
        if self.quick { 200 } else { IDLE_STREAMS.min(most) }
    }

    /// One contestant's turn in a round: warm-up, four loads, streams.
    fn turn(&self) -> Duration {
        Duration::from_secs(1 + 4 * self.seconds() + 2)
    }

    fn whole(&self) -> Duration {
        let count = NAMES.into_iter().filter(|name| self.wants(name)).count() as u32;
        let rounds = if self.scaling { 0 } else { self.rounds() as u32 };
        count * (START + REST + IDLE + rounds * self.turn()) + CORE + GROW
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
    runtime.block_on(async {
        let mut stops = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
            .map(|kind| signal(kind).expect("to hear of signals"));
        let [interrupt, terminate, hangup] = &mut stops;
        tokio::select! {
            code = compare(&arguments) => code,
            _ = async { tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hangup.recv() => {} } } => {
                eprintln!("stopped; what was started is ended, nothing is kept");
                ExitCode::from(130)
            }
        }
    })
}

/// Where and how a run was made.
pub struct Run {
    pub machine: String,
    pub load_before: String,
    pub cores: Cores,
    /// Open files that were allowed to this process and to each contestant.
    pub open_files: u64,
    pub idle_streams: usize,
}

async fn compare(arguments: &Arguments) -> ExitCode {
    if let Some(unknown) = arguments.only.iter().find(|only| !NAMES.contains(&only.as_str())) {
        eprintln!("nobody is called {unknown}; there are {}", NAMES.join(", "));
        return ExitCode::FAILURE;
    }
    let folder = folder();
    let _alone = match Alone::in_folder(&folder) {
        Ok(alone) => alone,
        Err(why) => {
            eprintln!("{why}; wait for it to end");
            return ExitCode::FAILURE;
        }
    };
    let run = prepare(arguments, &folder);
    let cores = run.cores;
    let first = free_ports(UPSTREAM_COUNTS[1]);
    let _upstreams = start_upstreams(first, UPSTREAM_COUNTS[1], cores, &folder).await;
    let upstreams = (first..first + UPSTREAMS).collect();
    let setting = Setting { upstreams, cores, folder: folder.clone(), streams: run.idle_streams };
    let mut progress = Progress::of(arguments.whole());
    let mut contestants = Vec::new();
    for name in NAMES.into_iter().filter(|name| arguments.wants(name)) {
        progress.step(START, &format!("starting {name}"));
        let one = Contestant::start(name, &setting).await;
        one.pause();
        contestants.push(one);
    }
    // We make the load of streams, so we share the load's core.
    stay_on(cores.load);

    let mut measured = Measured::default();
    if arguments.wants("warmgate") {
        progress.step(CORE, "the routing core by itself");
        let mut rows = Rows { round: 0, contestant: "warmgate", all: &mut measured };
        rows.decisions();
        rows.remembered(arguments.sessions());
    }
    for one in contestants.iter().filter(|one| one.running.is_ok()) {
        progress.step(REST, &format!("at rest: {}", one.name));
        let mut rows = Rows { round: 0, contestant: one.name, all: &mut measured };
        match one.go_on().await {
            Ok(running) => rows.at_rest(running, "rest", Duration::from_secs(2)).await,
            Err(why) => rows.void("rest".into(), why),
        }
        one.pause();
    }
    let rounds = if arguments.scaling { 0 } else { arguments.rounds() };
    for round in 0..rounds {
        for n in order(round, contestants.len()) {
            let one = &contestants[n];
            if one.running.is_ok() {
                progress.step(arguments.turn(), &format!("round {} of {rounds}: {}", round + 1, one.name));
                let mut rows = Rows { round, contestant: one.name, all: &mut measured };
                match one.go_on().await {
                    Ok(running) => take(&mut rows, running, arguments, &folder, cores).await,
                    Err(why) => rows.void("all of the round".into(), why),
                }
                one.pause();
            }
        }
    }
    let upstream = process::loopback(first);
    for one in contestants.iter_mut().filter(|one| one.running.is_ok()) {
        progress.step(IDLE, &format!("idle streams: {}", one.name));
        let count = if SLOW.contains(&one.name) { run.idle_streams.min(IDLE_STREAMS_SLOW) } else { run.idle_streams };
        let mut rows = Rows { round: 0, contestant: one.name, all: &mut measured };
        match one.go_on().await {
            Ok(running) => rows.idle_streams(running, count, || work::standing(upstream)).await,
            Err(why) => rows.void(format!("idle_streams/{count}"), why),
        }
        // Its connections end with it, so that the next finds the upstreams empty.
        one.end();
    }
    progress.step(GROW, "how the cost grows");
    grow(arguments, &setting, first, &mut measured).await;

    let medians = Medians::of(&measured.rows);
    let counts = Counts { streams: STREAMS, idle_streams: run.idle_streams, sessions: arguments.sessions() };
    let targets = summary::targets(&medians, &counts);
    report::print(&contestants, &measured, &medians, &targets);
    if !arguments.quick && arguments.only.is_empty() {
        report::keep(arguments, &run, &contestants, &measured, &medians, &targets);
    }
    let missed = targets.iter().any(|target| target.met == Some(false));
    if missed && !arguments.quick { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Builds and installs what is needed, and looks at the machine before it is busy.
fn prepare(arguments: &Arguments, folder: &Path) -> Run {
    if !arguments.no_build {
        build();
    }
    contestant::install("wrk", folder).expect("wrk makes the load");
    let (had, open_files) = process::raise_open_files(2 * IDLE_STREAMS as u64 + OTHER_FILES);
    let idle_streams = arguments.idle_streams(open_files);
    eprintln!(
        "open files: {had} were allowed, now {open_files}: at most {idle_streams} idle streams through one proxy"
    );
    Run {
        machine: provenance::machine(),
        load_before: provenance::load(),
        cores: Cores::split(),
        open_files,
        idle_streams,
    }
}

/// Each round begins with another and goes the other way round than the one before, so that nobody always follows
/// the same.
fn order(round: usize, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).map(|n| (n + round) % count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// One contestant's turn in a round.
async fn take(rows: &mut Rows<'_>, running: &Running, arguments: &Arguments, folder: &Path, cores: Cores) {
    let (small, large) = bodies(folder);
    let duration = Duration::from_secs(arguments.seconds());
    rows.warm_up(running, &small, cores);
    for connections in CONNECTIONS {
        rows.closed(running, "2KiB", &small, Load { connections, duration, cores });
    }
    rows.closed(running, "220KB", &large, Load { connections: 8, duration, cores });
    rows.streams(running, STREAMS).await;
}

/// How the cost grows with connections, upstreams and conversations; of Warmgate, and beside bare Pingora where
/// that can be compared.
async fn grow(arguments: &Arguments, setting: &Setting, first: u16, measured: &mut Measured) {
    let (small, _) = bodies(&setting.folder);
    let duration = Duration::from_secs(arguments.seconds());
    for name in GROWING.into_iter().filter(|name| arguments.wants(name)) {
        let one = Contestant::start(name, setting).await;
        let Ok(running) = &one.running else { continue };
        let mut rows = Rows { round: 0, contestant: name, all: measured };
        rows.warm_up(running, &small, setting.cores);
        // The others were measured in the rounds.
        let few = CONNECTIONS.into_iter().filter(|_| arguments.scaling);
        for connections in few.chain([CONNECTIONS_MANY]) {
            rows.closed(running, "2KiB", &small, Load { connections, duration, cores: setting.cores });
        }
        // Bare Pingora remembers nothing; it is asked for its own memory only where there is time.
        if name == "warmgate" || arguments.scaling {
            rows.sessions(running, &small, (arguments.requests(), arguments.sessions()), setting.cores);
        }
    }
    for count in UPSTREAM_COUNTS {
        for name in GROWING.into_iter().filter(|name| arguments.wants(name)) {
            let one = Contestant::start(name, &setting.over((first..first + count).collect())).await;
            let Ok(running) = &one.running else { continue };
            let mut rows = Rows { round: 0, contestant: name, all: measured };
            rows.at_rest(running, &format!("rest_{count}_upstreams"), Duration::from_secs(4)).await;
            rows.warm_up(running, &small, setting.cores);
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
