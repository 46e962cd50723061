//! One of the peers' rules in the router's place, and what such a router knows of its nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::nodes::{NodeParams, Nodes};
use super::{Number, Order, Router};
use crate::routing::chain::mix;
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::engine::{CacheParams, ModelParams, Usage};
use crate::sim::peers::index::Index;
use crate::sim::peers::{Peer, Rule, Seen};
use crate::sim::workload::Request;

/// How a router's index of prefixes differs from the caches it stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexError {
    pub never_evicts: bool,
    /// Remembers half of what the cache holds.
    pub half: bool,
}

impl IndexError {
    /// What it takes a cache of so many tokens for.
    pub fn told(self, tokens: u64) -> u64 {
        match self {
            _ if self.never_evicts => u64::MAX,
            _ if self.half => tokens / 2,
            _ => tokens,
        }
    }
}

pub struct PeerRouter {
    rule: Box<dyn Rule>,
    params: Arc<Vec<NodeParams>>,
    known: Vec<Known>,
    running: HashMap<Number, Running>,
    chance: Chance,
    next_poll: Moment,
    poll_interval: Duration,
}

/// What is known of one node.
struct Known {
    /// For each of its models.
    indexes: HashMap<String, Index>,
    active_by_model: HashMap<String, u32>,
    active: u32,
    active_tokens: f64,
    pending: u32,
    pending_tokens: f64,
    /// When it will have read all that was sent there, its costs being known.
    free_at_s: f64,
    /// When each request of a model will be over, answers' lengths being known too.
    ends_s: HashMap<String, Vec<(Number, f64)>>,
    resident: Vec<String>,
    free_bytes: u64,
}

struct Running {
    node: usize,
    request: Arc<Request>,
    sent_at: Moment,
    /// Believed not to be cached; nothing once the first token is there.
    pending_tokens: Option<f64>,
}

impl PeerRouter {
    pub fn new(peer: &Peer, params: &Arc<Vec<NodeParams>>, error: IndexError, poll: Duration, seed: u64) -> PeerRouter {
        PeerRouter {
            rule: (peer.make)(params, seed),
            params: params.clone(),
            known: params.iter().map(|node| Known::new(node, error)).collect(),
            running: HashMap::new(),
            chance: Chance::new(seed, mix(1, 0x7065_6572)),
            next_poll: Moment::default(),
            poll_interval: poll,
        }
    }

    fn seen(&self, request: &Request, now: Moment) -> Vec<Seen> {
        let all = self.params.iter().zip(&self.known).enumerate();
        let holders =
            all.filter_map(|(node, (params, known))| Some((node, known, params, params.model(&request.model)?)));
        holders.map(|(node, known, params, model)| known.seen(node, params, model, request, now)).collect()
    }
}

impl Known {
    fn new(node: &NodeParams, error: IndexError) -> Known {
        let index = |model: &ModelParams| (model.name.clone(), Index::new(error.told(cache_tokens(model))));
        Known {
            indexes: node.engine.models.iter().map(index).collect(),
            active_by_model: HashMap::new(),
            active: 0,
            active_tokens: 0.0,
            pending: 0,
            pending_tokens: 0.0,
            free_at_s: 0.0,
            ends_s: HashMap::new(),
            resident: Vec::new(),
            free_bytes: 0,
        }
    }

    fn seen(&self, node: usize, params: &NodeParams, model: &ModelParams, request: &Request, now: Moment) -> Seen {
        let prompt = request.history.within(request.prompt_tokens);
        let hit = self.indexes.get(&model.name).map_or(&[][..], |index| index.known(prompt));
        let hit_tokens = hit.last().map_or(0, |block| block.tokens_end);
        let uncached = request.prompt_tokens - hit_tokens;
        let own_s = model.prefill.seconds(uncached, request.prompt_tokens);
        Seen {
            node,
            active: self.active,
            active_for_model: self.active_by_model.get(&model.name).copied().unwrap_or_default(),
            active_tokens: self.active_tokens,
            pending: self.pending,
            pending_tokens: self.pending_tokens,
            hit_tokens: f64::from(hit_tokens),
            hit_share: hit.len() as f64 / prompt.len().max(1) as f64,
            wait_s: (self.free_at_s.max(self.slot_at_s(model)) - seconds(now)).max(0.0),
            own_s,
            work_s: own_s * params.speed,
            cache_tokens: cache_tokens(model) as f64,
            is_resident: self.resident.contains(&model.name),
            memory_ratio: self.free_bytes as f64 / model.memory_bytes.max(1) as f64,
            context_tokens: model.context_tokens,
        }
    }

    /// When one more request will have a slot.
    fn slot_at_s(&self, model: &ModelParams) -> f64 {
        let ends = self.ends_s.get(&model.name).map(Vec::as_slice).unwrap_or_default();
        let Some(ahead) = ends.len().checked_sub(model.slots as usize) else { return 0.0 };
        let mut ends: Vec<f64> = ends.iter().map(|(_, end)| *end).collect();
        ends.sort_by(f64::total_cmp);
        ends.get(ahead).copied().unwrap_or_default()
    }

    fn send(&mut self, number: Number, request: &Request, seen: &Seen, decode_s: f64, now: Moment) -> f64 {
        let pending_tokens = f64::from(request.prompt_tokens) - seen.hit_tokens;
        self.active += 1;
        *self.active_by_model.entry(request.model.to_string()).or_default() += 1;
        self.active_tokens += tokens_in_all(request);
        self.pending += 1;
        self.pending_tokens += pending_tokens;
        self.free_at_s = seconds(now) + seen.wait_s + seen.own_s;
        let end = self.free_at_s + decode_s * f64::from(request.output_tokens);
        self.ends_s.entry(request.model.to_string()).or_default().push((number, end));
        if let Some(index) = self.indexes.get_mut(&*request.model) {
            index.learn(&request.history, request.prompt_tokens);
        }
        pending_tokens
    }
}

impl Router for PeerRouter {
    fn arrives(&mut self, number: Number, request: &Arc<Request>, now: Moment, orders: &mut Vec<Order>) {
        let seen = self.seen(request, now);
        let place = self.rule.pick(request, &seen, now, &mut self.chance);
        let Some(seen) = seen.get(place) else { return orders.push(Order::Refuse(number)) };
        let model = self.params[seen.node].model(&request.model);
        let decode_s = model.map_or(0.0, |model| 1.0 / model.decode_tokens_per_s);
        let pending_tokens = Some(self.known[seen.node].send(number, request, seen, decode_s, now));
        let running = Running { node: seen.node, request: request.clone(), sent_at: now, pending_tokens };
        self.running.insert(number, running);
        orders.push(Order::Send { number, node: seen.node });
    }

    fn first_token(&mut self, number: Number, _now: Moment) {
        if let Some(running) = self.running.get_mut(&number)
            && let Some(tokens) = running.pending_tokens.take()
        {
            let known = &mut self.known[running.node];
            known.pending -= 1;
            known.pending_tokens -= tokens;
        }
    }

    fn ends(&mut self, number: Number, usage: Usage, now: Moment, _orders: &mut Vec<Order>) {
        self.first_token(number, now);
        let Some(Running { node, request, sent_at, .. }) = self.running.remove(&number) else { return };
        let known = &mut self.known[node];
        known.active -= 1;
        known.active_tokens -= tokens_in_all(&request);
        if let Some(ends) = known.ends_s.get_mut(&*request.model) {
            ends.retain(|(other, _)| *other != number);
        }
        if let Some(active) = known.active_by_model.get_mut(&*request.model) {
            *active -= 1;
        }
        if let Some(index) = known.indexes.get_mut(&*request.model) {
            index.learn(&request.history, request.prompt_tokens + usage.output_tokens);
        }
        self.rule.over(&request, node, now.since(sent_at).as_secs_f64());
    }

    fn next_look(&self) -> Option<Moment> {
        Some(self.next_poll)
    }

    fn look(&mut self, nodes: &Nodes, now: Moment, _orders: &mut Vec<Order>) {
        for (node, known) in self.known.iter_mut().enumerate() {
            let models = nodes.report(node).models;
            let resident = models.iter().filter(|model| model.resident);
            let held: u64 = resident.clone().filter_map(|model| model.resident_bytes).sum();
            known.resident = resident.map(|model| model.name.clone()).collect();
            known.free_bytes = self.params[node].engine.memory_bytes.saturating_sub(held);
        }
        self.next_poll = now + self.poll_interval;
    }
}

/// Tokens that a model's cache holds on a node.
fn cache_tokens(model: &ModelParams) -> u64 {
    match model.cache {
        CacheParams::Blocks { blocks, block_tokens } => blocks as u64 * u64::from(block_tokens),
        CacheParams::PerSlot { kept } => kept.max(model.slots as usize) as u64 * u64::from(model.context_tokens),
    }
}

fn tokens_in_all(request: &Request) -> f64 {
    f64::from(request.prompt_tokens) + f64::from(request.output_tokens)
}

fn seconds(at: Moment) -> f64 {
    at.since(Moment::default()).as_secs_f64()
}
