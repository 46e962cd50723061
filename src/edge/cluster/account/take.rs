//! Taking a request from its tenant's account, or letting it go by this replica's share of what was left.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::Script;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Charge, SETTLED, Share, keys};
use crate::edge::cluster::Cluster;
use crate::edge::cluster::counts::{Operation, Result as Counted};
use crate::edge::cluster::fault::Fault;
use crate::edge::cluster::link::Link;
use crate::edge::cluster::pace::WAIT_MAX;
use crate::edge::ingress::Ingress;
use crate::edge::tenants::Tenant;
use crate::routing::limits::{Booked, Booking, Limits, Over, Refused, Sharing, Stamp, Standing};
use crate::routing::moment::Moment;

/// What came of taking from the account.
pub enum Taken {
    Granted(Share),
    /// With its part, should the call come to be booked after all.
    Refused(Refused, Share),
}

/// A request that is admitted here, as its tenant's account is asked for it.
pub struct Wanted<'a> {
    pub tenant: &'a Arc<Tenant>,
    pub booking: &'a Booking,
    pub tokens: u64,
    pub stamp: Stamp,
    pub since: Moment,
}

/// What the account has to say; `None` in it: the request may go.
type Answering = oneshot::Receiver<Option<Refused>>;

/// Calls under way at once; while Redis hangs, more are not even begun.
const CALLS_MAX: usize = 4096;

/// The longest that a request waits which would be refused otherwise.
const WAIT_BEYOND_SHARE_MAX: Duration = Duration::from_millis(50);

/// So long counts what a replica said that it has running, seconds.
const RUNNING_LIFE_S: u64 = 2;

static TAKE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("../window.lua"), include_str!("../take.lua"))));

/// What the account says: the limit that is reached or zero, seconds to wait, the second that was booked in,
/// requests and tokens of all replicas, what others have running, and when the account began.
type Answer = (u8, u64, u64, u64, u64, u32, u64);

impl Cluster {
    /// Takes a request from its tenant's account. `None`: no account is kept.
    pub async fn take(self: &Arc<Self>, ingress: &Arc<Ingress>, wanted: Wanted<'_>) -> Option<Taken> {
        ingress.plan().cluster.as_ref()?;
        if *wanted.tenant.limits() == Limits::default() {
            return None;
        }
        let share =
            Share { cluster: self.clone(), tenant: wanted.tenant.id, booked: Arc::default(), since: wanted.since };
        let taking = Taking { cluster: self, ingress, wanted, share };
        let free = self.account.calls.load(Ordering::Relaxed) < CALLS_MAX;
        let refused = match self.link.load_full().filter(|_| free) {
            None => {
                ingress.metrics.cluster.count(Operation::Take, Counted::Slow);
                taking.stands().refused()
            }
            Some(link) if self.pace.is_quick() => taking.quickly(link).await,
            Some(link) => {
                ingress.metrics.cluster.count(Operation::Take, Counted::Slow);
                taking.slowly(link).await
            }
        };
        Some(match refused {
            None => Taken::Granted(taking.share),
            Some(refused) => Taken::Refused(refused, taking.share),
        })
    }

    /// Replicas that take from the same account; while Redis is gone those that did when it was there.
    fn sharing(&self, ingress: &Ingress) -> Sharing {
        let (others, place) =
            ingress.fleet.with(|fleet, _| (fleet.elsewhere.replicas(), fleet.elsewhere.replicas_below(self.id)));
        let others = others.max(self.sharers.lock().count());
        Sharing { replicas: 1 + others, place, is_apart: self.link.load().is_none() }
    }
}

/// A request on its way to be taken, and why it may not go, if so.
struct Taking<'a> {
    cluster: &'a Arc<Cluster>,
    ingress: &'a Arc<Ingress>,
    wanted: Wanted<'a>,
    share: Share,
}

impl Taking<'_> {
    async fn quickly(&self, link: Arc<Link>) -> Option<Refused> {
        let mut answer = self.call(link, Force::IfItHasGone);
        match timeout(WAIT_MAX, &mut answer).await {
            Ok(Ok(said)) => return said,
            Ok(Err(_)) => {}
            Err(_) => {
                self.cluster.pace.slow();
                self.ingress.metrics.cluster.count(Operation::Take, Counted::Slow);
            }
        }
        match self.stands() {
            Standing::Fits => {
                // What comes after this is told that the request has gone.
                answer.close();
                answer.try_recv().ok().flatten()
            }
            Standing::Beyond(refused) => said_late(answer, refused).await,
            Standing::Over(refused) => Some(refused),
        }
    }

    async fn slowly(&self, link: Arc<Link>) -> Option<Refused> {
        match self.stands() {
            Standing::Fits => {
                drop(self.call(link, Force::Always));
                None
            }
            Standing::Beyond(refused) => said_late(self.call(link, Force::IfItHasGone), refused).await,
            Standing::Over(refused) => {
                // What others used that was too much for them may have come back.
                if let Some(stamp) = self.wanted.tenant.stamp_refused(self.ingress.fleet.now()) {
                    let asking = Charge::of(self.wanted.tenant.id, stamp, Moment::MAX);
                    self.cluster.account.add(asking, self.ingress);
                }
                Some(refused)
            }
        }
    }

    /// Begins a call to the account.
    fn call(&self, link: Arc<Link>, force: Force) -> Answering {
        let (sender, answer) = oneshot::channel();
        self.cluster.account.calls.fetch_add(1, Ordering::Relaxed);
        let call = Call {
            cluster: self.cluster.clone(),
            ingress: self.ingress.clone(),
            tenant: self.wanted.tenant.clone(),
            booked: self.share.booked.clone(),
            tokens: self.wanted.tokens,
            stamp: self.wanted.stamp,
            since: self.wanted.since,
            force,
        };
        tokio::spawn(call.run(link, sender));
        answer
    }

    fn stands(&self) -> Standing {
        let sharing = self.cluster.sharing(self.ingress);
        self.wanted.tenant.stands(self.wanted.booking, sharing, self.ingress.fleet.now())
    }
}

/// Whoever is beyond this replica's share waits a little longer for what the account says: a refusal that is wrong
/// costs more.
async fn said_late(answer: Answering, refused: Refused) -> Option<Refused> {
    match timeout(WAIT_BEYOND_SHARE_MAX, answer).await {
        Ok(Ok(said)) => said,
        _ => Some(refused),
    }
}

/// Whether a request is booked that the account would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Force {
    Always,
    /// If nobody waits for the answer any more, since the request has gone by this replica's share.
    IfItHasGone,
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
    force: Force,
}

impl Call {
    /// Sends why the request is refused, or that it is not; nothing if nobody knows.
    async fn run(self, link: Arc<Link>, waiting: oneshot::Sender<Option<Refused>>) {
        let refused = self.said(&link, self.force == Force::Always).await;
        self.cluster.account.calls.fetch_sub(1, Ordering::Relaxed);
        let Some(refused) = refused else { return };
        let is_refused = refused.is_some();
        let has_gone = waiting.send(refused).is_err();
        // It has gone by this replica's share, and runs: so it is booked.
        if is_refused && has_gone && self.booked.load(Ordering::Acquire) == 0 {
            self.said(&link, true).await;
        }
    }

    /// What the account says, and what is learnt from it; `None`: it could not be asked.
    async fn said(&self, link: &Link, is_forced: bool) -> Option<Option<Refused>> {
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
            u8::from(is_forced).to_string(),
        ];
        let answer: redis::RedisResult<Answer> = link.run(&TAKE, &keys(link, self.tenant.id), &args).await;
        let counts = &self.ingress.metrics.cluster;
        let (over, wait_s, second, requests, tokens, running, born) = match answer {
            Ok(answer) => answer,
            Err(why) => {
                counts.count(Operation::Take, Counted::Error);
                if matches!(Fault::of(&why), Fault::WrongType(_)) {
                    self.cluster.repair(link, self.tenant.id).await;
                }
                return None;
            }
        };
        counts.count(Operation::Take, Counted::Ok);
        let tokens_booked = limits.tokens_a_minute.map_or(self.tokens, |limit| self.tokens.min(limit.into()));
        let booked = Booked { requests_add: 1, tokens_add: tokens_booked, ..Booked::default() };
        let (booked, now) = (if over == 0 { booked } else { Booked::default() }, self.ingress.fleet.now());
        let gone = self.tenant.learn_booked(born, booked, self.since, now);
        self.cluster.put_back(self.tenant.id, gone, self.stamp, &self.ingress);
        self.tenant.learn_used(requests, tokens, Some(running), now);
        let over = match over {
            1 => Some(Over::Requests),
            2 => Some(Over::Tokens),
            3 => Some(Over::Concurrent),
            _ => None,
        };
        if let Some(over) = over {
            let free_in = Some(Duration::from_secs(wait_s)).filter(|_| over != Over::Concurrent);
            return Some(Some(Refused { over, free_in }));
        }
        let free = self.booked.compare_exchange(0, second, Ordering::AcqRel, Ordering::Acquire);
        if free == Err(SETTLED) {
            // It has ended and was told as one that is booked nowhere.
            let (stamp, since) = (self.stamp, self.since);
            let twice =
                Charge { requests_back: 1, tokens_back: tokens_booked, ..Charge::of(self.tenant.id, stamp, since) };
            self.cluster.account.add(Charge { booked: second, ..twice }, &self.ingress);
        }
        Some(None)
    }
}
