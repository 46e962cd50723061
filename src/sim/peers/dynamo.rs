//! Dynamo's linear cost: blocks to read plus blocks in use.

use super::{Peer, Rule, Seen, cheapest};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::workload::Request;

pub const PEER: Peer =
    Peer { name: "dynamo", about: "Dynamo's blocks to read plus blocks in use", make: |_, _| Box::new(Dynamo) };

struct Dynamo;

impl Rule for Dynamo {
    fn pick(&mut self, request: &Request, seen: &[Seen], _: Moment, chance: &mut Chance) -> usize {
        let prompt = f64::from(request.prompt_tokens);
        // In tokens, and without what this request will hold: that is the same everywhere.
        cheapest(seen, chance, |seen| seen.pending_tokens + prompt - seen.hit_tokens + seen.active_tokens)
    }
}
