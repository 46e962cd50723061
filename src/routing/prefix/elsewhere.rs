//! Prompts that others had a node read.
//!
//! Their requests are taken for read and over at once: how long they keep a slot busy is in the depths.

use super::cache::{Cache, Capacity, Choice};
use super::{Prefixes, Stay};
use crate::routing::fleet::HoldingId;
use crate::routing::moment::Moment;

impl Prefixes {
    /// A node has read a prompt, of which some links are known in order, with the tokens up to each.
    pub fn learn(
        &mut self,
        holding: HoldingId,
        capacity: Capacity,
        links: &[(u64, u32)],
        prompt_tokens: u32,
        now: Moment,
    ) {
        let at = holding.0 as usize;
        if links.is_empty() || !links.is_sorted_by_key(|(_, tokens)| *tokens) {
            return;
        }
        if self.caches.len() <= at {
            self.caches.resize_with(at + 1, Cache::default);
        }
        let mut stay = Stay { holding, capacity, links: links.to_vec(), prompt_tokens, placed: None, answered: true };
        let place = match capacity {
            Capacity::Tokens(_) => self.caches[at].places.first().copied(),
            Capacity::Slots { count, .. } => {
                let found = |place| self.found(&stay.links, place);
                match self.caches[at].choose(&self.places, count, prompt_tokens, found) {
                    Choice::Place(place, _) => Some(place),
                    Choice::Empty => None,
                    Choice::Full => return,
                }
            }
        };
        let place = place.unwrap_or_else(|| self.new_place(holding, now));
        self.settle(None, &mut stay, place, now);
        self.places[place as usize].used_at = now;
    }
}
