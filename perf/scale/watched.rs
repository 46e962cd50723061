//! The replicas, how long their decisions take, and whether a turn goes where the last one went.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use warmgate::routing::moment::Moment;
use warmgate::sim::engine::Usage;
use warmgate::sim::run::nodes::Nodes;
use warmgate::sim::run::replicas::Replicas;
use warmgate::sim::run::{Number, Order, Router};
use warmgate::sim::workload::Request;

pub struct Watched {
    pub replicas: Replicas,
    /// Microseconds.
    pub decided_us: Vec<f64>,
    pub warm: u64,
    pub moved: u64,
    conversation_of: HashMap<Number, u64>,
    last_node: HashMap<u64, usize>,
}

impl Watched {
    pub fn new(replicas: Replicas) -> Watched {
        let (conversation_of, last_node) = Default::default();
        Watched { replicas, decided_us: Vec::new(), warm: 0, moved: 0, conversation_of, last_node }
    }

    /// Of turns that go on from others.
    pub fn warm_share(&self) -> f64 {
        self.warm as f64 / (self.warm + self.moved).max(1) as f64
    }

    fn note(&mut self, orders: &[Order]) {
        for order in orders {
            let Order::Send { number, node } = order else { continue };
            let Some(conversation) = self.conversation_of.remove(number) else { continue };
            match self.last_node.insert(conversation, *node) {
                Some(last) if last == *node => self.warm += 1,
                Some(_) => self.moved += 1,
                None => {}
            }
        }
    }
}

impl Router for Watched {
    fn arrives(&mut self, number: Number, request: &Arc<Request>, now: Moment, orders: &mut Vec<Order>) {
        self.conversation_of.insert(number, request.conversation);
        let (before, began) = (orders.len(), Instant::now());
        self.replicas.arrives(number, request, now, orders);
        self.decided_us.push(began.elapsed().as_secs_f64() * 1e6);
        self.note(&orders[before..]);
    }

    fn first_token(&mut self, number: Number, now: Moment) {
        self.replicas.first_token(number, now);
    }

    fn ends(&mut self, number: Number, usage: Usage, now: Moment, orders: &mut Vec<Order>) {
        let before = orders.len();
        self.replicas.ends(number, usage, now, orders);
        self.note(&orders[before..]);
    }

    fn next_look(&self) -> Option<Moment> {
        self.replicas.next_look()
    }

    fn look(&mut self, nodes: &Nodes, now: Moment, orders: &mut Vec<Order>) {
        let before = orders.len();
        self.replicas.look(nodes, now, orders);
        self.note(&orders[before..]);
    }
}
