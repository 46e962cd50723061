//! The fleet at a glance, for the dashboard: nodes, models, what is under way, the latest decisions and the
//! last hour, in one piece.
//!
//! It is made at most once in `FRESH_FOR`, whoever asks and however many listen, and only when somebody
//! does. The fleet's lock is taken for one node at a time, never for all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::catalogue::Drift;
use super::clock::wall_ms;
use super::cluster;
use super::ingress::Ingress;
use super::node::Node;
use super::orders;
use super::receipt::{Receipt, Wanted, lost_json};
use super::site::UNCHECKED;
use super::state;
use crate::routing::fleet::{Fleet, UpstreamId};
use crate::routing::moment::Moment;
use crate::routing::signal::Signals;
use crate::routing::upstream::{Holding, Upstream};

/// How old a snapshot may be that is handed out again.
const FRESH_FOR: Duration = Duration::from_millis(900);

/// Decisions shown, the latest first.
const RECENT: usize = 40;

/// Models shown; a fleet with more is searched by its lists.
const MODELS_MAX: usize = 400;

/// Of one node, models shown with what they do: those in memory or in use.
const NODE_MODELS_MAX: usize = 24;

/// Tenants shown, those who ask most first.
const TENANTS_MAX: usize = 200;

pub struct Snapshots {
    latest: Mutex<Option<(Moment, Bytes)>>,
    /// When this process began, in milliseconds since 1970.
    since_ms: u64,
}

impl Default for Snapshots {
    fn default() -> Snapshots {
        Snapshots { latest: Mutex::default(), since_ms: wall_ms() }
    }
}

impl Snapshots {
    /// As JSON in one line.
    pub fn latest(&self, ingress: &Ingress) -> Bytes {
        let mut latest = self.latest.lock();
        let now = ingress.fleet.now();
        match &*latest {
            Some((at, bytes)) if now.since(*at) < FRESH_FOR => bytes.clone(),
            _ => {
                let bytes = Bytes::from(snapshot(ingress).to_string());
                *latest = Some((now, bytes.clone()));
                bytes
            }
        }
    }
}

pub fn snapshot(ingress: &Ingress) -> Value {
    let nodes = ingress.roster.nodes();
    let mut models = BTreeMap::new();
    let told = nodes.iter().map(|node| ingress.fleet.with(|fleet, now| node_json(fleet, node, &mut models, now)));
    let told: Vec<Value> = told.collect();
    let (in_flight, waiting, waiting_max, now) =
        ingress.fleet.with(|fleet, now| (fleet.live_leases(), fleet.queue.len(), fleet.rules.admission.max_queue, now));
    let lists = ingress.lists.latest();
    let drift = |drift: &Drift| json!({"model": drift.model, "kind": drift.kind.name(), "values": drift.values});
    let wanted = Wanted { limit: RECENT, ..Wanted::default() };
    let name = |id| ingress.node_name(id);
    let recent = ingress.receipts.latest(&wanted, &name);
    json!({
        "at_ms": wall_ms(),
        "version": env!("CARGO_PKG_VERSION"),
        "simulated": ingress.simulated,
        "ready": ingress.readiness().err().map_or(json!(true), |reason| json!({"reason": reason})),
        "process": process_json(ingress),
        "cluster": cluster::to_json(ingress),
        "policy": ingress.plan().routing.policy.name(),
        "signals": Signals::NAMES,
        "in_flight": in_flight,
        "waiting": waiting,
        "waiting_max": waiting_max,
        "nodes": told,
        "models_in_all": models.len(),
        "models": models.iter().take(MODELS_MAX).map(model_json).collect::<Vec<_>>(),
        "drift": lists.drifts.iter().take(MODELS_MAX).map(drift).collect::<Vec<_>>(),
        "tenants": tenants_json(ingress, now),
        "tenants_in_all": ingress.tenants().iter().count(),
        "live": ingress.live.to_json(ingress, now),
        "recent": recent.iter().map(|receipt| recent_json(receipt, &name)).collect::<Vec<_>>(),
        "hour": ingress.history.to_json(wall_ms()),
    })
}

/// How far this process is on its way out, and since when it runs.
fn process_json(ingress: &Ingress) -> Value {
    json!({
        "stage": ingress.departure.stage().name(),
        "has_successor": ingress.departure.has_successor(),
        "since_ms": ingress.snapshots.since_ms,
        "pid": std::process::id(),
    })
}

fn tenants_json(ingress: &Ingress, now: Moment) -> Vec<Value> {
    let tenants = ingress.tenants();
    let mut told: Vec<Value> = tenants.iter().map(|tenant| tenant.to_json(now)).collect();
    // They come in the order of the configuration, which stays where two ask as much.
    told.sort_by_key(|tenant| std::cmp::Reverse(tenant["requests_last_minute"].as_u64()));
    told.truncate(TENANTS_MAX);
    told
}

/// Who has a model in memory, and who on disk.
#[derive(Default)]
struct Places {
    resident: BTreeSet<String>,
    on_disk: BTreeSet<String>,
}

fn model_json((name, places): (&String, &Places)) -> Value {
    json!({"name": name, "resident": places.resident, "on_disk": places.on_disk})
}

fn node_json(fleet: &Fleet, node: &Node, models: &mut BTreeMap<String, Places>, now: Moment) -> Value {
    let Some(upstream) = fleet.upstream(node.id) else { return Value::Null };
    for holding in fleet.holdings_of(node.id) {
        let places = models.entry(holding.name.clone()).or_default();
        let place = if holding.resident { &mut places.resident } else { &mut places.on_disk };
        place.insert(node.name.clone());
    }
    let in_use = |holding: &&Holding| holding.resident || holding.running > 0 || holding.waiting > 0;
    let used: Vec<&Holding> = fleet.holdings_of(node.id).filter(in_use).collect();
    let resident_bytes: u64 = used.iter().filter(|held| held.resident).filter_map(|held| held.need_bytes()).sum();
    let rules = &fleet.rules;
    json!({
        "name": node.name,
        "label": node.label,
        "engine": node.engine.get().map(|engine| engine.name),
        "standing": state::of_node(fleet, node, upstream, now).to_json(now),
        "draining": upstream.drains(),
        "drained_by": orders::drained_by(node, upstream),
        "availability": availability(fleet, upstream, now),
        "in_flight": upstream.in_flight,
        "foreign": upstream.foreign_requests(now, rules.stale_after),
        "waiting_there": upstream.told_load(now, rules.stale_after).map(|load| load.waiting),
        "memory_bytes": upstream.spec.memory_bytes,
        "resident_bytes": resident_bytes,
        "tier": upstream.spec.tier,
        "warning": node.is_insecure().then_some(UNCHECKED),
        "models_in_all": fleet.holdings_of(node.id).count(),
        "models": used.iter().take(NODE_MODELS_MAX).map(|held| holding_json(fleet, upstream, held, now)).collect::<Vec<_>>(),
    })
}

fn holding_json(fleet: &Fleet, upstream: &Upstream, holding: &Holding, now: Moment) -> Value {
    let slots = upstream.slots(holding);
    let standing = state::of_model(fleet, holding, now);
    json!({
        "name": holding.name,
        "resident": holding.resident,
        "loading": holding.loading_since.is_some(),
        "bytes": holding.need_bytes(),
        "state": standing.name,
        "reason": standing.reason,
        "running": holding.running,
        "waiting": holding.waiting,
        "slots": slots.count,
        "slots_source": slots.source.name(),
        "context_tokens": holding.context_tokens,
        "prefill_tokens_per_s": holding.speed.prefill_s_per_token().filter(|s| *s > 0.0).map(|s| 1.0 / s),
        "decode_tokens_per_s": holding.speed.decode_tokens_per_s(),
    })
}

/// How far the node can be relied on, 0 to 1; 0 where it gets no request.
fn availability(fleet: &Fleet, upstream: &Upstream, now: Moment) -> f64 {
    let rules = &fleet.rules;
    let rising = upstream.slow_start.availability(rules.slow_start, now);
    if upstream.is_open(now) { upstream.breaker.trust(&rules.breaker, now) * rising } else { 0.0 }
}

/// What a list of decisions shows of one; the receipt has the rest.
fn recent_json(receipt: &Receipt, name: &dyn Fn(UpstreamId) -> String) -> Value {
    let last = receipt.attempts.last();
    let points = last.map(|attempt| {
        let points = Signals::NAMES.iter().zip(attempt.row.points);
        points.map(|(name, points)| (name.to_string(), Value::from(points))).collect::<Map<_, _>>()
    });
    let runner_up = last.and_then(|attempt| attempt.runner_up.as_ref());
    let (saved_tokens, is_estimate) = receipt.saved_tokens();
    json!({
        "request_id": receipt.request_id,
        "wall_ms": receipt.wall_ms,
        "model": receipt.model,
        "session": receipt.session,
        "node": last.map(|attempt| name(attempt.row.upstream)).or(receipt.managed_nodes()),
        "score": last.map(|attempt| attempt.row.score),
        "signals": points,
        "runner_up": runner_up.map(|row| json!({"node": name(row.upstream), "score": row.score})),
        "candidates": last.map(|attempt| attempt.candidates_in_all),
        "excluded": last.map(|attempt| attempt.excluded_in_all),
        "attempts": receipt.attempts.len(),
        "affinity": receipt.affinity,
        "lost": receipt.lost_in_truth().map(|lost| lost_json(lost, name)),
        "status": receipt.status,
        "outcome": receipt.outcome,
        "queue_ms": receipt.queue_ms,
        "first_byte_ms": receipt.first_byte_ms,
        "total_ms": receipt.total_ms,
        "prompt_tokens": receipt.prompt_tokens,
        "prompt_tokens_estimated": receipt.prompt_tokens_estimated,
        "saved_tokens": saved_tokens,
        "saved_is_estimate": is_estimate,
        "output_tokens": receipt.output_tokens,
    })
}
