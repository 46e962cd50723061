//! Each node in turn.

use super::{Peer, Rule, Seen};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::workload::Request;

pub const PEER: Peer =
    Peer { name: "round_robin", about: "each node in turn", make: |_, _| Box::<RoundRobin>::default() };

#[derive(Default)]
struct RoundRobin(usize);

impl Rule for RoundRobin {
    fn pick(&mut self, _: &Request, seen: &[Seen], _: Moment, _: &mut Chance) -> usize {
        self.0 += 1;
        (self.0 - 1) % seen.len().max(1)
    }
}
