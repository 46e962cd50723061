//! Why nobody can serve a request: from what a decision found to what the client is told.

use super::ingress::Ingress;
use super::refusal::Refusal;
use crate::routing::ask::{Ask, Endpoint, Needs};
use crate::routing::name;
use crate::routing::select::{Decision, Exclusion, dialects_of};
use crate::wire::count;

/// Names offered to a client whose model nobody has.
const NEAREST_SHOWN: usize = 3;

/// The refusal for a decision that found no upstream.
pub fn why(ingress: &Ingress, ask: &Ask, decision: &Decision) -> Refusal {
    let model = ask.model.clone();
    let reasons: Vec<Exclusion> = decision.excluded.iter().map(|(_, reason)| *reason).collect();
    let broken = |reason: &Exclusion| matches!(reason, Exclusion::BreakerOpen | Exclusion::HalfOpen);
    let down = |reason: &Exclusion| matches!(reason, Exclusion::Unhealthy | Exclusion::Draining) || broken(reason);
    // Of a node that is left alone it is known when it may be asked again, of others only when it is checked.
    let left_s = decision.usable_at.map(|at| at.since(ingress.fleet.now()).as_secs_f64().ceil() as u64);
    match () {
        _ if reasons.contains(&Exclusion::NotTheMaker) => Refusal::ResponseGone,
        _ if reasons.is_empty() && decision.rows.is_empty() => unknown_model(ingress, model),
        _ if reasons.contains(&Exclusion::Cooling) => Refusal::AllCooling { model, retry_after_s: left_s.unwrap_or(1) },
        _ if reasons.iter().any(down) || !decision.rows.is_empty() => {
            Refusal::AllDown { model, retry_after_s: left_s.unwrap_or_else(|| next_check_s(ingress)) }
        }
        _ if reasons.iter().all(|reason| *reason == Exclusion::WrongDialect) => {
            let dialects = ingress.fleet.with(|fleet, _| dialects_of(fleet, &model));
            Refusal::WrongDialect { model, dialects }
        }
        _ if reasons.iter().all(|reason| *reason == Exclusion::LacksPath) => Refusal::LacksPath { model },
        _ if reasons.contains(&Exclusion::SharesCache) => Refusal::SharesCache { model },
        _ => Refusal::CannotServe { model, missing: missing(ask.needs, &reasons) },
    }
}

/// What can be answered although no engine can: a count of tokens, as an estimate.
pub fn answer_instead(ask: &Ask, refusal: &Refusal) -> Option<Vec<u8>> {
    let countable = ask.endpoint == Endpoint::AnthropicCountTokens && matches!(refusal, Refusal::LacksPath { .. });
    countable.then(|| count::answer(ask))
}

pub fn unknown_model(ingress: &Ingress, model: String) -> Refusal {
    let (names, whole) = ingress.fleet.with(|fleet, _| (fleet.model_names(), fleet.is_known_whole()));
    let whole = whole && ingress.roster.nodes().are_found();
    if whole || ingress.plan().is_guess {
        let nearest = name::nearest(&model, &names, NEAREST_SHOWN);
        Refusal::UnknownModel { model, nearest }
    } else {
        Refusal::NotYetKnown { model, retry_after_s: next_check_s(ingress) }
    }
}

fn missing(needs: Needs, reasons: &[Exclusion]) -> &'static str {
    match () {
        _ if !reasons.contains(&Exclusion::LacksAbility) => "memory",
        _ if needs.vision && needs.tools => "vision or tools",
        _ if needs.vision => "vision",
        _ => "tools",
    }
}

fn next_check_s(ingress: &Ingress) -> u64 {
    ingress.plan().health.interval.0.as_secs()
}
