//! Engines alike, each a process, and the real `warmgate` program in front of those that a file names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::client::{Conn, Request};
use crate::engine_process::{EngineParams, EngineProcess, MODEL, free_ports};
use crate::launch::{Launched, launch};
use crate::numbers::mean;
use crate::program::program;
use crate::usage;

pub const NAMES: [&str; 4] = ["n1", "n2", "n3", "n4"];
pub const SLOTS: u32 = 128;
const PREFILL_TOKENS_PER_S: f64 = 1_000_000.0;
const DECODE_TOKENS_PER_S: f64 = 10.0;
pub const ANSWER_TOKENS: u32 = 40;
/// So few that they are reached before the run.
const MAX_SESSIONS: usize = 1_000;

pub struct Rig {
    pub engines: Vec<EngineProcess>,
    pub gate: Launched,
}

/// One file.
#[derive(Clone, Debug)]
pub struct File {
    /// Engines by their place in `NAMES`, with their weight.
    pub nodes: Vec<(usize, u32)>,
    pub slots: u32,
    pub alias: u32,
    pub connect_s: u32,
    pub broken: bool,
}

impl File {
    pub fn whole() -> File {
        File { nodes: (0..NAMES.len()).map(|n| (n, 1)).collect(), slots: SLOTS, alias: 0, connect_s: 2, broken: false }
    }
}

impl Rig {
    pub async fn start() -> Rig {
        let engines: Vec<EngineProcess> = NAMES.iter().zip(free_ports(NAMES.len())).map(engine).collect();
        let gate = launch(&program(), &configuration(&engines, &File::whole(), None)).await;
        assert_eq!(gate.state, "ready", "warmgate's log:\n{}", gate.log());
        Rig { engines, gate }
    }

    fn folder(&self) -> PathBuf {
        self.gate.directory.path().to_owned()
    }

    /// Writes it beside the one that is there, and then over it; with another key.
    pub fn write(&self, file: &File, key: &str) {
        let beside = self.folder().join("next.yaml");
        std::fs::write(self.folder().join("key"), key).expect("the key");
        std::fs::write(&beside, configuration(&self.engines, file, Some("key"))).expect("the file");
        std::fs::rename(beside, self.folder().join("warmgate.yaml")).expect("to put it there");
    }

    pub fn hang_up(&self) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id");
        kill_process(pid, Signal::HUP).expect("to send a signal");
    }

    /// Asks for a reload; gives the status.
    pub async fn ask_for_reload(&self) -> u16 {
        let request = Request::post("/fleet/reload", "").replacing("Host", "localhost");
        Conn::open(self.gate.admin).await.exchange(&request).await.status
    }

    /// Reloads so far, by outcome.
    pub async fn reloads(&self) -> BTreeMap<String, usize> {
        let request = Request::get_as("localhost", "/metrics");
        let text = Conn::open(self.gate.admin).await.exchange(&request).await.whole().await;
        let text = String::from_utf8_lossy(&text).into_owned();
        let count = |line: &str| {
            let (outcome, count) = line.strip_prefix("warmgate_reloads_total{outcome=\"")?.split_once("\"} ")?;
            Some((outcome.to_owned(), count.parse().ok()?))
        };
        text.lines().filter_map(count).collect()
    }

    /// What is booked and waits, once the last stream is over.
    pub async fn what_is_left(&self) -> u64 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let request = Request::get_as("localhost", "/fleet/status");
        let status: Value = Conn::open(self.gate.admin).await.exchange(&request).await.json().await;
        status["in_flight"].as_u64().unwrap_or(u64::MAX) + status["queue"]["waiting"].as_u64().unwrap_or(u64::MAX / 2)
    }

    /// Memory of warmgate, averaged over a while.
    pub async fn resident_mib(&self, over: Duration) -> f64 {
        let mut seen = Vec::new();
        for _ in 0..10 {
            tokio::time::sleep(over / 10).await;
            seen.push(self.resident_now_mib());
        }
        mean(&seen)
    }

    pub fn resident_now_mib(&self) -> f64 {
        usage::resident_kib(self.pid()) as f64 / 1024.0
    }

    fn pid(&self) -> u32 {
        self.gate.process.id().expect("a running process")
    }
}

fn engine((name, port): (&&str, u16)) -> EngineProcess {
    let params = EngineParams {
        name: (*name).to_owned(),
        port,
        slots: SLOTS,
        prefill_tokens_per_s: PREFILL_TOKENS_PER_S,
        decode_tokens_per_s: DECODE_TOKENS_PER_S,
        answer_tokens: ANSWER_TOKENS,
    };
    EngineProcess::start(params).expect("an engine")
}

fn configuration(engines: &[EngineProcess], file: &File, key: Option<&str>) -> String {
    let entry = |(node, weight): &(usize, u32)| {
        let (engine, slots) = (&engines[*node], file.slots);
        let key = key.map(|key| format!(", api_key: {{file: {key}}}")).unwrap_or_default();
        format!(
            "  - {{name: {}, url: \"http://{}\", engine: ollama, slots: {slots}, weight: {weight}{key}}}\n",
            engine.name(),
            engine.address()
        )
    };
    let first = NAMES[file.nodes[0].0];
    format!(
        "listen: [{{address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         log: {{access: \"off\"}}\n\
         affinity: {{max_sessions: {MAX_SESSIONS}}}\n\
         timeouts: {{connect: {}s}}\n\
         models: [{{name: alias-{}, targets: [{{upstream: {first}, model: \"{MODEL}\"}}]}}]\n\
         {}upstreams:\n{}",
        file.connect_s,
        file.alias,
        if file.broken { "uptreams: []\n" } else { "" },
        file.nodes.iter().map(entry).collect::<String>()
    )
}
