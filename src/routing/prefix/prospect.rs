//! What an ask would find on each node, and whom it would displace there.

use std::time::Duration;

use super::cache::{Cache, Capacity, Choice, Place};
use super::{Prefixes, answer, learnt_links, seconds};
use crate::routing::ask::Ask;
use crate::routing::fleet::HoldingId;
use crate::routing::moment::Moment;
use crate::routing::session::domain;

/// What one ask finds everywhere.
pub struct Prospects<'a> {
    prefixes: &'a Prefixes,
    /// In order of holding; place and tokens found there.
    matches: Vec<(HoldingId, u32, u32)>,
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
        let mut matches = Vec::new();
        if ask.endpoint.is_conversation() && !self.is_empty() {
            let domain = domain(ask);
            let (now_s, ttl_s) = (u64::from(seconds(now)), self.ttl.as_secs());
            let is_fresh = |at_s: u32| now_s < u64::from(at_s).saturating_add(ttl_s);
            let mut seen = Seen::of(self.places.len());
            // Tokens up to the link after.
            let mut after = None;
            for link in learnt_links(ask).rev() {
                let key = link.within(domain);
                // Who holds a link holds all before it: none are new if there are no more.
                if self.index.count(key) > seen.count {
                    for copy in self.index.copies_of(key) {
                        if seen.is_new(copy.place) && is_fresh(copy.at_s) {
                            let next = after.map(|after: u32| after.saturating_sub(link.tokens));
                            let tokens = link.tokens.saturating_add(answer(copy, next));
                            let holding = self.places[copy.place as usize].holding;
                            matches.push((holding, copy.place, tokens.min(ask.prompt_tokens)));
                        }
                    }
                }
                after = Some(link.tokens);
            }
            matches.sort_unstable();
        }
        Prospects { prefixes: self, matches, prompt_tokens: ask.prompt_tokens, now }
    }
}

impl Prospects<'_> {
    pub fn at(&self, holding: HoldingId, capacity: Capacity) -> Prospect {
        let begin = self.matches.partition_point(|(of, ..)| *of < holding);
        let rest = self.matches.get(begin..).unwrap_or_default();
        let here = &rest[..rest.iter().take_while(|(of, ..)| *of == holding).count()];
        match capacity {
            Capacity::Tokens(_) => {
                let found = here.iter().map(|(_, _, tokens)| *tokens).max().unwrap_or(0);
                Prospect { found, ..Prospect::default() }
            }
            Capacity::Slots { count, .. } => {
                let cache = self.prefixes.caches.get(holding.0 as usize);
                cache.map_or(Prospect::default(), |cache| self.in_slots(cache, count, here))
            }
        }
    }

    fn in_slots(&self, cache: &Cache, slots: u32, here: &[(HoldingId, u32, u32)]) -> Prospect {
        let places = &self.prefixes.places;
        let found = |id: u32| here.iter().find(|(_, place, _)| *place == id).map_or(0, |(.., tokens)| *tokens);
        let choice = match cache.waiting.is_empty() {
            true => cache.choose(places, slots, self.prompt_tokens, found),
            false => Choice::Full,
        };
        match choice {
            Choice::Empty => Prospect::default(),
            Choice::Place(id, tokens) => {
                let rested = self.now.since(places[id as usize].used_at);
                self.displacing(&places[id as usize], tokens, rested)
            }
            Choice::Full => self.in_the_next_free(cache, slots, found),
        }
    }

    /// All slots are busy, and which comes free first for it is open: the mean over them, as far as those who
    /// wait before it leave them.
    fn in_the_next_free(&self, cache: &Cache, slots: u32, found: impl Fn(u32) -> u32) -> Prospect {
        let count = cache.places.len().max(1) as f64;
        let untouched = (1.0 - cache.waiting.len() as f64 / f64::from(slots.max(1))).max(0.0);
        let mut mean = Prospect { missed: self.prefixes.returning.chance(Duration::ZERO), ..Prospect::default() };
        let (mut all_found, mut all_displaced) = (0.0, 0.0);
        for id in &cache.places {
            let tokens = f64::from(found(*id)) * untouched;
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

/// Places seen, one bit each.
struct Seen {
    bits: Vec<u64>,
    count: u32,
}

impl Seen {
    fn of(places: usize) -> Seen {
        Seen { bits: vec![0; places.div_ceil(64)], count: 0 }
    }

    fn is_new(&mut self, place: u32) -> bool {
        let (word, bit) = (place as usize / 64, 1u64 << (place % 64));
        let is_new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.count += u32::from(is_new);
        is_new
    }
}
