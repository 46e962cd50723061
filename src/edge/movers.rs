//! Requests that can be taken away from their node while they wait there, and the task that does it.
//!
//! When a node is taken out, those of its requests that have no answer yet are closed there and sent to
//! the next best. Which ones is for `Fleet::sweep` to say; here is how to reach them. An entry lives as
//! long as its lease, so there are never more of them than leases (L8).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::ingress::Ingress;
use super::replay::Mover;
use crate::routing::fleet::{Fleet, HoldingId, LeaseId};
use crate::routing::moment::Moment;
use crate::routing::select::{Elsewhere, Query, elsewhere};

/// A fraction of the second within which `/fleet/status` and a user notice a change.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

#[derive(Default)]
pub struct Movers(Mutex<HashMap<LeaseId, Waiting>>);

/// One running attempt.
struct Waiting {
    holding: HoldingId,
    /// What it asks for; `None`: it must stay, since it may not be asked twice or was asked too often.
    query: Option<Arc<Query>>,
    mover: Mover,
    heard: Heard,
}

/// When bytes of an attempt's answer came last; written for each piece, read by the sweep.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<AtomicU64>);

impl Heard {
    pub fn note(&self, now: Moment) {
        self.0.store(now.0, Ordering::Relaxed);
    }

    fn last(&self) -> Option<Moment> {
        Some(Moment(self.0.load(Ordering::Relaxed))).filter(|at| at.0 > 0)
    }
}

impl Movers {
    /// An attempt begins, or begins anew on a fresh connection.
    pub fn add(&self, lease: LeaseId, holding: HoldingId, query: Option<Arc<Query>>, mover: Mover) -> Heard {
        let heard = Heard::default();
        self.0.lock().insert(lease, Waiting { holding, query, mover, heard: heard.clone() });
        heard
    }

    pub fn remove(&self, lease: LeaseId) {
        self.0.lock().remove(&lease);
    }

    fn tell_what_was_heard(&self, fleet: &mut Fleet) {
        for (lease, waiting) in self.0.lock().iter() {
            if let Some(at) = waiting.heard.last() {
                fleet.heard(*lease, at);
            }
        }
    }

    /// Moves those of `leases` that can go to a node which can be relied on; the others are better off
    /// where they are.
    fn move_away(&self, leases: &[LeaseId], fleet: &Fleet, now: Moment) {
        let waiting = self.0.lock();
        for waiting in leases.iter().filter_map(|lease| waiting.get(lease)) {
            if let Some(query) = &waiting.query
                && elsewhere(fleet, query, waiting.holding, now) == Elsewhere::Somewhere
            {
                waiting.mover.move_away();
            }
        }
    }
}

/// Looks after stuck requests for as long as it is polled.
pub async fn sweep(ingress: Arc<Ingress>) {
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let movers = &ingress.fleet.movers;
        ingress.fleet.with(|fleet, now| {
            movers.tell_what_was_heard(fleet);
            let leaving = fleet.sweep(now);
            movers.move_away(&leaving, fleet, now);
        });
    }
}
