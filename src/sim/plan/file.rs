//! A plan as it is written; unknown keys are refused.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use crate::routing::signal::Signals;
use crate::units::{Bandwidth, ByteSize, Span};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub name: Option<String>,
    pub workers: Vec<Group>,
    pub workload: Work,
    /// Warmgate's by name, the peers by name, or `all`.
    pub policies: Vec<String>,
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// Left out, without loads: as it was.
    pub rates: Option<Vec<f64>>,
    /// In place of rates: parts of the rate at which the fleet is full (`sim::capacity`).
    pub loads: Option<Vec<f64>>,
    /// How wrong indexes of prefixes are: the peers' own, and Warmgate's by what it is told of the stores' size. What
    /// answers tell of cached tokens stays true.
    #[serde(default)]
    pub index: Index,
    /// Constants of Warmgate's signals, as under `routing.signals` in its configuration.
    pub signals: Option<Signals>,
    #[serde(default = "two_seconds")]
    pub telemetry_interval: Span,
    #[serde(default = "ten_minutes")]
    pub queue_timeout: Span,
}

/// Nodes that are alike.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    pub name: Option<String>,
    #[serde(default = "one")]
    pub count: usize,
    pub engine: String,
    /// Requests a model runs at once. Left out: 1 for ollama and llama_cpp, no limit for those that batch.
    pub slots: Option<u32>,
    /// The router is configured with the slots.
    #[serde(default)]
    pub slots_configured: bool,
    /// Left out: as much as all models need.
    pub memory: Option<ByteSize>,
    pub bandwidth: Option<Bandwidth>,
    /// Factor on every model's speed.
    #[serde(default = "full_speed")]
    pub speed: f64,
    pub prefill: Option<Prefill>,
    pub decode: Option<Decode>,
    pub cache: Option<Cache>,
    /// How long an idle model stays. Left out: until it is displaced.
    pub keep_alive: Option<Span>,
    pub models: Vec<Model>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: String,
    pub memory: Option<ByteSize>,
    pub load: Option<Span>,
    #[serde(default = "yes")]
    pub resident: bool,
    #[serde(default = "context")]
    pub context: u32,
    pub prefill: Option<Prefill>,
    pub decode: Option<Decode>,
    pub cache: Option<Cache>,
}

/// Either a rate, or seconds: fixed, for each token, and for each pair of tokens that attention compares.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefill {
    pub tokens_per_s: Option<f64>,
    pub fixed_s: Option<f64>,
    pub token_s: Option<f64>,
    pub pair_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decode {
    /// Of a request that runs alone.
    pub tokens_per_s: f64,
    /// What each request of the batch adds to a step.
    #[serde(default)]
    pub job_s: f64,
    /// What each of their tokens adds to a step.
    #[serde(default)]
    pub token_s: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    pub blocks: Option<usize>,
    #[serde(default = "sixteen")]
    pub block_tokens: u32,
    pub conversations: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    #[serde(default)]
    pub never_evicts: bool,
    #[serde(default)]
    pub half: bool,
}

/// One of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    pub mooncake: Option<Trace>,
    pub azure: Option<Trace>,
    pub agents: Option<Agents>,
    pub conversations: Option<Conversations>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    pub trace: PathBuf,
    /// Only so much from its beginning.
    pub first: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agents {
    pub folder: PathBuf,
    /// Files whose names begin so.
    #[serde(default)]
    pub prefix: String,
    /// Sessions that are played, in turn.
    pub plays: usize,
    pub every: Span,
    pub think: Span,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversations {
    pub count: usize,
    pub turns: Size,
    pub every: Span,
    #[serde(default)]
    pub by_chance: bool,
    pub think: Span,
    #[serde(default)]
    pub system_prompts: usize,
    #[serde(default = "small")]
    pub system: Size,
    /// The first message; left out: like every other.
    pub first: Option<Size>,
    pub question: Size,
    pub answer: Size,
    /// Models and their shares; left out: the first there is.
    #[serde(default)]
    pub models: BTreeMap<String, f64>,
    /// `one`, `each`, or how many addresses.
    #[serde(default = "each")]
    pub clients: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    pub mean: f64,
    #[serde(default)]
    pub spread: f64,
}

fn one() -> usize {
    1
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

fn full_speed() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn context() -> u32 {
    131_072
}

fn sixteen() -> u32 {
    16
}

fn two_seconds() -> Span {
    Span::from_secs(2)
}

fn ten_minutes() -> Span {
    Span::from_secs(600)
}

fn small() -> Size {
    Size { mean: 1.0, spread: 0.0 }
}

fn each() -> String {
    "each".into()
}
