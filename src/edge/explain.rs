//! Where a request would go now, and why: decided like any other, and neither sent, booked nor learnt from.

use bytes::Bytes;
use serde_json::{Value, json};

use super::ingress::Ingress;
use super::nobody;
use super::receipt::runner_up;
use super::receipt::{decision_json, row_json};
use super::refusal::Refusal;
use super::request_id;
use crate::routing::ask::{Ask, Endpoint};
use crate::routing::select::{Decision, Query, decide_in_full};
use crate::routing::session;
use crate::routing::signal::Signals;
use crate::routing::warmth::warmth;
use crate::wire::peek::peek;

/// Bodies above this are parsed on a thread that may block.
const PARSED_INLINE_MAX_BYTES: usize = 1 << 20;

/// Candidates and excluded told of one decision each.
const ROWS_MAX: usize = 1024;

/// What would become of a request with this body at `endpoint`.
pub async fn explain(
    ingress: &Ingress,
    body: Bytes,
    endpoint: Endpoint,
    session_name: Option<u64>,
) -> Result<Value, Refusal> {
    let peeked = if body.len() <= PARSED_INLINE_MAX_BYTES {
        peek(&body, endpoint)
    } else {
        tokio::task::spawn_blocking(move || peek(&body, endpoint)).await.map_err(|_| Refusal::Internal)?
    };
    let mut ask = peeked.map_err(Refusal::BadRequest)?.ask;
    ask.session_name = session_name.or(ask.session_name);
    // Ties of requests without a conversation go by their id, and this one has none yet.
    let request = request_id::hash(&request_id::accept_or_make(None));
    Ok(told(ingress, &Query { ask, tried: Vec::new(), request }))
}

fn told(ingress: &Ingress, query: &Query) -> Value {
    let ask = &query.ask;
    let (mut decision, affinity, lost) = ingress.fleet.with(|fleet, now| {
        let decision = decide_in_full(fleet, query, now);
        let warmth = first(&decision).map(|row| warmth(fleet, ask, &decision, row, now));
        (decision, warmth.map(|warmth| warmth.name()), warmth.and_then(|warmth| warmth.lost()))
    });
    let outcome = outcome(ingress, ask, &decision);
    let (candidates, excluded) = (decision.rows.len(), decision.excluded.len());
    let name = |id| ingress.node_name(id);
    let taken = first(&decision);
    let chosen = taken.map(|row| row_json(row, decision.policy, &name));
    let second = taken.and_then(|row| Some((row.score, runner_up(&decision, row.holding)?)));
    let second =
        second.map(|(best, row)| json!({"node": name(row.upstream), "score": row.score, "behind": best - row.score}));
    decision.rows.truncate(ROWS_MAX);
    let by = decision_json(&decision, &name)["excluded_by"].take();
    decision.excluded.truncate(ROWS_MAX);
    let mut told = decision_json(&decision, &name);
    (told["candidates_in_all"], told["excluded_in_all"]) = (candidates.into(), excluded.into());
    told["excluded_by"] = by;
    told["chosen"] = chosen.unwrap_or_default();
    told["runner_up"] = second.unwrap_or_default();
    let key = session::conversation(ask).filter(|_| ask.endpoint.is_conversation());
    json!({
        "path": ask.endpoint.path(),
        "model": ask.model,
        "stream": ask.stream,
        "session": key.map(|key| format!("{key:016x}")),
        "prompt_tokens_estimated": ask.prompt_tokens,
        "tokens_needed_estimated": ask.tokens_needed(),
        "policy": ingress.plan().routing.policy.name(),
        "affinity": affinity,
        "lost": lost.map(|lost| super::receipt::lost_json(lost, &name)),
        "outcome": outcome,
        "signals": Signals::NAMES,
        "decision": told,
    })
}

/// The node that it would be sent to, or would wait for.
fn first(decision: &Decision) -> Option<&crate::routing::select::Row> {
    decision.rows.iter().find(|row| decision.admitted == Some(row.holding)).or(decision.rows.first())
}

fn outcome(ingress: &Ingress, ask: &Ask, decision: &Decision) -> Value {
    let node = first(decision).map(|row| ingress.node_name(row.upstream));
    let expected_s = first(decision).and_then(|row| row.first_token).map(|parts| parts.total_s());
    let timeout = ingress.plan().admission.queue_timeout.0;
    if decision.admitted.is_some() {
        return json!({"action": "send", "node": node, "expected_first_token_s": expected_s});
    }
    let waits_for_room = !decision.rows.is_empty();
    if waits_for_room || decision.is_worth_waiting(ingress.fleet.now() + timeout) {
        let usable_s = decision.usable_at.map(|at| at.since(ingress.fleet.now()).as_secs_f64());
        let (waiting, most) = ingress.fleet.with(|fleet, _| (fleet.queue.len(), fleet.rules.admission.max_queue));
        let waits_for = if waits_for_room { "a free place" } else { "a node that is left alone for a while" };
        return json!({
            "action": if waiting < most { "wait" } else { "refuse" },
            "waits_for": waits_for,
            "node": node,
            "ahead_in_queue": waiting,
            "usable_in_s": usable_s,
            "expected_first_token_s": expected_s,
        });
    }
    let refusal = nobody::why(ingress, ask, decision);
    json!({"action": "refuse", "status": refusal.status(), "message": refusal.message()})
}
