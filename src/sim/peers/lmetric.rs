//! LMetric: tokens left to read, times the requests of the batch.

use super::{Peer, Rule, Seen, cheapest};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::workload::Request;

pub const PEER: Peer =
    Peer { name: "lmetric", about: "(pending + new tokens) x (batch + 1)", make: |_, _| Box::new(LMetric) };

struct LMetric;

impl Rule for LMetric {
    fn pick(&mut self, request: &Request, seen: &[Seen], _: Moment, chance: &mut Chance) -> usize {
        let prompt = f64::from(request.prompt_tokens);
        cheapest(seen, chance, |seen| (seen.pending_tokens + prompt - seen.hit_tokens) * (f64::from(seen.active) + 1.0))
    }
}
