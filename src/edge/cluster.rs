//! Replicas that agree: what this one tells the others and learns from them, over Redis or Valkey.
//!
//! Decisions stay local. Each replica publishes its turns and its loads many times a second and merges those of the
//! others into its own tables, so that almost every decision finds all it needs here. Pins are stored as well: what
//! is not known here is asked for, for 2 ms at most, and not at all while Redis is slow or gone. Limits of tenants
//! are taken from one account by one atomic call. Nothing fails for want of Redis, and no request waits for it but
//! as said.

mod account;
mod counts;
mod fault;
mod keep;
mod link;
mod lookup;
mod pace;
mod recent;
mod sharers;
mod stored;
mod strangers;
mod voices;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub use account::{Settled, Share, Taken, Wanted};
pub use counts::ClusterCounts;
pub use keep::keep;

use super::clock::wall_ms;
use super::ingress::Ingress;
use super::request_id;
use account::Account;
use fault::Fault;
use link::Link;
use pace::Pace;
use recent::Recent;
use sharers::Sharers;
use strangers::Strangers;
use voices::Voices;

/// Between two times that what was told is told again.
const TELL_AGAIN_EVERY: Duration = Duration::from_secs(2);

pub struct Cluster {
    /// This replica, for as long as its process lives.
    id: u64,
    /// What people call it: the machine, or the pod.
    name: String,
    /// While there is a connection.
    link: ArcSwapOption<Link>,
    pace: Pace,
    /// How long Redis' last answer to a probe took, microseconds; none yet: the greatest.
    answer_us: AtomicU64,
    /// What others did before this moment may not have been heard: microseconds, as moments are.
    sure_since: AtomicU64,
    account: Account,
    /// What was told last, should it not have been heard.
    recent: Mutex<Recent>,
    /// When that was told again.
    told_again: Mutex<Option<Instant>>,
    sharers: Mutex<Sharers>,
    strangers: Mutex<Strangers>,
    voices: Mutex<Voices>,
    told: Mutex<Told>,
}

/// How it stands, for people.
#[derive(Clone, Debug, Default)]
struct Told {
    since_ms: Option<u64>,
    problem: Option<Fault>,
    /// Errors of writes that did not end the connection, such as a full memory.
    refused: Option<Fault>,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            id: request_id::hash(&request_id::accept_or_make(None)).max(1),
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            link: ArcSwapOption::empty(),
            pace: Pace::default(),
            answer_us: AtomicU64::new(u64::MAX),
            sure_since: AtomicU64::new(u64::MAX),
            account: Account::default(),
            recent: Mutex::default(),
            told_again: Mutex::default(),
            sharers: Mutex::default(),
            strangers: Mutex::default(),
            voices: Mutex::default(),
            told: Mutex::default(),
        }
    }
}

impl Cluster {
    /// There is a connection, and it is quick enough to be waited for.
    fn quick_link(&self) -> Option<Arc<Link>> {
        self.link.load_full().filter(|_| self.pace.is_quick())
    }

    /// A probe was answered.
    fn answered(&self, took: Duration) {
        self.answer_us.store(took.as_micros() as u64, Ordering::Relaxed);
        self.pace.probed(took);
    }

    /// So many other replicas are heard now.
    fn note_heard(&self, others: usize) {
        self.sharers.lock().note(others, self.link.load().is_some(), Instant::now());
    }

    fn connected(&self, link: Arc<Link>) {
        self.link.store(Some(link));
        *self.told.lock() = Told { since_ms: Some(wall_ms()), ..Told::default() };
    }

    /// There is no connection any more; true: that is news.
    fn lost(&self, why: &Fault) -> bool {
        self.link.store(None);
        self.answer_us.store(u64::MAX, Ordering::Relaxed);
        self.sure_since.store(u64::MAX, Ordering::Relaxed);
        self.pace.slow();
        let mut told = self.told.lock();
        let is_news = told.problem.as_ref() != Some(why);
        let since_ms = told.since_ms.filter(|_| told.problem.is_some()).or(Some(wall_ms()));
        *told = Told { since_ms, problem: Some(why.clone()), refused: None };
        is_news
    }

    /// However often connections are made anew, what was told is told again no more often than that; true: it is
    /// time.
    fn may_tell_again(&self) -> bool {
        let (mut last, now) = (self.told_again.lock(), Instant::now());
        let may = last.is_none_or(|last| now.duration_since(last) >= TELL_AGAIN_EVERY);
        if may {
            *last = Some(now);
        }
        may
    }

    /// What is wrong now, if anything is.
    fn fault(&self) -> Option<Fault> {
        let told = self.told.lock();
        told.problem.clone().or_else(|| told.refused.clone())
    }

    /// A write was refused, or none is any more; true: that is news.
    fn note_refused(&self, why: Option<Fault>) -> bool {
        let mut told = self.told.lock();
        let is_news = told.refused != why;
        told.refused = why;
        is_news
    }
}

/// For `/fleet/status` and the dashboard; `null` where no cluster is configured.
pub fn to_json(ingress: &Ingress) -> Value {
    let plan = ingress.plan();
    let Some(configured) = &plan.cluster else { return Value::Null };
    let cluster = &ingress.cluster;
    let since_ms = cluster.told.lock().since_ms;
    let fault = cluster.fault();
    let answer_us = Some(cluster.answer_us.load(Ordering::Relaxed)).filter(|us| *us != u64::MAX);
    let (replicas, untold) = ingress.fleet.with(|fleet, _| (fleet.elsewhere.replicas(), fleet.elsewhere.untold()));
    json!({
        "redis": configured.redis.to_string(),
        "prefix": configured.prefix,
        "replica": format!("{:016x}", cluster.id),
        "name": cluster.name,
        "up": cluster.link.load().is_some(),
        "quick": cluster.pace.is_quick(),
        "since_ms": since_ms,
        "answer_ms": answer_us.map(|us| us as f64 / 1e3),
        "fault": fault.as_ref().map(Fault::name),
        "problem": fault.as_ref().map(Fault::to_string),
        "other_fleets": cluster.strangers.lock().count(),
        "other_replicas": replicas,
        "heard": cluster.voices.lock().to_json(),
        "other_versions": cluster.voices.lock().others(),
        "turns_not_told": untold,
        "charges_not_told": cluster.account.unsettled(),
    })
}
