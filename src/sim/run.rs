//! One run: a source, a fleet of simulated engines, and whoever decides; in virtual time.
//!
//! Everything that happens is an event at a moment: the engines' own first, then the router's own looks
//! (telemetry, waiting requests), then arrivals. The same plan and seed give the same run.

pub mod nodes;
pub mod peer;
pub mod product;
pub mod record;
pub mod replicas;

use std::collections::HashMap;
use std::sync::Arc;

use super::engine::{Usage, What};
use super::workload::{Request, Workload};
use crate::routing::moment::Moment;
use nodes::Nodes;
use record::Record;

/// A request by the order of its arrival.
pub type Number = usize;

/// What a router wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Send {
        number: Number,
        node: usize,
    },
    /// It is answered with an error.
    Refuse(Number),
}

/// Whoever decides where requests go.
pub trait Router {
    fn arrives(&mut self, number: Number, request: &Arc<Request>, now: Moment, orders: &mut Vec<Order>);
    fn first_token(&mut self, number: Number, now: Moment);
    fn ends(&mut self, number: Number, usage: Usage, now: Moment, orders: &mut Vec<Order>);
    /// When it wants to look at something by itself.
    fn next_look(&self) -> Option<Moment> {
        None
    }
    fn look(&mut self, _nodes: &Nodes, _now: Moment, _orders: &mut Vec<Order>) {}
}

/// Runs until nothing is left to happen.
pub fn run(workload: Workload, nodes: Nodes, router: &mut dyn Router) -> Record {
    let world = World { workload, nodes, router, record: Record::default(), live: HashMap::new(), arrived: 0 };
    world.run()
}

struct World<'a> {
    workload: Workload,
    nodes: Nodes,
    router: &'a mut dyn Router,
    record: Record,
    live: HashMap<Number, Arc<Request>>,
    arrived: usize,
}

impl World<'_> {
    fn run(mut self) -> Record {
        let mut orders = Vec::new();
        self.router.look(&self.nodes, Moment::default(), &mut orders);
        while let Some(now) = self.next_at() {
            if self.nodes.next_at() == Some(now) {
                self.engines_go_on(now, &mut orders);
            } else if self.router.next_look().is_some_and(|at| at <= now) {
                self.router.look(&self.nodes, now, &mut orders);
            } else {
                self.arrival(now, &mut orders);
            }
            self.carry_out(&mut orders, now);
        }
        self.record.finish(&self.nodes);
        self.record
    }

    /// The router's looks alone keep no run going.
    fn next_at(&self) -> Option<Moment> {
        let events = self.nodes.next_at().into_iter().chain(self.workload.next_at()).min();
        let busy = events.is_some() || !self.live.is_empty();
        let look = self.router.next_look().filter(|_| busy);
        events.into_iter().chain(look).min()
    }

    fn engines_go_on(&mut self, now: Moment, orders: &mut Vec<Order>) {
        for (number, event) in self.nodes.advance(now) {
            match event.what {
                What::FirstToken(usage) => {
                    self.record.first_token(number, usage, now);
                    self.router.first_token(number, now);
                }
                What::Done(usage) => {
                    self.record.done(number, usage, now);
                    self.router.ends(number, usage, now, orders);
                    self.over(number, now);
                }
                What::Started | What::Token { .. } => {}
            }
        }
    }

    fn arrival(&mut self, now: Moment, orders: &mut Vec<Order>) {
        let Some(request) = self.workload.take() else { return };
        let number = self.arrived;
        self.arrived += 1;
        self.record.arrives(&request, &self.nodes, now);
        self.live.insert(number, request.clone());
        self.router.arrives(number, &request, now, orders);
    }

    fn carry_out(&mut self, orders: &mut Vec<Order>, now: Moment) {
        for order in orders.drain(..) {
            match order {
                Order::Send { number, node } => {
                    let Some(request) = self.live.get(&number) else { continue };
                    self.record.sent(node, request, &self.nodes);
                    self.nodes.submit(node, number, request, now);
                }
                Order::Refuse(number) => self.over(number, now),
            }
        }
    }

    fn over(&mut self, number: Number, now: Moment) {
        if let Some(request) = self.live.remove(&number) {
            self.workload.over(&request, now);
        }
    }
}
