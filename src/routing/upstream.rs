//! One server that runs models, and the models it holds, as believed at this moment.
//!
//! What is configured (`Spec`) and what was learnt are kept apart: a reload replaces the first and
//! leaves the second alone. Only `Fleet` changes either.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ask::{Ask, Dialect, Endpoint};
use super::breaker::Breaker;
use super::chain::hash_text;
use super::elsewhere::Others;
use super::estimate::Speed;
use super::evenness::Tally;
use super::fleet::{HoldingId, LeaseId, Rules, UpstreamId};
use super::line::Line;
use super::moment::Moment;
use super::name::Naming;
use super::prefix::{CacheKind, Capacity};
use super::report::{Abilities, Load};
use super::runner::{Misfit, Room, Runner};
use super::slow_start::SlowStart;
use super::usage::Usage;

/// What is configured for an upstream, and what follows from its engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    pub name: String,
    /// `None` until the engine was recognised: such an upstream serves nobody.
    pub engine: Option<Traits>,
    /// Parallel requests a model, as configured.
    pub slots: Option<u32>,
    pub memory_bytes: Option<u64>,
    pub bandwidth_bytes_s: Option<f64>,
    /// Share of the traffic under `shuffle`.
    pub weight: f64,
    /// A higher tier is used only when no lower one can serve.
    pub tier: u32,
    /// Take no new work, finish what runs.
    pub drain: bool,
}

impl Spec {
    /// An upstream of which only its name is known.
    pub fn named(name: impl Into<String>) -> Spec {
        Spec {
            name: name.into(),
            engine: None,
            slots: None,
            memory_bytes: None,
            bandwidth_bytes_s: None,
            weight: 1.0,
            tier: 0,
            drain: false,
        }
    }
}

/// What routing must know of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traits {
    pub dialects: &'static [Dialect],
    pub naming: Naming,
    /// Serves what it lists and nothing else: always resident, nothing to load.
    pub fixed_models: bool,
    /// Paths of its dialects that it does not have.
    pub lacks: &'static [Endpoint],
    /// Paths on which a prompt cannot be kept apart from others in its cache, although on others it can. A report may
    /// tell that its version is one that can.
    pub unsalted: &'static [Endpoint],
    /// Keeps responses, so that `previous_response_id` means something to it.
    pub stores_responses: bool,
    /// Parallel requests a model, to divide depth by while nothing better is known.
    pub default_slots: u32,
    /// How it keeps what it has read.
    pub cache: CacheKind,
    /// Statuses by which it says that it has no place for a request now.
    pub busy_statuses: &'static [u16],
}

/// An upstream as believed now.
#[derive(Clone, Debug)]
pub struct Upstream {
    pub spec: Spec,
    pub(super) name_hash: u64,
    /// What the health checks last said; a new upstream is not up before the first says so.
    pub healthy: bool,
    /// Since when, as the health checks say.
    pub up_since: Option<Moment>,
    /// Since when failed checks keep it out; `None` as well while it loads or was never up.
    pub out_since: Option<Moment>,
    /// When the latest check began that had no answer at all.
    pub checked_in_vain_at: Option<Moment>,
    /// The latest check found a connection, whatever came of it.
    pub reachable: bool,
    /// What holds for the node with all its models.
    pub breaker: Breaker,
    pub slow_start: SlowStart,
    pub reported_slots: Option<u32>,
    /// Tokens that its cache holds, where it tells.
    pub reported_cache_tokens: Option<u64>,
    /// Its version takes a salt on the paths of `Traits::unsalted` as well, as far as it told.
    pub salts_all_paths: bool,
    /// When the latest good reading was asked for.
    pub read_at: Option<Moment>,
    /// Live leases, for all models.
    pub in_flight: u32,
    pub(super) foreign: Option<Foreign>,
    /// What other replicas have here, for all models.
    pub others: Others,
    /// An operator takes it out of service, whatever is configured.
    pub told_to_drain: bool,
    /// It has left, and is forgotten when the last of its requests is over.
    pub(super) leaving: bool,
    /// When the latest first byte of an answer came.
    pub answered_at: Option<Moment>,
    /// Requests of late against what was its due.
    pub(super) tally: Tally,
    /// By their names.
    pub(super) holdings: BTreeMap<String, HoldingId>,
}

/// Requests that others have at an engine, by its latest reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Foreign {
    /// All that it has, as it told.
    pub told: Load,
    pub requests: u32,
    pub asked_at: Moment,
}

/// One model on one upstream.
#[derive(Clone, Debug)]
pub struct Holding {
    pub upstream: UpstreamId,
    /// The upstream's own spelling.
    pub name: String,
    /// The latest reading listed it; kept without while requests still run.
    pub listed: bool,
    pub resident: bool,
    /// The latest sign of residency: a first byte, or a reading.
    pub resident_at: Moment,
    pub unloaded_at: Option<Moment>,
    /// When it was last told to unload, no answer having begun since.
    pub told_to_unload_at: Option<Moment>,
    /// Start of a load that a live lease caused.
    pub loading_since: Option<Moment>,
    /// When that will be over, as was expected when it began.
    pub loaded_at: Option<Moment>,
    /// It gives way to another model, and is loaded again for those who wait.
    pub gives_way: bool,
    pub weights_bytes: Option<u64>,
    pub resident_bytes: Option<u64>,
    pub context_tokens: Option<u32>,
    pub abilities: Option<Abilities>,
    pub runner: Runner,
    /// Live leases for this model.
    pub running: u32,
    /// Of these, those of batch requests.
    pub batch_running: u32,
    /// Requests that wait here with this as their best node.
    pub waiting: u32,
    /// Of these, those of batch requests.
    pub batch_waiting: u32,
    /// What other replicas have here.
    pub others: Others,
    /// Live leases whose first byte has come.
    pub answering: u32,
    /// These, and when the first byte of each came.
    pub(super) answers: Vec<(LeaseId, Moment)>,
    /// Those whose first byte has not come.
    pub(super) line: Line,
    /// The most that were ever answered side by side.
    pub answering_peak: u32,
    pub speed: Speed,
    /// The latest answer told how much of its prompt was cached.
    pub tells_cached: bool,
    pub usage: Usage,
    pub breaker: Breaker,
    pub slow_start: SlowStart,
    /// When something of an answer came last.
    pub progress_at: Moment,
    /// Live requests that have waited longer than can be right, as the latest sweep found.
    pub overdue: u32,
}

/// How many requests a model runs at once, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slots {
    pub count: u32,
    pub source: SlotsSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsSource {
    Configured,
    Reported,
    /// That many were seen to run side by side.
    Seen,
    EngineDefault,
}

impl Upstream {
    pub(super) fn new(spec: Spec) -> Upstream {
        Upstream {
            name_hash: hash_text(&spec.name),
            spec,
            healthy: false,
            up_since: None,
            out_since: None,
            checked_in_vain_at: None,
            reachable: true,
            breaker: Breaker::default(),
            slow_start: SlowStart::default(),
            reported_slots: None,
            reported_cache_tokens: None,
            salts_all_paths: false,
            read_at: None,
            in_flight: 0,
            foreign: None,
            others: Others::default(),
            told_to_drain: false,
            leaving: false,
            answered_at: None,
            tally: Tally::default(),
            holdings: BTreeMap::new(),
        }
    }

    /// Whether new requests may go there at all, whatever the model.
    pub fn is_open(&self, now: Moment) -> bool {
        self.healthy && !self.drains() && self.breaker.bar(now).is_none()
    }

    /// Takes no new work: its configuration or an operator says so.
    pub fn drains(&self) -> bool {
        self.spec.drain || self.told_to_drain
    }

    /// Only its checks have failed: connections to it still open, and it was up before.
    pub fn is_out_by_checks(&self) -> bool {
        !self.healthy && self.out_since.is_some() && self.reachable
    }

    /// Requests that are not ours; none once the reading is older than `stale_after` (L10).
    pub fn foreign_requests(&self, now: Moment, stale_after: Duration) -> u32 {
        let fresh = self.foreign.filter(|foreign| now.since(foreign.asked_at) < stale_after);
        fresh.map_or(0, |foreign| foreign.requests)
    }

    /// How the options of `ask` go with a model that is in memory here; `None`: well, or nobody can tell.
    pub fn misfit(&self, holding: &Holding, ask: &Ask, rules: &Rules, now: Moment) -> Option<Misfit> {
        let told = self.read_at.is_some_and(|at| now.since(at) < rules.stale_after);
        let known = told || holding.runner.is_fresh(now, rules.stale_after);
        if !(known && holding.resident && self.loads_by_options() && ask.endpoint.runs_model()) {
            return None;
        }
        let room = Room { prompt_tokens: ask.prompt_tokens, output_tokens: ask.max_output_tokens.unwrap_or(0) };
        holding.runner.misfit(&ask.runner, holding.context_tokens, room, rules.option_guard)
    }

    /// The window that `ask` meets here; `None`: unknown.
    pub fn window(&self, holding: &Holding, ask: &Ask, misfit: Option<&Misfit>) -> Option<u32> {
        match misfit {
            Some(misfit) if misfit.reloads() => holding.runner.window_for(&ask.runner),
            None if !holding.resident && self.loads_by_options() => {
                holding.runner.window_for(&ask.runner).or(holding.context_tokens)
            }
            _ => holding.context_tokens,
        }
    }

    /// Its engine loads models with options that each request may give.
    pub(super) fn loads_by_options(&self) -> bool {
        self.spec.engine.is_some_and(|engine| engine.naming == Naming::Ollama)
    }

    /// What the engine told of its load, unless that is older than `stale_after` or it tells nothing.
    pub fn told_load(&self, now: Moment, stale_after: Duration) -> Option<Load> {
        self.foreign.filter(|foreign| now.since(foreign.asked_at) < stale_after).map(|foreign| foreign.told)
    }

    /// What the cache of a model here can hold.
    pub fn capacity(&self, holding: &Holding) -> Capacity {
        match self.spec.engine.map(|engine| engine.cache) {
            Some(CacheKind::Blocks) => Capacity::Tokens(self.reported_cache_tokens),
            Some(CacheKind::PerSlot) | None => {
                let Slots { count, source } = self.slots(holding);
                Capacity::Slots { count, known: source != SlotsSource::EngineDefault }
            }
        }
    }

    /// Slots of a model here, by the rule of the first source that knows.
    pub fn slots(&self, holding: &Holding) -> Slots {
        let assumed = self.spec.engine.map_or(1, |engine| engine.default_slots).max(1);
        let (count, source) = match (self.spec.slots, self.reported_slots) {
            (Some(count), _) => (count, SlotsSource::Configured),
            (None, Some(count)) => (count, SlotsSource::Reported),
            (None, None) if holding.answering_peak > assumed => (holding.answering_peak, SlotsSource::Seen),
            (None, None) => (assumed, SlotsSource::EngineDefault),
        };
        Slots { count: count.max(1), source }
    }
}

impl SlotsSource {
    pub fn name(self) -> &'static str {
        match self {
            SlotsSource::Configured => "configured",
            SlotsSource::Reported => "reported by the engine",
            SlotsSource::Seen => "seen side by side",
            SlotsSource::EngineDefault => "engine default, until more are seen side by side",
        }
    }
}

impl Holding {
    pub(super) fn new(upstream: UpstreamId, name: &str) -> Holding {
        Holding {
            upstream,
            name: name.to_string(),
            listed: true,
            resident: false,
            resident_at: Moment(0),
            unloaded_at: None,
            told_to_unload_at: None,
            loading_since: None,
            loaded_at: None,
            gives_way: false,
            weights_bytes: None,
            resident_bytes: None,
            context_tokens: None,
            abilities: None,
            runner: Runner::default(),
            running: 0,
            batch_running: 0,
            waiting: 0,
            batch_waiting: 0,
            others: Others::default(),
            answering: 0,
            answers: Vec::new(),
            line: Line::default(),
            answering_peak: 0,
            speed: Speed::default(),
            tells_cached: false,
            usage: Usage::default(),
            breaker: Breaker::default(),
            slow_start: SlowStart::default(),
            progress_at: Moment(0),
            overdue: 0,
        }
    }

    /// What it takes in memory: measured where it was ever seen resident, else its weights.
    pub fn need_bytes(&self) -> Option<u64> {
        self.resident_bytes.or(self.weights_bytes)
    }
}
