//! Three simulated nodes alike and the real `warmgate` program in front of them.

use std::time::Duration;

use warmgate::routing::report::Abilities;
use warmgate::sim::engine::{CacheParams, DecodeLoad, ModelParams, PrefillCost};
use warmgate::sim::face::{Card, Kind, Node, NodeModel, NodeParams, Record};
use warmgate::sim::fleet::Fleet;

use crate::launch::{Launched, launch};
use crate::plan::ANSWER_TOKENS;
use crate::program::program;

pub const MODEL: &str = "moss:7b";
pub const SLOTS: u32 = 4;
const CONVERSATIONS_CACHED: usize = 64;
const PREFILL_TOKENS_PER_SECOND: f64 = 2_000.0;
const DECODE_TOKENS_PER_SECOND: f64 = 100.0;
const CONTEXT_TOKENS: u32 = 8_192;
const GB: u64 = 1_000_000_000;

pub struct Rig {
    fleet: Fleet,
    pub gate: Launched,
}

impl Rig {
    pub async fn start(policy: &str) -> Rig {
        let fleet = Fleet::bind(["n1", "n2", "n3"].map(node)).expect("free ports");
        fleet.start().expect("three nodes");
        let gate = launch(&program(), &configuration(&fleet, policy)).await;
        assert_eq!(gate.state, "ready", "warmgate's log:\n{}", gate.log());
        Rig { fleet, gate }
    }

    /// The node's own record of a request.
    pub fn record(&self, node: &str, request_id: &str) -> Option<Record> {
        let node = self.fleet.nodes().iter().find(|n| n.name() == node)?;
        let mut records = node.records().into_iter();
        records.find(|r| r.request_id.as_deref() == Some(request_id))
    }
}

fn configuration(fleet: &Fleet, policy: &str) -> String {
    let entry = |node: &Node| {
        let (name, url) = (node.name(), node.url());
        format!("  - {{name: {name}, url: \"{url}\", engine: ollama, slots: {SLOTS}}}\n")
    };
    format!(
        "listen: [{{address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         log: {{access: \"off\"}}\n\
         routing: {{policy: {policy}}}\n\
         upstreams:\n{}",
        fleet.nodes().iter().map(entry).collect::<String>(),
    )
}

fn node(name: &str) -> NodeParams {
    NodeParams {
        name: name.into(),
        kind: Kind::ollama(),
        models: vec![model()],
        memory_bytes: 24 * GB,
        max_waiting: 512,
        keep_alive: None,
        answer_tokens: ANSWER_TOKENS as u32,
    }
}

fn model() -> NodeModel {
    NodeModel {
        engine: ModelParams {
            name: MODEL.into(),
            slots: SLOTS,
            memory_bytes: 6 * GB,
            load: Duration::ZERO,
            resident_at_start: true,
            prefill: PrefillCost::Linear { tokens_per_s: PREFILL_TOKENS_PER_SECOND },
            decode_tokens_per_s: DECODE_TOKENS_PER_SECOND,
            decode_load: DecodeLoad::default(),
            cache: CacheParams::PerSlot { kept: CONVERSATIONS_CACHED },
            context_tokens: CONTEXT_TOKENS,
            context_tokens_max: CONTEXT_TOKENS,
        },
        card: Card {
            family: "moss",
            parameter_size: "7B",
            parameter_count: 7_000_000_000,
            quantization: "Q4_K_M",
            size_bytes: 4 * GB,
            embedding_length: 4096,
            abilities: Abilities::default(),
        },
    }
}
