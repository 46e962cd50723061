//! Keeps the picture of the fleet true while the proxy works: discovery, health and telemetry.
//!
//! The proxy starts after the first round, so that the first request already finds a fleet. After that
//! each node is polled by a task of its own, and one loop runs discovery and health checks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::ServiceReadyNotifier;
use pingora_core::services::background::BackgroundService;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::ingress::Ingress;
use super::node::Node;
use super::probe::Prober;
use super::telemetry::Telemetry;

pub struct Caretaker {
    pub ingress: Arc<Ingress>,
    /// Called once, after the first round.
    pub on_ready: Box<dyn Fn(&Ingress) + Send + Sync>,
}

/// How long the start waits for the nodes' first answers, and then for their first checks.
const FIRST_LOOK_MAX: Duration = Duration::from_millis(1500);

impl Caretaker {
    pub fn new(ingress: Arc<Ingress>) -> Caretaker {
        Caretaker { ingress, on_ready: Box::new(|_| ()) }
    }

    /// With something to do once, after the first round.
    pub fn when_ready(self, on_ready: impl Fn(&Ingress) + Send + Sync + 'static) -> Caretaker {
        Caretaker { on_ready: Box::new(on_ready), ..self }
    }
}

#[async_trait]
impl BackgroundService for Caretaker {
    async fn start_with_ready_notifier(&self, mut shutdown: ShutdownWatch, ready: ServiceReadyNotifier) {
        self.first_round().await;
        ready.notify_ready();
        (self.on_ready)(&self.ingress);
        let polls: Vec<_> =
            self.ingress.nodes.iter().map(|node| tokio::spawn(poll(self.watch(), node.clone()))).collect();
        let mut ticks = interval(self.ingress.plan.health.interval.0);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            tokio::select! {
                _ = shutdown.changed() => break,
                _ = ticks.tick() => self.check().await,
            }
        }
        polls.iter().for_each(|poll| poll.abort());
    }
}

impl Caretaker {
    /// Finds, asks and checks every node once, all at a time.
    async fn first_round(&self) {
        self.discover().await;
        let polls = self.ingress.nodes.iter().map(|node| {
            let (telemetry, node) = (self.telemetry(), node.clone());
            tokio::spawn(async move { telemetry.poll(&node).await })
        });
        let polls: Vec<_> = polls.collect();
        // A node that is slow to answer joins later; it does not keep the others waiting.
        let _ = timeout(FIRST_LOOK_MAX, async {
            for poll in polls {
                poll.await.unwrap_or_default();
            }
        })
        .await;
        let _ = timeout(FIRST_LOOK_MAX, self.ingress.balancer.backends().run_health_check(true)).await;
    }

    async fn check(&self) {
        self.discover().await;
        self.ingress.balancer.backends().run_health_check(true).await;
    }

    async fn discover(&self) {
        if let Err(error) = self.ingress.balancer.update().await {
            log::error!("discovery: {error}");
        }
    }

    fn telemetry(&self) -> Telemetry {
        let ingress = &self.ingress;
        Telemetry {
            fleet: ingress.fleet.clone(),
            fetcher: ingress.fetcher.clone(),
            timeout: ingress.plan.health.timeout.0,
            interval: ingress.plan.telemetry.interval.0,
        }
    }

    fn watch(&self) -> Watch {
        let telemetry = self.telemetry();
        let (fleet, fetcher) = (telemetry.fleet.clone(), telemetry.fetcher.clone());
        let prober = Prober { fleet, fetcher, timeout: telemetry.timeout };
        Watch { telemetry, prober }
    }
}

/// What a node's own task needs.
struct Watch {
    telemetry: Telemetry,
    prober: Prober,
}

async fn poll(watch: Watch, node: Arc<Node>) {
    let mut ticks = interval(watch.telemetry.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Somebody waits for a node that loads: it is not left to the health checks' slower pace.
        if node.standing.is_loading() {
            let _ = watch.prober.probe(&node).await;
        }
        watch.telemetry.poll(&node).await;
    }
}
