//! llm-d's default since August 2026: among nodes that have most of the prompt, unless the best of them would
//! be so much later than the best of the others.

use super::{Peer, Rule, Seen, cheapest_of};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::workload::Request;

pub const PEER: Peer = Peer {
    name: "llmd_sticky",
    about: "llm-d's sticky until saturated (0.8, 18 s at 15,928 tokens/s)",
    make: |_, _| Box::new(UntilSaturated),
};

const WARM_SHARE: f64 = 0.8;
const PENALTY_MAX_S: f64 = 18.0;
const TOKENS_PER_S: f64 = 15_928.0;

struct UntilSaturated;

impl Rule for UntilSaturated {
    fn pick(&mut self, request: &Request, seen: &[Seen], _: Moment, chance: &mut Chance) -> usize {
        let (warm, cold): (Vec<usize>, Vec<usize>) =
            (0..seen.len()).partition(|place| seen[*place].hit_share >= WARM_SHARE);
        let soonest = |places: &[usize]| {
            places.iter().map(|place| seen[*place].pending_tokens / TOKENS_PER_S).fold(f64::INFINITY, f64::min)
        };
        let stays = !warm.is_empty() && (cold.is_empty() || soonest(&warm) - soonest(&cold) <= PENALTY_MAX_S);
        let all: Vec<usize> = (0..seen.len()).collect();
        let prompt = f64::from(request.prompt_tokens);
        cheapest_of(if stays { &warm } else { &all }, seen, chance, |seen| {
            seen.pending_tokens + prompt - seen.hit_tokens
        })
    }
}
