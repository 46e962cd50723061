//! A node as it really is, whatever the fleet believes: a simulated engine, and what is wrong with it.

use std::collections::BTreeMap;
use std::time::Duration;

use warmgate::engines;
use warmgate::routing::fleet::{Asked, UpstreamId};
use warmgate::routing::moment::Moment;
use warmgate::routing::report::{Load, ModelReport, Report};
use warmgate::routing::upstream::{Spec, Traits};
use warmgate::sim::engine::{
    CacheParams, DecodeLoad, Engine, EngineParams, Job, JobId, ModelParams, PrefillCost, Refused,
};

use crate::chance::Chance;

/// Models that there are, and gigabytes each takes.
pub const MODELS: [(&str, u64); 4] = [("moss:7b", 5), ("fern:3b", 2), ("larch:32b", 20), ("thyme:70b", 40)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Up,
    /// Refuses connections.
    Dead,
    Hung,
    /// Answers each new request with an error, and its checks are green.
    Failing,
}

pub struct Node {
    pub id: UpstreamId,
    pub health: Health,
    pub slowness: f64,
    /// By the number of their request.
    pub jobs: BTreeMap<JobId, u64>,
    /// Polls under way: when each was asked, and what it found if that is settled already.
    pub polls: Vec<(Asked, Option<Report>)>,
    pub deleted: Vec<&'static str>,
    /// The fleet was told that it leaves; it finishes what it has.
    pub has_left: bool,
    traits: Traits,
    params: EngineParams,
    pub engine: Engine,
}

impl Node {
    /// A node of any kind, and how it is configured.
    pub fn draw(number: usize, chance: &mut Chance) -> (Spec, impl FnOnce(UpstreamId) -> Node) {
        let engine = engines::find(if chance.one_in(3) { "vllm" } else { "ollama" }).expect("a known engine");
        let traits = engine.traits();
        let memory = *chance.pick(&[16u64, 24, 64]) << 30;
        let slots = if traits.fixed_models { 8 } else { 1 + chance.below(3) as u32 };
        let held = if traits.fixed_models { 1 } else { 2 + chance.below(3) };
        let first = chance.below(MODELS.len());
        let models = (0..held).map(|at| model(MODELS[(first + at) % MODELS.len()], slots, traits.fixed_models));
        let params = EngineParams {
            models: models.collect(),
            memory_bytes: if traits.fixed_models { 80 << 30 } else { memory },
            max_waiting: 4 + chance.below(8),
            keep_alive: Some(Duration::from_secs(60)),
        };
        let spec = Spec {
            // Some are recognised only when they are first asked.
            engine: (!chance.one_in(4)).then_some(traits),
            slots: chance.one_in(2).then_some(slots),
            memory_bytes: chance.one_in(2).then_some(params.memory_bytes),
            bandwidth_bytes_s: chance.one_in(2).then_some(4e11),
            weight: 1.0 + chance.below(3) as f64,
            tier: u32::from(chance.one_in(5)),
            drain: chance.one_in(12),
            ..Spec::named(format!("node{number}"))
        };
        let node = move |id| Node {
            id,
            health: Health::Up,
            slowness: 1.0,
            jobs: BTreeMap::new(),
            polls: Vec::new(),
            deleted: Vec::new(),
            has_left: false,
            traits,
            engine: Engine::new(params.clone()),
            params,
        };
        (spec, node)
    }

    pub fn traits(&self) -> Traits {
        self.traits
    }

    pub fn answers(&self) -> bool {
        matches!(self.health, Health::Up | Health::Failing)
    }

    /// Takes a job, if it lives and can.
    pub fn submit(&mut self, now: Moment, mut job: Job) -> Result<JobId, Refused> {
        if self.deleted.contains(&job.model.as_str()) {
            return Err(Refused::UnknownModel);
        }
        job.slowness = self.slowness;
        self.engine.submit(now, job)
    }

    /// Stops at once; what it held in memory is gone.
    pub fn die(&mut self) -> Vec<u64> {
        self.health = Health::Dead;
        self.engine = Engine::new(self.params.clone());
        self.polls.clear();
        std::mem::take(&mut self.jobs).into_values().collect()
    }

    pub fn report(&self) -> Report {
        let resident = self.engine.resident();
        let listed = self.engine.installed().filter(|model| !self.deleted.contains(&model.name.as_str()));
        let models = listed.map(|model| {
            let resident = resident.iter().any(|held| held.name == model.name);
            ModelReport {
                name: model.name.clone(),
                resident,
                size_bytes: Some(model.memory_bytes),
                resident_bytes: resident.then_some(model.memory_bytes + (1 << 28)),
                context_tokens: Some(model.context_tokens),
                ..ModelReport::default()
            }
        });
        let counts = Load { running: self.engine.running() as u32, waiting: self.engine.waiting() as u32 };
        let counted = self.traits.fixed_models;
        Report {
            models: models.collect(),
            slots: counted.then_some(8),
            cache_tokens: None,
            load: counted.then_some(counts),
            salts_all_paths: None,
        }
    }
}

fn model((name, gigabytes): (&str, u64), slots: u32, fixed: bool) -> ModelParams {
    ModelParams {
        name: name.into(),
        slots,
        memory_bytes: gigabytes << 30,
        load: Duration::from_secs(gigabytes),
        resident_at_start: fixed,
        prefill: PrefillCost::Linear { tokens_per_s: 2000.0 },
        decode_tokens_per_s: 40.0,
        decode_load: DecodeLoad::default(),
        cache: CacheParams::PerSlot { kept: slots as usize },
        context_tokens: 8192,
        context_tokens_max: 32_768,
    }
}
