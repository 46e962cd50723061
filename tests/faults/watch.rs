//! The laws that a decision must keep, read from outside the core.
//!
//! Whether an upstream may serve is worked out here a second time, from what can be seen of it, and in the
//! plainest way; the core's own account of it is not asked.

use warmgate::routing::ask::Dialect;
use warmgate::routing::fleet::{Fleet, UpstreamId};
use warmgate::routing::moment::Moment;
use warmgate::routing::name;
use warmgate::routing::select::{Decision, Query, decide};
use warmgate::routing::upstream::{Holding, Traits, Upstream};

/// `tried` are the upstreams that failed in this request.
pub fn decision(
    fleet: &Fleet,
    query: &Query,
    tried: &[UpstreamId],
    found: &Decision,
    now: Moment,
) -> Result<(), String> {
    for row in &found.rows {
        let upstream = fleet.upstream(row.upstream).ok_or("L3: a node that is none")?;
        let may =
            !query.tried.contains(&row.holding) && (may_serve(upstream, query) || may_translated(upstream, query));
        let name = fleet.holding_name(row.holding);
        let held = fleet.holdings_of(row.upstream).any(|held| held.name == name);
        if !may || !held {
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
        && let Some(able) = able(fleet, query, tried)
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
fn able(fleet: &Fleet, query: &Query, tried: &[UpstreamId]) -> Option<String> {
    // Group names are for the core alone.
    let (_, upstream) = fleet.upstreams().find(|(id, upstream)| {
        may_serve(upstream, query)
            && !tried.contains(id)
            && fleet.holdings_of(*id).any(|held| is_meant(held, upstream, &query.ask.model) && fits(held, upstream))
    })?;
    Some(upstream.spec.name.clone())
}

fn may_serve(upstream: &Upstream, query: &Query) -> bool {
    let speaks = |engine: Traits| engine.dialects.contains(&query.ask.endpoint.dialect());
    upstream.healthy && !upstream.spec.drain && upstream.spec.engine.is_some_and(speaks)
}

fn may_translated(upstream: &Upstream, query: &Query) -> bool {
    let openai = |engine: Traits| engine.dialects.contains(&Dialect::OpenAi);
    let endpoint = query.ask.endpoint;
    upstream.healthy && !upstream.spec.drain && endpoint.is_translatable() && upstream.spec.engine.is_some_and(openai)
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
