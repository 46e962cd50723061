//! Which upstream should serve an ask: the decision itself.
//!
//! `decide` looks at the fleet, excludes those that cannot serve, judges the others by the signals and
//! ranks them. It changes nothing; the same fleet, query and time give the same decision (L5), in
//! whatever order the upstreams were listed (L6). What it found is kept as the request's receipt.

mod belief;
mod eviction;
mod forecast;
mod going_on;
mod herd;
mod home;
mod offer;
mod resort;
mod slot_ends;

use serde::{Deserialize, Serialize};

pub use going_on::unable_to_go_on;

use super::admission::{admit, looks_beyond};
use super::ask::{Ask, Dialect, Endpoint};
use super::candidate::FirstToken;
use super::fleet::{Fleet, HoldingId, UpstreamId};
use super::group::Target;
use super::moment::Moment;
use super::policy::{Merits, Policy};
use super::runner::Misfit;
use super::session;
use super::signal::Points;
use super::upstream::{Holding, Upstream};
use belief::judge;
use home::home;
use offer::{Offer, offers};

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
    /// The eligible upstreams, the chosen one first; of very many, only the best are in order.
    pub rows: Vec<Row>,
    /// Holders of the model that were not judged.
    pub excluded: Vec<(UpstreamId, Exclusion)>,
    /// Where the conversation was served last.
    pub pin: Option<UpstreamId>,
    /// Where replicas that hear nothing of each other all look for it; `None` where that does not count.
    pub home: Option<UpstreamId>,
    /// Which of the rows is to be booked now; `None` while there are rows: the request waits for the first.
    pub admitted: Option<HoldingId>,
    /// The earliest time at which one of those that are left alone for a while may be used.
    pub usable_at: Option<Moment>,
    /// Nobody can be relied on: these are used because there is nobody else.
    pub last_resort: bool,
    /// By which they are ranked.
    pub policy: Policy,
}

impl Decision {
    /// Nobody can serve now, but somebody will before `deadline`, or is being tried.
    pub fn is_worth_waiting(&self, deadline: Moment) -> bool {
        let tried = self.excluded.iter().any(|(_, reason)| *reason == Exclusion::HalfOpen);
        self.rows.is_empty() && (tried || self.usable_at.is_some_and(|at| at < deadline))
    }
}

/// Where a request could go besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Elsewhere {
    Nowhere,
    /// Only to nodes that are used because there is nobody else.
    LastResort,
    Somewhere,
}

/// An eligible upstream and its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub upstream: UpstreamId,
    pub holding: HoldingId,
    /// What each signal says: points, or seconds under `expected_ttft`.
    pub points: Points,
    /// The sum of the points.
    pub score: f64,
    /// Requests for the model there, ours and foreign, divided by its slots, before this one.
    pub depth: f64,
    /// Tokens of the prompt that the upstream has likely cached.
    pub covered_tokens: u32,
    /// What the conversation that it takes the place of will miss, as likely as it is to go on.
    pub displaced_s: f64,
    pub merits: Merits,
    /// The upstream takes one more now.
    pub has_room: bool,
    pub is_resident: bool,
    /// Fit for who would have to wait elsewhere: reliable, with the model in memory or known to have room for it.
    pub is_ready: bool,
    /// `None`: nothing is known of any node's speed.
    pub first_token: Option<FirstToken>,
    /// The request's options are not those of the model in memory there.
    pub misfit: Option<Box<Misfit>>,
    pub(super) name_hash: u64,
    pub(super) marks: Marks,
}

/// What was found about a row while it was judged, for what looks over all of them afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Marks {
    /// Its window is known, and smaller than what is asked.
    too_small: bool,
    /// The model is in memory there, but will leave it for one that is being loaded.
    leaves: bool,
    /// The node, or the model on it, has come back a moment ago.
    rises: bool,
    /// Since when one request should try it.
    trial_due: Option<Moment>,
}

impl Row {
    /// The model has to be loaded again first, although it is in memory now.
    pub fn leaves(&self) -> bool {
        self.marks.leaves
    }

    /// The model in memory there would be loaded anew.
    pub fn reloads(&self) -> bool {
        self.misfit.as_ref().is_some_and(|misfit| misfit.reloads())
    }
}

/// Why a holder of the model was not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exclusion {
    WrongDialect,
    LacksPath,
    /// On this path it would find the tenant's prompts for others.
    SharesCache,
    Unhealthy,
    /// It failed, and is left alone until its breaker's cooldown is over.
    BreakerOpen,
    /// It failed, and another request is trying it.
    HalfOpen,
    /// It is busy, and is left alone for as long as it asked for.
    Cooling,
    /// It has just come back, and carries all that it may for now.
    SlowStart,
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
            Exclusion::SharesCache => "shares_cache",
            Exclusion::Unhealthy => "unhealthy",
            Exclusion::BreakerOpen => "breaker_open",
            Exclusion::HalfOpen => "half_open",
            Exclusion::Cooling => "cooling",
            Exclusion::SlowStart => "slow_start",
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
/// serve, those that have its fallbacks, one after the other. Where all of these are broken or busy, the
/// best of a bad lot is taken.
pub fn decide(fleet: &Fleet, query: &Query, now: Moment) -> Decision {
    decide_with(fleet, query, RANKED, now)
}

/// The same, with all rows in order: for people.
pub fn decide_in_full(fleet: &Fleet, query: &Query, now: Moment) -> Decision {
    decide_with(fleet, query, usize::MAX, now)
}

/// So many rows are put in order where more need not be: of a thousand nodes nobody looks at the last.
const RANKED: usize = 64;

fn decide_with(fleet: &Fleet, query: &Query, ranked: usize, now: Moment) -> Decision {
    let mut nobody = Decision::default();
    for last_resort in [false, true] {
        let mut decision = Decision::default();
        for model in names(fleet, &query.ask.model) {
            let other = decide_for(fleet, query, model, (last_resort, ranked), now);
            decision.rows = other.rows;
            decision.admitted = other.admitted;
            decision.excluded.extend(other.excluded);
            decision.pin = decision.pin.or(other.pin);
            decision.home = other.home;
            decision.usable_at = earliest(decision.usable_at, other.usable_at);
            decision.last_resort = other.last_resort;
            decision.policy = other.policy;
            if !decision.rows.is_empty() {
                return decision;
            }
        }
        nobody = decision;
    }
    nobody
}

/// Whether `query` could also go to another than `besides`; judges nobody.
pub fn elsewhere(fleet: &Fleet, query: &Query, besides: HoldingId, now: Moment) -> Elsewhere {
    let found = names(fleet, &query.ask.model).map(|model| {
        let mut pool = Pool::of(fleet, query, model, now);
        pool.eligible.retain(|offer| offer.holding != besides);
        pool.excluded.retain(|(offer, _)| offer.holding != besides);
        match pool.eligible.is_empty() {
            false => Elsewhere::Somewhere,
            true if resort::recall(&mut pool, now) => Elsewhere::LastResort,
            true => Elsewhere::Nowhere,
        }
    });
    found.max().unwrap_or(Elsewhere::Nowhere)
}

/// The model's name and those of its fallbacks, in the order in which they are tried.
fn names<'a>(fleet: &'a Fleet, model: &'a str) -> impl Iterator<Item = &'a str> {
    let group = fleet.rules.groups.find(model).map(|(group, _)| group);
    let fallbacks = group.into_iter().flat_map(|group| &group.fallbacks).take(fleet.rules.max_fallbacks);
    std::iter::once(model).chain(fallbacks.map(String::as_str))
}

fn earliest(a: Option<Moment>, b: Option<Moment>) -> Option<Moment> {
    a.into_iter().chain(b).min()
}

/// The holders of one name: who may be judged, and who may not.
struct Pool<'a> {
    eligible: Vec<Offer<'a>>,
    excluded: Vec<(Offer<'a>, Exclusion)>,
}

impl<'a> Pool<'a> {
    fn of(fleet: &'a Fleet, query: &Query, model: &str, now: Moment) -> Pool<'a> {
        let offers = offers(fleet, model);
        let dialect = query.ask.endpoint.dialect();
        // Translation is for models that nobody holds natively, not for times when those who do are down.
        let native = offers.iter().any(|offer| speaks(offer, dialect));
        let (mut eligible, mut reasons) = (offers, Vec::new());
        let left_out = eligible.extract_if(.., |offer| {
            let reason = exclusion(offer, query, dialect, native, now);
            reasons.extend(reason);
            reason.is_some()
        });
        let left_out: Vec<Offer> = left_out.collect();
        let mut pool = Pool { eligible, excluded: left_out.into_iter().zip(reasons).collect() };
        if let Some(maker) = fleet.sessions.maker(&query.ask, now) {
            keep_maker(maker, &mut pool);
        }
        keep_thinkers(&query.ask, &mut pool);
        resort::keep_enough(query, &mut pool);
        pool
    }
}

fn decide_for(
    fleet: &Fleet,
    query: &Query,
    model: &str,
    (last_resort, ranked): (bool, usize),
    now: Moment,
) -> Decision {
    let ask = &query.ask;
    let mut pool = Pool::of(fleet, query, model, now);
    let usable_at = resort::usable_at(&pool, now);
    let last_resort = last_resort && pool.eligible.is_empty() && resort::recall(&mut pool, now);
    keep_lowest_tier(fleet, ask, &mut pool);
    let Pool { eligible, excluded } = pool;
    let mut excluded: Vec<(UpstreamId, Exclusion)> =
        excluded.iter().map(|(offer, reason)| (offer.model.upstream, *reason)).collect();
    let pin = if ask.endpoint.is_conversation() { fleet.sessions.find(ask, now) } else { None };
    let home = home(fleet, ask, &eligible, pin);
    let pin = pin.map(|pin| pin.upstream);
    let pinned = pin.filter(|pin| eligible.iter().any(|offer| offer.model.upstream == *pin));
    let policy = fleet.rules.groups.find(model).and_then(|(group, _)| group.policy).unwrap_or(fleet.rules.policy);
    let mut rows = judge(fleet, ask, &eligible, (pinned, home), policy, now);
    drop_too_small(&mut rows, &mut excluded);
    herd::hold_back(fleet, &mut rows, &mut excluded, now);
    let tie = session::conversation(ask).unwrap_or(query.request);
    policy.rank(&mut rows, ranked, tie, query.request);
    if rows.len() > ranked && (herd::may_try(&rows) || looks_beyond(policy, &rows, ranked)) {
        policy.rank(&mut rows, usize::MAX, tie, query.request);
    }
    herd::send_trial(&mut rows, pinned, now);
    excluded.sort();
    let admitted = if ask.endpoint.runs_model() {
        admit(policy, &rows, fleet.queue.waited(query.request, now))
    } else {
        rows.first().map(|row| row.holding)
    };
    let home = home.map(|home| home.upstream);
    Decision { rows, excluded, pin, home, admitted, usable_at, last_resort, policy }
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
    /// Whether there are nodes that may have the model, or a fallback of it, and none takes one more request now.
    pub(super) fn is_full_for(&self, ask: &Ask) -> bool {
        let mut all = names(self, &ask.model).flat_map(|model| offers(self, model)).peekable();
        all.peek().is_some() && all.all(|offer| !self.has_room(offer.holding, ask.priority))
    }
}

fn upstream_of(fleet: &Fleet, id: HoldingId) -> &Upstream {
    &fleet.upstreams[fleet.holding(id).upstream]
}

fn speaks(offer: &Offer, dialect: Dialect) -> bool {
    offer.upstream.spec.engine.as_ref().is_some_and(|engine| engine.dialects.contains(&dialect))
}

fn lacks(offer: &Offer, endpoint: Endpoint) -> bool {
    offer.upstream.spec.engine.as_ref().is_some_and(|engine| engine.lacks.contains(&endpoint))
}

fn shares_cache(offer: &Offer, ask: &Ask) -> bool {
    let engine = offer.upstream.spec.engine.as_ref();
    let takes_none = engine.is_some_and(|engine| engine.unsalted.contains(&ask.endpoint));
    ask.salted && takes_none && !offer.upstream.salts_all_paths
}

/// `dialect` is the client's.
fn exclusion(offer: &Offer, query: &Query, dialect: Dialect, native: bool, now: Moment) -> Option<Exclusion> {
    let (holding, upstream) = (offer.model, offer.upstream);
    let endpoint = query.ask.endpoint;
    let translated = !native && endpoint.is_translatable() && speaks(offer, Dialect::OpenAi);
    let speaks = translated || speaks(offer, dialect);
    let too_large = holding.need_bytes().zip(upstream.spec.memory_bytes).is_some_and(|(need, all)| need > all);
    match () {
        _ if query.tried.contains(&offer.holding) => Some(Exclusion::Tried),
        _ if !speaks => Some(Exclusion::WrongDialect),
        _ if lacks(offer, endpoint) => Some(Exclusion::LacksPath),
        _ if shares_cache(offer, &query.ask) => Some(Exclusion::SharesCache),
        _ if !upstream.healthy && !upstream.is_out_by_checks() => Some(Exclusion::Unhealthy),
        _ if upstream.drains() => Some(Exclusion::Draining),
        _ if lacks_ability(holding, &query.ask) => Some(Exclusion::LacksAbility),
        _ if too_large && !holding.resident => Some(Exclusion::TooLarge),
        _ if offer.is_over_limit(query.ask.prompt_tokens, now) => Some(Exclusion::OverLimit),
        _ => resort::left_alone(upstream, holding, now),
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
fn keep_maker(maker: UpstreamId, pool: &mut Pool) {
    let can = |offer: &Offer| {
        let stateless = offer.upstream.spec.engine.is_some_and(|engine| !engine.stores_responses);
        offer.model.upstream == maker || stateless
    };
    let others = pool.eligible.extract_if(.., |offer| !can(offer));
    pool.excluded.extend(others.map(|offer| (offer, Exclusion::NotTheMaker)));
}

/// Those known not to think make way for those that may. Where nobody thinks, the engine has the word:
/// Ollama refuses such a request, but versions that know nothing of thinking answer it.
fn keep_thinkers(ask: &Ask, pool: &mut Pool) {
    let thinks = |offer: &Offer| offer.model.abilities.is_none_or(|has| has.thinking);
    if ask.needs.thinking && pool.eligible.iter().any(thinks) {
        let others = pool.eligible.extract_if(.., |offer| !thinks(offer));
        pool.excluded.extend(others.map(|offer| (offer, Exclusion::LacksAbility)));
    }
}

/// The lowest tier that has room; the lowest of all if none has.
fn keep_lowest_tier(fleet: &Fleet, ask: &Ask, pool: &mut Pool) {
    let tier = |offer: &Offer| offer.upstream.spec.tier;
    if pool.eligible.array_windows().all(|[a, b]| tier(a) == tier(b)) {
        return;
    }
    let open = pool.eligible.iter().filter(|offer| fleet.has_room(offer.holding, ask.priority)).map(tier).min();
    let Some(lowest) = open.or_else(|| pool.eligible.iter().map(tier).min()) else { return };
    let higher = pool.eligible.extract_if(.., |offer| tier(offer) > lowest);
    pool.excluded.extend(higher.map(|offer| (offer, Exclusion::HigherTier)));
}

/// Excludes nodes whose window is known to be too small, if that leaves any.
fn drop_too_small(rows: &mut Vec<Row>, excluded: &mut Vec<(UpstreamId, Exclusion)>) {
    let small = rows.iter().filter(|row| row.marks.too_small).count();
    if small > 0 && small < rows.len() {
        let dropped = rows.extract_if(.., |row| row.marks.too_small);
        excluded.extend(dropped.map(|row| (row.upstream, Exclusion::ContextTooSmall)));
    }
}

#[cfg(test)]
pub(super) mod tests;
