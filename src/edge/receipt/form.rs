//! Receipts and decisions as JSON, for people and programs.

use serde_json::{Map, Value, json};

use super::{Attempt, Receipt, excluded_by};
use crate::edge::misfit;
use crate::routing::fleet::UpstreamId;
use crate::routing::policy::Policy;
use crate::routing::select::{Decision, Exclusion, Row};
use crate::routing::signal::Signals;
use crate::routing::warmth::Lost;

impl Receipt {
    /// `name` tells the name of a node.
    pub fn to_json(&self, name: &dyn Fn(UpstreamId) -> String) -> Value {
        let last = self.attempts.last();
        let (saved, is_estimate) = self.saved_tokens();
        json!({
            "request_id": self.request_id,
            "trace_id": self.trace_id,
            "wall_ms": self.wall_ms,
            "path": self.path,
            "tenant": self.tenant,
            "model": self.model,
            "stream": self.stream,
            "session": self.session,
            "node": last.map(|attempt| name(attempt.row.upstream)).or(self.managed_nodes()),
            "policy": last.map(|attempt| attempt.decision.policy.name()),
            "score": last.map(|attempt| attempt.row.score),
            "affinity": self.affinity,
            "lost": self.lost_in_truth().map(|lost| lost_json(lost, name)),
            "option_guard": misfit::json(last.and_then(|attempt| attempt.row.misfit.as_deref())),
            "status": self.status,
            "outcome": self.outcome,
            "decision": last.map(|attempt| attempt_decision_json(attempt, name)),
            "attempts": self.attempts.iter().map(|attempt| attempt_json(attempt, name)).collect::<Vec<_>>(),
            "resumed": self.resumed,
            "times_ms": {
                "intake": self.intake_ms,
                "queue": self.queue_ms,
                "connect": last.and_then(|attempt| attempt.connect_ms),
                "first_byte": self.first_byte_ms,
                "total": self.total_ms,
            },
            "queue_position": self.queue_position,
            "tokens": {
                "prompt_estimated": self.prompt_tokens_estimated,
                "prompt": self.prompt_tokens,
                "cached": self.cached_tokens,
                "cached_estimated": is_estimate.then_some(saved),
                "output": self.output_tokens,
                "charged": self.charged_tokens,
                "charge_is_estimated": self.charge_is_estimated,
            },
            "given_bytes": self.given_bytes,
            "partial": self.partial_events.is_some(),
            "partial_events": self.partial_events,
        })
    }
}

/// A decision with all that was found: candidates best first, and who was excluded.
pub fn decision_json(decision: &Decision, name: &dyn Fn(UpstreamId) -> String) -> Value {
    let excluded = decision.excluded.iter();
    json!({
        "score_in": if is_in_time(decision.policy) { "seconds" } else { "points" },
        "candidates": decision.rows.iter().map(|row| row_json(row, decision.policy, name)).collect::<Vec<_>>(),
        "candidates_in_all": decision.rows.len(),
        "excluded": excluded.map(|(id, why)| json!({"node": name(*id), "reason": why.name()})).collect::<Vec<_>>(),
        "excluded_in_all": decision.excluded.len(),
        "excluded_by": reasons_json(&excluded_by(&decision.excluded)),
        "pin": decision.pin.map(name),
        "home": decision.home.map(name),
        "last_resort": decision.last_resort,
    })
}

fn is_in_time(policy: Policy) -> bool {
    policy == Policy::ExpectedTtft
}

/// A candidate; its signals add up to its score. Where that is in seconds they are told in milliseconds too.
pub fn row_json(row: &Row, policy: Policy, name: &dyn Fn(UpstreamId) -> String) -> Value {
    let named = |unit: f64| -> Map<String, Value> {
        let points = Signals::NAMES.iter().zip(row.points);
        points.map(|(name, points)| (name.to_string(), (points * unit).into())).collect()
    };
    let expected = row.first_token.map(|parts| {
        let [wait, load, prefill, total] =
            [parts.wait_s, parts.load_s, parts.prefill_s, parts.total_s()].map(|seconds| seconds * 1000.0);
        json!({"wait": wait, "load": load, "prefill": prefill, "total": total})
    });
    json!({
        "node": name(row.upstream),
        "score": row.score,
        "depth": row.depth,
        "covered_tokens": row.covered_tokens,
        "has_room": row.has_room,
        "resident": row.is_resident,
        "expected_ms": expected,
        "option_guard": misfit::json(row.misfit.as_deref()),
        "signals": named(1.0),
        "signals_ms": is_in_time(policy).then(|| named(1000.0)),
    })
}

/// What a turn lost by going elsewhere. Tokens and seconds are estimates.
pub fn lost_json(lost: Lost, name: &dyn Fn(UpstreamId) -> String) -> Value {
    json!({
        "from": name(lost.from),
        "why": lost.why.name(),
        "tokens_estimated": lost.tokens,
        "seconds_estimated": lost.seconds,
    })
}

/// As kept of an attempt: who was cut off is in the counts.
fn attempt_decision_json(attempt: &Attempt, name: &dyn Fn(UpstreamId) -> String) -> Value {
    let mut told = decision_json(&attempt.decision, name);
    told["candidates_in_all"] = attempt.candidates_in_all.into();
    told["excluded_in_all"] = attempt.excluded_in_all.into();
    told["excluded_by"] = reasons_json(&attempt.excluded_by);
    told["chosen"] = row_json(&attempt.row, attempt.decision.policy, name);
    told["runner_up"] = attempt.runner_up.as_ref().map_or(
        Value::Null,
        |row| json!({"node": name(row.upstream), "score": row.score, "behind": attempt.row.score - row.score}),
    );
    told
}

fn attempt_json(attempt: &Attempt, name: &dyn Fn(UpstreamId) -> String) -> Value {
    json!({
        "node": name(attempt.row.upstream),
        "score": attempt.row.score,
        "depth": attempt.row.depth,
        "option_guard": misfit::json(attempt.row.misfit.as_deref()),
        "placed_ms": attempt.placed_ms,
        "connect_ms": attempt.connect_ms,
        "failure": attempt.failure,
    })
}

fn reasons_json(reasons: &[(Exclusion, usize)]) -> Value {
    reasons.iter().map(|(reason, count)| (reason.name().to_string(), Value::from(*count))).collect::<Map<_, _>>().into()
}
