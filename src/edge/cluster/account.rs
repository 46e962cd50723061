//! What tenants use, taken from one account for all replicas.
//!
//! A request is booked by one atomic call, which this replica waits for as long as it may. Shares of what was left when
//! each last heard add up to what was left: so where Redis does not answer in time, each goes on with its own, and what
//! it lets in so is booked whatever the account says. Who comes beyond the share is refused, but for one at a time that
//! waits a little for the account. What could not be booked is booked when Redis is back, and what was booked in an
//! account that is gone is booked anew.
//!
//! So a limit is exact while Redis is quick. While it is slow or gone it is gone over by what was under way when that
//! began, by one for each replica, and by what replicas take for left that have not heard what others used of it: they
//! hear with each request of that tenant's which they ask the account for, so at most the share of the limit for each
//! that was asked for none in the last minute. What others used is taken to have been used
//! evenly: after a burst, places are given anew before their minute is over. All together stay under twice the limit. To close that, each would have
//! to hear of every tenant all the time, or to be lent places beforehand that others then miss while Redis is quick.

mod take;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Script;
use tokio::task::JoinSet;

pub use take::{Taken, Wanted};

use super::Cluster;
use super::counts::{Operation, Result as Counted};
use super::fault::Fault;
use super::link::Link;
use crate::edge::ingress::Ingress;
use crate::edge::tenants::Tenants;
use crate::routing::limits::{Booked, Part, Stamp};
use crate::routing::moment::Moment;

/// Charges that wait to be told. Some minutes of a busy replica; about 6 MB.
#[derive(Default)]
pub struct Account {
    charges: Mutex<VecDeque<Charge>>,
    calls: AtomicUsize,
    has_repaired: AtomicBool,
}

/// A request's part of the account, until it is settled.
pub struct Share {
    cluster: Arc<Cluster>,
    tenant: u64,
    /// The second of the account that it is booked in; zero: in none yet.
    booked: Arc<AtomicU64>,
    /// When it was admitted here.
    since: Moment,
}

/// A change of the account.
#[derive(Clone, Debug, PartialEq)]
struct Charge {
    tenant: u64,
    stamp: Stamp,
    booked: u64,
    since: Moment,
    requests_add: u64,
    requests_back: u64,
    tokens_add: u64,
    tokens_back: u64,
}

/// What a request came to, beside what it was booked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    pub booked_tokens: u64,
    pub used_tokens: u64,
    /// It does not even count as a request.
    pub is_void: bool,
    pub stamp: Stamp,
}

const CHARGES_MAX: usize = 1 << 16;

/// Charges told at once, before looking again.
const CHARGES_PER_TURN: usize = 256;

/// A booking that is settled already: whatever comes of its call is to be undone.
const SETTLED: u64 = u64::MAX;

static SETTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("window.lua"), include_str!("settle.lua"))));

static REPAIR: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("repair.lua")));

/// When the account began, and what all replicas have used of it: requests and tokens.
type Settling = (u64, u64, u64);

impl Cluster {
    /// Books anew what was booked in an account that is gone.
    fn put_back(&self, tenant: u64, parts: Vec<Part>, stamp: Stamp, ingress: &Ingress) {
        for Part { at, requests, tokens } in parts {
            let charge = Charge { requests_add: requests, tokens_add: tokens, ..Charge::of(tenant, stamp, at) };
            self.account.add(charge, ingress);
        }
    }

    /// Somebody else has put something under a key of an account: it is taken away, and the account begins anew.
    async fn repair(&self, link: &Link, tenant: u64) {
        if !self.account.has_repaired.swap(true, Ordering::Relaxed) {
            log::warn!(
                "cluster: a key of a tenant's account under the prefix {} holds something else, and is replaced; \
                 whoever else uses this Redis needs another prefix",
                link.prefix
            );
        }
        // What cannot be repaired now is found again by the next call.
        let _ = link.run::<redis::Value>(&REPAIR, &keys(link, tenant), &[]).await;
    }
}

impl Share {
    /// The request is over.
    pub fn settle(self, settled: Settled) {
        let Settled { booked_tokens, used_tokens, is_void, stamp } = settled;
        let booked = self.booked.swap(SETTLED, Ordering::AcqRel);
        let empty = Charge::of(self.tenant, stamp, self.since);
        let charge = match booked {
            0 if is_void => empty,
            0 => Charge { requests_add: 1, tokens_add: used_tokens, ..empty },
            booked => Charge {
                booked,
                requests_back: u64::from(is_void),
                tokens_add: used_tokens.saturating_sub(booked_tokens),
                tokens_back: booked_tokens.saturating_sub(used_tokens),
                ..empty
            },
        };
        self.cluster.account.push(charge);
    }
}

impl Charge {
    /// Nothing but who runs.
    fn of(tenant: u64, stamp: Stamp, since: Moment) -> Charge {
        Charge { tenant, stamp, booked: 0, since, requests_add: 0, requests_back: 0, tokens_add: 0, tokens_back: 0 }
    }
}

impl Account {
    pub fn unsettled(&self) -> usize {
        self.charges.lock().len()
    }

    fn add(&self, charge: Charge, ingress: &Ingress) {
        let dropped = self.push(charge);
        ingress.metrics.cluster.dropped_charges(dropped);
    }

    /// How many are forgotten for it.
    fn push(&self, charge: Charge) -> u64 {
        let mut charges = self.charges.lock();
        let dropped = u64::from(charges.len() >= CHARGES_MAX && charges.pop_front().is_some());
        charges.push_back(charge);
        dropped
    }

    /// Says anew what runs, where that is limited: what is not said again is forgotten.
    pub fn refresh(&self, tenants: &Tenants) {
        for tenant in tenants.iter().filter(|tenant| tenant.limits().concurrent.is_some()) {
            if let Some(stamp) = tenant.stamp_running() {
                self.push(Charge::of(tenant.id, stamp, Moment::MAX));
            }
        }
    }

    /// Tells what there is to tell; an error if the connection is of no more use.
    pub async fn settle_all(&self, ingress: &Ingress, link: &Link) -> Result<(), Fault> {
        loop {
            let some: Vec<Charge> = {
                let mut charges = self.charges.lock();
                let count = charges.len().min(CHARGES_PER_TURN);
                charges.drain(..count).collect()
            };
            if some.is_empty() {
                return Ok(());
            }
            let mut calls = JoinSet::new();
            for charge in some {
                let (link, args) = (link.clone(), charge.args(ingress));
                calls.spawn(async move {
                    let settled = link.run::<Settling>(&SETTLE, &keys(&link, charge.tenant), &args).await;
                    (charge, settled)
                });
            }
            let mut broken = None;
            while let Some(Ok((charge, settled))) = calls.join_next().await {
                let counted = if settled.is_ok() { Counted::Ok } else { Counted::Error };
                ingress.metrics.cluster.count(Operation::Settle, counted);
                match settled {
                    Ok(told) => self.settled(&charge, told, ingress),
                    Err(why) if matches!(Fault::of(&why), Fault::WrongType(_)) => {
                        ingress.cluster.repair(link, charge.tenant).await;
                        self.add(charge, ingress);
                    }
                    // A full or read-only Redis: it is told later, while it matters.
                    Err(why) if link.is_refusal(&why) => return self.keep(charge, &mut calls, ingress).await,
                    Err(why) => {
                        broken = Some(Fault::of(&why));
                        self.add(charge, ingress);
                    }
                }
            }
            if let Some(why) = broken {
                return Err(why);
            }
        }
    }

    fn settled(&self, charge: &Charge, (born, requests, tokens): Settling, ingress: &Ingress) {
        let tenants = ingress.tenants();
        let Some(tenant) = tenants.iter().find(|tenant| tenant.id == charge.tenant) else { return };
        let Charge { requests_add, requests_back, tokens_add, tokens_back, .. } = *charge;
        let booked = Booked { requests_add, requests_back, tokens_add, tokens_back };
        // Of requests that only say that they run nobody knows when they came.
        let since = if booked == Booked::default() { Moment::default() } else { charge.since };
        let now = ingress.fleet.now();
        let gone = tenant.learn_booked(born, booked, since, now);
        tenant.learn_used(requests, tokens, None, now);
        ingress.cluster.put_back(charge.tenant, gone, charge.stamp, ingress);
    }

    /// Keeps what was refused, and looks at it again after a pause.
    async fn keep(
        &self,
        charge: Charge,
        calls: &mut JoinSet<(Charge, redis::RedisResult<Settling>)>,
        ingress: &Ingress,
    ) -> Result<(), Fault> {
        self.add(charge, ingress);
        while let Some(Ok((charge, settled))) = calls.join_next().await {
            match settled {
                Ok(told) => self.settled(&charge, told, ingress),
                Err(_) => self.add(charge, ingress),
            }
        }
        tokio::time::sleep(REFUSED_PAUSE).await;
        Ok(())
    }
}

/// After a charge was refused, before the next is tried.
const REFUSED_PAUSE: Duration = Duration::from_millis(500);

impl Charge {
    fn args(&self, ingress: &Ingress) -> [String; 9] {
        let age_s = ingress.fleet.now().since(self.since).as_secs();
        [
            format!("{:016x}", ingress.cluster.id),
            self.stamp.number.to_string(),
            self.stamp.running.to_string(),
            self.booked.to_string(),
            age_s.to_string(),
            self.requests_add.to_string(),
            self.requests_back.to_string(),
            self.tokens_add.to_string(),
            self.tokens_back.to_string(),
        ]
    }
}

fn keys(link: &Link, tenant: u64) -> [String; 2] {
    ["use", "run"].map(|what| format!("{}:{what}:{{{tenant:016x}}}", link.prefix))
}
