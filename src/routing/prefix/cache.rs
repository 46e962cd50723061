//! What the cache of one model on one node can hold, and which of its places a request takes.
//!
//! Two kinds. With Ollama and llama.cpp a conversation has a slot to itself, and a new one displaces the
//! longest idle. With vLLM and SGLang all share one place of so many tokens, of which the longest unused
//! leave first.

use std::collections::{BTreeSet, VecDeque};

use super::index::{List, PlaceId};
use crate::routing::fleet::LeaseId;
use crate::routing::moment::Moment;

/// How an engine keeps what it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// One conversation a slot.
    PerSlot,
    /// One store for all, by blocks.
    Blocks,
}

/// What the cache of a model on a node can hold, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// A conversation each.
    Slots { count: u32, known: bool },
    /// `None`: the engine does not tell.
    Tokens(Option<u64>),
}

/// Share of a prompt that an idle slot must have in common with it to be taken for that: llama.cpp's
/// `--slot-prompt-similarity`, as it is by default.
const SIMILAR: f64 = 0.1;

/// Places of one cache that are told apart; engines run fewer slots.
pub const MAX_PLACES: usize = 1024;

/// Assumed of an engine that does not tell: that of a large one, since to believe too much warm costs less
/// than to send conversations about. Reported cache hits correct it.
const ASSUMED_TOKENS: u64 = 1 << 20;
const LEAST_TOKENS: u64 = 1 << 13;

/// By how much one count of an engine's changes what it is thought to hold, and how far that may go.
const CORRECTION: f64 = 1.05;
const LEAST_SCALE: f64 = 1e-4;
const MOST_SCALE: f64 = 64.0;

#[derive(Debug)]
pub struct Place {
    pub list: List,
    /// Who computes in it; a place of blocks is everybody's.
    pub busy: Option<LeaseId>,
    pub used_at: Moment,
    pub answer_tokens: u32,
}

#[derive(Debug)]
pub struct Cache {
    pub places: Vec<PlaceId>,
    /// Requests that wait at the engine for a slot, in order.
    pub waiting: VecDeque<LeaseId>,
    /// Requests whose prompts may be on their way to being computed, and since when.
    pub reading: BTreeSet<(LeaseId, Moment)>,
    /// What it was found to hold, by what is told or assumed.
    scale: f64,
}

/// Where a request will be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// In this place, of which it finds so many tokens.
    Place(PlaceId, u32),
    /// In one that holds nothing yet.
    Empty,
    /// Nowhere for now: all are busy.
    Full,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { places: Vec::new(), waiting: VecDeque::new(), reading: BTreeSet::new(), scale: 1.0 }
    }
}

impl Cache {
    /// The slot that an engine gives a prompt: the idle one most alike, if alike enough, else an empty one, else
    /// the longest idle. `found` tells what is there of the prompt.
    pub fn choose(&self, all: &[Place], slots: u32, prompt_tokens: u32, found: impl Fn(PlaceId) -> u32) -> Choice {
        let idle = |id: &PlaceId| all[*id as usize].busy.is_none();
        // Most are not alike: whether these are idle need not be known.
        let is_alike = |tokens: u32| f64::from(tokens) > SIMILAR * f64::from(prompt_tokens);
        let found_there = self.places.iter().map(|id| (found(*id), std::cmp::Reverse(*id)));
        let alike = found_there.filter(|(tokens, id)| is_alike(*tokens) && idle(&id.0)).max();
        if let Some((tokens, std::cmp::Reverse(id))) = alike {
            return Choice::Place(id, tokens);
        }
        if self.places.len() < (slots as usize).min(MAX_PLACES) {
            return Choice::Empty;
        }
        let longest_idle = self.places.iter().copied().filter(idle).min_by_key(|id| (all[*id as usize].used_at, *id));
        longest_idle.map_or(Choice::Full, |id| Choice::Place(id, found(id)))
    }

    pub fn tokens(&self, told: Option<u64>) -> u64 {
        // The cast saturates.
        let tokens = (told.unwrap_or(ASSUMED_TOKENS) as f64 * self.scale) as u64;
        tokens.max(told.unwrap_or(LEAST_TOKENS).min(LEAST_TOKENS))
    }

    /// The engine had less of a prompt than was believed. What it tells of its size is not doubted for that: it
    /// may keep more besides than we know of.
    pub fn had_less(&mut self, told: Option<u64>) {
        let least = if told.is_some() { 1.0 } else { LEAST_SCALE };
        self.scale = (self.scale / CORRECTION).max(least);
    }

    /// It had more.
    pub fn had_more(&mut self) {
        self.scale = (self.scale * CORRECTION).min(MOST_SCALE);
    }
}
