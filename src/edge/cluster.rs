//! Replicas that agree: what this one tells the others and learns from them, over Redis or Valkey.
//!
//! Decisions stay local. Each replica publishes its turns and its loads many times a second and merges those of the
//! others into its own tables, so that almost every decision finds all it needs here. Pins are stored as well: what
//! is not known here is asked for, for 2 ms at most, and not at all while Redis is slow or gone. Limits of tenants
//! are taken from one account by one atomic call. Nothing fails for want of Redis, and no request waits for it but
//! as said.

mod account;
mod counts;
mod keep;
mod link;
mod lookup;
mod message;
mod pace;
mod recent;
mod stored;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub use account::{Settled, Share, Taken};
pub use counts::ClusterCounts;
pub use keep::keep;

use super::clock::wall_ms;
use super::ingress::Ingress;
use super::request_id;
use account::Account;
use link::Link;
use pace::Pace;
use recent::Recent;

pub struct Cluster {
    /// This replica, for as long as its process lives.
    id: u64,
    /// While there is a connection.
    link: ArcSwapOption<Link>,
    pace: Pace,
    /// What others did before this moment may not have been heard: microseconds, as moments are.
    sure_since: AtomicU64,
    account: Account,
    /// What was told last, should it not have been heard.
    recent: Mutex<Recent>,
    told: Mutex<Told>,
}

/// How it stands, for people.
#[derive(Clone, Debug, Default)]
struct Told {
    since_ms: Option<u64>,
    problem: Option<String>,
    /// Errors of writes that did not end the connection, such as a full memory.
    refused: Option<String>,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            id: request_id::hash(&request_id::accept_or_make(None)).max(1),
            link: ArcSwapOption::empty(),
            pace: Pace::default(),
            sure_since: AtomicU64::new(u64::MAX),
            account: Account::default(),
            recent: Mutex::default(),
            told: Mutex::default(),
        }
    }
}

impl Cluster {
    /// There is a connection, and it is quick enough to be waited for.
    fn quick_link(&self) -> Option<Arc<Link>> {
        self.link.load_full().filter(|_| self.pace.is_quick())
    }

    fn connected(&self, link: Arc<Link>) {
        self.link.store(Some(link));
        *self.told.lock() = Told { since_ms: Some(wall_ms()), ..Told::default() };
    }

    /// There is no connection any more; true: that is news.
    fn lost(&self, why: &str) -> bool {
        self.link.store(None);
        self.sure_since.store(u64::MAX, Ordering::Relaxed);
        self.pace.slow();
        let mut told = self.told.lock();
        let is_news = told.problem.as_deref() != Some(why);
        let since_ms = told.since_ms.filter(|_| told.problem.is_some()).or(Some(wall_ms()));
        *told = Told { since_ms, problem: Some(why.to_owned()), refused: None };
        is_news
    }

    /// A write was refused, or none is any more; true: that is news.
    fn note_refused(&self, why: Option<String>) -> bool {
        let mut told = self.told.lock();
        let is_news = told.refused != why;
        told.refused = why;
        is_news
    }
}

/// For `/fleet/status`; `null` where no cluster is configured.
pub fn to_json(ingress: &Ingress) -> Value {
    let plan = ingress.plan();
    let Some(configured) = &plan.cluster else { return Value::Null };
    let cluster = &ingress.cluster;
    let told = cluster.told.lock().clone();
    let (replicas, untold) = ingress.fleet.with(|fleet, _| (fleet.elsewhere.replicas(), fleet.elsewhere.untold()));
    json!({
        "redis": configured.redis.to_string(),
        "prefix": configured.prefix,
        "replica": format!("{:016x}", cluster.id),
        "up": cluster.link.load().is_some(),
        "quick": cluster.pace.is_quick(),
        "since_ms": told.since_ms,
        "problem": told.problem.or(told.refused),
        "other_replicas": replicas,
        "turns_not_told": untold,
        "charges_not_told": cluster.account.unsettled(),
    })
}
