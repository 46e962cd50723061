//! One running attempt's booking on an upstream.
//!
//! Dropping the lease is the only way a booking ends, so it ends exactly once, whatever the client, the
//! upstream or the code around does (law L2).

use std::sync::Arc;

use super::shared_fleet::SharedFleet;
use crate::routing::ask::Ask;
use crate::routing::fleet::{Learnt, LeaseId, Outcome, UpstreamId};

pub struct Lease {
    pub upstream: UpstreamId,
    pub id: LeaseId,
    fleet: Arc<SharedFleet>,
    /// What the end will be; until told otherwise it says nothing about the upstream.
    outcome: Outcome,
}

impl Lease {
    pub fn new(upstream: UpstreamId, id: LeaseId, fleet: Arc<SharedFleet>) -> Lease {
        Lease { upstream, id, fleet, outcome: Outcome::Void }
    }

    /// The first byte of a successful answer came.
    pub fn first_byte(&self, ask: &Ask) -> Learnt {
        let (learnt, tells) = self.fleet.with(|fleet, now| {
            let learnt = fleet.first_byte(self.id, ask, now);
            (learnt, fleet.elsewhere.untold() > 0)
        });
        if tells {
            self.fleet.news.notify_one();
        }
        learnt
    }

    /// Ends the booking.
    pub fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.fleet.end(self.id, self.outcome);
    }
}
