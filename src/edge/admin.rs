//! The admin port: metrics, what the fleet looks like, and why requests went where they went.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use pingora::http::RequestHeader;
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::protocols::http::ServerSession;
use serde_json::{Value, json};
use tokio::time::timeout;
use subtle::ConstantTimeEq;

use super::catalogue::Drift;
use super::door;
use super::ingress::Ingress;
use super::node::Node;
use super::orders::{self, Order};
use super::reload::Reloader;
use super::site::UNCHECKED;
use super::state;
use crate::config::Secret;
use crate::routing::fleet::Fleet;
use crate::routing::moment::Moment;

pub struct Admin {
    pub ingress: Arc<Ingress>,
    pub reloader: Arc<Reloader>,
}

/// Of a body that is read only to be dropped.
const BODY_BYTES_MAX: usize = 64 << 10;
const BODY_READ_MAX: Duration = Duration::from_secs(1);
const BEARER: &[u8] = b"Bearer ";

/// Receipts listed when no `limit` is given.
const RECEIPTS_LISTED: usize = 50;

/// Of those who wait, shown at most.
const WAITERS_LISTED: usize = 50;

/// Receipts listed at most.
const RECEIPTS_LISTED_MAX: usize = 500;

const INDEX: &str = "warmgate admin\n\n\
    GET /metrics                 Prometheus\n\
    GET /fleet/status            nodes, models, slots, load\n\
    GET /fleet/receipts?limit=N  why the latest requests went where they went\n\
    GET /fleet/receipts/{id}     one of them, by X-Request-Id\n\
    GET /fleet/config            the configuration in force, without secrets\n\
    GET /fleet/reloads           the latest reloads and what they changed\n\
    POST /fleet/reload           read the configuration again\n\
    POST /fleet/nodes/{name}/drain   give a node no new work; .../resume ends that\n";

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        door::head_is_read();
        discard_body(session).await;
        let head = session.req_header();
        if let Some(refusal) = self.refusal(head) {
            return refusal;
        }
        let path = head.uri.path();
        match (Order::at(path), head.method == Method::POST) {
            (Some(_), true) if orders::is_of_another_site(head) => {
                return text(403, "text/plain", b"no page of another site may do this\n".to_vec());
            }
            (Some(order), true) => {
                let (status, answer) = order.carry_out(&self.ingress, &self.reloader).await;
                return json_text(status, &answer);
            }
            (Some(_), false) => return text(405, "text/plain", b"this takes POST\n".to_vec()),
            (None, _) if head.method != Method::GET && head.method != Method::HEAD => {
                return text(405, "text/plain", b"this takes GET\n".to_vec());
            }
            (None, _) => {}
        }
        match path {
            "/" => text(200, "text/plain", INDEX.into()),
            "/metrics" => text(200, "text/plain; version=0.0.4", self.metrics()),
            "/fleet/status" => json_text(200, &self.status()),
            "/fleet/config" => json_text(200, &json!(*self.ingress.plan())),
            "/fleet/reloads" => json_text(200, &self.reloads()),
            "/fleet/receipts" => json_text(200, &self.receipts(head.uri.query().unwrap_or_default())),
            _ => match path.strip_prefix("/fleet/receipts/").and_then(|id| self.ingress.receipts.find(id)) {
                Some(receipt) => json_text(200, &receipt.to_json(&|id| self.ingress.node_name(id))),
                None => json_text(404, &json!({"error": "nothing here; GET / lists what there is"})),
            },
        }
    }
}

impl Admin {
    /// Who may ask: whoever has the token, or, without one, whoever asks by a name that only this machine has.
    fn refusal(&self, head: &RequestHeader) -> Option<Response<Vec<u8>>> {
        let plan = self.ingress.plan();
        match &plan.admin.token {
            Some(token) if has_token(head, token) => None,
            Some(_) => {
                let hint = b"this port wants its token: Authorization: Bearer followed by the value of admin.token\n";
                let mut refusal = text(401, "text/plain", hint.to_vec());
                refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                Some(refusal)
            }
            None if host_is_ours(head) => None,
            None => Some(text(403, "text/plain", b"ask for this port by its address or as localhost\n".to_vec())),
        }
    }

    fn metrics(&self) -> Vec<u8> {
        self.ingress.metrics.tenants.tell_running(&self.ingress.tenants(), self.ingress.fleet.now());
        self.ingress.metrics.tell_state(&self.ingress);
        self.ingress.metrics.forget_nodes(&self.ingress.roster.nodes());
        self.ingress.metrics.text()
    }

    fn status(&self) -> Value {
        let ingress = &self.ingress;
        let here = ingress.roster.nodes();
        let nodes = |fleet: &mut Fleet, now| here.iter().map(|node| node_json(fleet, node, now)).collect::<Vec<_>>();
        let (nodes, leases, queue) =
            ingress.fleet.with(|fleet, now| (nodes(fleet, now), fleet.live_leases(), self.queue(fleet, now)));
        let names = here
            .names()
            .iter()
            .map(|name| json!({"name": name.upstream.name, "problem": none_if_empty(name.problem.load().to_string())}));
        let lists = ingress.lists.latest();
        let conflict = |drift: &Drift| json!({"model": drift.model, "kind": drift.kind.name(), "values": drift.values});
        let conflicts = lists.drifts.iter().map(conflict);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "simulated": ingress.simulated,
            "ready": ingress.readiness().is_ok(),
            "in_flight": leases,
            "queue": queue,
            "nodes": nodes,
            "discovered": names.collect::<Vec<_>>(),
            "conflicts": conflicts.collect::<Vec<_>>(),
            "tenants": ingress.tenants().iter().map(|tenant| tenant.to_json(ingress.fleet.now())).collect::<Vec<_>>(),
            "last_reload": ingress.reloads.last().map(|record| record.to_json()),
        })
    }

    /// Who waits here, in the order of their turns.
    fn queue(&self, fleet: &Fleet, now: Moment) -> Value {
        let order = fleet.queue.order();
        let first = order.iter().filter_map(|id| fleet.queue.get(*id)).take(WAITERS_LISTED).map(|waiter| {
            let at = waiter.at.and_then(|at| fleet.upstream_of(at));
            json!({
                "model": waiter.query.ask.model,
                "priority": waiter.query.ask.priority.name(),
                "best_node": at.map(|id| self.ingress.node_name(id)),
                "waited_ms": (now.since(waiter.since).as_secs_f64() * 1000.0).round(),
            })
        });
        json!({
            "waiting": order.len(),
            "max": fleet.rules.admission.max_queue,
            "first": first.collect::<Vec<_>>(),
        })
    }

    /// The latest first.
    fn reloads(&self) -> Value {
        let records = self.ingress.reloads.latest();
        json!({"reloads": records.iter().map(|record| record.to_json()).collect::<Vec<_>>()})
    }

    fn receipts(&self, query: &str) -> Value {
        let limit = query.split('&').find_map(|pair| pair.strip_prefix("limit=")?.parse().ok());
        let latest = self.ingress.receipts.latest(limit.unwrap_or(RECEIPTS_LISTED).min(RECEIPTS_LISTED_MAX));
        latest.iter().map(|receipt| receipt.to_json(&|id| self.ingress.node_name(id))).collect()
    }
}

/// Nothing here has a use for a body. One that is left unread would end the connection, and may take the
/// answer with it.
async fn discard_body(session: &mut ServerSession) {
    let discard = async {
        let mut left = BODY_BYTES_MAX;
        while let Ok(Some(piece)) = session.read_request_body().await {
            left = left.saturating_sub(piece.len());
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(BODY_READ_MAX, discard).await;
}

/// Compares in a time that does not tell how much of it was right.
fn has_token(head: &RequestHeader, token: &Secret) -> bool {
    let Some(given) = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes) else { return false };
    let Some((scheme, given)) = given.split_at_checked(BEARER.len()) else { return false };
    scheme.eq_ignore_ascii_case(BEARER) && bool::from(given.trim_ascii().ct_eq(token.expose().as_bytes()))
}

/// A page of somebody's that a browser resolves to this machine must not read what is here.
fn host_is_ours(head: &RequestHeader) -> bool {
    let host = head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let authority = head.uri.authority().map(|authority| authority.as_str());
    let Some(host) = host.or(authority) else { return true };
    let name =
        host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(n, _)| n);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

fn node_json(fleet: &Fleet, node: &Node, now: Moment) -> Value {
    let Some(upstream) = fleet.upstream(node.id) else { return Value::Null };
    let models = fleet.holdings_of(node.id).map(|holding| {
        let slots = upstream.slots(holding);
        json!({
            "name": holding.name,
            "resident": holding.resident,
            "standing": state::of_model(fleet, holding, now).to_json(now),
            "running": holding.running,
            "waiting_here": holding.waiting,
            "slots": slots.count,
            "slots_source": slots.source.name(),
            "context_tokens": holding.context_tokens,
            "prefill_tokens_per_s": holding.speed.prefill_s_per_token().filter(|s| *s > 0.0).map(|s| (1.0 / s).round()),
            "decode_tokens_per_s": holding.speed.decode_tokens_per_s().map(f64::round),
        })
    });
    let load = upstream.told_load(now, fleet.rules.stale_after);
    let standing = state::of_node(fleet, node, upstream, now);
    json!({
        "name": node.name,
        "engine": node.engine.get().map(|engine| engine.name),
        "state": standing.name,
        "standing": standing.to_json(now),
        "healthy": upstream.healthy,
        "draining": upstream.drains(),
        "drained_by": orders::drained_by(upstream),
        "problem": none_if_empty(node.problem.load().to_string()),
        "warning": node.is_insecure().then_some(UNCHECKED),
        "in_flight": upstream.in_flight,
        "load": load.map(|load| json!({"running": load.running, "waiting": load.waiting})),
        "foreign_requests": upstream.foreign_requests(now, fleet.rules.stale_after),
        "models": models.collect::<Vec<_>>(),
    })
}

fn none_if_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn json_text(status: u16, value: &Value) -> Response<Vec<u8>> {
    let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
    body.push(b'\n');
    text(status, "application/json", body)
}

fn text(status: u16, content_type: &str, body: Vec<u8>) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let length = response.body().len();
    let headers = response.headers_mut();
    if let Ok(value) = content_type.parse() {
        headers.insert(http::header::CONTENT_TYPE, value);
    }
    headers.insert(http::header::CONTENT_LENGTH, length.into());
    response
}
