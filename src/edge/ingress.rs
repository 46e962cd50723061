//! Everything that the services of one Warmgate share, and how it is made from a plan.
//!
//! The proxy, the caretaker and the admin port each hold this. It can be mounted in anybody's Pingora
//! server; see `Gateway`.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pingora_load_balancing::{Backends, LoadBalancer};

use super::body::BodyLimits;
use super::budget::Budget;
use super::cluster::Cluster;
use super::departure::Departure;
use super::discovery::FleetDiscovery;
use super::fetch::Fetcher;
use super::health::EngineCheck;
use super::history::History;
use super::jwt::Tokens;
use super::lists::Lists;
use super::live::Live;
use super::manage::Managing;
use super::metrics::Metrics;
use super::misfit::MisfitsTold;
use super::node::Node;
use super::receipt::Receipts;
use super::reload::{Changes, Reloads};
use super::resolver::{Resolver, SystemResolver};
use super::roster::Roster;
use super::selection::FleetSelection;
use super::shared_fleet::SharedFleet;
use super::snapshot::Snapshots;
use super::tenants::Tenants;
use super::trace::export::Spans;
use super::waiting_room::WaitingRoom;
use crate::config::{self, Admin, Plan};
use crate::routing::admission::Admission;
use crate::routing::fleet::{Fleet, Rules, UpstreamId};
use crate::routing::group::Groups;
use crate::routing::stuck::SilenceLimits;

pub struct Ingress {
    tenants: ArcSwap<Tenants>,
    /// The tokens that name them.
    pub tokens: Tokens,
    plan: Arc<ArcSwap<Plan>>,
    pub fleet: Arc<SharedFleet>,
    /// The nodes, which join and leave while all this runs.
    pub roster: Arc<Roster>,
    pub balancer: Arc<LoadBalancer<FleetSelection>>,
    pub waiting_room: Arc<WaitingRoom>,
    pub fetcher: Arc<Fetcher>,
    pub receipts: Receipts,
    pub history: History,
    /// What is under way.
    pub live: Arc<Live>,
    pub snapshots: Snapshots,
    pub metrics: Metrics,
    /// Other replicas of the same Warmgate.
    pub cluster: Arc<Cluster>,
    /// For the bodies of all requests.
    pub body_memory: Budget,
    /// Requests that are under way; the server waits for them when it stops.
    pub active: Arc<AtomicUsize>,
    pub departure: Departure,
    /// Requests are counted and their receipts kept. Nothing that is served depends on it: a server that
    /// mounts this may do without, and `perf/observed` measures what it costs.
    pub observes: bool,
    /// The fleet is simulated, and says so wherever it can.
    pub simulated: bool,
    pub lists: Lists,
    pub misfits_told: MisfitsTold,
    pub managing: Managing,
    pub reloads: Reloads,
    /// On their way to a collector.
    pub spans: Spans,
    /// One plan at a time is put in force.
    applying: Mutex<()>,
    /// One state at a time is written, the latest last.
    pub state_writes: Mutex<()>,
}

/// For a whole request body to arrive, however large.
const BODY_READ_MAX: std::time::Duration = std::time::Duration::from_secs(300);

/// For memory to come free when the bodies of all requests fill their share.
const BODY_MEMORY_WAIT: std::time::Duration = std::time::Duration::from_secs(5);

impl Ingress {
    pub fn new(plan: Plan) -> prometheus::Result<Ingress> {
        Ingress::with_resolver(plan, Arc::new(SystemResolver))
    }

    /// With another way from host names to addresses than the system's.
    pub fn with_resolver(plan: Plan, resolver: Arc<dyn Resolver>) -> prometheus::Result<Ingress> {
        let plan = Arc::new(ArcSwap::from_pointee(plan));
        let in_force = plan.load_full();
        let fleet = Arc::new(SharedFleet::new(rules(&in_force)));
        let roster = Arc::new(Roster::new(fleet.clone()));
        roster.apply(&in_force.upstreams, &in_force.models);
        let fetcher = Arc::new(Fetcher::with(resolver.clone()));
        let discovery = FleetDiscovery::new(&roster, &fleet, &plan, resolver);
        let mut balancer = LoadBalancer::from_backends(Backends::new(Box::new(discovery)));
        balancer.set_health_check(Box::new(EngineCheck {
            roster: roster.clone(),
            fleet: fleet.clone(),
            fetcher: fetcher.clone(),
            plan: plan.clone(),
        }));
        let balancer = Arc::new(balancer);
        let body_memory = Budget::new(in_force.limits.memory_for_bodies.0 as usize);
        Ok(Ingress {
            tenants: ArcSwap::from_pointee(Tenants::of(&in_force)),
            tokens: Tokens::of(in_force.jwt.as_ref()),
            plan,
            roster,
            waiting_room: WaitingRoom::open(&fleet, &balancer),
            balancer,
            fleet,
            fetcher,
            receipts: Receipts::default(),
            history: History::default(),
            live: Arc::default(),
            snapshots: Snapshots::default(),
            metrics: Metrics::new()?,
            cluster: Arc::default(),
            body_memory,
            active: Arc::default(),
            departure: Departure::default(),
            observes: true,
            simulated: false,
            lists: Lists::default(),
            misfits_told: MisfitsTold::default(),
            managing: Managing::default(),
            reloads: Reloads::default(),
            spans: Spans::default(),
            applying: Mutex::default(),
            state_writes: Mutex::default(),
        })
    }

    /// Puts another plan in force, for all that begins from now on, and tells what that changes. What is
    /// under way goes on as it began; what was learnt of upstreams that stay is kept. What only another
    /// process can have stays as it is. Whatever is made of a plan and outlives a request is put right here.
    pub fn apply(&self, plan: Plan) -> Changes {
        let _one_at_a_time = self.applying.lock();
        let old = self.plan();
        let (needs_new_process, applied): (Vec<_>, Vec<_>) =
            config::changes(&old, &plan).into_iter().partition(config::Change::needs_new_process);
        // A port that others reach never loses its token.
        let kept = || old.admin.token.clone().filter(|_| !old.admin.address.ip().is_loopback());
        let admin = Admin { token: plan.admin.token.clone().or_else(kept), ..old.admin.clone() };
        let plan = Arc::new(Plan { listen: old.listen.clone(), admin, server: old.server.clone(), ..plan });
        self.roster.apply_with(&plan.upstreams, &plan.models, |fleet| {
            fleet.set_rules(rules(&plan));
            self.plan.store(plan.clone());
        });
        self.renew_tenants(&plan);
        self.body_memory.resize(plan.limits.memory_for_bodies.0 as usize);
        self.waiting_room.sweep();
        Changes { applied, needs_new_process }
    }

    /// What one request body may take.
    pub fn body_limits(&self, plan: &Plan) -> BodyLimits {
        BodyLimits {
            body_bytes: plan.limits.body.0 as usize,
            read_deadline: BODY_READ_MAX,
            memory: self.body_memory.clone(),
            memory_wait: BODY_MEMORY_WAIT,
        }
    }

    /// The settings in force. Whoever needs them for longer than a step keeps what this gives.
    pub fn plan(&self) -> Arc<Plan> {
        self.plan.load_full()
    }

    /// Who may use it, as it stands.
    pub fn tenants(&self) -> Arc<Tenants> {
        self.tenants.load_full()
    }

    /// Takes the tenants of a new configuration; those that stay keep what they have used.
    pub(super) fn renew_tenants(&self, plan: &Plan) {
        let before = self.tenants();
        let renewed = Arc::new(Tenants::renewed(&before, plan));
        self.tenants.store(renewed.clone());
        self.tokens.renew(plan.jwt.as_ref());
        for gone in before.iter().filter(|tenant| renewed.named(&tenant.name).is_none()) {
            self.metrics.tenants.forget(&gone.name);
        }
    }

    /// A node, be it that it left not long ago.
    pub fn node(&self, id: UpstreamId) -> Option<Arc<Node>> {
        self.roster.nodes().find(id).cloned()
    }

    pub fn node_name(&self, id: UpstreamId) -> String {
        self.node(id).map_or_else(String::new, |node| node.name.clone())
    }

    /// Whether some upstream can serve; else why not and what to do, without naming places.
    pub fn readiness(&self) -> Result<(), String> {
        if self.departure.is_the_end() {
            return Err("it is stopping; what runs may finish".into());
        }
        let usable = |fleet: &Fleet, now, node: &Node| {
            let up = fleet.upstream(node.id).is_some_and(|upstream| upstream.is_open(now));
            up && fleet.holdings_of(node.id).next().is_some()
        };
        let nodes = self.roster.nodes();
        let usable = self.fleet.with(|fleet, now| nodes.iter().filter(|node| usable(fleet, now, node)).count());
        match (usable, self.plan().upstreams.len()) {
            (1.., _) => Ok(()),
            _ if self.plan().is_guess => Err("no upstream is configured and no engine was found on this machine; \
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
        externality_weight: plan.routing.externality_weight,
        groups: Groups::default(),
        max_fallbacks: plan.resilience.max_fallbacks as usize,
        admission: admission(&plan.admission),
        signals: plan.routing.signals.clone(),
        session_ttl: plan.affinity.ttl.0,
        max_sessions: plan.affinity.max_sessions as usize,
        stale_after: plan.telemetry.stale_after.0,
        option_guard: plan.routing.option_guard,
        breaker: plan.resilience.breaker.rules(),
        slow_start: plan.resilience.slow_start.0,
        silence: SilenceLimits { first_byte: plan.timeouts.first_byte.0, idle: plan.timeouts.idle.0 },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::departure::Stage;

    #[test]
    fn ops_01_what_stops_is_not_ready_and_a_successor_is() {
        let stopping = Ingress::new(Plan::default()).unwrap();
        stopping.departure.reach(Stage::Stopping);
        assert!(stopping.readiness().is_err_and(|why| why.contains("stopping")));
        // Probes on kept connections ask of the address, which another process serves.
        let succeeded = Ingress::new(Plan::default()).unwrap();
        succeeded.departure.reach(Stage::HandedOver);
        assert!(succeeded.readiness().is_err_and(|why| !why.contains("stopping")), "only that it has no nodes");
    }
}
