//! Which upstream should serve an ask: the decision itself.
//!
//! `decide` looks at the fleet, excludes those that cannot serve, judges the others by the signals and
//! ranks them. It changes nothing; the same fleet, query and time give the same decision (L5), in
//! whatever order the upstreams were listed (L6). What it found is kept as the request's receipt.

use serde::{Deserialize, Serialize};

use super::ask::{Ask, Dialect};
use super::candidate::{Candidate, FirstToken, Memory, Residency};
use super::chain::mix;
use super::estimate::median;
use super::fleet::{Fleet, HoldingId, Policy, UpstreamId};
use super::moment::Moment;
use super::session;
use super::signal::Points;
use super::upstream::{Holding, Upstream};

/// A request for a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    pub ask: Ask,
    /// Upstreams that failed in this request already.
    pub tried: Vec<UpstreamId>,
    /// A value of the request's own: decides ties of requests without conversation, and is the chance
    /// of chancy policies.
    pub request: u64,
}

/// Why a request goes where it goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The eligible upstreams, the chosen one first.
    pub rows: Vec<Row>,
    /// Holders of the model that were not judged.
    pub excluded: Vec<(UpstreamId, Exclusion)>,
    /// Where the conversation was served last.
    pub pin: Option<UpstreamId>,
}

/// An eligible upstream and its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub upstream: UpstreamId,
    pub holding: HoldingId,
    pub points: Points,
    /// The sum of the points.
    pub score: f64,
    /// Requests for the model there, divided by its slots, before this one.
    pub depth: f64,
    /// Tokens of the prompt that the upstream has likely cached.
    pub covered_tokens: u32,
}

/// Why a holder of the model was not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exclusion {
    WrongDialect,
    Unhealthy,
    Draining,
    HigherTier,
    TooLarge,
    LacksAbility,
    ContextTooSmall,
    Tried,
}

impl Exclusion {
    pub fn name(self) -> &'static str {
        match self {
            Exclusion::WrongDialect => "wrong_dialect",
            Exclusion::Unhealthy => "unhealthy",
            Exclusion::Draining => "draining",
            Exclusion::HigherTier => "higher_tier",
            Exclusion::TooLarge => "too_large",
            Exclusion::LacksAbility => "lacks_ability",
            Exclusion::ContextTooSmall => "context_too_small",
            Exclusion::Tried => "tried",
        }
    }
}

/// Scores this close to the best are a tie.
const TIE: f64 = 0.05;

/// Ranks the upstreams for `query` at `now`.
pub fn decide(fleet: &Fleet, query: &Query, now: Moment) -> Decision {
    let ask = &query.ask;
    let mut excluded = Vec::new();
    let mut eligible = Vec::new();
    for holding in fleet.holders(&ask.model) {
        let id = fleet.holding(holding).upstream;
        match exclusion(fleet, holding, query) {
            Some(reason) => excluded.push((id, reason)),
            None => eligible.push(holding),
        }
    }
    keep_lowest_tier(fleet, &mut eligible, &mut excluded);
    let pin = if ask.endpoint.is_conversation() { fleet.sessions.find(ask, now) } else { None };
    let pin = pin.map(|pin| pin.upstream);
    let pinned = pin.filter(|pin| eligible.iter().any(|id| fleet.holding(*id).upstream == *pin));
    let mut rows = judge(fleet, ask, &eligible, pinned, now);
    drop_too_small(fleet, ask, &mut rows, &mut excluded);
    rank(fleet, query, &mut rows);
    excluded.sort();
    Decision { rows, excluded, pin }
}

/// The dialects in which the model can be reached at all.
pub fn dialects_of(fleet: &Fleet, model: &str) -> Vec<Dialect> {
    let holders = fleet.holders(model);
    let engines = holders.iter().filter_map(|id| upstream_of(fleet, *id).spec.engine);
    let mut dialects: Vec<Dialect> = engines.flat_map(|engine| engine.dialects).copied().collect();
    dialects.sort_by_key(|dialect| dialect.name());
    dialects.dedup();
    dialects
}

fn upstream_of(fleet: &Fleet, id: HoldingId) -> &Upstream {
    &fleet.upstreams[fleet.holding(id).upstream.0 as usize]
}

fn exclusion(fleet: &Fleet, id: HoldingId, query: &Query) -> Option<Exclusion> {
    let (holding, upstream) = (fleet.holding(id), upstream_of(fleet, id));
    let speaks = upstream.spec.engine.is_some_and(|engine| engine.dialects.contains(&query.ask.endpoint.dialect()));
    let too_large = holding.need_bytes().zip(upstream.spec.memory_bytes).is_some_and(|(need, all)| need > all);
    match () {
        _ if query.tried.contains(&holding.upstream) => Some(Exclusion::Tried),
        _ if !speaks => Some(Exclusion::WrongDialect),
        _ if !upstream.healthy => Some(Exclusion::Unhealthy),
        _ if upstream.spec.drain => Some(Exclusion::Draining),
        _ if lacks_ability(holding, &query.ask) => Some(Exclusion::LacksAbility),
        _ if too_large && !holding.resident => Some(Exclusion::TooLarge),
        _ => None,
    }
}

fn lacks_ability(holding: &Holding, ask: &Ask) -> bool {
    holding.abilities.is_some_and(|has| {
        // Embeddings are left to the engine: Ollama makes them with any model, listed as able or not.
        ask.needs.vision && !has.vision || ask.needs.tools && !has.tools
    })
}

fn keep_lowest_tier(fleet: &Fleet, eligible: &mut Vec<HoldingId>, excluded: &mut Vec<(UpstreamId, Exclusion)>) {
    let tier = |id: &HoldingId| upstream_of(fleet, *id).spec.tier;
    let Some(lowest) = eligible.iter().map(tier).min() else { return };
    let higher = eligible.extract_if(.., |id| tier(id) > lowest);
    excluded.extend(higher.map(|id| (fleet.holding(id).upstream, Exclusion::HigherTier)));
}

fn judge(fleet: &Fleet, ask: &Ask, eligible: &[HoldingId], pinned: Option<UpstreamId>, now: Moment) -> Vec<Row> {
    let covered = if ask.endpoint.is_conversation() { fleet.prefixes.covered(ask, now) } else { Vec::new() };
    let typical = Typical::of(eligible.iter().map(|id| fleet.holding(*id)));
    let row = |id: &HoldingId| {
        let holding = fleet.holding(*id);
        let known = covered.iter().find(|(upstream, _)| *upstream == holding.upstream);
        let covered_tokens = known.map_or(0, |(_, tokens)| (*tokens).min(ask.prompt_tokens));
        let belief = Belief { holding, covered_tokens, pinned, typical: &typical, now };
        let candidate = belief.candidate(fleet, ask);
        let points = fleet.rules.signals.points(&candidate, ask);
        let (upstream, score) = (holding.upstream, points.iter().sum());
        Row { upstream, holding: *id, points, score, depth: candidate.depth, covered_tokens }
    };
    eligible.iter().map(row).collect()
}

/// What is known of one holder for one ask, on the way to a candidate.
struct Belief<'a> {
    holding: &'a Holding,
    covered_tokens: u32,
    pinned: Option<UpstreamId>,
    typical: &'a Typical,
    now: Moment,
}

impl Belief<'_> {
    fn candidate(&self, fleet: &Fleet, ask: &Ask) -> Candidate {
        let holding = self.holding;
        let upstream = &fleet.upstreams[holding.upstream.0 as usize];
        let slots = f64::from(upstream.slots(holding).count);
        let reloads = holding.reloads_for(ask.num_ctx);
        let prefix_share = f64::from(self.covered_tokens) / f64::from(ask.prompt_tokens.max(1));
        Candidate {
            residency: if reloads { Residency::OnDisk } else { self.residency() },
            model_bytes: holding.weights_bytes,
            need_bytes: holding.need_bytes(),
            memory: self.memory(fleet, upstream),
            bandwidth_bytes_s: upstream.spec.bandwidth_bytes_s,
            depth: f64::from(holding.running) / slots,
            other_depth: f64::from(upstream.in_flight.saturating_sub(holding.running)) / slots,
            first_token: self.first_token(ask, slots, reloads),
            availability: upstream.record.trust(self.now),
            context_tokens: if reloads { ask.num_ctx } else { holding.context_tokens },
            pinned: self.pinned == Some(holding.upstream),
            prefix_share: if self.pinned.is_none() { prefix_share } else { 0.0 },
        }
    }

    fn residency(&self) -> Residency {
        match (self.holding.resident || self.holding.loading_since.is_some(), self.holding.unloaded_at) {
            (true, _) => Residency::Resident,
            (false, Some(at)) => Residency::Unloaded(self.now.since(at)),
            (false, None) => Residency::OnDisk,
        }
    }

    /// Free memory by the latest reading; unknown once that is stale (L10).
    fn memory(&self, fleet: &Fleet, upstream: &Upstream) -> Option<Memory> {
        let total_bytes = upstream.spec.memory_bytes?;
        let fresh = upstream.read_at.is_some_and(|at| self.now.since(at) < fleet.rules.stale_after);
        if !fresh {
            return None;
        }
        let resident = fleet.holdings_of(self.holding.upstream).filter(|held| held.resident);
        let (mut used, mut busy) = (0u64, 0u64);
        for held in resident {
            let bytes = held.need_bytes().unwrap_or(0);
            used = used.saturating_add(bytes);
            busy = busy.saturating_add(if held.running > 0 { bytes } else { 0 });
        }
        Some(Memory {
            total_bytes,
            free_bytes: total_bytes.saturating_sub(used),
            free_without_idle_bytes: total_bytes.saturating_sub(busy),
        })
    }

    /// Predicted from this node's speeds, else the fleet's for the model; `None` if nobody has any.
    fn first_token(&self, ask: &Ask, slots: f64, reloads: bool) -> Option<FirstToken> {
        let (speed, typical) = (&self.holding.speed, self.typical);
        let per_token_s = speed.prefill_s_per_token().or(typical.prefill_s_per_token);
        let service_s = speed.service_s().or(typical.service_s);
        let load_s = speed.load_s().or(typical.load_s);
        per_token_s.or(service_s).or(load_s)?;
        let ahead = (f64::from(self.holding.running) - slots + 1.0).max(0.0);
        let uncached = ask.prompt_tokens.saturating_sub(self.covered_tokens);
        let load_left_s = match self.holding.loading_since {
            _ if self.holding.resident && !reloads => 0.0,
            Some(since) => (load_s.unwrap_or(0.0) - self.now.since(since).as_secs_f64()).max(0.0),
            None => load_s.unwrap_or(0.0),
        };
        Some(FirstToken {
            wait_s: ahead * service_s.unwrap_or(0.0) / slots,
            load_s: load_left_s,
            prefill_s: per_token_s.unwrap_or(0.0) * f64::from(uncached),
        })
    }
}

/// The middle speeds of a model over its holders.
struct Typical {
    prefill_s_per_token: Option<f64>,
    service_s: Option<f64>,
    load_s: Option<f64>,
}

impl Typical {
    fn of<'a>(holders: impl Iterator<Item = &'a Holding> + Clone) -> Typical {
        Typical {
            prefill_s_per_token: median(holders.clone().filter_map(|held| held.speed.prefill_s_per_token())),
            service_s: median(holders.clone().filter_map(|held| held.speed.service_s())),
            load_s: median(holders.filter_map(|held| held.speed.load_s())),
        }
    }
}

/// Excludes nodes whose window is known to be too small, if that leaves any.
fn drop_too_small(fleet: &Fleet, ask: &Ask, rows: &mut Vec<Row>, excluded: &mut Vec<(UpstreamId, Exclusion)>) {
    let too_small = |row: &Row| {
        let holding = fleet.holding(row.holding);
        let window = if holding.reloads_for(ask.num_ctx) { ask.num_ctx } else { holding.context_tokens };
        window.is_some_and(|window| u64::from(window) < ask.tokens_needed())
    };
    if rows.iter().any(|row| !too_small(row)) {
        let dropped = rows.extract_if(.., |row| too_small(row));
        excluded.extend(dropped.map(|row| (row.upstream, Exclusion::ContextTooSmall)));
    }
}

fn rank(fleet: &Fleet, query: &Query, rows: &mut [Row]) {
    let tie = session::conversation(&query.ask).unwrap_or(query.request);
    let rendezvous = |row: &Row| mix(tie, fleet.upstreams[row.upstream.0 as usize].name_hash);
    match fleet.rules.policy {
        Policy::Fleet => {
            let best = rows.iter().map(|row| row.score).fold(f64::NEG_INFINITY, f64::max);
            let level = |row: &Row| if row.score >= best - TIE { f64::INFINITY } else { row.score };
            rows.sort_by(|a, b| level(b).total_cmp(&level(a)).then(rendezvous(b).cmp(&rendezvous(a))));
        }
        Policy::Shuffle => {
            let ticket = |row: &Row| {
                let upstream = &fleet.upstreams[row.upstream.0 as usize];
                weighted_ticket(mix(query.request, upstream.name_hash), upstream.spec.weight)
            };
            rows.sort_by(|a, b| ticket(a).total_cmp(&ticket(b)));
        }
    }
}

/// The smallest ticket wins, in proportion to the weights (exponential races; Efraimidis and Spirakis,
/// 2006).
fn weighted_ticket(chance: u64, weight: f64) -> f64 {
    let uniform = ((chance >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    if weight > 0.0 { -uniform.ln() / weight } else { f64::INFINITY }
}

#[cfg(test)]
mod tests;
