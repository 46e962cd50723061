//! Which upstreams hold which beginnings of prompts, as far as what they can hold allows.
//!
//! What was sent to a node is held there from the moment it was booked: whoever is sent there next with the
//! same beginning comes after it. It is held no longer than the engine can: a conversation that came into
//! another's slot has displaced it, and blocks beyond the store's size have left, the longest unused first.
//! Engines that count what they found in their cache correct the belief. Bounded in copies of links (L8).

mod cache;
mod elsewhere;
mod index;
mod prospect;
mod returning;

use std::collections::BTreeMap;
use std::time::Duration;

pub use cache::{CacheKind, Capacity};
pub use prospect::{Prospect, Prospects};

use super::ask::Ask;
use super::chain::Link;
use super::fleet::{Cached, HoldingId, LeaseId};
use super::moment::Moment;
use super::session::domain;
use cache::{Cache, Choice, Place};
use index::{Index, List, MAX_COPIES, PlaceId};
use returning::Returning;

pub struct Prefixes {
    index: Index,
    places: Vec<Place>,
    free_places: Vec<PlaceId>,
    /// By holding.
    caches: Vec<Cache>,
    stays: BTreeMap<LeaseId, Stay>,
    returning: Returning,
    ttl: Duration,
    /// Where to look next for what may be forgotten.
    hand: usize,
}

/// Links of one prompt that are learnt from each of its two sides; a prompt of megabytes must not push out everybody
/// else's.
const MAX_LINKS_A_SIDE: usize = 512;

/// Places among which the longest unused copy is looked for when one has to go.
const PLACES_COMPARED: usize = 8;

/// Shares of a prompt, as believed and as told, that differ by more than this differ. What is still on its way
/// counts as held here and not there, so that smaller differences mean nothing.
const SAME_SHARE: f64 = 0.25;

/// A request that an engine has.
#[derive(Debug)]
struct Stay {
    holding: HoldingId,
    capacity: Capacity,
    /// Keys of its links, and the tokens up to each.
    links: Vec<(u64, u32)>,
    prompt_tokens: u32,
    /// `None`: it waits for a slot.
    placed: Option<Placed>,
    answered: bool,
}

/// Where a request is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placed {
    place: PlaceId,
    pub at: Moment,
    /// Tokens of the prompt that were there.
    pub found: u32,
    /// When the last of them had been used, unless that may be on its way still.
    used_s: Option<u32>,
}

/// How a request left its engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub output_tokens: Option<u32>,
    pub cached: Option<Cached>,
}

impl Prefixes {
    pub fn new(ttl: Duration) -> Prefixes {
        Prefixes {
            index: Index::new(),
            places: Vec::new(),
            free_places: Vec::new(),
            caches: Vec::new(),
            stays: BTreeMap::new(),
            returning: Returning::default(),
            ttl,
            hand: 0,
        }
    }

    /// How long a beginning is believed from now on.
    pub fn keep_for(&mut self, ttl: Duration) {
        self.ttl = ttl;
    }

    /// A request is sent there.
    pub fn book(&mut self, lease: LeaseId, holding: HoldingId, capacity: Capacity, ask: &Ask, now: Moment) {
        let domain = domain(ask);
        let links = if ask.endpoint.is_conversation() {
            learnt_links(ask).map(|link| (link.within(domain), link.tokens)).collect()
        } else {
            Vec::new()
        };
        let at = holding.0 as usize;
        if self.caches.len() <= at {
            self.caches.resize_with(at + 1, Cache::default);
        }
        let mut stay =
            Stay { holding, capacity, links, prompt_tokens: ask.prompt_tokens, placed: None, answered: false };
        if self.caches[at].waiting.is_empty() {
            self.place(lease, &mut stay, now);
        }
        if stay.placed.is_none() {
            self.caches[at].waiting.push_back(lease);
        }
        self.stays.insert(lease, stay);
    }

    /// Its first byte came: it is being computed.
    pub fn first_byte(&mut self, lease: LeaseId, now: Moment) {
        let Some(mut stay) = self.stays.remove(&lease) else { return };
        if stay.placed.is_none() {
            // There are more slots than were thought of.
            self.caches[stay.holding.0 as usize].waiting.retain(|waiting| *waiting != lease);
            self.place_anywhere(lease, &mut stay, now);
        }
        stay.answered = true;
        self.has_read(lease, &stay);
        self.stays.insert(lease, stay);
    }

    /// It is over; who waits for its slot has it now.
    pub fn end(&mut self, lease: LeaseId, left: Left, now: Moment) {
        let Some(stay) = self.stays.remove(&lease) else { return };
        self.has_read(lease, &stay);
        let cache = &mut self.caches[stay.holding.0 as usize];
        let Some(placed) = stay.placed else { return cache.waiting.retain(|waiting| *waiting != lease) };
        if let Some(cached) = left.cached.filter(|_| stay.answered) {
            self.correct(&stay, placed, cached, now);
        }
        let answer_tokens = left.output_tokens.unwrap_or(0);
        match stay.answered {
            true => {
                let end = stay.links.last().and_then(|(key, _)| self.index.find(*key, placed.place));
                end.into_iter().for_each(|id| self.index.answered(id, answer_tokens));
            }
            // How far it came, nobody knows.
            false => self.forget_beyond(&stay, placed.place, placed.found),
        }
        let place = &mut self.places[placed.place as usize];
        if place.busy == Some(lease) {
            (place.busy, place.used_at, place.answer_tokens) = (None, now, answer_tokens);
            self.place_next(stay.holding, now);
        }
    }

    /// The model has left that node's memory, and its cache with it.
    pub fn clear(&mut self, holding: HoldingId) {
        let Some(cache) = self.caches.get(holding.0 as usize) else { return };
        for id in &cache.places {
            let place = &mut self.places[*id as usize];
            while place.list.copies > 0 {
                self.index.drop_oldest(&mut place.list);
            }
            place.answer_tokens = 0;
        }
    }

    /// The holding is gone, and its number may be another's one day.
    pub fn forget(&mut self, holding: HoldingId) {
        self.clear(holding);
        if let Some(cache) = self.caches.get_mut(holding.0 as usize) {
            self.free_places.append(&mut cache.places);
            *cache = Cache::default();
        }
        self.stays.retain(|_, stay| stay.holding != holding);
    }

    /// A turn came of a conversation whose last one ended so long ago, or a new conversation.
    pub fn turn(&mut self, pause: Option<Duration>) {
        self.returning.turn(pause);
    }

    /// Where a request is computed, once it is.
    pub fn placed(&self, lease: LeaseId) -> Option<Placed> {
        self.stays.get(&lease)?.placed
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn max_links(&self) -> usize {
        MAX_COPIES
    }

    fn place(&mut self, lease: LeaseId, stay: &mut Stay, now: Moment) {
        let at = stay.holding.0 as usize;
        let place = match stay.capacity {
            Capacity::Tokens(_) => match self.caches[at].places.first() {
                Some(place) => *place,
                None => self.new_place(stay.holding, now),
            },
            Capacity::Slots { count, .. } => {
                let found = |place| self.found(&stay.links, place);
                match self.caches[at].choose(&self.places, count, stay.prompt_tokens, found) {
                    Choice::Place(place, _) => place,
                    Choice::Empty => self.new_place(stay.holding, now),
                    Choice::Full => return,
                }
            }
        };
        self.settle(Some(lease), stay, place, now);
    }

    fn place_anywhere(&mut self, lease: LeaseId, stay: &mut Stay, now: Moment) {
        self.place(lease, stay, now);
        if stay.placed.is_none() {
            let place = match self.caches[stay.holding.0 as usize].places.len() {
                0..cache::MAX_PLACES => self.new_place(stay.holding, now),
                _ => return,
            };
            self.settle(Some(lease), stay, place, now);
        }
    }

    fn place_next(&mut self, holding: HoldingId, now: Moment) {
        let Some(next) = self.caches[holding.0 as usize].waiting.pop_front() else { return };
        let Some(mut stay) = self.stays.remove(&next) else { return };
        self.place(next, &mut stay, now);
        if stay.placed.is_none() {
            self.caches[holding.0 as usize].waiting.push_front(next);
        }
        self.stays.insert(next, stay);
    }

    /// Whoever has no lease leaves the place free.
    fn settle(&mut self, lease: Option<LeaseId>, stay: &mut Stay, at: PlaceId, now: Moment) {
        let (found, used_s) = self.held(&stay.links, at);
        let reading = &mut self.caches[stay.holding.0 as usize].reading;
        let first = reading.first().map_or(u32::MAX, |(_, since)| seconds(*since));
        reading.extend(lease.map(|lease| (lease, now)));
        stay.placed = Some(Placed {
            place: at,
            at: now,
            found: found.min(stay.prompt_tokens),
            used_s: used_s.filter(|used_s| *used_s < first),
        });
        self.hold(&stay.links, at, now);
        let (per_slot, most) = match stay.capacity {
            Capacity::Slots { .. } => (true, u64::MAX),
            Capacity::Tokens(told) => (false, self.caches[stay.holding.0 as usize].tokens(told)),
        };
        let place = &mut self.places[at as usize];
        if per_slot {
            place.busy = lease;
            place.answer_tokens = 0;
            while place.list.copies > stay.links.len() as u32 {
                self.index.drop_oldest(&mut place.list);
            }
        }
        while place.list.tokens > most {
            self.index.drop_oldest(&mut place.list);
        }
    }

    /// Its prompt is computed, or will never be.
    fn has_read(&mut self, lease: LeaseId, stay: &Stay) {
        if let Some(placed) = stay.placed {
            self.caches[stay.holding.0 as usize].reading.remove(&(lease, placed.at));
        }
    }

    /// Marks the links as just used there, the beginning last, so that it stays the longest.
    fn hold(&mut self, links: &[(u64, u32)], at: PlaceId, now: Moment) {
        let now_s = seconds(now);
        for (index, (key, tokens)) in links.iter().enumerate().rev() {
            let before = index.checked_sub(1).map_or(0, |before| links[before].1);
            match self.index.find(*key, at) {
                Some(copy) => self.index.touch(&mut self.places[at as usize].list, copy, now_s),
                None => {
                    if self.index.is_full() {
                        self.erode();
                    }
                    let list = &mut self.places[at as usize].list;
                    self.index.add(list, at, *key, tokens.saturating_sub(before), now_s);
                }
            }
        }
    }

    /// Tokens of a prompt that are in a place.
    fn found(&self, links: &[(u64, u32)], place: PlaceId) -> u32 {
        self.held(links, place).0
    }

    /// The same, and when the last of them was used.
    fn held(&self, links: &[(u64, u32)], place: PlaceId) -> (u32, Option<u32>) {
        let held = links.iter().enumerate().rev().find_map(|(index, (key, tokens))| {
            let copy = self.index.copies_of(*key).find(|copy| copy.place == place)?;
            let found = tokens + answer(copy, links.get(index + 1).map(|(_, next)| next - tokens));
            Some((found, Some(copy.at_s)))
        });
        held.unwrap_or((0, None))
    }

    fn forget_beyond(&mut self, stay: &Stay, place: PlaceId, found: u32) {
        for (key, tokens) in stay.links.iter().rev() {
            if *tokens <= found {
                break;
            }
            if let Some(copy) = self.index.find(*key, place) {
                self.index.drop(&mut self.places[place as usize].list, copy);
            }
        }
    }

    /// The engine told how much of a prompt it found.
    fn correct(&mut self, stay: &Stay, placed: Placed, cached: Cached, now: Moment) {
        let believed = f64::from(placed.found) / f64::from(stay.prompt_tokens.max(1));
        let told = f64::from(cached.cached_tokens) / f64::from(cached.prompt_tokens.max(1));
        let cache = &mut self.caches[stay.holding.0 as usize];
        let place = &mut self.places[placed.place as usize];
        let Capacity::Tokens(size) = stay.capacity else { return place.used_at = now };
        match told - believed {
            less if less < -SAME_SHARE => {
                cache.had_less(size);
                // The longest unused leave first: what was used no later than what is missing has left too.
                let has_left = |at_s: u32| placed.used_s.is_some_and(|used_s| at_s <= used_s);
                while self.index.oldest_at_s(&place.list).is_some_and(has_left) {
                    self.index.drop_oldest(&mut place.list);
                }
            }
            more if more > SAME_SHARE => cache.had_more(),
            _ => {}
        }
        let most = cache.tokens(size);
        while place.list.tokens > most {
            self.index.drop_oldest(&mut place.list);
        }
        place.used_at = now;
    }

    fn new_place(&mut self, holding: HoldingId, now: Moment) -> PlaceId {
        let made = Place { list: List::default(), busy: None, used_at: now, answer_tokens: 0 };
        let id = match self.free_places.pop() {
            Some(id) => {
                self.places[id as usize] = made;
                id
            }
            None => {
                self.places.push(made);
                self.places.len() as PlaceId - 1
            }
        };
        self.caches[holding.0 as usize].places.push(id);
        id
    }

    /// Makes room for one copy: of a few places, the one whose oldest copy is the longest unused loses it.
    fn erode(&mut self) {
        let count = self.places.len();
        let all = (0..count).map(|step| (self.hand + step) % count.max(1));
        let some = all.filter(|place| self.places[*place].list.copies > 0).take(PLACES_COMPARED);
        let Some(place) = some.min_by_key(|place| self.index.oldest_at_s(&self.places[*place].list)) else { return };
        self.hand = place + 1;
        let place = &mut self.places[place];
        self.index.drop_oldest(&mut place.list);
    }
}

/// Of an answer that stands behind a link, what the next turn repeats, which takes it up in so many tokens.
fn answer(copy: &index::Copy, next: Option<u32>) -> u32 {
    copy.answer_tokens.min(next.unwrap_or(0))
}

fn seconds(now: Moment) -> u32 {
    u32::try_from(now.0 / 1_000_000).unwrap_or(u32::MAX)
}

fn learnt_links(ask: &Ask) -> impl DoubleEndedIterator<Item = &Link> {
    let links = &ask.chain.links;
    let head = links.len().min(MAX_LINKS_A_SIDE);
    let tail = links.len().saturating_sub(MAX_LINKS_A_SIDE).max(head);
    links[..head].iter().chain(&links[tail..])
}

#[cfg(test)]
mod tests;
