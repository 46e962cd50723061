//! A cookie: a conversation stays for ever where it began, and begins where the fewest requests are.

use std::collections::HashMap;

use super::{Peer, Rule, Seen, cheapest};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;
use crate::sim::workload::Request;

pub const PEER: Peer =
    Peer { name: "sticky", about: "a conversation stays where it began", make: |_, _| Box::<Sticky>::default() };

#[derive(Default)]
struct Sticky(HashMap<u64, usize>);

impl Rule for Sticky {
    fn pick(&mut self, request: &Request, seen: &[Seen], _: Moment, chance: &mut Chance) -> usize {
        let known = self.0.get(&request.conversation);
        if let Some(place) = known.and_then(|node| seen.iter().position(|seen| seen.node == *node)) {
            return place;
        }
        let place = cheapest(seen, chance, |seen| f64::from(seen.active));
        self.0.extend(seen.get(place).map(|seen| (request.conversation, seen.node)));
        place
    }
}
