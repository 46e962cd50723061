//! Consistent hashing with bounded loads, as KubeAI has it: the ring is keyed by the beginning of the prompt,
//! and walked past nodes that have more than a quarter over their share.

use super::{Peer, Rule, Seen};
use crate::routing::chain::mix;
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::run::nodes::NodeParams;
use crate::sim::workload::Request;

pub const PEER: Peer = Peer {
    name: "chwbl",
    about: "consistent hashing with bounded loads over the prompt's first 2,048 tokens",
    make: |nodes, seed| Box::new(Chwbl::new(nodes, seed)),
};

const VIRTUAL_NODES: u64 = 256;
const KEY_TOKENS: u32 = 2048;
const OVER_SHARE: f64 = 1.25;

struct Chwbl {
    /// Points and the nodes they belong to, by point.
    ring: Vec<(u64, usize)>,
}

impl Chwbl {
    fn new(nodes: &[NodeParams], seed: u64) -> Chwbl {
        let points = |node: usize| (0..VIRTUAL_NODES).map(move |number| (mix(mix(seed, node as u64), number), node));
        let mut ring: Vec<(u64, usize)> = (0..nodes.len()).flat_map(points).collect();
        ring.sort_unstable();
        Chwbl { ring }
    }
}

impl Rule for Chwbl {
    fn pick(&mut self, request: &Request, seen: &[Seen], _: Moment, _: &mut Chance) -> usize {
        let blocks = request.history.blocks();
        let head = request.history.within(KEY_TOKENS.min(request.prompt_tokens)).last().or(blocks.first());
        let key = head.map_or(request.conversation, |block| mix(1, block.hash));
        let begin = self.ring.partition_point(|(point, _)| *point < key);
        let all: u32 = seen.iter().map(|seen| seen.active).sum();
        let limit = OVER_SHARE * f64::from(all + 1) / seen.len().max(1) as f64;
        let place = |node: usize| seen.iter().position(|seen| seen.node == node);
        let walk = self.ring[begin..].iter().chain(&self.ring[..begin]);
        let mut places = walk.filter_map(|(_, node)| place(*node)).peekable();
        let first = places.peek().copied().unwrap_or_default();
        places.find(|place| all == 0 || f64::from(seen[*place].active) <= limit).unwrap_or(first)
    }
}
