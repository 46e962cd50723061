//! The demo's fleet: three simulated nodes on this machine; and nodes of other kinds, to stand beside
//! real engines.
//!
//! `sim-a`, `sim-b` and `sim-c` hold the same three models at speeds at which one sees the routing:
//! a new chat shows text within a second, a cold prompt of two thousand tokens takes two, a warm one
//! none. The ports are taken when the fleet is made, so that a configuration can name them before
//! anything runs. Never a stand-in for a configured upstream.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::ServiceReadyNotifier;
use pingora_core::services::background::{BackgroundService, GenBackgroundService};

use super::engine::{CacheParams, DecodeLoad, ModelParams, PrefillCost};
use super::face::{Card, Kind, Node, NodeModel, NodeParams};
use crate::routing::report::Abilities;

const NAMES: [&str; 3] = ["sim-a", "sim-b", "sim-c"];
const GB: u64 = 1_000_000_000;

/// Requests that each model of a node runs at once.
const SLOTS: u32 = 4;

/// A hundred thousand tokens, as a card of 24 GB has left beside a model of that size.
const CACHE_BLOCKS: usize = 6_400;
const BLOCK_TOKENS: u32 = 16;

/// Simulated nodes that live and die together.
pub struct Fleet {
    nodes: Vec<Node>,
}

impl Fleet {
    /// The demo's three nodes, on ports of 127.0.0.1 that were free.
    pub fn demo() -> io::Result<Fleet> {
        Fleet::bind(NAMES.map(demo_node))
    }

    /// Any nodes, on ports of 127.0.0.1 that were free.
    pub fn bind(nodes: impl IntoIterator<Item = NodeParams>) -> io::Result<Fleet> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let nodes = nodes.into_iter().map(|params| Node::bind(any, params));
        Ok(Fleet { nodes: nodes.collect::<io::Result<_>>()? })
    }

    /// Each node's name and address are known before it is started.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Starts all nodes on the tokio runtime it is called in.
    pub fn start(&self) -> io::Result<()> {
        self.nodes.iter().try_for_each(Node::start)
    }

    /// As a service to add to a Pingora server; what depends on it starts when all nodes listen.
    pub fn service(self: &Arc<Self>) -> GenBackgroundService<Fleet> {
        GenBackgroundService::new("simulated fleet".into(), self.clone())
    }
}

#[async_trait]
impl BackgroundService for Fleet {
    async fn start_with_ready_notifier(&self, _shutdown: ShutdownWatch, ready: ServiceReadyNotifier) {
        if let Err(error) = self.start() {
            log::error!("simulated fleet: {error}");
        }
        ready.notify_ready();
        // Not ended by the shutdown: whatever drains in front still needs its streams. The nodes go
        // with the runtime.
        std::future::pending().await
    }
}

/// One node of the demo.
pub fn demo_node(name: &str) -> NodeParams {
    NodeParams {
        name: name.into(),
        kind: Kind::ollama(),
        models: vec![qwen(), llama(), nomic()],
        memory_bytes: 24 * GB,
        max_waiting: 512,
        keep_alive: Some(Duration::from_secs(5 * 60)),
        answer_tokens: 96,
    }
}

/// A node that serves one model, always in memory, and batches, as vLLM and SGLang do.
pub fn batching_node(kind: &'static Kind, name: &str, model_name: &str) -> NodeParams {
    NodeParams {
        name: name.into(),
        kind,
        models: vec![batched(model_name)],
        memory_bytes: 24 * GB,
        max_waiting: usize::MAX,
        keep_alive: None,
        answer_tokens: 96,
    }
}

fn batched(name: &str) -> NodeModel {
    NodeModel {
        engine: ModelParams {
            memory_bytes: 17 * GB,
            resident_at_start: true,
            cache: CacheParams::Blocks { blocks: CACHE_BLOCKS, block_tokens: BLOCK_TOKENS },
            ..model(name, 4000.0, 60.0, 32_768)
        },
        card: Card {
            family: "qwen3",
            parameter_size: "8.2B",
            parameter_count: 8_190_735_360,
            quantization: "BF16",
            size_bytes: 16 * GB,
            embedding_length: 4096,
            abilities: Abilities { tools: true, ..Abilities::default() },
        },
    }
}

fn qwen() -> NodeModel {
    NodeModel {
        engine: ModelParams {
            memory_bytes: 19 * GB,
            load: Duration::from_secs(3),
            resident_at_start: true,
            ..model("qwen3.6:27b", 1000.0, 40.0, 32_768)
        },
        card: Card {
            family: "qwen35",
            parameter_size: "27.4B",
            parameter_count: 27_400_000_000,
            quantization: "Q4_K_M",
            size_bytes: 17 * GB,
            embedding_length: 5120,
            abilities: Abilities { tools: true, ..Abilities::default() },
        },
    }
}

fn llama() -> NodeModel {
    NodeModel {
        engine: ModelParams {
            memory_bytes: 3 * GB,
            load: Duration::from_millis(800),
            ..model("llama3.2:3b", 4000.0, 90.0, 32_768)
        },
        card: Card {
            family: "llama",
            parameter_size: "3.2B",
            parameter_count: 3_212_749_888,
            quantization: "Q4_K_M",
            size_bytes: 2_019_393_189,
            embedding_length: 3072,
            abilities: Abilities { tools: true, ..Abilities::default() },
        },
    }
}

fn nomic() -> NodeModel {
    NodeModel {
        engine: ModelParams {
            memory_bytes: GB / 2,
            load: Duration::from_millis(200),
            ..model("nomic-embed-text:latest", 20_000.0, 1.0, 2048)
        },
        card: Card {
            family: "nomic-bert",
            parameter_size: "137M",
            parameter_count: 136_727_040,
            quantization: "F16",
            size_bytes: 274_302_450,
            embedding_length: 768,
            abilities: Abilities { embedding: true, ..Abilities::default() },
        },
    }
}

fn model(name: &str, prefill_tokens_per_s: f64, decode_tokens_per_s: f64, context_tokens: u32) -> ModelParams {
    ModelParams {
        name: name.into(),
        slots: SLOTS,
        memory_bytes: 0,
        load: Duration::ZERO,
        resident_at_start: false,
        prefill: PrefillCost::Linear { tokens_per_s: prefill_tokens_per_s },
        decode_tokens_per_s,
        decode_load: DecodeLoad::default(),
        cache: CacheParams::PerSlot { kept: SLOTS as usize },
        context_tokens,
        context_tokens_max: context_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_is_what_the_readme_says() {
        let fleet = Fleet::demo().unwrap();
        let names: Vec<_> = fleet.nodes().iter().map(Node::name).collect();
        assert_eq!(names, NAMES);
        assert!(fleet.nodes().iter().all(|node| node.address().port() != 0));
        let models = demo_node("x").models;
        let needed: u64 = models.iter().map(|m| m.engine.memory_bytes).sum();
        assert!(needed <= 24 * GB, "all models fit at once");
    }
}
