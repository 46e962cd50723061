//! The product's own core in the router's place: it decides, books, queues and learns as `edge` lets it do.
//!
//! Nodes are up from the beginning and are polled at the telemetry interval. Whoever waits is looked at
//! whenever a booking ends and four times a second besides, and is sent away after the queue's patience.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::nodes::{NodeParams, Nodes};
use super::peer::IndexError;
use super::{Number, Order, Router};
use crate::routing::chain::mix;
use crate::routing::fleet::{Cached, Fleet, LeaseId, Outcome, Rules, UpstreamId};
use crate::routing::moment::Moment;
use crate::routing::queue::WaiterId;
use crate::routing::select::{Decision, Query, decide};
use crate::routing::upstream::Spec;
use crate::sim::engine::Usage;
use crate::sim::workload::Request;

/// How often those who wait look for themselves, as in `edge::waiting_room`.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// What the product is configured with.
#[derive(Clone, Debug)]
pub struct Setting {
    pub rules: Rules,
    pub telemetry_interval: Duration,
    pub queue_timeout: Duration,
    /// By how much nodes with a store of blocks misstate what it holds.
    pub index: IndexError,
}

pub struct Product {
    fleet: Fleet,
    setting: Setting,
    ids: Vec<UpstreamId>,
    running: HashMap<Number, Running>,
    waiting: HashMap<WaiterId, Number>,
    /// Stands for all that a restart would change: tenants' names, request ids.
    salt: u64,
    next_poll: Moment,
    next_sweep: Option<Moment>,
}

struct Running {
    lease: LeaseId,
    query: Arc<Query>,
}

impl Product {
    pub fn new(setting: &Setting, nodes: &[NodeParams], seed: u64) -> Product {
        let mut fleet = Fleet::new(setting.rules.clone());
        let ids = nodes.iter().filter_map(|node| fleet.join(spec(node))).collect();
        Product {
            fleet,
            setting: setting.clone(),
            ids,
            running: HashMap::new(),
            waiting: HashMap::new(),
            salt: mix(seed, 0x7361_6c74),
            next_poll: Moment::default(),
            next_sweep: None,
        }
    }

    fn book(&mut self, number: Number, query: &Arc<Query>, decision: &Decision, now: Moment) -> Option<Order> {
        let row = decision.rows.iter().find(|row| decision.admitted == Some(row.holding))?;
        self.fleet.share_out(decision, row.upstream, &query.ask, now);
        let lease = self.fleet.book(row, &query.ask, now);
        self.running.insert(number, Running { lease, query: query.clone() });
        let node = self.ids.iter().position(|id| *id == row.upstream)?;
        Some(Order::Send { number, node })
    }

    fn line_up(&mut self, number: Number, query: Arc<Query>, decision: &Decision, now: Moment) -> Option<Order> {
        let best = decision.rows.first().map(|row| row.holding);
        let Ok(id) = self.fleet.wait(query, best, now) else { return Some(Order::Refuse(number)) };
        self.waiting.insert(id, number);
        self.next_sweep.get_or_insert(now + LOOK_AGAIN);
        None
    }

    /// For replicas, which tell each other.
    pub fn fleet(&mut self) -> &mut Fleet {
        &mut self.fleet
    }

    pub fn salt(&self) -> u64 {
        self.salt
    }

    pub(super) fn sweep(&mut self, now: Moment, orders: &mut Vec<Order>) {
        self.send_away_the_impatient(now, orders);
        self.next_sweep = None;
        if self.waiting.is_empty() {
            return;
        }
        let mut sweep = self.fleet.sweep_queue();
        while let Some((id, query)) = sweep.next(&mut self.fleet) {
            let Some(number) = self.waiting.get(&id).copied() else { continue };
            let decision = decide(&self.fleet, &query, now);
            if decision.admitted.is_some() {
                orders.extend(self.book(number, &query, &decision, now));
                self.fleet.bound(id);
                self.waiting.remove(&id);
            } else if !decision.rows.is_empty() || decision.is_worth_waiting(Moment::MAX) {
                self.fleet.place(id, decision.rows.first().map(|row| row.holding));
            } else {
                self.fleet.stop_waiting(id);
                self.waiting.remove(&id);
                orders.push(Order::Refuse(number));
            }
        }
        self.next_sweep = (!self.waiting.is_empty()).then(|| now + LOOK_AGAIN);
    }

    fn send_away_the_impatient(&mut self, now: Moment, orders: &mut Vec<Order>) {
        let patience = self.setting.queue_timeout;
        let late = self.fleet.queue.waiters().take_while(|(_, waiter)| now.since(waiter.since) >= patience);
        let late: Vec<WaiterId> = late.map(|(id, _)| id).collect();
        for id in late {
            self.fleet.stop_waiting(id);
            orders.extend(self.waiting.remove(&id).map(Order::Refuse));
        }
    }

    fn poll(&mut self, nodes: &Nodes, now: Moment) {
        for (node, id) in self.ids.iter().enumerate() {
            let asked = self.fleet.asked(*id, now);
            let mut report = nodes.report(node);
            report.cache_tokens = report.cache_tokens.map(|tokens| self.setting.index.told(tokens));
            self.fleet.learn_report(*id, &report, asked, now);
            self.fleet.learn_health(*id, true, now);
        }
        self.next_poll = now + self.setting.telemetry_interval;
    }
}

impl Router for Product {
    fn arrives(&mut self, number: Number, request: &Arc<Request>, now: Moment, orders: &mut Vec<Order>) {
        let ask = request.ask(self.salt);
        let query = Arc::new(Query { ask, tried: Vec::new(), request: mix(self.salt, number as u64) });
        let decision = decide(&self.fleet, &query, now);
        let order = if decision.admitted.is_some() {
            self.book(number, &query, &decision, now)
        } else if !decision.rows.is_empty() || decision.is_worth_waiting(now + self.setting.queue_timeout) {
            self.line_up(number, query, &decision, now)
        } else {
            Some(Order::Refuse(number))
        };
        orders.extend(order);
    }

    fn first_token(&mut self, number: Number, now: Moment) {
        if let Some(running) = self.running.get(&number) {
            self.fleet.first_byte(running.lease, &running.query.ask, now);
        }
    }

    fn ends(&mut self, number: Number, usage: Usage, now: Moment, orders: &mut Vec<Order>) {
        if let Some(running) = self.running.remove(&number) {
            let cached = Cached { prompt_tokens: usage.prompt_tokens, cached_tokens: usage.cached_tokens };
            let outcome = Outcome::Done { output_tokens: Some(usage.output_tokens), cached: Some(cached) };
            self.fleet.end(running.lease, outcome, now);
            self.sweep(now, orders);
        }
    }

    fn next_look(&self) -> Option<Moment> {
        Some(self.next_sweep.map_or(self.next_poll, |sweep| sweep.min(self.next_poll)))
    }

    fn look(&mut self, nodes: &Nodes, now: Moment, orders: &mut Vec<Order>) {
        if self.next_poll <= now {
            self.poll(nodes, now);
        }
        if self.next_sweep.is_some_and(|at| at <= now) {
            self.sweep(now, orders);
        }
    }
}

fn spec(node: &NodeParams) -> Spec {
    Spec {
        engine: Some(node.kind.traits()),
        slots: node.told_slots,
        memory_bytes: Some(node.engine.memory_bytes),
        bandwidth_bytes_s: node.told_bandwidth,
        ..Spec::named(node.name.clone())
    }
}
