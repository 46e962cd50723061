//! llm-d's former default: a weighted sum of the prefix, the queue, the cache's room, and who was longest
//! without a prompt that nobody knew.

use super::{Peer, Rule, Seen, cheapest};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::run::nodes::NodeParams;
use crate::sim::workload::Request;

pub const PEER: Peer = Peer {
    name: "llmd_blend",
    about: "llm-d's weighted scorers (prefix 3, queue 2, cache 2, no-hit-LRU 2)",
    make: |nodes, _| Box::new(Blend::new(nodes)),
};

const PREFIX: f64 = 3.0;
const QUEUE: f64 = 2.0;
const CACHE: f64 = 2.0;
const NO_HIT: f64 = 2.0;

struct Blend {
    /// When each node last had a prompt that nobody knew.
    cold_at: Vec<u64>,
    cold: u64,
}

impl Blend {
    fn new(nodes: &[NodeParams]) -> Blend {
        Blend { cold_at: vec![0; nodes.len()], cold: 0 }
    }

    /// 1 for the longest without, 0 for the latest.
    fn rest(&self, seen: &[Seen], place: usize) -> f64 {
        let key = |place: usize| (self.cold_at[seen[place].node], place);
        let before = (0..seen.len()).filter(|other| key(*other) < key(place)).count();
        1.0 - before as f64 / (seen.len().max(2) - 1) as f64
    }
}

impl Rule for Blend {
    fn pick(&mut self, _: &Request, seen: &[Seen], _: Moment, chance: &mut Chance) -> usize {
        let queue = |seen: &Seen| f64::from(seen.pending);
        let most = seen.iter().map(queue).fold(0.0, f64::max);
        let least = seen.iter().map(queue).fold(f64::INFINITY, f64::min);
        let no_hit = seen.iter().all(|seen| seen.hit_share == 0.0);
        let rest: Vec<f64> = (0..seen.len()).map(|place| if no_hit { self.rest(seen, place) } else { 0.5 }).collect();
        let score = |at: &Seen| {
            let queue = if most == least { 1.0 } else { (most - queue(at)) / (most - least) };
            let cache = 1.0 - (at.active_tokens / at.cache_tokens.max(1.0)).min(1.0);
            let place = seen.iter().position(|seen| seen.node == at.node).unwrap_or_default();
            PREFIX * at.hit_share + QUEUE * queue + CACHE * cache + NO_HIT * rest[place]
        };
        let chosen = cheapest(seen, chance, |seen| -score(seen));
        if no_hit && let Some(chosen) = seen.get(chosen) {
            self.cold += 1;
            self.cold_at[chosen.node] = self.cold;
        }
        chosen
    }
}
