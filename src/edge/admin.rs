//! The admin port: the dashboard, metrics, what the fleet looks like, and why requests went where they went.

mod assets;
mod events;
mod origin;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use percent_encoding::percent_decode_str;
use pingora::http::RequestHeader;
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::protocols::http::ServerSession;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::time::timeout;

use super::catalogue::Drift;
use super::cluster;
use super::door;
use super::ingress::Ingress;
use super::node::Node;
use super::orders::{self, Order};
use super::receipt::Wanted;
use super::refusal::Refusal;
use super::reload::Reloader;
use super::site::UNCHECKED;
use super::{explain, state};
use crate::config::Secret;
use crate::routing::ask::Endpoint;
use crate::routing::chain::hash_text;
use crate::routing::fleet::Fleet;
use crate::routing::moment::Moment;
pub use events::{Listeners, Port};

pub struct Admin {
    pub ingress: Arc<Ingress>,
    pub reloader: Arc<Reloader>,
    /// Of the stream of events.
    pub listeners: Listeners,
}

/// Of a body that is read only to be dropped.
const BODY_BYTES_MAX: usize = 64 << 10;
const BODY_READ_MAX: Duration = Duration::from_secs(1);
const BEARER: &[u8] = b"Bearer ";

/// How this port, and no other, asks for its token.
pub const TOKEN_WANTED: &str =
    "this port wants its token: Authorization: Bearer followed by the value of admin.token\n";

/// Receipts listed when no `limit` is given.
const RECEIPTS_LISTED: usize = 50;

/// Of those who wait, shown at most.
const WAITERS_LISTED: usize = 50;

/// Receipts listed at most.
const RECEIPTS_LISTED_MAX: usize = 500;

/// A request to be explained, at most.
const EXPLAINED_BYTES_MAX: usize = 16 << 20;

/// For it to arrive.
const EXPLAINED_READ_MAX: Duration = Duration::from_secs(30);

const INDEX: &str = "warmgate admin\n\n\
    GET /                        the dashboard\n\
    GET /metrics                 Prometheus\n\
    GET /fleet/status            nodes, models, slots, load\n\
    GET /fleet/config            the configuration in force, without secrets\n\
    GET /fleet/reloads           the latest reloads and what they changed\n\
    POST /fleet/reload           read the configuration again\n\
    POST /fleet/nodes/{name}/drain   give a node no new work; .../resume ends that\n\
    GET /fleet/receipts?limit=N  why the latest requests went where they went; &session=KEY, &node=NAME\n\
    GET /fleet/receipts/{id}     one of them, by X-Request-Id\n\
    POST /fleet/explain?path=P   where a request with this body would go, and why; sends nothing\n\
    GET /fleet/snapshot          what the dashboard shows\n\
    GET /fleet/events            the same as server-sent events, once a second\n";

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        door::head_is_read();
        door::request_is_read();
        if let Some(refusal) = self.refusal(session.req_header()) {
            discard_body(session).await;
            return refusal;
        }
        if is_post(session.req_header()) && session.req_header().uri.path() == "/fleet/explain" {
            return self.explain(session).await;
        }
        discard_body(session).await;
        let head = session.req_header();
        let path = head.uri.path();
        match (Order::at(path), is_post(head)) {
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
        if let Some(asset) = assets::asset(path) {
            return asset;
        }
        match path {
            "/help" => text(200, "text/plain", INDEX.into()),
            "/fleet/snapshot" => text(200, "application/json", self.ingress.snapshots.latest(&self.ingress).into()),
            "/fleet/events" if head.method == Method::GET => self.listeners.answer(),
            "/metrics" => text(200, "text/plain; version=0.0.4", self.metrics()),
            "/fleet/status" => json_text(200, &self.status()),
            "/fleet/config" => json_text(200, &json!(*self.ingress.plan())),
            "/fleet/reloads" => json_text(200, &self.reloads()),
            "/fleet/receipts" => json_text(200, &self.receipts(head.uri.query().unwrap_or_default())),
            _ => match path.strip_prefix("/fleet/receipts/").and_then(|id| self.ingress.receipts.find(id)) {
                Some(receipt) => json_text(200, &receipt.to_json(&|id| self.ingress.node_name(id))),
                None => json_text(404, &json!({"error": "nothing here; GET /help lists what there is"})),
            },
        }
    }
}

impl Admin {
    /// Who may ask: whoever has the token, or, without one, whoever asks by a name that only this machine has. The
    /// page itself says nothing of the fleet, and asks for the token.
    fn refusal(&self, head: &RequestHeader) -> Option<Response<Vec<u8>>> {
        let plan = self.ingress.plan();
        match &plan.admin.token {
            Some(token) if !has_token(head, token) && !assets::is_asset(head.uri.path()) => {
                let mut refusal = text(401, "text/plain", TOKEN_WANTED.into());
                refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                Some(refusal)
            }
            None if !host_is_ours(head) => {
                Some(text(403, "text/plain", b"ask for this port by its address or as localhost\n".to_vec()))
            }
            _ if is_post(head) && !origin::is_no_foreign_page(head) => {
                Some(text(403, "text/plain", b"no page of another site may do this\n".to_vec()))
            }
            _ => None,
        }
    }

    fn metrics(&self) -> Vec<u8> {
        self.ingress.metrics.tell(&self.ingress)
    }

    fn status(&self) -> Value {
        let ingress = &self.ingress;
        let here = ingress.roster.nodes();
        let nodes = |fleet: &mut Fleet, now| here.iter().map(|node| node_json(fleet, node, now)).collect::<Vec<_>>();
        let (nodes, leases, queue) =
            ingress.fleet.with(|fleet, now| (nodes(fleet, now), fleet.live_leases(), self.queue(fleet, now)));
        let names = here.names().iter().map(|name| name.to_json(here.rows_of(name)));
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
            "jwt": ingress.tokens.to_json(),
            "tenants": ingress.tenants().iter().map(|tenant| tenant.to_json(ingress.fleet.now())).collect::<Vec<_>>(),
            "cluster": cluster::to_json(ingress),
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
        let limit = parameter(query, "limit").and_then(|limit| limit.parse().ok());
        let wanted = Wanted {
            limit: limit.unwrap_or(RECEIPTS_LISTED).min(RECEIPTS_LISTED_MAX),
            session: parameter(query, "session"),
            node: parameter(query, "node"),
        };
        let name = |id| self.ingress.node_name(id);
        self.ingress.receipts.latest(&wanted, &name).iter().map(|receipt| receipt.to_json(&name)).collect()
    }

    async fn explain(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let head = session.req_header();
        let path = parameter(head.uri.query().unwrap_or_default(), "path");
        let endpoint = Endpoint::of_path(path.as_deref().unwrap_or("/api/chat")).filter(|it| !it.takes_form());
        let Some(endpoint) = endpoint else {
            return json_text(400, &json!({"error": "`path` is none that a JSON request to a model can be sent to"}));
        };
        let names = &self.ingress.plan().affinity.headers;
        let named = names.iter().find_map(|name| head.headers.get(name)?.to_str().ok().filter(|it| !it.is_empty()));
        let named = named.map(hash_text);
        let body = match tokio::time::timeout(EXPLAINED_READ_MAX, read_body(session)).await {
            Ok(Some(body)) => body,
            _ => {
                // What is still to come of it would be taken for the next request.
                session.set_keepalive(None);
                return json_text(
                    413,
                    &json!({"error": format!("send at most {EXPLAINED_BYTES_MAX} bytes, and soon")}),
                );
            }
        };
        match explain::explain(&self.ingress, body, endpoint, named).await {
            Ok(told) => json_text(200, &told),
            Err(refusal) => refused(&refusal),
        }
    }
}

fn refused(refusal: &Refusal) -> Response<Vec<u8>> {
    json_text(refusal.status(), &json!({"error": refusal.message()}))
}

/// `None`: it is too large, or did not come whole.
async fn read_body(session: &mut ServerSession) -> Option<Bytes> {
    let mut body = BytesMut::new();
    while let Some(piece) = session.read_request_body().await.ok()? {
        if body.len() + piece.len() > EXPLAINED_BYTES_MAX {
            return None;
        }
        body.extend_from_slice(&piece);
    }
    Some(body.freeze())
}

/// A value of the query, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    percent_decode_str(value).decode_utf8().ok().map(|value| value.into_owned())
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

fn is_post(head: &RequestHeader) -> bool {
    head.method == Method::POST
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
        "drained_by": orders::drained_by(node, upstream),
        "problem": none_if_empty(node.problem.load().to_string()),
        "warning": node.is_insecure().then_some(UNCHECKED),
        "in_flight": upstream.in_flight,
        "load": load.map(|load| json!({"running": load.running, "waiting": load.waiting})),
        "elsewhere_requests": upstream.others.running,
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
