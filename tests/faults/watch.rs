//! The laws that a decision must keep, read from outside the core.
//!
//! Whether an upstream may serve is worked out here a second time, from what can be seen of it, and in the
//! plainest way; the core's own account of it is not asked.

use std::collections::BTreeSet;

use warmgate::routing::ask::{Dialect, Endpoint};
use warmgate::routing::breaker::Breaker;
use warmgate::routing::fleet::{Fleet, UpstreamId};
use warmgate::routing::moment::Moment;
use warmgate::routing::name;
use warmgate::routing::select::{Decision, Query, decide};
use warmgate::routing::upstream::{Holding, Upstream};

/// `tried` are the upstreams that failed in this request.
pub fn decision(
    fleet: &Fleet,
    query: &Query,
    tried: &[UpstreamId],
    found: &Decision,
    left: &BTreeSet<UpstreamId>,
    now: Moment,
) -> Result<(), String> {
    for row in &found.rows {
        let upstream = fleet.upstream(row.upstream).ok_or("L3: a node that is none")?;
        let name = fleet.holding_name(row.holding);
        let Some(held) = fleet.holdings_of(row.upstream).find(|held| held.name == name) else {
            return Err(format!("L3: {} was chosen and lacks {name}", upstream.spec.name));
        };
        let endpoint = query.ask.endpoint;
        let translated = endpoint.is_translatable() && speaks(upstream, Dialect::OpenAi, endpoint);
        let may = !query.tried.contains(&row.holding)
            && !left.contains(&row.upstream)
            && is_resorted_to(upstream, held, found.last_resort, now)
            && (speaks(upstream, endpoint.dialect(), endpoint) || translated);
        if !may {
            return Err(format!("L3: {} was chosen for {:?}", upstream.spec.name, query.ask.model));
        }
        let sum: f64 = row.points.iter().sum();
        if !(row.score.is_finite() && row.depth.is_finite() && row.score == sum) {
            return Err(format!("L4: {row:?}"));
        }
    }
    let mut seen: Vec<_> = found.rows.iter().map(|row| row.upstream).collect();
    seen.sort();
    seen.dedup();
    if seen.len() != found.rows.len() {
        return Err("L3: one node twice".into());
    }
    if found.rows.is_empty()
        && let Some(able) = able(fleet, query, tried, left, now)
    {
        let (model, why) = (&query.ask.model, &found.excluded);
        return Err(format!("L11: {able} could serve {model:?} and nobody was chosen: {why:?}, tried {tried:?}"));
    }
    // Not each time: it takes as long as the rest.
    if query.request.is_multiple_of(8) && decide(fleet, query, now) != *found {
        return Err("L5: the same question, another decision".into());
    }
    Ok(())
}

/// A node that could serve and was not tried.
fn able(
    fleet: &Fleet,
    query: &Query,
    tried: &[UpstreamId],
    left: &BTreeSet<UpstreamId>,
    now: Moment,
) -> Option<String> {
    // Group names are for the core alone.
    let (_, upstream) = fleet.upstreams().find(|(id, upstream)| {
        let (ask, mut held) = (&query.ask, fleet.holdings_of(*id));
        speaks(upstream, ask.endpoint.dialect(), ask.endpoint)
            && !tried.contains(id)
            && !left.contains(id)
            && held.any(|held| {
                is_meant(held, upstream, &ask.model) && fits(held, upstream) && is_in_service(upstream, held, now)
            })
    })?;
    Some(upstream.spec.name.clone())
}

/// It may be used as far as its own state goes: up, in service, and nothing left open by a failure.
fn is_in_service(upstream: &Upstream, held: &Holding, now: Moment) -> bool {
    upstream.healthy && !upstream.drains() && stands_open(&upstream.breaker, now) && stands_open(&held.breaker, now)
}

fn stands_open(breaker: &Breaker, now: Moment) -> bool {
    let opening = breaker.opening();
    breaker.cooling_until() <= now && opening.is_none_or(|opening| opening.until <= now && opening.trial.is_none())
}

/// Only checks speak against it, or it is used as there is nobody else.
fn is_resorted_to(upstream: &Upstream, held: &Holding, last_resort: bool, now: Moment) -> bool {
    let up = upstream.healthy || upstream.out_since.is_some() && upstream.reachable;
    let breakers = [&upstream.breaker, &held.breaker];
    let open = |breaker: &&Breaker| stands_open(breaker, now) || last_resort && breaker.last_resort_at() <= now;
    up && !upstream.drains() && breakers.iter().all(open)
}

fn speaks(upstream: &Upstream, dialect: Dialect, endpoint: Endpoint) -> bool {
    upstream.spec.engine.is_some_and(|engine| engine.dialects.contains(&dialect) && !engine.lacks.contains(&endpoint))
}

fn is_meant(held: &Holding, upstream: &Upstream, model: &str) -> bool {
    match upstream.spec.engine.map(|engine| engine.fixed_models) {
        Some(true) => held.name == model,
        _ => name::fold(&held.name) == name::fold(model),
    }
}

fn fits(held: &Holding, upstream: &Upstream) -> bool {
    held.resident || held.need_bytes().zip(upstream.spec.memory_bytes).is_none_or(|(need, all)| need <= all)
}
