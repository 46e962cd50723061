//! The simulated nodes of one run, all with their engines.

use std::collections::HashMap;
use std::sync::Arc;

use super::Number;
use crate::routing::moment::Moment;
use crate::routing::report::{Load, ModelReport, Report};
use crate::sim::engine::{CacheParams, Engine, EngineParams, Event, Job, JobId, ModelParams};
use crate::sim::workload::Request;

/// What a node is, and what a router is told of it.
#[derive(Clone)]
pub struct NodeParams {
    pub name: String,
    /// The software it claims to be; decides what it tells of itself.
    pub kind: &'static crate::engines::Engine,
    pub engine: EngineParams,
    /// Relative to the other nodes; its engine's numbers have it in them already.
    pub speed: f64,
    /// Slots that the router is configured with.
    pub told_slots: Option<u32>,
    pub told_bandwidth: Option<f64>,
}

impl NodeParams {
    pub fn model(&self, name: &str) -> Option<&ModelParams> {
        self.engine.models.iter().find(|model| model.name == name)
    }
}

pub struct Nodes {
    params: Arc<Vec<NodeParams>>,
    engines: Vec<Engine>,
    jobs: Vec<HashMap<JobId, Number>>,
}

impl Nodes {
    pub fn new(params: &Arc<Vec<NodeParams>>) -> Nodes {
        let engines: Vec<Engine> = params.iter().map(|node| Engine::new(node.engine.clone())).collect();
        Nodes { params: params.clone(), jobs: engines.iter().map(|_| HashMap::new()).collect(), engines }
    }

    pub fn params(&self) -> &[NodeParams] {
        &self.params
    }

    pub fn next_at(&self) -> Option<Moment> {
        self.engines.iter().filter_map(Engine::next_event).min()
    }

    /// What happened at `now`, by node and within a node in order.
    pub fn advance(&mut self, now: Moment) -> Vec<(Number, Event)> {
        let mut all = Vec::new();
        for (engine, jobs) in self.engines.iter_mut().zip(&mut self.jobs) {
            if engine.next_event().is_none_or(|at| at > now) {
                continue;
            }
            for event in engine.advance(now) {
                if let Some(number) = jobs.get(&event.job) {
                    all.push((*number, event));
                    if matches!(event.what, crate::sim::engine::What::Done(_)) {
                        jobs.remove(&event.job);
                    }
                }
            }
        }
        all
    }

    /// Nodes of a plan hold every model that is sent there, and their queues have no end.
    pub fn submit(&mut self, node: usize, number: Number, request: &Request, now: Moment) {
        let job = Job {
            model: request.model.to_string(),
            history: request.history.clone(),
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            context_tokens: None,
            keep_alive: None,
            slowness: 1.0,
            tell_tokens: false,
        };
        let Some(engine) = self.engines.get_mut(node) else { return };
        match engine.submit(now, job) {
            Ok(id) => {
                self.jobs[node].insert(id, number);
            }
            Err(refused) => debug_assert!(false, "node {node}: {refused}"),
        }
    }

    /// What a poll of the node would tell.
    pub fn report(&self, node: usize) -> Report {
        let (params, engine) = (&self.params[node], &self.engines[node]);
        let resident = engine.resident();
        let models = engine.installed().map(|model| ModelReport {
            name: model.name.clone(),
            resident: params.kind.fixed_models || resident.iter().any(|there| there.name == model.name),
            size_bytes: Some(model.memory_bytes),
            resident_bytes: Some(model.memory_bytes),
            context_tokens: Some(model.context_tokens),
            ..ModelReport::default()
        });
        let counts = |name: &str| ["vllm", "sglang", "llama_cpp"].contains(&name);
        let tells_slots = |name: &str| ["sglang", "llama_cpp"].contains(&name);
        let first = params.engine.models.first();
        let slots = first.map(|model| model.slots);
        let cache_tokens = first.and_then(|model| match model.cache {
            CacheParams::Blocks { blocks, block_tokens } => Some(blocks as u64 * u64::from(block_tokens)),
            CacheParams::PerSlot { .. } => None,
        });
        Report {
            models: models.collect(),
            slots: slots.filter(|_| tells_slots(params.kind.name)),
            cache_tokens,
            load: counts(params.kind.name)
                .then(|| Load { running: engine.running() as u32, waiting: engine.waiting() as u32 }),
            ..Report::default()
        }
    }

    /// Models loaded in all.
    pub fn loads(&self) -> u64 {
        self.engines.iter().map(Engine::loads).sum()
    }
}
