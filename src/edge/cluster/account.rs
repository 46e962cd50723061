//! What tenants use, taken from one account for all replicas.
//!
//! A request is booked by one atomic call, which this replica waits for as long as it may. While Redis is slow the
//! calls are made all the same and nobody waits, but for who would be refused otherwise: each replica lets in its part
//! of what was left when it last heard. What could not be booked is booked when Redis is back, and what was booked in
//! an account that is gone is booked anew. So a limit is exact while Redis is quick, holds twice at worst while it is
//! slow, and once more for each replica while it is gone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Script;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Cluster;
use super::counts::{Operation, Result as Counted};
use super::fault::Fault;
use super::link::Link;
use super::pace::WAIT_MAX;
use crate::edge::ingress::Ingress;
use crate::edge::tenants::{Tenant, Tenants};
use crate::routing::limits::{Booked, Limits, Over, Part, Refused, Stamp};
use crate::routing::moment::Moment;

/// Charges that wait to be told. Some minutes of a busy replica; about 6 MB.
#[derive(Default)]
pub struct Account {
    charges: Mutex<VecDeque<Charge>>,
    calls: AtomicUsize,
    has_repaired: AtomicBool,
}

/// What came of taking from the account.
pub enum Taken {
    Granted(Share),
    Refused(Refused),
    /// Nobody could tell in time; it counts all the same.
    Unknown(Share, Late),
}

/// An answer that has not come yet.
#[derive(Default)]
pub struct Late(Option<oneshot::Receiver<Option<Refused>>>);

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

/// Calls under way at once; while Redis hangs, more are not even begun.
const CALLS_MAX: usize = 4096;

/// The longest that a request waits which would be refused otherwise.
const WAIT_OVER_SHARE_MAX: Duration = Duration::from_millis(50);

/// Charges told at once, before looking again.
const CHARGES_PER_TURN: usize = 256;

/// So long counts what a replica said that it has running, seconds.
const RUNNING_LIFE_S: u64 = 2;

/// A booking that is settled already: whatever comes of its call is to be undone.
const SETTLED: u64 = u64::MAX;

static TAKE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("window.lua"), include_str!("take.lua"))));
static SETTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("window.lua"), include_str!("settle.lua"))));

static REPAIR: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("repair.lua")));

/// What the account says: the limit that is reached or zero, seconds to wait, the second that was booked in,
/// requests and tokens of all replicas, what others have running, and when the account began.
type Answer = (u8, u64, u64, u64, u64, u32, u64);

impl Cluster {
    /// Takes a request from its tenant's account. `None`: no account is kept.
    pub async fn take(
        self: &Arc<Self>,
        ingress: &Arc<Ingress>,
        tenant: &Arc<Tenant>,
        tokens: u64,
        stamp: Stamp,
        since: Moment,
    ) -> Option<Taken> {
        ingress.plan().cluster.as_ref()?;
        let limits = tenant.limits();
        if *limits == Limits::default() {
            return None;
        }
        let share = Share { cluster: self.clone(), tenant: tenant.id, booked: Arc::default(), since };
        let Some(link) = self.link.load_full().filter(|_| self.account.calls.load(Ordering::Relaxed) < CALLS_MAX)
        else {
            ingress.metrics.cluster.count(Operation::Take, Counted::Slow);
            return Some(Taken::Unknown(share, Late::default()));
        };
        let (sender, mut answer) = oneshot::channel();
        self.account.calls.fetch_add(1, Ordering::Relaxed);
        let call = Call {
            cluster: self.clone(),
            ingress: ingress.clone(),
            tenant: tenant.clone(),
            booked: share.booked.clone(),
            tokens,
            stamp,
            since,
        };
        tokio::spawn(call.run(link, sender));
        if !self.pace.is_quick() {
            ingress.metrics.cluster.count(Operation::Take, Counted::Slow);
            return Some(Taken::Unknown(share, Late(Some(answer))));
        }
        match timeout(WAIT_MAX, &mut answer).await {
            Ok(Ok(Some(refused))) => Some(Taken::Refused(refused)),
            Ok(Ok(None)) => Some(Taken::Granted(share)),
            Ok(Err(_)) => Some(Taken::Unknown(share, Late::default())),
            Err(_) => {
                self.pace.slow();
                ingress.metrics.cluster.count(Operation::Take, Counted::Slow);
                Some(Taken::Unknown(share, Late(Some(answer))))
            }
        }
    }

    /// Replicas that take from the same account at this moment. Without one each is alone.
    pub fn sharers(&self, ingress: &Ingress) -> usize {
        let others = || ingress.fleet.with(|fleet, _| fleet.elsewhere.replicas());
        1 + if self.link.load().is_some() { others() } else { 0 }
    }

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

impl Late {
    /// Whoever would be refused by what is known here waits a little longer for what the account says: a refusal
    /// that is wrong costs more.
    pub async fn granted(self, refused: Refused) -> Result<(), Refused> {
        let Some(answer) = self.0 else { return Err(refused) };
        match timeout(WAIT_OVER_SHARE_MAX, answer).await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(refused))) => Err(refused),
            _ => Err(refused),
        }
    }
}

/// One call to the account, which goes on when nobody waits for it any more.
struct Call {
    cluster: Arc<Cluster>,
    ingress: Arc<Ingress>,
    tenant: Arc<Tenant>,
    booked: Arc<AtomicU64>,
    tokens: u64,
    stamp: Stamp,
    since: Moment,
}

impl Call {
    /// Sends why the request is refused, or that it is not; nothing if nobody knows.
    async fn run(self, link: Arc<Link>, waiting: oneshot::Sender<Option<Refused>>) {
        let limits = *self.tenant.limits();
        let most = |limit: Option<u32>| limit.map_or("-1".to_owned(), |limit| limit.to_string());
        let args = [
            format!("{:016x}", self.cluster.id),
            self.stamp.number.to_string(),
            self.stamp.running.to_string(),
            RUNNING_LIFE_S.to_string(),
            most(limits.requests_a_minute),
            most(limits.tokens_a_minute),
            most(limits.concurrent),
            self.tokens.to_string(),
        ];
        let answer: redis::RedisResult<Answer> = link.run(&TAKE, &keys(&link, self.tenant.id), &args).await;
        self.cluster.account.calls.fetch_sub(1, Ordering::Relaxed);
        let counts = &self.ingress.metrics.cluster;
        let (over, wait_s, second, requests, tokens, running, born) = match answer {
            Ok(answer) => answer,
            Err(why) => {
                counts.count(Operation::Take, Counted::Error);
                if matches!(Fault::of(&why), Fault::WrongType(_)) {
                    self.cluster.repair(&link, self.tenant.id).await;
                }
                return;
            }
        };
        counts.count(Operation::Take, Counted::Ok);
        let tokens_booked = limits.tokens_a_minute.map_or(self.tokens, |limit| self.tokens.min(limit.into()));
        let booked = Booked { requests_add: 1, tokens_add: tokens_booked, ..Booked::default() };
        let (booked, now) = (if over == 0 { booked } else { Booked::default() }, self.ingress.fleet.now());
        let gone = self.tenant.learn_booked(born, booked, self.since, now);
        self.cluster.put_back(self.tenant.id, gone, self.stamp, &self.ingress);
        self.tenant.learn_used(requests, tokens, running, now);
        let over = match over {
            1 => Some(Over::Requests),
            2 => Some(Over::Tokens),
            3 => Some(Over::Concurrent),
            _ => None,
        };
        if let Some(over) = over {
            let free_in = Some(Duration::from_secs(wait_s)).filter(|_| over != Over::Concurrent);
            let _ = waiting.send(Some(Refused { over, free_in }));
            return;
        }
        let free = self.booked.compare_exchange(0, second, Ordering::AcqRel, Ordering::Acquire);
        if free == Err(SETTLED) {
            // It has ended and was told as one that is booked nowhere.
            let (stamp, since) = (self.stamp, self.since);
            let twice =
                Charge { requests_back: 1, tokens_back: tokens_booked, ..Charge::of(self.tenant.id, stamp, since) };
            self.cluster.account.add(Charge { booked: second, ..twice }, &self.ingress);
        }
        let _ = waiting.send(None);
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
                    let settled = link.run::<u64>(&SETTLE, &keys(&link, charge.tenant), &args).await;
                    (charge, settled)
                });
            }
            let mut broken = None;
            while let Some(Ok((charge, settled))) = calls.join_next().await {
                let counted = if settled.is_ok() { Counted::Ok } else { Counted::Error };
                ingress.metrics.cluster.count(Operation::Settle, counted);
                match settled {
                    Ok(born) => self.settled(&charge, born, ingress),
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

    fn settled(&self, charge: &Charge, born: u64, ingress: &Ingress) {
        let tenants = ingress.tenants();
        let Some(tenant) = tenants.iter().find(|tenant| tenant.id == charge.tenant) else { return };
        let Charge { requests_add, requests_back, tokens_add, tokens_back, .. } = *charge;
        let booked = Booked { requests_add, requests_back, tokens_add, tokens_back };
        // Of requests that only say that they run nobody knows when they came.
        let since = if booked == Booked::default() { Moment::default() } else { charge.since };
        let gone = tenant.learn_booked(born, booked, since, ingress.fleet.now());
        ingress.cluster.put_back(charge.tenant, gone, charge.stamp, ingress);
    }

    /// Keeps what was refused, and looks at it again after a pause.
    async fn keep(
        &self,
        charge: Charge,
        calls: &mut JoinSet<(Charge, redis::RedisResult<u64>)>,
        ingress: &Ingress,
    ) -> Result<(), Fault> {
        self.add(charge, ingress);
        while let Some(Ok((charge, settled))) = calls.join_next().await {
            match settled {
                Ok(born) => self.settled(&charge, born, ingress),
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
