//! Decide and book, in one critical section, through Pingora's load balancer.

use std::cell::RefCell;
use std::sync::Arc;

use pingora_load_balancing::{Backend, LoadBalancer};

use super::lease::Lease;
use super::selection::{FleetSelection, STEP, Seat};
use super::shared_fleet::SharedFleet;
use crate::routing::moment::Moment;
use crate::routing::select::{Decision, Query, Row, is_translated};
use crate::routing::warmth::{Warmth, warmth};

/// A chosen and booked upstream.
pub struct Picked {
    pub lease: Lease,
    pub row: Row,
    /// The model as that upstream spells it.
    pub model: String,
    /// The upstream takes the request only in another dialect than the client's.
    pub is_translated: bool,
    pub decision: Decision,
    /// What its conversation finds there.
    pub warmth: Warmth,
    pub at: Moment,
}

/// What a pick came to.
pub enum Placing {
    Booked(Box<Picked>),
    /// The request is to wait for the first of the decision's rows.
    Full(Decision),
    /// No upstream can serve it.
    Nobody(Decision),
}

/// Chooses and books an upstream for `query`.
pub fn pick(balancer: &LoadBalancer<FleetSelection>, fleet: &Arc<SharedFleet>, query: &Arc<Query>) -> Placing {
    fleet.booking(query, || {
        let booked = RefCell::new(None);
        // Pingora asks us for the backend to be booked, and whether we accept it.
        // What its health checks mean for a node the decision has weighed already.
        balancer.select_with(STEP, usize::MAX, |backend, _| {
            let lease = book(backend, fleet, query);
            *booked.borrow_mut() = lease;
            booked.borrow().is_some()
        });
        // A balancer that knows of no backend at all has asked nobody, and nobody has decided.
        let decided = || {
            fleet.decide_step();
            fleet.take_decision()
        };
        let decision = fleet.take_decision().or_else(decided).unwrap_or_default();
        match booked.into_inner() {
            Some(booked) => Placing::Booked(Box::new(Picked {
                lease: booked.lease,
                row: booked.row,
                model: booked.model,
                is_translated: booked.is_translated,
                decision,
                warmth: booked.warmth,
                at: booked.at,
            })),
            // A node that has just joined may be known to the fleet before it is to Pingora.
            None if !decision.rows.is_empty() => Placing::Full(decision),
            None => Placing::Nobody(decision),
        }
    })
}

struct Booked {
    lease: Lease,
    row: Row,
    model: String,
    is_translated: bool,
    warmth: Warmth,
    at: Moment,
}

fn book(backend: &Backend, fleet: &Arc<SharedFleet>, query: &Query) -> Option<Booked> {
    let upstream = Seat::of(backend)?.upstream;
    let booked = fleet.with_decision(|state, decision, now| {
        let admitted = |row: &&Row| row.upstream == upstream && decision.admitted == Some(row.holding);
        let row = decision.rows.iter().find(admitted)?.clone();
        let model = state.holding_name(row.holding).to_string();
        let is_translated = is_translated(state, row.holding, query.ask.endpoint);
        if query.tried.is_empty() {
            state.retries.request(now);
        }
        state.share_out(decision, upstream, &query.ask, now);
        let lease = Lease::new(upstream, state.book(&row, &query.ask, now), fleet.clone());
        let warmth = warmth(state, &query.ask, decision, &row, now);
        Some(Booked { lease, row, model, is_translated, warmth, at: now })
    });
    booked.flatten()
}
