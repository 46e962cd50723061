//! The fewest requests in flight; equals by chance.

use super::{Peer, Rule, Seen, cheapest};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::workload::Request;

pub const PEER: Peer =
    Peer { name: "least_in_flight", about: "the fewest requests in flight", make: |_, _| Box::new(Least) };

struct Least;

impl Rule for Least {
    fn pick(&mut self, _: &Request, seen: &[Seen], _: Moment, chance: &mut Chance) -> usize {
        cheapest(seen, chance, |seen| f64::from(seen.active))
    }
}
