//! Which upstream should serve an ask: the decision itself.
//!
//! `decide` looks at the fleet, excludes those that cannot serve, judges the others by the signals and
//! ranks them. It changes nothing; the same fleet, query and time give the same decision (L5), in
//! whatever order the upstreams were listed (L6). What it found is kept as the request's receipt.

use serde::{Deserialize, Serialize};

use super::admission::admit;
use super::ask::{Ask, Dialect, Endpoint};
use super::candidate::{Candidate, FirstToken, Memory, Residency};
use super::estimate::median;
use super::fleet::{Fleet, HoldingId, UpstreamId};
use super::group::Target;
use super::moment::Moment;
use super::policy::Merits;
use super::runner::Misfit;
use super::session;
use super::signal::Points;
use super::upstream::{Holding, Upstream};

/// A request for a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Query {
    pub ask: Ask,
    /// Models on upstreams that failed in this request already.
    pub tried: Vec<HoldingId>,
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
    /// Which of the rows is to be booked now; `None` while there are rows: the request waits for the first.
    pub admitted: Option<HoldingId>,
}

/// An eligible upstream and its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub upstream: UpstreamId,
    pub holding: HoldingId,
    pub points: Points,
    /// The sum of the points.
    pub score: f64,
    /// Requests for the model there, ours and foreign, divided by its slots, before this one.
    pub depth: f64,
    /// Tokens of the prompt that the upstream has likely cached.
    pub covered_tokens: u32,
    pub merits: Merits,
    /// The upstream takes one more now.
    pub has_room: bool,
    pub is_resident: bool,
    /// `None`: nothing is known of any node's speed.
    pub first_token: Option<FirstToken>,
    /// The request's options are not those of the model in memory there.
    pub misfit: Option<Box<Misfit>>,
    pub(super) name_hash: u64,
}

impl Row {
    /// The model in memory there would be loaded anew.
    pub(super) fn reloads(&self) -> bool {
        self.misfit.as_ref().is_some_and(|misfit| misfit.reloads())
    }
}

/// Why a holder of the model was not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exclusion {
    WrongDialect,
    LacksPath,
    Unhealthy,
    Draining,
    HigherTier,
    TooLarge,
    LacksAbility,
    ContextTooSmall,
    OverLimit,
    NotTheMaker,
    Tried,
}

impl Exclusion {
    pub fn name(self) -> &'static str {
        match self {
            Exclusion::WrongDialect => "wrong_dialect",
            Exclusion::LacksPath => "lacks_path",
            Exclusion::Unhealthy => "unhealthy",
            Exclusion::Draining => "draining",
            Exclusion::HigherTier => "higher_tier",
            Exclusion::TooLarge => "too_large",
            Exclusion::LacksAbility => "lacks_ability",
            Exclusion::ContextTooSmall => "context_too_small",
            Exclusion::OverLimit => "over_limit",
            Exclusion::NotTheMaker => "not_the_maker",
            Exclusion::Tried => "tried",
        }
    }
}

/// Ranks the upstreams for `query` at `now`: those that have the model, and only if none of them can
/// serve, those that have its fallbacks, one after the other.
pub fn decide(fleet: &Fleet, query: &Query, now: Moment) -> Decision {
    let group = fleet.rules.groups.find(&query.ask.model).map(|(group, _)| group);
    let mut decision = decide_for(fleet, query, &query.ask.model, now);
    for fallback in group.into_iter().flat_map(|group| &group.fallbacks).take(fleet.rules.max_fallbacks) {
        if !decision.rows.is_empty() {
            break;
        }
        let other = decide_for(fleet, query, fallback, now);
        decision.rows = other.rows;
        decision.admitted = other.admitted;
        decision.excluded.extend(other.excluded);
    }
    decision
}

fn decide_for(fleet: &Fleet, query: &Query, model: &str, now: Moment) -> Decision {
    let ask = &query.ask;
    let mut excluded = Vec::new();
    let mut eligible = Vec::new();
    let offers = offers(fleet, model);
    // Translation is for models that nobody holds natively, not for times when those who do are down.
    let native = offers.iter().any(|offer| speaks(fleet, offer, ask.endpoint.dialect()));
    for offer in offers {
        match exclusion(fleet, &offer, query, native, now) {
            Some(reason) => excluded.push((fleet.holding(offer.holding).upstream, reason)),
            None => eligible.push(offer),
        }
    }
    if let Some(maker) = fleet.sessions.maker(ask, now) {
        keep_maker(fleet, maker, &mut eligible, &mut excluded);
    }
    keep_thinkers(fleet, ask, &mut eligible, &mut excluded);
    keep_lowest_tier(fleet, ask, &mut eligible, &mut excluded);
    let pin = if ask.endpoint.is_conversation() { fleet.sessions.find(ask, now) } else { None };
    let pin = pin.map(|pin| pin.upstream);
    let pinned = pin.filter(|pin| eligible.iter().any(|offer| fleet.holding(offer.holding).upstream == *pin));
    let mut rows = judge(fleet, ask, &eligible, pinned, now);
    drop_too_small(fleet, ask, &mut rows, &mut excluded);
    let policy = fleet.rules.groups.find(model).and_then(|(group, _)| group.policy).unwrap_or(fleet.rules.policy);
    let tie = session::conversation(ask).unwrap_or(query.request);
    policy.rank(&mut rows, tie, query.request);
    excluded.sort();
    let admitted = if ask.endpoint.runs_model() { admit(policy, &rows) } else { rows.first().map(|row| row.holding) };
    Decision { rows, excluded, pin, admitted }
}

/// Whether the upstream of `holding` takes a request at `endpoint` only when translated.
pub fn is_translated(fleet: &Fleet, holding: HoldingId, endpoint: Endpoint) -> bool {
    let engine = upstream_of(fleet, holding).spec.engine;
    engine.is_some_and(|engine| !engine.dialects.contains(&endpoint.dialect()))
}

/// The dialects in which the model can be reached at all.
pub fn dialects_of(fleet: &Fleet, model: &str) -> Vec<Dialect> {
    let offers = offers(fleet, model);
    let engines = offers.iter().filter_map(|offer| upstream_of(fleet, offer.holding).spec.engine);
    let mut dialects: Vec<Dialect> = engines.flat_map(|engine| engine.dialects).copied().collect();
    dialects.sort_by_key(|dialect| dialect.name());
    dialects.dedup();
    dialects
}

impl Fleet {
    /// Whether some node that may have the model, or a fallback of it, takes one more request now.
    pub(super) fn has_room_for(&self, ask: &Ask) -> bool {
        let open = |model: &str| offers(self, model).iter().any(|offer| self.has_room(offer.holding, ask.priority));
        let group = self.rules.groups.find(&ask.model).map(|(group, _)| group);
        let fallbacks = group.into_iter().flat_map(|group| &group.fallbacks).take(self.rules.max_fallbacks);
        open(&ask.model) || fallbacks.into_iter().any(|model| open(model))
    }
}

/// A model on an upstream that a client's name may mean, and on what terms.
struct Offer {
    holding: HoldingId,
    weight: f64,
    rpm: Option<u32>,
    tpm: Option<u32>,
    cost: Option<f64>,
}

fn offers(fleet: &Fleet, model: &str) -> Vec<Offer> {
    let Some((group, rest)) = fleet.rules.groups.find(model) else {
        let offer = |holding| {
            let weight = upstream_of(fleet, holding).spec.weight;
            Offer { holding, weight, rpm: None, tpm: None, cost: None }
        };
        return fleet.holders(model).into_iter().map(offer).collect();
    };
    let offer = |target: &Target| {
        let holders = fleet.holders(&target.model_for(rest));
        let holding = holders.into_iter().find(|held| fleet.holding(*held).upstream == target.upstream)?;
        Some(Offer { holding, weight: target.weight, rpm: target.rpm, tpm: target.tpm, cost: target.cost })
    };
    group.targets.iter().filter_map(offer).collect()
}

impl Offer {
    /// Share of its limits used in the last minute; without limits the tokens used, in millions.
    fn used(&self, fleet: &Fleet, now: Moment) -> f64 {
        let counts = fleet.holding(self.holding).usage.last_minute(now);
        let share = |used: f64, limit: Option<u32>| limit.map(|limit| used / f64::from(limit.max(1)));
        match (share(counts.requests, self.rpm), share(counts.tokens, self.tpm)) {
            (None, None) => counts.tokens / 1e6,
            (requests, tokens) => requests.unwrap_or(0.0).max(tokens.unwrap_or(0.0)),
        }
    }

    fn is_over_limit(&self, fleet: &Fleet, prompt_tokens: u32, now: Moment) -> bool {
        let counts = fleet.holding(self.holding).usage.last_minute(now);
        let over = |used: f64, more: u32, limit: Option<u32>| {
            limit.is_some_and(|limit| used + f64::from(more) > f64::from(limit))
        };
        over(counts.requests, 1, self.rpm) || over(counts.tokens, prompt_tokens, self.tpm)
    }
}

fn upstream_of(fleet: &Fleet, id: HoldingId) -> &Upstream {
    &fleet.upstreams[fleet.holding(id).upstream]
}

fn speaks(fleet: &Fleet, offer: &Offer, dialect: Dialect) -> bool {
    upstream_of(fleet, offer.holding).spec.engine.is_some_and(|engine| engine.dialects.contains(&dialect))
}

fn lacks(fleet: &Fleet, offer: &Offer, endpoint: Endpoint) -> bool {
    upstream_of(fleet, offer.holding).spec.engine.is_some_and(|engine| engine.lacks.contains(&endpoint))
}

fn exclusion(fleet: &Fleet, offer: &Offer, query: &Query, native: bool, now: Moment) -> Option<Exclusion> {
    let (holding, upstream) = (fleet.holding(offer.holding), upstream_of(fleet, offer.holding));
    let endpoint = query.ask.endpoint;
    let translated = !native && endpoint.is_translatable() && speaks(fleet, offer, Dialect::OpenAi);
    let speaks = translated || speaks(fleet, offer, endpoint.dialect());
    let too_large = holding.need_bytes().zip(upstream.spec.memory_bytes).is_some_and(|(need, all)| need > all);
    match () {
        _ if query.tried.contains(&offer.holding) => Some(Exclusion::Tried),
        _ if !speaks => Some(Exclusion::WrongDialect),
        _ if lacks(fleet, offer, endpoint) => Some(Exclusion::LacksPath),
        _ if !upstream.healthy => Some(Exclusion::Unhealthy),
        _ if upstream.spec.drain => Some(Exclusion::Draining),
        _ if lacks_ability(holding, &query.ask) => Some(Exclusion::LacksAbility),
        _ if too_large && !holding.resident => Some(Exclusion::TooLarge),
        _ if offer.is_over_limit(fleet, query.ask.prompt_tokens, now) => Some(Exclusion::OverLimit),
        _ => None,
    }
}

fn lacks_ability(holding: &Holding, ask: &Ask) -> bool {
    holding.abilities.is_some_and(|has| {
        // Embeddings are left to the engine: Ollama makes them with any model, listed as able or not.
        ask.needs.vision && !has.vision || ask.needs.tools && !has.tools
    })
}

/// A stored response can be gone on from where it was made and nowhere else, save on engines that
/// store none and do not mind.
fn keep_maker(
    fleet: &Fleet,
    maker: UpstreamId,
    eligible: &mut Vec<Offer>,
    excluded: &mut Vec<(UpstreamId, Exclusion)>,
) {
    let can = |offer: &Offer| {
        let stateless = upstream_of(fleet, offer.holding).spec.engine.is_some_and(|engine| !engine.stores_responses);
        fleet.holding(offer.holding).upstream == maker || stateless
    };
    let others = eligible.extract_if(.., |offer| !can(offer));
    excluded.extend(others.map(|offer| (fleet.holding(offer.holding).upstream, Exclusion::NotTheMaker)));
}

/// Those known not to think make way for those that may. Where nobody thinks, the engine has the word:
/// Ollama refuses such a request, but versions that know nothing of thinking answer it.
fn keep_thinkers(fleet: &Fleet, ask: &Ask, eligible: &mut Vec<Offer>, excluded: &mut Vec<(UpstreamId, Exclusion)>) {
    let thinks = |offer: &Offer| fleet.holding(offer.holding).abilities.is_none_or(|has| has.thinking);
    if ask.needs.thinking && eligible.iter().any(thinks) {
        let others = eligible.extract_if(.., |offer| !thinks(offer));
        excluded.extend(others.map(|offer| (fleet.holding(offer.holding).upstream, Exclusion::LacksAbility)));
    }
}

/// The lowest tier that has room; the lowest of all if none has.
fn keep_lowest_tier(fleet: &Fleet, ask: &Ask, eligible: &mut Vec<Offer>, excluded: &mut Vec<(UpstreamId, Exclusion)>) {
    let tier = |offer: &Offer| upstream_of(fleet, offer.holding).spec.tier;
    let open = eligible.iter().filter(|offer| fleet.has_room(offer.holding, ask.priority)).map(tier).min();
    let Some(lowest) = open.or_else(|| eligible.iter().map(tier).min()) else { return };
    let higher = eligible.extract_if(.., |offer| tier(offer) > lowest);
    excluded.extend(higher.map(|offer| (fleet.holding(offer.holding).upstream, Exclusion::HigherTier)));
}

fn judge(fleet: &Fleet, ask: &Ask, eligible: &[Offer], pinned: Option<UpstreamId>, now: Moment) -> Vec<Row> {
    let covered = if ask.endpoint.is_conversation() { fleet.prefixes.covered(ask, now) } else { Vec::new() };
    let typical = Typical::of(eligible.iter().map(|offer| fleet.holding(offer.holding)));
    let row = |offer: &Offer| {
        let holding = fleet.holding(offer.holding);
        let known = covered.iter().find(|(upstream, _)| *upstream == holding.upstream);
        let covered_tokens = known.map_or(0, |(_, tokens)| (*tokens).min(ask.prompt_tokens));
        let misfit = upstream_of(fleet, offer.holding).misfit(holding, ask, &fleet.rules, now);
        let belief = Belief { holding, covered_tokens, pinned, typical: &typical, misfit: misfit.as_ref(), now };
        let candidate = belief.candidate(fleet, ask);
        let points = fleet.rules.signals.points(&candidate, ask);
        let first_token_s = candidate.first_token.map_or(0.0, |parts| parts.total_s());
        let merits = Merits { weight: offer.weight, cost: offer.cost, first_token_s, used: offer.used(fleet, now) };
        Row {
            upstream: holding.upstream,
            holding: offer.holding,
            points,
            score: points.iter().sum(),
            depth: candidate.depth,
            covered_tokens,
            merits,
            has_room: fleet.has_room(offer.holding, ask.priority),
            is_resident: candidate.is_resident(),
            first_token: candidate.first_token,
            misfit: misfit.map(Box::new),
            name_hash: upstream_of(fleet, offer.holding).name_hash,
        }
    };
    eligible.iter().map(row).collect()
}

/// What is known of one holder for one ask, on the way to a candidate.
struct Belief<'a> {
    holding: &'a Holding,
    covered_tokens: u32,
    pinned: Option<UpstreamId>,
    typical: &'a Typical,
    misfit: Option<&'a Misfit>,
    now: Moment,
}

impl Belief<'_> {
    fn candidate(&self, fleet: &Fleet, ask: &Ask) -> Candidate {
        let holding = self.holding;
        let upstream = &fleet.upstreams[holding.upstream];
        let slots = f64::from(upstream.slots(holding).count);
        let foreign = upstream.foreign_requests(self.now, fleet.rules.stale_after);
        let requests = f64::from(holding.running.saturating_add(holding.waiting).saturating_add(foreign));
        let reloads = self.misfit.is_some_and(Misfit::reloads);
        let prefix_share = f64::from(self.covered_tokens) / f64::from(ask.prompt_tokens.max(1));
        Candidate {
            residency: if reloads { Residency::OnDisk } else { self.residency() },
            model_bytes: holding.weights_bytes,
            need_bytes: holding.need_bytes(),
            memory: self.memory(fleet, upstream),
            bandwidth_bytes_s: upstream.spec.bandwidth_bytes_s,
            depth: requests / slots,
            other_depth: f64::from(upstream.in_flight.saturating_sub(holding.running)) / slots,
            first_token: self.first_token(ask, requests, slots, reloads),
            availability: upstream.record.trust(self.now),
            context_tokens: upstream.window(holding, ask, self.misfit),
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
    fn first_token(&self, ask: &Ask, requests: f64, slots: f64, reloads: bool) -> Option<FirstToken> {
        let (speed, typical) = (&self.holding.speed, self.typical);
        let per_token_s = speed.prefill_s_per_token().or(typical.prefill_s_per_token);
        let service_s = speed.service_s().or(typical.service_s);
        let load_s = speed.load_s().or(typical.load_s);
        per_token_s.or(service_s).or(load_s)?;
        let ahead = (requests - slots + 1.0).max(0.0);
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
        let (holding, upstream) = (fleet.holding(row.holding), upstream_of(fleet, row.holding));
        let window = upstream.window(holding, ask, row.misfit.as_deref()).or(holding.runner.trained_tokens);
        window.is_some_and(|window| u64::from(window) < ask.tokens_needed())
    };
    if rows.iter().any(|row| !too_small(row)) {
        let dropped = rows.extract_if(.., |row| too_small(row));
        excluded.extend(dropped.map(|row| (row.upstream, Exclusion::ContextTooSmall)));
    }
}

#[cfg(test)]
mod tests;
