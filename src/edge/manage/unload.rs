//! Unloading a model: an inference call that asks for nothing and keeps nothing goes to every node that
//! has the model in memory, and is answered once.
//!
//! Not a managing call: `ollama stop` and web interfaces use it, and it is there whatever `management`
//! says. A node that fails is named; the others have unloaded all the same.

use bytes::Bytes;
use http::Method;
use pingora_proxy::Session;

use super::aftermath::Aftermath;
use super::ask::Question;
use super::fan_out::{Part, put};
use super::{Unmanaged, gone_in_writing};
use crate::date::rfc3339;
use crate::edge::answer;
use crate::edge::exchange::Exchange;
use crate::edge::headers;
use crate::edge::payload::{Payload, Prepared};
use crate::edge::refusal::Refusal;
use crate::edge::verdict;
use crate::routing::ask::{Ask, Endpoint};
use crate::routing::placement::for_unload;
use crate::wire::managed::is_unload;
use crate::wire::progress::{Verdict, sum_up};
use serde_json::json;

/// True if the request was to unload, and is answered. False if it was not, or if no node that runs Ollama
/// has the model, which the usual way then says.
pub async fn take(
    session: &mut Session,
    exchange: &mut Exchange,
    ask: &Ask,
    payload: &Payload,
) -> Result<bool, Refusal> {
    if !is_unload(&payload.bytes, ask.endpoint) {
        return Ok(false);
    }
    let ingress = exchange.ingress.clone();
    let Some(places) = ingress.fleet.with(|fleet, _| for_unload(fleet, &ask.model)) else { return Ok(false) };
    let hops = headers::hops(session.req_header());
    let mut parts = Vec::new();
    for place in places {
        let (Some(node), Some(model)) = (ingress.node(place.upstream), place.spelling) else { continue };
        let Prepared::Plain(body) = payload.under(&model, ask, &node, None, Vec::new(), &ingress.body_memory)? else {
            continue;
        };
        let question = Question { method: Method::POST, path: ask.endpoint.path().into(), body, hops };
        parts.push(Part { node, question, aftermath: Aftermath::Unloaded { model } });
    }
    exchange.managing(&ask.model, parts.iter().map(|part| part.node.name.clone()).collect());
    let told = put(session, &ingress, parts).await?;
    if let Verdict::Failed { status, message } = sum_up("unloaded", &told) {
        return Err(Refusal::Managing(Unmanaged::Summed { status, message }));
    }
    exchange.managed(200, verdict::Verdict::Ok);
    let nodes = exchange.nodes_told();
    let written = answer::managed(session, unloaded(ask), &exchange.request_id, nodes).await;
    written.map_err(gone_in_writing).map(|()| true)
}

/// As Ollama says it, be the model in memory or not.
fn unloaded(ask: &Ask) -> Bytes {
    let mut told = json!({
        "model": ask.model,
        "created_at": rfc3339(std::time::SystemTime::now()),
        "done": true,
        "done_reason": "unload",
    });
    match ask.endpoint {
        Endpoint::OllamaChat => told["message"] = json!({"role": "assistant", "content": ""}),
        _ => told["response"] = "".into(),
    }
    told.to_string().into()
}
