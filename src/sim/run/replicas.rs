//! Several of the product's cores in the router's place, which tell each other what they do, some time later.
//!
//! Each request comes to any of them by chance. What one tells reaches the others when it is `staleness` old, as it
//! would over Redis; what a replica does not know of a conversation it looks up, as old as that. Without a staleness
//! they hear nothing, and agree by the hash of names alone.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::nodes::{NodeParams, Nodes};
use super::product::{Product, Setting};
use super::{Number, Order, Router};
use crate::routing::chain::mix;
use crate::routing::elsewhere::{NodeLoad, Turn};
use crate::routing::moment::Moment;
use crate::sim::engine::Usage;
use crate::sim::workload::Request;

/// How they hear of each other.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub replicas: usize,
    /// `None`: not at all.
    pub staleness: Option<Duration>,
}

/// What was told and asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub messages: u64,
    pub turns: u64,
    pub loads: u64,
    pub lookups: u64,
    pub found: u64,
}

pub struct Replicas {
    all: Vec<Product>,
    terms: Terms,
    /// So often each tells what is new, as the product does it.
    every: Duration,
    next_tell: Moment,
    under_way: VecDeque<Message>,
    stored: HashMap<u64, (Moment, Turn)>,
    told_loads: Vec<Vec<NodeLoad>>,
    served_by: HashMap<Number, usize>,
    seed: u64,
    pub counts: Counts,
}

struct Message {
    due: Moment,
    from: usize,
    /// `None`: they are as they were.
    loads: Option<Vec<NodeLoad>>,
    turns: Vec<(Moment, Turn)>,
}

/// As `edge::cluster` has them.
const TELL_EVERY: Duration = Duration::from_millis(20);
const REPLICAS_AT_FULL_PACE: usize = 6;
const LIFE: Duration = Duration::from_millis(1500);
/// Turns of one message at most.
const TURNS_MAX: usize = 2048;

impl Replicas {
    pub fn new(setting: &Setting, nodes: &[NodeParams], terms: Terms, seed: u64) -> Replicas {
        let mut all: Vec<Product> = (0..terms.replicas.max(1)).map(|_| Product::new(setting, nodes, seed)).collect();
        let tells = terms.staleness.is_some() && all.len() > 1;
        all.iter_mut().for_each(|replica| replica.fleet().elsewhere.tells = tells);
        let pace = all.len().div_ceil(REPLICAS_AT_FULL_PACE) as u32;
        Replicas {
            told_loads: vec![Vec::new(); all.len()],
            all,
            terms,
            every: TELL_EVERY * pace,
            next_tell: if tells { Moment::default() } else { Moment::MAX },
            under_way: VecDeque::new(),
            stored: HashMap::new(),
            served_by: HashMap::new(),
            seed,
            counts: Counts::default(),
        }
    }

    fn tell(&mut self, staleness: Duration, now: Moment) {
        for (from, replica) in self.all.iter_mut().enumerate() {
            let fleet = replica.fleet();
            let (turns, _) = fleet.elsewhere.take_told(TURNS_MAX);
            let loads = Some(fleet.loads(now)).filter(|loads| *loads != self.told_loads[from]);
            if turns.is_empty() && loads.is_none() {
                continue;
            }
            self.counts.messages += 1;
            self.counts.turns += turns.len() as u64;
            if let Some(loads) = &loads {
                self.counts.loads += loads.iter().map(|load| load.models.len() as u64).sum::<u64>();
                self.told_loads[from].clone_from(loads);
            }
            self.under_way.push_back(Message { due: now + staleness, from, loads, turns });
        }
        self.next_tell = now + self.every;
    }

    fn hear(&mut self, staleness: Duration, now: Moment, orders: &mut Vec<Order>) {
        let left = LIFE.saturating_sub(staleness);
        while let Some(message) = self.under_way.pop_front_if(|message| message.due <= now) {
            let others = self.all.iter_mut().enumerate().filter(|(n, _)| *n != message.from);
            for (_, replica) in others {
                let fleet = replica.fleet();
                match &message.loads {
                    Some(loads) if !left.is_zero() => drop(fleet.learn_loads(message.from as u64, loads, left, now)),
                    _ => fleet.hear_of(message.from as u64, left, now),
                }
                for (at, turn) in &message.turns {
                    fleet.learn_turn(turn, *at, now);
                }
                fleet.forget_silent(now);
                if message.loads.is_some() {
                    replica.sweep(now, orders);
                }
            }
            for (at, turn) in message.turns {
                self.stored.insert(turn.pin.key, (at, turn));
            }
        }
    }

    /// What the replica does not know of the conversation, it looks up.
    fn look_up(&mut self, replica: usize, request: &Request, now: Moment) {
        let ask = request.ask(self.all[replica].salt());
        let fleet = self.all[replica].fleet();
        let Some(wanted) = fleet.asks_elsewhere(&ask, Moment::default(), now) else { return };
        self.counts.lookups += 1;
        let found: Vec<_> = wanted.keys.iter().filter_map(|key| self.stored.get(key)).collect();
        self.counts.found += u64::from(!found.is_empty());
        for (at, turn) in found.into_iter().rev() {
            fleet.learn_turn(turn, *at, now);
        }
    }
}

impl Router for Replicas {
    fn arrives(&mut self, number: Number, request: &Arc<Request>, now: Moment, orders: &mut Vec<Order>) {
        let replica = (mix(self.seed, number as u64) % self.all.len() as u64) as usize;
        self.served_by.insert(number, replica);
        if self.next_tell < Moment::MAX {
            self.look_up(replica, request, now);
        }
        self.all[replica].arrives(number, request, now, orders);
    }

    fn first_token(&mut self, number: Number, now: Moment) {
        if let Some(replica) = self.served_by.get(&number) {
            self.all[*replica].first_token(number, now);
        }
    }

    fn ends(&mut self, number: Number, usage: Usage, now: Moment, orders: &mut Vec<Order>) {
        if let Some(replica) = self.served_by.remove(&number) {
            self.all[replica].ends(number, usage, now, orders);
        }
    }

    fn next_look(&self) -> Option<Moment> {
        let own = self.all.iter().filter_map(Router::next_look);
        let heard = self.under_way.front().map(|message| message.due);
        own.chain(heard).chain(Some(self.next_tell)).min()
    }

    fn look(&mut self, nodes: &Nodes, now: Moment, orders: &mut Vec<Order>) {
        for replica in &mut self.all {
            if replica.next_look().is_some_and(|at| at <= now) {
                replica.look(nodes, now, orders);
            }
        }
        let Some(staleness) = self.terms.staleness else { return };
        if self.next_tell <= now {
            self.tell(staleness, now);
        }
        self.hear(staleness, now, orders);
    }
}
