//! References in time, which know what nobody knows, every node's true costs, queue and answers to come: the predicted wait, and a weight on the
//! work of this prompt. Weight 1 is the soonest first token for this one alone; more spares the others.
//!
//! A slow node's own time counts as it is, and what is put on top of it as on a node of speed 1: work that
//! is wasted is the same work wherever it is wasted.

use super::{Peer, Rule, Seen, cheapest};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::workload::Request;

pub const MIN_TTFT: Peer =
    Peer { name: "min_ttft", about: "the soonest first token, costs known", make: |_, _| Box::new(Expected(1.0)) };

pub const WAIT_AND_4: Peer =
    Peer { name: "wait_and_4_own", about: "wait + 4 x own work, costs known", make: |_, _| Box::new(Expected(4.0)) };

pub const WAIT_AND_8: Peer =
    Peer { name: "wait_and_8_own", about: "wait + 8 x own work, costs known", make: |_, _| Box::new(Expected(8.0)) };

pub const WAIT_AND_16: Peer =
    Peer { name: "wait_and_16_own", about: "wait + 16 x own work, costs known", make: |_, _| Box::new(Expected(16.0)) };

struct Expected(f64);

impl Rule for Expected {
    fn pick(&mut self, _: &Request, seen: &[Seen], _: Moment, chance: &mut Chance) -> usize {
        cheapest(seen, chance, |seen| seen.wait_s + seen.own_s + (self.0 - 1.0) * seen.work_s)
    }
}
