//! SGLang's `cache_aware` with the constants of its command line: the longest prefix if it is long enough,
//! else the shortest queue; the shortest queue for everybody while the loads are far apart.

use super::{Peer, Rule, Seen, cheapest, cheapest_of};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::workload::Request;

pub const PEER: Peer = Peer {
    name: "sglang_cache_aware",
    about: "SGLang's router, command line's constants (0.3, 64, 1.5)",
    make: |_, _| Box::new(CacheAware),
};

const CACHE_THRESHOLD: f64 = 0.3;
const BALANCE_ABS: f64 = 64.0;
const BALANCE_REL: f64 = 1.5;

struct CacheAware;

impl Rule for CacheAware {
    fn pick(&mut self, request: &Request, seen: &[Seen], _: Moment, chance: &mut Chance) -> usize {
        let load = |seen: &Seen| f64::from(seen.active);
        let most = seen.iter().map(load).fold(0.0, f64::max);
        let least = seen.iter().map(load).fold(f64::INFINITY, f64::min);
        let longest = seen.iter().map(|seen| seen.hit_tokens).fold(0.0, f64::max);
        let apart = most - least > BALANCE_ABS && most > least * BALANCE_REL;
        if apart || longest / f64::from(request.prompt_tokens) <= CACHE_THRESHOLD {
            return cheapest(seen, chance, load);
        }
        let holders: Vec<usize> = (0..seen.len()).filter(|place| seen[*place].hit_tokens == longest).collect();
        cheapest_of(&holders, seen, chance, load)
    }
}
