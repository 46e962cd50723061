//! The node of load runs: Ollama's kind, one small model always in memory, and what a run varies.

use std::time::Duration;

use warmgate::routing::report::Abilities;
use warmgate::sim::engine::{CacheParams, DecodeLoad, ModelParams, PrefillCost};
use warmgate::sim::face::{Card, Kind, NodeModel, NodeParams};

pub const MODEL: &str = "moss:7b";

const GB: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Moss {
    pub slots: u32,
    pub prefill_tokens_per_s: f64,
    pub decode_tokens_per_s: f64,
    pub conversations_cached: usize,
    pub context_tokens: u32,
    /// The length of each answer.
    pub answer_tokens: u32,
}

impl Moss {
    /// A node that holds such a model under that name.
    pub fn node(self, name: &str, model: &str) -> NodeParams {
        NodeParams {
            name: name.into(),
            kind: Kind::ollama(),
            models: vec![self.model(model)],
            memory_bytes: 24 * GB,
            max_waiting: 512,
            keep_alive: None,
            answer_tokens: self.answer_tokens,
        }
    }

    fn model(self, name: &str) -> NodeModel {
        NodeModel {
            engine: ModelParams {
                name: name.into(),
                slots: self.slots,
                memory_bytes: 6 * GB,
                load: Duration::ZERO,
                resident_at_start: true,
                prefill: PrefillCost::Linear { tokens_per_s: self.prefill_tokens_per_s },
                decode_tokens_per_s: self.decode_tokens_per_s,
                decode_load: DecodeLoad::default(),
                cache: CacheParams::PerSlot { kept: self.conversations_cached },
                context_tokens: self.context_tokens,
                context_tokens_max: self.context_tokens,
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
}
