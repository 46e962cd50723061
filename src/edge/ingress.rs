//! Everything that the services of one Warmgate share, and how it is made from a plan.
//!
//! The proxy, the caretaker and the admin port each hold this. It can be mounted in anybody's Pingora
//! server; see `Gateway`.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use pingora_load_balancing::{Backends, LoadBalancer};

use super::body::BodyLimits;
use super::budget::Budget;
use super::discovery::FleetDiscovery;
use super::fetch::Fetcher;
use super::health::EngineCheck;
use super::lists::Lists;
use super::metrics::Metrics;
use super::misfit::MisfitsTold;
use super::node::Node;
use super::probe::Prober;
use super::receipt::Receipts;
use super::selection::FleetSelection;
use super::shared_fleet::SharedFleet;
use super::target::Target;
use super::waiting_room::WaitingRoom;
use crate::config::{self, Plan};
use crate::engines;
use crate::routing::admission::Admission;
use crate::routing::fleet::{Fleet, Rules, UpstreamId};
use crate::routing::group::{self, Group, Groups};
use crate::routing::upstream::Spec;

pub struct Ingress {
    pub plan: Plan,
    pub fleet: Arc<SharedFleet>,
    /// In the order of their ids.
    pub nodes: Arc<[Arc<Node>]>,
    pub balancer: Arc<LoadBalancer<FleetSelection>>,
    pub waiting_room: Arc<WaitingRoom>,
    pub fetcher: Arc<Fetcher>,
    pub receipts: Receipts,
    pub metrics: Metrics,
    pub body_limits: BodyLimits,
    /// Requests that are under way; the server waits for them when it stops.
    pub active: Arc<AtomicUsize>,
    /// The fleet is simulated, and says so wherever it can.
    pub simulated: bool,
    /// Nobody configured an upstream: the nodes are ports at which an engine might be found.
    pub is_guess: bool,
    pub lists: Lists,
    pub misfits_told: MisfitsTold,
}

/// For a whole request body to arrive, however large.
const BODY_READ_MAX: std::time::Duration = std::time::Duration::from_secs(300);

/// For memory to come free when the bodies of all requests fill their share.
const BODY_MEMORY_WAIT: std::time::Duration = std::time::Duration::from_secs(5);

impl Ingress {
    pub fn new(plan: Plan) -> prometheus::Result<Ingress> {
        let fleet = Arc::new(SharedFleet::new(rules(&plan)));
        let nodes = plan.upstreams.iter().map(|upstream| join(&fleet, upstream));
        let nodes: Arc<[Arc<Node>]> = nodes.collect();
        fleet.with(|fleet, _| fleet.rules.groups = groups(&plan, &nodes));
        let fetcher = Arc::new(Fetcher::new());
        let discovery = FleetDiscovery { nodes: nodes.clone(), fleet: fleet.clone() };
        let mut balancer = LoadBalancer::from_backends(Backends::new(Box::new(discovery)));
        balancer.set_health_check(Box::new(EngineCheck {
            nodes: nodes.clone(),
            prober: Prober { fleet: fleet.clone(), fetcher: fetcher.clone(), timeout: plan.health.timeout.0 },
            unhealthy_after: plan.health.unhealthy_after as usize,
            healthy_after: plan.health.healthy_after as usize,
        }));
        let balancer = Arc::new(balancer);
        let body_limits = BodyLimits {
            body_bytes: plan.limits.body.0 as usize,
            read_deadline: BODY_READ_MAX,
            memory: Budget::new(plan.limits.memory_for_bodies.0 as usize),
            memory_wait: BODY_MEMORY_WAIT,
        };
        Ok(Ingress {
            plan,
            nodes,
            waiting_room: WaitingRoom::open(&fleet, &balancer),
            balancer,
            fleet,
            fetcher,
            receipts: Receipts::default(),
            metrics: Metrics::new()?,
            body_limits,
            active: Arc::default(),
            simulated: false,
            is_guess: false,
            lists: Lists::default(),
            misfits_told: MisfitsTold::default(),
        })
    }

    pub fn node(&self, id: UpstreamId) -> Option<&Arc<Node>> {
        self.nodes.get(id.0 as usize)
    }

    pub fn node_name(&self, id: UpstreamId) -> String {
        self.node(id).map_or_else(String::new, |node| node.name.clone())
    }

    /// Whether some upstream can serve; else why not and what to do, without naming places.
    pub fn readiness(&self) -> Result<(), String> {
        let usable = |fleet: &Fleet, node: &Node| {
            let up = fleet.upstream(node.id).is_some_and(|upstream| upstream.healthy && !upstream.spec.drain);
            up && fleet.holdings_of(node.id).next().is_some()
        };
        let usable = self.fleet.with(|fleet, _| self.nodes.iter().filter(|node| usable(fleet, node)).count());
        match (usable, self.nodes.len()) {
            (1.., _) => Ok(()),
            _ if self.is_guess => Err("no upstream is configured and no engine was found on this machine; \
                                       start one, or name yours under `upstreams:`"
                .into()),
            (0, 1) => Err("the only upstream cannot serve; the admin port says why under /fleet/status".into()),
            (0, all) => Err(format!("none of {all} upstreams can serve; the admin port says why under /fleet/status")),
        }
    }
}

fn rules(plan: &Plan) -> Rules {
    Rules {
        policy: plan.routing.policy,
        groups: Groups::default(),
        max_fallbacks: plan.resilience.max_fallbacks as usize,
        admission: admission(&plan.admission),
        signals: plan.routing.signals.clone(),
        session_ttl: plan.affinity.ttl.0,
        max_sessions: plan.affinity.max_sessions as usize,
        stale_after: plan.telemetry.stale_after.0,
        option_guard: plan.routing.option_guard,
    }
}

fn admission(plan: &config::Admission) -> Admission {
    Admission {
        engine_queue: plan.engine_queue,
        max_queue: plan.max_queue as usize,
        weights: [plan.priorities.interactive, plan.priorities.batch].map(f64::from),
        reserve_for_interactive: plan.reserve_for_interactive,
    }
}

/// The configured names over several nodes' models, once the nodes have their ids.
fn groups(plan: &Plan, nodes: &[Arc<Node>]) -> Groups {
    let target = |target: &config::GroupTarget| {
        let node = nodes.iter().find(|node| node.name == target.upstream)?;
        Some(group::Target {
            upstream: node.id,
            model: target.model.clone(),
            weight: target.weight,
            rpm: target.rpm,
            tpm: target.tpm,
            cost: target.cost,
        })
    };
    let group = |written: &config::Group| Group {
        name: written.name.clone(),
        targets: written.targets.iter().filter_map(target).collect(),
        fallbacks: written.fallbacks.clone(),
        policy: written.policy,
    };
    Groups::new(plan.models.iter().map(group).collect())
}

fn join(fleet: &SharedFleet, upstream: &config::Upstream) -> Arc<Node> {
    let engine = upstream.engine.and_then(engines::find);
    let spec = Spec {
        name: upstream.name.clone(),
        engine: engine.map(|engine| engine.traits()),
        slots: upstream.slots,
        memory_bytes: upstream.memory.map(|memory| memory.0),
        bandwidth_bytes_s: upstream.memory_bandwidth.map(|bandwidth| bandwidth.0),
        weight: upstream.weight,
        tier: upstream.tier,
        drain: upstream.drain,
    };
    let api_key = upstream.api_key.as_ref().map(|key| key.expose().to_string());
    let target = Target::of(&upstream.url).with_bearer(api_key);
    let id = fleet.with(|fleet, _| fleet.join(spec));
    Arc::new(Node::new(id, upstream.name.clone(), target, engine))
}
