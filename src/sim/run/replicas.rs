//! Several of the product's cores in the router's place, which tell each other what they do, some time later.
//!
//! Each request comes to any of them by chance. Each tells at the product's own `Tempo`, no two at the same moment;
//! what one tells reaches the others after `delay`, as it would over Redis, and what a replica does not know of a
//! conversation it looks up, as old as that. Without a delay they hear nothing, and agree by the hash of names alone.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::nodes::{NodeParams, Nodes};
use super::product::{Product, Setting};
use super::{Number, Order, Router};
use crate::routing::chain::mix;
use crate::routing::elsewhere::tempo::{LIFE, Tempo};
use crate::routing::elsewhere::{Loads, Telling, Turn};
use crate::routing::moment::Moment;
use crate::sim::engine::Usage;
use crate::sim::workload::Request;
use crate::wire::replicas::{Speaker, Word};

/// How they hear of each other.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub replicas: usize,
    /// From telling to hearing; `None`: they never hear.
    pub delay: Option<Duration>,
}

/// What was told and asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub messages: u64,
    /// Of all messages, once each.
    pub bytes: u64,
    pub turns: u64,
    /// How old turns were when others heard of them, microseconds all together.
    pub turns_age_us: u64,
    pub turns_heard: u64,
    /// Nodes of which somebody told what it has there.
    pub loads: u64,
    pub lookups: u64,
    pub found: u64,
}

pub struct Replicas {
    all: Vec<Voice>,
    /// When each wants to look at something by itself.
    looks: Vec<Moment>,
    terms: Terms,
    tempo: Tempo,
    /// In order of when they are heard.
    under_way: VecDeque<Message>,
    stored: HashMap<u64, (Moment, Turn)>,
    served_by: HashMap<Number, usize>,
    /// When who fell silent is looked for next.
    next_forget: Moment,
    seed: u64,
    pub counts: Counts,
}

/// A replica, and what it has told.
struct Voice {
    product: Product,
    next_tell: Moment,
    telling: Telling,
}

struct Message {
    due: Moment,
    from: usize,
    /// `None`: they are as they were.
    loads: Option<Loads>,
    turns: Vec<(Moment, Turn)>,
}

/// Turns of one message at most, as `edge::cluster` has it.
const TURNS_MAX: usize = 2048;

/// As often as `edge::cluster` looks for who fell silent.
const FORGET_EVERY: Duration = Duration::from_millis(100);

/// Of the speaker's name and ids, which are none here.
const HEAD_BYTES: u64 = 36;

impl Replicas {
    pub fn new(setting: &Setting, nodes: &[NodeParams], terms: Terms, seed: u64) -> Replicas {
        let count = terms.replicas.max(1);
        let (tells, tempo) = (terms.delay.is_some() && count > 1, Tempo::of(count));
        let voice = |n: usize| {
            let mut product = Product::new(setting, nodes, seed);
            product.fleet().elsewhere.tells = tells;
            let first = Moment::default() + tempo.turns_within * n as u32 / count as u32;
            let next_tell = if tells { first } else { Moment::MAX };
            Voice { product, next_tell, telling: Telling::default() }
        };
        let mut replicas = Replicas {
            all: (0..count).map(voice).collect(),
            looks: vec![Moment::default(); count],
            terms,
            tempo,
            under_way: VecDeque::new(),
            stored: HashMap::new(),
            served_by: HashMap::new(),
            next_forget: Moment::default(),
            seed,
            counts: Counts::default(),
        };
        (0..count).for_each(|replica| replicas.note_look(replica));
        replicas
    }

    fn note_look(&mut self, replica: usize) {
        let voice = &self.all[replica];
        self.looks[replica] = voice.product.next_look().map_or(voice.next_tell, |at| at.min(voice.next_tell));
    }

    fn tell(&mut self, from: usize, delay: Duration, now: Moment) {
        let (voice, tempo) = (&mut self.all[from], self.tempo);
        voice.next_tell = now + tempo.turns_within;
        let fleet = voice.product.fleet();
        let (turns, _) = fleet.elsewhere.take_told(TURNS_MAX);
        let loads = voice.telling.is_due(&tempo, now).then(|| fleet.loads(now));
        let loads = loads.and_then(|loads| voice.telling.next(loads, &tempo, now));
        if turns.is_empty() && loads.is_none() {
            return;
        }
        self.counts.loads += loads.as_ref().map_or(0, |loads| loads.nodes.len() as u64);
        self.counts.messages += 1;
        self.counts.turns += turns.len() as u64;
        // As it would be by the wall clock of these days.
        let word = Word::new(Speaker::default(), loads, &turns, now, 1_700_000_000_000);
        self.counts.bytes += HEAD_BYTES + word.to_bytes().len() as u64;
        self.under_way.push_back(Message { due: now + delay, from, loads: word.loads, turns });
    }

    fn hear(&mut self, delay: Duration, now: Moment, orders: &mut Vec<Order>) {
        let left = LIFE.saturating_sub(delay);
        let is_due = |message: &Message| message.due <= now;
        let forgets = now >= self.next_forget && self.under_way.front().is_some_and(is_due);
        if forgets {
            self.next_forget = now + FORGET_EVERY;
        }
        while let Some(message) = self.under_way.pop_front_if(|message| message.due <= now) {
            let age_us: u64 = message.turns.iter().map(|(at, _)| now.since(*at).as_micros() as u64).sum();
            self.counts.turns_age_us += age_us;
            self.counts.turns_heard += message.turns.len() as u64;
            for replica in (0..self.all.len()).filter(|replica| *replica != message.from) {
                let product = &mut self.all[replica].product;
                let fleet = product.fleet();
                let has_less = match &message.loads {
                    Some(loads) if !left.is_zero() => fleet.learn_loads(message.from as u64, loads, left, now).has_less,
                    _ => {
                        fleet.hear_of(message.from as u64, left, now);
                        false
                    }
                };
                for (at, turn) in &message.turns {
                    fleet.learn_turn(turn, *at, now);
                }
                let looks = forgets && fleet.forget_silent(now);
                if looks || has_less {
                    product.sweep(now, orders);
                    self.note_look(replica);
                }
            }
            for (at, turn) in message.turns {
                self.stored.insert(turn.pin.key, (at, turn));
            }
        }
    }

    /// What the replica does not know of the conversation, it looks up.
    fn look_up(&mut self, replica: usize, request: &Request, now: Moment) {
        let product = &mut self.all[replica].product;
        let ask = request.ask(product.salt());
        let Some(wanted) = product.fleet().asks_elsewhere(&ask, Moment::default(), now) else { return };
        self.counts.lookups += 1;
        let found: Vec<_> = wanted.keys.iter().filter_map(|key| self.stored.get(key)).collect();
        self.counts.found += u64::from(!found.is_empty());
        for (at, turn) in found.into_iter().rev() {
            product.fleet().learn_turn(turn, *at, now);
        }
    }
}

impl Router for Replicas {
    fn arrives(&mut self, number: Number, request: &Arc<Request>, now: Moment, orders: &mut Vec<Order>) {
        let replica = (mix(self.seed, number as u64) % self.all.len() as u64) as usize;
        self.served_by.insert(number, replica);
        if self.terms.delay.is_some() && self.all.len() > 1 {
            self.look_up(replica, request, now);
        }
        self.all[replica].product.arrives(number, request, now, orders);
        self.note_look(replica);
    }

    fn first_token(&mut self, number: Number, now: Moment) {
        if let Some(replica) = self.served_by.get(&number) {
            self.all[*replica].product.first_token(number, now);
        }
    }

    fn ends(&mut self, number: Number, usage: Usage, now: Moment, orders: &mut Vec<Order>) {
        if let Some(replica) = self.served_by.remove(&number) {
            self.all[replica].product.ends(number, usage, now, orders);
            self.note_look(replica);
        }
    }

    fn next_look(&self) -> Option<Moment> {
        let heard = self.under_way.front().map(|message| message.due);
        self.looks.iter().copied().chain(heard).min()
    }

    fn look(&mut self, nodes: &Nodes, now: Moment, orders: &mut Vec<Order>) {
        for replica in 0..self.all.len() {
            if self.looks[replica] > now {
                continue;
            }
            let voice = &mut self.all[replica];
            if voice.product.next_look().is_some_and(|at| at <= now) {
                voice.product.look(nodes, now, orders);
            }
            if let Some(delay) = self.terms.delay.filter(|_| self.all[replica].next_tell <= now) {
                self.tell(replica, delay, now);
            }
            self.note_look(replica);
        }
        if let Some(delay) = self.terms.delay {
            self.hear(delay, now, orders);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sim::plan;
    use crate::sim::run::{record::Summary, run};
    use crate::sim::workload::Source;

    fn summary(replicas: usize, delay_ms: Option<u64>) -> (Summary, Counts) {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/perf/plans/toy.yaml"));
        let mut plan = plan::load(path, None).unwrap_or_else(|problems| panic!("{problems}"));
        let node = plan.nodes[0].clone();
        plan.nodes = Arc::new((0..6).map(|n| NodeParams { name: format!("n{n}"), ..node.clone() }).collect());
        if let Source::Conversations(script) = &mut plan.source {
            Arc::make_mut(script).conversations = 60;
        }
        let terms = Terms { replicas, delay: delay_ms.map(Duration::from_millis) };
        let mut replicas = Replicas::new(&plan.setting, &plan.nodes, terms, 1);
        let record = run(plan.source.open(1, plan.rates[0]), Nodes::new(&plan.nodes), &mut replicas);
        (record.summary(), replicas.counts)
    }

    #[test]
    fn who_hears_late_finds_less_and_who_is_alone_tells_nothing() {
        let ((alone, nothing), (prompt, told), (never, _)) = (summary(1, None), summary(4, Some(2)), summary(4, None));
        assert_eq!((nothing.messages, nothing.turns, nothing.lookups), (0, 0, 0));
        assert_eq!(told.turns as usize, alone.requests, "each turn is told once");
        assert_eq!(told.turns_heard, told.turns);
        let age = Duration::from_micros(told.turns_age_us / told.turns_heard);
        assert!((Duration::from_millis(2)..Duration::from_millis(5)).contains(&age), "{age:?}");
        assert!(told.bytes > told.turns * 50, "{told:?}");
        assert!(prompt.cached_share > never.cached_share, "{} {}", prompt.cached_share, never.cached_share);
        assert_eq!(summary(4, Some(2)).0, prompt, "the same again");
    }
}
