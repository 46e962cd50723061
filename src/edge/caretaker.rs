//! Keeps the picture of the fleet true while the proxy works: discovery, health and telemetry.
//!
//! The proxy starts after the first round, so that the first request already finds a fleet. After that
//! each site is polled by a task of its own, which starts and ends with it, and one loop runs discovery and
//! health checks: at every interval, and soon after the rows changed or a connection was refused.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::ShutdownWatch;
use pingora_core::services::ServiceReadyNotifier;
use pingora_core::services::background::BackgroundService;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::cluster;
use super::discovery::kubernetes::Watches;
use super::ingress::Ingress;
use super::jwt;
use super::lists;
use super::movers;
use super::probe::Prober;
use super::site::Site;
use super::state_file;
use super::telemetry::Telemetry;
use super::trace::export;

pub struct Caretaker {
    pub ingress: Arc<Ingress>,
    /// Called once, after the first round and before anybody is served.
    pub before_ready: Box<dyn Fn(&Ingress) + Send + Sync>,
    /// Called once, after the first round.
    pub on_ready: Box<dyn Fn(&Ingress) + Send + Sync>,
}

/// How long the start waits for the nodes' first answers, and then for their first checks.
const FIRST_LOOK_MAX: Duration = Duration::from_millis(1500);

impl Caretaker {
    pub fn new(ingress: Arc<Ingress>) -> Caretaker {
        Caretaker { ingress, before_ready: Box::new(|_| ()), on_ready: Box::new(|_| ()) }
    }

    /// With something to do once, after the first round and before anybody is served.
    pub fn prepared(self, before_ready: impl Fn(&Ingress) + Send + Sync + 'static) -> Caretaker {
        Caretaker { before_ready: Box::new(before_ready), ..self }
    }

    /// With something to do once, after the first round.
    pub fn when_ready(self, on_ready: impl Fn(&Ingress) + Send + Sync + 'static) -> Caretaker {
        Caretaker { on_ready: Box::new(on_ready), ..self }
    }
}

/// The least time from one unasked-for look at the fleet to the next: a name whose addresses change with
/// every lookup must not keep us looking.
const LOOK_GAP: Duration = Duration::from_secs(1);

#[async_trait]
impl BackgroundService for Caretaker {
    async fn start_with_ready_notifier(&self, mut shutdown: ShutdownWatch, ready: ServiceReadyNotifier) {
        let news = self.ingress.roster.news();
        let watches = Watches::new(&self.ingress);
        watches.first_look().await;
        self.first_round().await;
        (self.before_ready)(&self.ingress);
        ready.notify_ready();
        (self.on_ready)(&self.ingress);
        tokio::select! {
            _ = shutdown.changed() => {}
            _ = self.keep_polling(news.clone()) => {}
            _ = self.keep_checking(news) => {}
            _ = watches.keep() => {}
            _ = lists::keep(self.ingress.clone()) => {}
            _ = movers::sweep(self.ingress.clone()) => {}
            _ = jwt::keep(self.ingress.clone()) => {}
            _ = cluster::keep(self.ingress.clone()) => {}
            _ = state_file::keep(self.ingress.clone()) => {}
            _ = export::keep(self.ingress.clone()) => {}
        }
        export::finish(&self.ingress).await;
    }
}

impl Caretaker {
    /// Finds, asks and checks every node once, all at a time.
    async fn first_round(&self) {
        self.discover().await;
        let mut polls = JoinSet::new();
        for site in self.ingress.roster.nodes().sites() {
            let (telemetry, site) = (self.telemetry(), site.clone());
            polls.spawn(async move { telemetry.poll(&site).await });
        }
        // A node that is slow to answer joins later; it does not keep the others waiting.
        let answered = async { while polls.join_next().await.is_some() {} };
        let keys = timeout(FIRST_LOOK_MAX, jwt::look(&self.ingress));
        let _ = tokio::join!(timeout(FIRST_LOOK_MAX, answered), keys);
        polls.detach_all();
        let _ = timeout(FIRST_LOOK_MAX, self.ingress.balancer.backends().run_health_check(true)).await;
        self.ingress.lists.catch_up(&self.ingress);
    }

    /// Has a task of its own ask each site, for as long as that is in force.
    async fn keep_polling(&self, mut news: watch::Receiver<u64>) {
        let mut polls = Vec::new();
        loop {
            self.poll_those_in_force(&mut polls);
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    fn poll_those_in_force(&self, polls: &mut Vec<Poll>) {
        let (nodes, pace) = (self.ingress.roster.nodes(), self.pace());
        polls.retain(|poll| nodes.has(&poll.site) && poll.pace == pace);
        let polled: HashSet<*const Site> = polls.iter().map(|poll| Arc::as_ptr(&poll.site)).collect();
        for site in nodes.sites().filter(|site| !polled.contains(&Arc::as_ptr(site))) {
            let task = tokio::spawn(poll(self.watch(), site.clone()));
            polls.push(Poll { site: site.clone(), pace, task });
        }
    }

    /// Looks at names and health at every interval, and soon after there are news.
    async fn keep_checking(&self, mut news: watch::Receiver<u64>) {
        let mut looked = Instant::now();
        loop {
            // Anew at each turn, since the interval may change; that is news as well.
            let due = looked + self.ingress.plan().health.interval.0;
            tokio::select! {
                _ = sleep_until(due) => {}
                told = news.changed() => {
                    if told.is_err() {
                        return;
                    }
                    sleep_until(looked + LOOK_GAP).await;
                }
            }
            news.mark_unchanged();
            looked = Instant::now();
            self.check().await;
        }
    }

    async fn check(&self) {
        self.discover().await;
        self.ingress.balancer.backends().run_health_check(true).await;
    }

    async fn discover(&self) {
        if let Err(error) = self.ingress.balancer.update().await {
            log::error!("discovery: {error}");
        }
        // Somebody may wait for a node that has just got its place.
        self.ingress.waiting_room.sweep();
    }

    fn telemetry(&self) -> Telemetry {
        let (ingress, pace) = (&self.ingress, self.pace());
        Telemetry {
            fleet: ingress.fleet.clone(),
            fetcher: ingress.fetcher.clone(),
            timeout: pace.timeout,
            interval: pace.interval,
        }
    }

    fn pace(&self) -> Pace {
        let plan = self.ingress.plan();
        Pace { timeout: plan.health.timeout.0, interval: plan.telemetry.interval.0 }
    }

    fn watch(&self) -> Watch {
        let telemetry = self.telemetry();
        let (fleet, fetcher) = (telemetry.fleet.clone(), telemetry.fetcher.clone());
        let prober = Prober { fleet, fetcher, timeout: telemetry.timeout };
        Watch { telemetry, prober }
    }
}

/// How sites are asked.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Pace {
    timeout: Duration,
    interval: Duration,
}

/// A site's task, which ends with this.
struct Poll {
    site: Arc<Site>,
    pace: Pace,
    task: JoinHandle<()>,
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a site's own task needs.
struct Watch {
    telemetry: Telemetry,
    prober: Prober,
}

async fn poll(watch: Watch, site: Arc<Site>) {
    let mut ticks = interval(watch.telemetry.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_new = true;
    loop {
        ticks.tick().await;
        // Somebody waits for a node that loads: it is not left to the health checks' slower pace.
        if site.standing.is_loading() {
            let _ = watch.prober.probe(&site).await;
        }
        watch.telemetry.poll(&site).await;
        // Nor is one that joins.
        if std::mem::take(&mut is_new) && site.standing.is_unseen() {
            let _ = watch.prober.probe(&site).await;
        }
    }
}
