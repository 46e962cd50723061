//! What the admin port tells at `/fleet/snapshot`, as far as it is shown here.
//!
//! What is missing has its plain default, so that an older or newer Warmgate can be looked at as well.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fleet {
    pub at_ms: u64,
    pub version: String,
    pub simulated: bool,
    /// `true`, or why not.
    pub ready: Value,
    pub process: Process,
    /// `None`: it is the only one.
    pub cluster: Option<Cluster>,
    pub policy: String,
    pub in_flight: u64,
    pub waiting: u64,
    pub waiting_max: u64,
    /// One that left meanwhile is null.
    pub nodes: Vec<Option<Node>>,
    pub live: Vec<Live>,
    pub recent: Vec<Decision>,
    pub hour: Hour,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Process {
    pub stage: String,
    pub since_ms: u64,
}

/// How it stands with other replicas.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cluster {
    pub up: bool,
    pub quick: bool,
    pub since_ms: Option<u64>,
    pub answer_ms: Option<f64>,
    pub problem: Option<String>,
    pub other_replicas: u64,
    pub heard: Vec<Heard>,
}

/// Another replica.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Heard {
    pub name: String,
    pub heard_ms_ago: u64,
    pub in_flight: u64,
    pub under_way_ms: u64,
    pub late: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    pub name: String,
    pub label: String,
    pub engine: Option<String>,
    pub standing: Standing,
    pub draining: bool,
    pub drained_by: Vec<String>,
    pub availability: f64,
    pub in_flight: u64,
    pub foreign: u64,
    pub memory_bytes: Option<u64>,
    pub resident_bytes: u64,
    pub tier: u32,
    pub models_in_all: u64,
    pub models: Vec<Model>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Standing {
    pub state: String,
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Model {
    pub name: String,
    pub resident: bool,
    pub loading: bool,
    pub bytes: Option<u64>,
    pub state: String,
    pub running: u64,
    pub waiting: u64,
    pub slots: u64,
    pub slots_source: String,
    pub prefill_tokens_per_s: Option<f64>,
    pub decode_tokens_per_s: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Live {
    pub model: String,
    pub session: Option<String>,
    pub phase: String,
    pub node: Option<String>,
    pub affinity: String,
    pub attempts: u64,
    pub running_ms: f64,
    pub prompt_tokens_estimated: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Decision {
    pub request_id: String,
    pub wall_ms: u64,
    pub total_ms: f64,
    pub model: String,
    pub node: Option<String>,
    pub score: Option<f64>,
    pub runner_up: Option<RunnerUp>,
    pub affinity: String,
    pub lost: Option<Lost>,
    pub outcome: String,
    pub queue_ms: f64,
    pub first_byte_ms: Option<f64>,
    pub saved_tokens: u64,
    pub saved_is_estimate: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RunnerUp {
    pub node: String,
    pub score: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Lost {
    pub from: String,
    pub why: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Hour {
    pub total: Total,
    pub sessions: Vec<Session>,
    pub sessions_in_all: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Total {
    pub requests: u64,
    pub failures: u64,
    pub first_byte_p50_ms: Option<f64>,
    pub first_byte_p95_ms: Option<f64>,
    pub cached_tokens: u64,
    pub uncached_tokens: u64,
    pub believed_cached_tokens: u64,
    pub moved: u64,
    pub lost_s_estimated: f64,
    pub nodes: BTreeMap<String, Tally>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Tally {
    pub answered: u64,
    pub first_byte_mean_ms: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Session {
    pub session: String,
    pub model: String,
    pub node: String,
    pub turns: u64,
    pub prompt_tokens: u64,
    pub saved_tokens: u64,
    pub saved_is_estimate: bool,
    pub moved: u64,
    pub last_ms: u64,
}

impl Fleet {
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    /// Of the last hour, at that node.
    pub fn first_token_ms(&self, node: &Node) -> Option<f64> {
        self.hour.total.nodes.get(&node.label)?.first_byte_mean_ms
    }
}

impl Node {
    /// Models in memory or in use.
    pub fn busy(&self) -> impl Iterator<Item = &Model> {
        self.models.iter().filter(|model| model.resident || model.loading || model.running > 0 || model.waiting > 0)
    }

    pub fn running(&self) -> u64 {
        self.busy().map(|model| model.running).sum()
    }

    pub fn waiting(&self) -> u64 {
        self.busy().map(|model| model.waiting).sum()
    }

    pub fn slots(&self) -> u64 {
        self.busy().map(|model| model.slots).sum()
    }

    /// How much of what it can do at once it does.
    pub fn load(&self) -> f64 {
        let shares = self.busy().map(|model| (model.running + model.waiting) as f64 / model.slots.max(1) as f64);
        shares.fold(0.0, f64::max)
    }

    pub fn is_up(&self) -> bool {
        self.standing.state == "up"
    }
}
