//! What an ask would find on each node, and whom it would displace there.

use std::time::Duration;

use super::cache::{Cache, Capacity, Choice, Place};
use super::index::PlaceId;
use super::{Prefixes, answer, learnt_links, seconds};
use crate::routing::ask::Ask;
use crate::routing::fleet::HoldingId;
use crate::routing::moment::Moment;
use crate::routing::session::domain;

/// What one ask finds everywhere.
pub struct Prospects<'a> {
    prefixes: &'a Prefixes,
    found: Found,
    prompt_tokens: u32,
    now: Moment,
}

/// What an ask finds on one node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prospect {
    /// Tokens of the prompt that will be there when it is computed.
    pub found: u32,
    /// Tokens of another conversation that it will displace.
    pub displaced: u32,
    /// How likely that one is to go on, and to miss them.
    pub missed: f64,
}

impl Prefixes {
    /// Looks for what is known of the prompt, on all nodes at once.
    pub fn prospects(&self, ask: &Ask, now: Moment) -> Prospects<'_> {
        let mut found = Found::default();
        if ask.endpoint.is_conversation() && !self.is_empty() {
            let domain = domain(ask);
            let (now_s, ttl_s) = (u64::from(seconds(now)), self.ttl.as_secs());
            let is_fresh = |at_s: u32| now_s < u64::from(at_s).saturating_add(ttl_s);
            found.tokens = vec![0; self.places.len()];
            // Tokens up to the link after.
            let mut after = None;
            for link in learnt_links(ask).rev() {
                let key = link.within(domain);
                // Who holds a link holds all before it: none are new if there are no more.
                if self.index.count(key) > found.places {
                    let next = after.map(|after: u32| after.saturating_sub(link.tokens));
                    for copy in self.index.copies_of(key) {
                        let tokens = link.tokens.saturating_add(answer(copy, next)).min(ask.prompt_tokens);
                        found.learn(copy.place, if is_fresh(copy.at_s) { tokens } else { 0 });
                    }
                }
                after = Some(link.tokens);
            }
        }
        Prospects { prefixes: self, found, prompt_tokens: ask.prompt_tokens, now }
    }
}

impl Prospects<'_> {
    pub fn at(&self, holding: HoldingId, capacity: Capacity) -> Prospect {
        let Some(cache) = self.prefixes.caches.get(holding.0 as usize) else { return Prospect::default() };
        match capacity {
            Capacity::Tokens(_) => {
                let found = cache.places.iter().map(|place| self.found.at(*place)).max().unwrap_or(0);
                Prospect { found, ..Prospect::default() }
            }
            Capacity::Slots { count, .. } => self.in_slots(cache, count),
        }
    }

    fn in_slots(&self, cache: &Cache, slots: u32) -> Prospect {
        let places = &self.prefixes.places;
        let choice = match cache.waiting.is_empty() {
            true => cache.choose(places, slots, self.prompt_tokens, |place| self.found.at(place)),
            false => Choice::Full,
        };
        match choice {
            Choice::Empty => Prospect::default(),
            Choice::Place(id, tokens) => {
                let rested = self.now.since(places[id as usize].used_at);
                self.displacing(&places[id as usize], tokens, rested)
            }
            Choice::Full => self.in_the_next_free(cache, slots),
        }
    }

    /// All slots are busy, and which comes free first for it is open: the mean over them, as far as those who
    /// wait before it leave them.
    fn in_the_next_free(&self, cache: &Cache, slots: u32) -> Prospect {
        let count = cache.places.len().max(1) as f64;
        let untouched = (1.0 - cache.waiting.len() as f64 / f64::from(slots.max(1))).max(0.0);
        let mut mean = Prospect { missed: self.prefixes.returning.chance(Duration::ZERO), ..Prospect::default() };
        let (mut all_found, mut all_displaced) = (0.0, 0.0);
        for id in &cache.places {
            let tokens = f64::from(self.found.at(*id)) * untouched;
            let held = held_tokens(&self.prefixes.places[*id as usize]);
            all_found += tokens;
            all_displaced += (f64::from(held) - tokens).max(0.0);
        }
        mean.found = (all_found / count) as u32;
        mean.displaced = (all_displaced / count) as u32;
        mean
    }

    fn displacing(&self, place: &Place, found: u32, rested: Duration) -> Prospect {
        let displaced = held_tokens(place).saturating_sub(found);
        // A few tokens more are the answer, counted by others than those of the next turn.
        let goes_on = found > 0 && u64::from(found) >= place.list.tokens;
        let displaced = if goes_on { 0 } else { displaced };
        let missed = if displaced > 0 { self.prefixes.returning.chance(rested) } else { 0.0 };
        Prospect { found, displaced, missed }
    }
}

fn held_tokens(place: &Place) -> u32 {
    u32::try_from(place.list.tokens).unwrap_or(u32::MAX).saturating_add(place.answer_tokens)
}

/// Tokens found in each place.
#[derive(Default)]
struct Found {
    /// By place, one more than was found; 0: nothing was seen of it.
    tokens: Vec<u32>,
    /// How many were seen.
    places: u32,
}

impl Found {
    /// What is learnt first of a place is the longest.
    fn learn(&mut self, place: PlaceId, tokens: u32) {
        let here = &mut self.tokens[place as usize];
        if *here == 0 {
            *here = tokens.saturating_add(1);
            self.places += 1;
        }
    }

    fn at(&self, place: PlaceId) -> u32 {
        self.tokens.get(place as usize).map_or(0, |tokens| tokens.saturating_sub(1))
    }
}
