//! How things stand at the moment they are asked for: gauges that are set anew each time.
//!
//! Models are told that are in memory or in use. The fleet's lock is taken for one node at a time. Several rows
//! under one name, such as the addresses behind it, are told as their sum or their worst.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::{IntGauge, IntGaugeVec};

use super::family::{Register, model, node, one_of};
use super::served::Labels;
use crate::edge::ingress::Ingress;
use crate::edge::node::Node;
use crate::edge::state;
use crate::routing::fleet::Fleet;
use crate::routing::moment::Moment;

pub struct Standing {
    ready: IntGauge,
    nodes: [IntGaugeVec; NODE_FACTS],
    models: [IntGaugeVec; MODEL_FACTS],
    discovery_up: IntGaugeVec,
    queue_waiting: IntGauge,
    sessions: IntGauge,
    body_memory: IntGauge,
    body_memory_limit: IntGauge,
}

const NODE_FACTS: usize = 7;
const MODEL_FACTS: usize = 4;

/// Of all rows under one name.
#[derive(Default)]
struct NodeFacts {
    rows: i64,
    healthy: i64,
    draining: i64,
    breaker: i64,
    foreign: i64,
    reading_age_s: Option<i64>,
    memory_bytes: Option<i64>,
}

/// Of one model on these.
#[derive(Clone, Copy, Default)]
struct ModelFacts {
    in_flight: i64,
    waiting: i64,
    slots: i64,
    resident_bytes: Option<i64>,
}

impl Standing {
    pub fn new(register: &mut Register) -> prometheus::Result<Standing> {
        let version = one_of("version", [env!("CARGO_PKG_VERSION")]);
        let build = register.gauges("warmgate_build_info", "1, by the version that runs", &[version])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let mut of_node = |name, help| register.gauges(name, help, &[node()]);
        let nodes = [
            of_node("warmgate_node_rows", "What there is under a node's name: itself, its ranks, its addresses")?,
            of_node("warmgate_node_rows_healthy", "Of these, those whose latest health checks were good")?,
            of_node("warmgate_node_rows_draining", "Of these, those that take no new requests")?,
            of_node("warmgate_breaker_state", "0 closed, 1 half-open, 2 open; the worst of node and models")?,
            of_node("warmgate_foreign_requests", "Requests at a node that did not come through here, as it told")?,
            of_node("warmgate_reading_age_seconds", "Since a node's latest good reading of models and load")?,
            of_node("warmgate_node_memory_bytes", "What models may use of a node's memory, where that is configured")?,
        ];
        let mut of_model = |name, help| register.gauges(name, help, &[model(), node()]);
        let models = [
            of_model("warmgate_requests_in_flight", "Requests that run at a node")?,
            of_model("warmgate_requests_waiting", "Requests that wait here with that node as their best")?,
            of_model("warmgate_slots", "How many requests a node runs at once, of models in memory or in use")?,
            of_model("warmgate_model_resident_bytes", "What a model in memory takes there, where that is known")?,
        ];
        Ok(Standing {
            ready: register.gauge("warmgate_ready", "1: some node can serve")?,
            nodes,
            models,
            discovery_up: register.gauges(
                "warmgate_discovery_up",
                "1: what tells a node's addresses (DNS, Kubernetes) answered when it was last asked",
                &[node()],
            )?,
            queue_waiting: register.gauge("warmgate_queue_waiting", "Requests that wait here for a node")?,
            sessions: register.gauge("warmgate_sessions", "Conversations whose node is remembered")?,
            body_memory: register.gauge("warmgate_body_memory_bytes", "Memory that holds bodies of requests")?,
            body_memory_limit: register
                .gauge("warmgate_body_memory_limit_bytes", "What bodies of requests may take of memory")?,
        })
    }

    /// Looks at everything, one at a time: whoever calls sees to that.
    pub fn tell(&self, ingress: &Ingress, mut labels: Labels) {
        let nodes = ingress.roster.nodes();
        let mut by_node: BTreeMap<&str, NodeFacts> = BTreeMap::new();
        let mut by_model: BTreeMap<(String, &str), ModelFacts> = BTreeMap::new();
        for node in nodes.iter() {
            let facts = by_node.entry(&node.label).or_default();
            ingress.fleet.with(|fleet, now| {
                facts.add(fleet, node, now);
                let Some(upstream) = fleet.upstream(node.id) else { return };
                for held in fleet.holdings_of(node.id) {
                    if held.resident || held.running > 0 || held.waiting > 0 {
                        let label = labels.label(&held.name).to_owned();
                        let facts = by_model.entry((label, &node.label)).or_default();
                        facts.in_flight += i64::from(held.running);
                        facts.waiting += i64::from(held.waiting);
                        facts.slots += i64::from(upstream.slots(held).count);
                        let bytes = held.need_bytes().filter(|_| held.resident).map(whole);
                        facts.resident_bytes = sum(facts.resident_bytes, bytes);
                    }
                }
            });
        }
        self.tell_nodes(&by_node);
        self.discovery_up.reset();
        for name in nodes.names() {
            self.discovery_up.with_label_values(&[&name.upstream.name]).set(i64::from(name.answers()));
        }
        self.tell_models(&by_model);
        let (waiting, sessions) = ingress.fleet.with(|fleet, _| (fleet.queue.len(), fleet.sessions.len()));
        self.queue_waiting.set(whole(waiting as u64));
        self.sessions.set(whole(sessions as u64));
        self.ready.set(i64::from(ingress.readiness().is_ok()));
        let limit = ingress.plan().limits.memory_for_bodies.0;
        self.body_memory_limit.set(whole(limit));
        self.body_memory.set(whole(ingress.body_memory.held_bytes() as u64));
    }

    fn tell_nodes(&self, by_node: &BTreeMap<&str, NodeFacts>) {
        self.nodes.iter().for_each(IntGaugeVec::reset);
        for (node, facts) in by_node {
            for (gauge, fact) in self.nodes.iter().zip(facts.all()) {
                fact.into_iter().for_each(|fact| gauge.with_label_values(&[*node]).set(fact));
            }
        }
    }

    fn tell_models(&self, by_model: &BTreeMap<(String, &str), ModelFacts>) {
        self.models.iter().for_each(IntGaugeVec::reset);
        for ((model, node), facts) in by_model {
            for (gauge, fact) in self.models.iter().zip(facts.all()) {
                fact.into_iter().for_each(|fact| gauge.with_label_values(&[model.as_str(), *node]).set(fact));
            }
        }
    }
}

impl NodeFacts {
    fn add(&mut self, fleet: &Fleet, node: &Node, now: Moment) {
        self.rows += 1;
        let Some(upstream) = fleet.upstream(node.id) else { return };
        self.healthy += i64::from(upstream.healthy);
        self.draining += i64::from(upstream.drains());
        self.breaker = self.breaker.max(state::breaker_level(fleet, upstream, node, now));
        self.foreign += i64::from(upstream.foreign_requests(now, fleet.rules.stale_after));
        let age_s = upstream.read_at.map(|at| whole(now.since(at).as_secs()));
        self.reading_age_s = self.reading_age_s.max(age_s);
        self.memory_bytes = sum(self.memory_bytes, upstream.spec.memory_bytes.map(whole));
    }

    /// In the order of their gauges.
    fn all(&self) -> [Option<i64>; NODE_FACTS] {
        let known = [self.rows, self.healthy, self.draining, self.breaker, self.foreign].map(Some);
        let [rows, healthy, draining, breaker, foreign] = known;
        [rows, healthy, draining, breaker, foreign, self.reading_age_s, self.memory_bytes]
    }
}

impl ModelFacts {
    fn all(&self) -> [Option<i64>; MODEL_FACTS] {
        [Some(self.in_flight), Some(self.waiting), Some(self.slots), self.resident_bytes]
    }
}

/// Of what is known; `None`: nothing is.
fn sum(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    one.into_iter().chain(other).reduce(i64::saturating_add)
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What there is now of nodes and models, by their labels.
pub struct Here {
    nodes: BTreeSet<String>,
    models: BTreeSet<String>,
}

impl Here {
    /// Those of `models` that some node has or the configuration names, and all nodes that have not left or have
    /// requests still.
    pub fn of(ingress: &Ingress, models: impl Iterator<Item = String>) -> Here {
        let nodes = ingress.roster.nodes();
        ingress.fleet.with(|fleet, _| {
            let busy = nodes.left().filter(|node| fleet.upstream(node.id).is_some());
            let nodes = nodes.iter().chain(busy).map(|node| node.label.clone()).collect();
            Here { nodes, models: models.filter(|model| fleet.has_name(model)).collect() }
        })
    }

    /// What stands for all that has no name is always there.
    pub fn has(&self, node: &str, model: &str) -> bool {
        let known = |label: &str, known: &BTreeSet<String>| label.is_empty() || known.contains(label);
        known(node, &self.nodes) && (model == super::served::OTHER || known(model, &self.models))
    }
}
