//! All upstreams and what is believed about them; the one place where belief changes.
//!
//! Every method takes the present as an argument, changes what it must in one step and leaves the laws
//! of `laws` true. Reading is `select::decide`'s; a decision is booked with `book` in the same critical
//! section, so that two requests cannot both take the last free slot. A booking ends exactly once (L2).

mod experience;
mod index;
mod rules;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::ask::{Ask, Priority};
use super::budget::RetryBudget;
use super::elsewhere::Elsewhere;
use super::estimate::Work;
use super::evenness::Weights;
use super::moment::Moment;
use super::prefix::{Left, Prefixes};
use super::queue::Queue;
use super::report::Report;
use super::runner::RunnerOptions;
use super::session::{Pin, Sessions, domain};
use super::strays::Strays;
use super::table::Upstreams;
use super::upstream::{Foreign, Holding, Spec, Traits, Upstream};
use super::{laws, select::Row};

pub use experience::Learnt;
pub use rules::{EXTERNALITY_WEIGHT, Rules};

/// An upstream for the length of the process; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct UpstreamId(pub u32);

/// A model on an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct HoldingId(pub u32);

/// One running attempt's booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// What was so when an upstream was asked for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub at: Moment,
    /// Our own requests that ran a model there, and those of other replicas.
    pub running: u32,
}

/// What an engine found of a prompt in its cache, by its own count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer came to its end.
    Done { output_tokens: Option<u32>, cached: Option<Cached> },
    /// The client left, or the request was refused by its own fault: says nothing about the upstream.
    Void,
    /// It failed with this model.
    Failed,
    /// No connection could be made.
    Unreachable,
    /// It refused our key.
    KeyRefused,
    /// It had no place for the request.
    Busy,
}

pub struct Fleet {
    pub rules: Rules,
    pub(super) upstreams: Upstreams,
    pub(super) holdings: Vec<Holding>,
    /// Places in `holdings` that hold nothing any more, the longest free first.
    free: VecDeque<HoldingId>,
    /// Holdings under the folded name (Ollama) or the exact one (other engines).
    folded: HashMap<String, Vec<HoldingId>>,
    exact: HashMap<String, Vec<HoldingId>>,
    pub(super) bookings: BTreeMap<LeaseId, Booking>,
    next_lease: u64,
    pub queue: Queue,
    /// Those who waited when the rules changed, and may go on waiting whatever the new ones say.
    pub(super) queue_kept: usize,
    pub sessions: Sessions,
    pub prefixes: Prefixes,
    pub retries: RetryBudget,
    /// Other replicas of the same fleet.
    pub elsewhere: Elsewhere,
    /// Whether conversations come that others began.
    pub strays: Strays,
    /// What a request counts for in the account of who has had its share (`evenness`).
    pub(super) weights: Weights,
}

/// Models remembered in all, over all upstreams. An upstream that invents names must not fill memory.
pub const MAX_HOLDINGS: usize = 1 << 16;

/// A place is given to another model only once this many others have become free after it: a request under
/// way may still name it, as one that it tried or that is gone.
const PLACES_AT_REST: usize = 1024;

#[derive(Clone, Debug)]
pub(super) struct Booking {
    pub upstream: UpstreamId,
    pub holding: HoldingId,
    /// Occupies a slot (`Endpoint::runs_model`).
    pub runs_model: bool,
    pub priority: Priority,
    /// Options that the node was sent, where its models are loaded with them.
    sent: Option<RunnerOptions>,
    pub booked_at: Moment,
    /// It had waited here for so long.
    waited: Duration,
    pub first_byte_at: Option<Moment>,
    /// Seconds that its prompt took, to be learnt from once it is told how much of it was cached.
    read_s: Option<f64>,
    /// The link that ends its prompt, once it is answered.
    end: Option<u64>,
    prompt_tokens: u32,
    start: Start,
    /// Silence for longer than this is not right.
    pub patience: Duration,
}

/// What a lease found when it was booked; decides what its times teach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    FreeSlot,
    /// Behind our own.
    Queued,
    /// Behind others' requests, of which nothing more is known.
    Foreign,
    ColdModel,
}

impl Fleet {
    pub fn new(rules: Rules) -> Fleet {
        Fleet {
            upstreams: Upstreams::default(),
            holdings: Vec::new(),
            free: VecDeque::new(),
            folded: HashMap::new(),
            exact: HashMap::new(),
            bookings: BTreeMap::new(),
            next_lease: 0,
            queue: Queue::default(),
            queue_kept: 0,
            sessions: Sessions::new(rules.max_sessions, rules.session_ttl),
            prefixes: Prefixes::new(rules.session_ttl),
            retries: RetryBudget::default(),
            elsewhere: Elsewhere::default(),
            strays: Strays::default(),
            weights: Weights::default(),
            rules,
        }
    }

    /// Another upstream; `None`: there are as many as there may be.
    pub fn join(&mut self, spec: Spec) -> Option<UpstreamId> {
        let upstream = Upstream::new(spec);
        let node = upstream.name_hash;
        let id = self.upstreams.join(upstream)?;
        self.elsewhere.joined(node, id);
        Some(id)
    }

    /// An upstream takes no new work from now on. What runs there finishes; then it is forgotten. Pins
    /// and prefixes that name it lead nowhere, since its id never comes again.
    pub fn leave(&mut self, id: UpstreamId) {
        let Some(upstream) = self.upstreams.get_mut(id) else { return };
        upstream.leaving = true;
        self.elsewhere.left(upstream.name_hash, id);
        for held in upstream.holdings.values() {
            self.holdings[held.0 as usize].listed = false;
        }
        self.unindex(id);
        self.stop_waiting_for(id);
        self.forget_unlisted(id);
        self.forget_gone(id);
        laws::check(self);
    }

    /// An upstream is configured anew. What was learnt of it stays, its engine too unless one is named.
    pub fn configure(&mut self, id: UpstreamId, spec: Spec, now: Moment) {
        if let Some(upstream) = self.upstreams.get(id) {
            let engine = spec.engine.or(upstream.spec.engine);
            let renames = engine.map(|engine| engine.naming) != upstream.spec.engine.map(|engine| engine.naming);
            self.change_drain(id, now, |upstream| upstream.spec = Spec { engine, ..spec });
            if renames {
                self.rebuild_index();
            }
        }
    }

    /// Other rules hold from now on, for what is decided anew. What was learnt stays, as far as it has room;
    /// groups too, which go with the rows.
    pub fn set_rules(&mut self, rules: Rules) {
        self.sessions.limit(rules.max_sessions, rules.session_ttl);
        self.prefixes.keep_for(rules.session_ttl);
        self.queue_kept = self.queue.len();
        let groups = std::mem::take(&mut self.rules.groups);
        self.rules = Rules { groups, ..rules };
    }

    /// The engine of an upstream was recognised.
    pub fn learn_engine(&mut self, id: UpstreamId, engine: Traits) {
        if let Some(upstream) = self.upstreams.get_mut(id) {
            upstream.spec.engine = Some(engine);
        }
    }

    /// To be called when an upstream is asked for a report, for `learn_report`.
    pub fn asked(&self, id: UpstreamId, now: Moment) -> Asked {
        Asked { at: now, running: self.running_on(id) }
    }

    /// A good reading: what began after it was asked for is not unsaid by it.
    pub fn learn_report(&mut self, id: UpstreamId, report: &Report, asked: Asked, now: Moment) {
        let Some(upstream) = self.upstreams.get(id).filter(|upstream| !upstream.leaving) else { return };
        let Some(engine) = upstream.spec.engine else { return };
        if upstream.read_at.is_some_and(|latest| asked.at < latest) {
            return;
        }
        // The engine counted at some moment in between: what was ours, or another replica's, at either end is not
        // foreign.
        let ours = self.running_on(id).max(asked.running);
        let upstream = &mut self.upstreams[id];
        upstream.read_at = Some(asked.at);
        upstream.reported_slots = report.slots.or(upstream.reported_slots);
        upstream.reported_cache_tokens = report.cache_tokens.or(upstream.reported_cache_tokens);
        upstream.salts_all_paths = report.salts_all_paths.unwrap_or(upstream.salts_all_paths);
        if let Some(load) = report.load {
            let requests = load.requests().saturating_sub(ours);
            upstream.foreign = Some(Foreign { told: load, requests, asked_at: asked.at });
        }
        let before = self.listed(id);
        for held in &before {
            self.holdings[held.0 as usize].listed = false;
        }
        for model in &report.models {
            if let Some(held) = self.holding_named(id, &model.name) {
                let holding = &mut self.holdings[held.0 as usize];
                let was_resident = holding.resident;
                holding.learn(model, engine.fixed_models, asked.at, now);
                if was_resident && !holding.resident {
                    self.prefixes.clear(held);
                }
            }
        }
        self.forget_unlisted(id);
        if self.listed(id) != before {
            self.rebuild_index();
        }
        laws::check(self);
    }

    fn running_on(&self, id: UpstreamId) -> u32 {
        let Some(upstream) = self.upstreams.get(id) else { return 0 };
        let ours: u32 = upstream.holdings.values().map(|held| self.holding(*held).running).sum();
        ours.saturating_add(upstream.others.running)
    }

    /// An upstream answered that it does not have a model after all. It gets no more requests for it
    /// until a reading lists it again.
    pub fn learn_gone(&mut self, gone: HoldingId) {
        let Some(holding) = self.holdings.get_mut(gone.0 as usize) else { return };
        let upstream = holding.upstream;
        let held = self.upstreams.get(upstream).and_then(|upstream| upstream.holdings.get(&holding.name));
        if held != Some(&gone) {
            return;
        }
        holding.listed = false;
        self.forget_unlisted(upstream);
        self.rebuild_index();
        laws::check(self);
    }

    /// An upstream deleted a model when it was told to.
    pub fn learn_deleted(&mut self, id: UpstreamId, model: &str) {
        if let Some(held) = self.upstream(id).and_then(|upstream| upstream.holdings.get(model).copied()) {
            self.learn_gone(held);
        }
    }

    /// An upstream was told to unload a model, and agreed.
    pub fn learn_unloaded(&mut self, id: UpstreamId, model: &str, now: Moment) {
        let held = self.upstream(id).and_then(|upstream| upstream.holdings.get(model).copied());
        if let Some(holding) = held.and_then(|held| self.holdings.get_mut(held.0 as usize)) {
            holding.unload(now);
        }
        held.into_iter().for_each(|held| self.prefixes.clear(held));
    }

    /// Books the upstream that a decision's row names; in the same critical section as the decision.
    pub fn book(&mut self, row: &Row, ask: &Ask, now: Moment) -> LeaseId {
        let lease = LeaseId(self.next_lease);
        self.next_lease += 1;
        let upstream = &mut self.upstreams[row.upstream];
        let holding = &mut self.holdings[row.holding.0 as usize];
        let slots = upstream.slots(holding).count;
        let reloads = row.reloads();
        let leaves = row.leaves();
        let cold = !holding.resident || reloads || leaves;
        let foreign = upstream.foreign_requests(now, self.rules.stale_after);
        let start = match () {
            _ if cold => Start::ColdModel,
            _ if holding.running >= slots => Start::Queued,
            _ if holding.running.saturating_add(foreign).saturating_add(holding.others.running) >= slots => {
                Start::Foreign
            }
            _ => Start::FreeSlot,
        };
        let runs_model = ask.endpoint.runs_model();
        upstream.in_flight += 1;
        if runs_model {
            upstream.breaker.sent(lease);
            holding.breaker.sent(lease);
            holding.running += 1;
            holding.batch_running += u32::from(ask.priority == Priority::Batch);
            holding.usage.add(1, ask.prompt_tokens, now);
            if cold && (holding.loading_since.is_none() || reloads) {
                self.prefixes.clear(row.holding);
            }
            if leaves {
                (holding.resident, holding.gives_way) = (false, true);
            }
            if cold && holding.loading_since.is_none() {
                let load = row.first_token.map(|parts| Duration::try_from_secs_f64(parts.load_s).unwrap_or_default());
                holding.loaded_at = load.map(|load| now + load);
                holding.loading_since = Some(now);
            }
            holding.line.join(lease, Work::of(ask.prompt_tokens, row.covered_tokens), now);
            self.prefixes.book(lease, row.holding, upstream.capacity(holding), ask, now);
        }
        let sent = row.misfit.as_ref().map_or(ask.runner, |misfit| misfit.sent());
        let sent = Some(sent).filter(|_| runs_model && upstream.loads_by_options());
        if let Some(sent) = sent.filter(|_| reloads) {
            // Requests are served in order: those that come now find it loaded so.
            holding.context_tokens = holding.runner.serves(sent, holding.context_tokens, now);
        }
        let booking = Booking {
            upstream: row.upstream,
            holding: row.holding,
            runs_model,
            priority: ask.priority,
            booked_at: now,
            waited: self.queue.waited_by_now(now),
            first_byte_at: None,
            read_s: None,
            end: None,
            prompt_tokens: ask.prompt_tokens,
            start,
            sent,
            patience: self.rules.silence.patience(holding, ask, cold),
        };
        self.bookings.insert(lease, booking);
        laws::check(self);
        lease
    }

    /// The first byte of a successful answer came: the node has the model and the conversation.
    pub fn first_byte(&mut self, lease: LeaseId, ask: &Ask, now: Moment) -> Learnt {
        let Some(booking) = self.bookings.get_mut(&lease).filter(|booking| booking.first_byte_at.is_none()) else {
            return Learnt::default();
        };
        booking.first_byte_at = Some(now);
        booking.end = ask.chain.end().filter(|_| ask.endpoint.is_conversation()).map(|end| end.within(domain(ask)));
        let booking = booking.clone();
        let upstream = &mut self.upstreams[booking.upstream];
        upstream.answered_at = Some(now);
        upstream.slow_start.answered();
        if upstream.breaker.answered(booking.booked_at, now) {
            upstream.slow_start.begin(now);
        }
        if !booking.runs_model {
            return Learnt::default();
        }
        let holding = &mut self.holdings[booking.holding.0 as usize];
        holding.slow_start.answered();
        if holding.breaker.answered(booking.booked_at, now) {
            holding.slow_start.begin(now);
        }
        self.prefixes.first_byte(lease, now);
        let learnt = holding.learn_first_byte(lease, &booking, self.prefixes.placed(lease), now);
        if let Some(booking) = self.bookings.get_mut(&lease) {
            booking.read_s = learnt.prefill_s.filter(|_| learnt.left_to_the_end);
        }
        if ask.endpoint.is_conversation() {
            if ask.chain.answers == 1 {
                self.strays.second_turn(ask, self.sessions.last_served(ask).is_none());
            }
            let before = self.sessions.pin(ask, booking.upstream, now);
            let rested = |pin: Pin| booking.booked_at.since(pin.rests_since).saturating_sub(booking.waited);
            self.prefixes.turn(before.map(rested));
            self.tell_turn(ask, booking.holding, now);
        }
        laws::check(self);
        learnt
    }

    /// Ends a lease. Ending one twice changes nothing.
    pub fn end(&mut self, lease: LeaseId, outcome: Outcome, now: Moment) {
        let Some(booking) = self.bookings.remove(&lease) else { return };
        let upstream = &mut self.upstreams[booking.upstream];
        upstream.in_flight -= 1;
        self.learn_outcome(lease, &booking, outcome, now);
        if booking.runs_model {
            self.holdings[booking.holding.0 as usize].learn_end(lease, &booking, outcome, now);
            let left = match outcome {
                Outcome::Done { output_tokens, cached } => Left { output_tokens, cached },
                _ => Left::default(),
            };
            self.prefixes.end(lease, left, now);
            booking.end.into_iter().for_each(|end| self.sessions.rests(end, now));
        }
        self.forget_gone(booking.upstream);
        laws::check(self);
    }

    pub fn upstream(&self, id: UpstreamId) -> Option<&Upstream> {
        self.upstreams.get(id)
    }

    /// Those that have left and still have requests included.
    pub fn upstreams(&self) -> impl Iterator<Item = (UpstreamId, &Upstream)> {
        self.upstreams.iter()
    }

    pub fn holdings_of(&self, id: UpstreamId) -> impl Iterator<Item = &Holding> {
        let ids = self.upstreams.get(id).map(|upstream| upstream.holdings.values());
        ids.into_iter().flatten().map(|id| self.holding(*id)).filter(|holding| holding.listed)
    }

    pub fn live_leases(&self) -> usize {
        self.bookings.len()
    }

    /// Whether every upstream has told at least once what it holds.
    pub fn is_known_whole(&self) -> bool {
        self.upstreams.iter().all(|(_, upstream)| upstream.leaving || upstream.read_at.is_some())
    }

    /// Forgets an upstream that has left once its last request is over.
    fn forget_gone(&mut self, id: UpstreamId) {
        if self.upstreams.get(id).is_some_and(|upstream| upstream.leaving && upstream.in_flight == 0) {
            self.forget_unlisted(id);
            self.upstreams.forget(id);
        }
    }
}
