//! The prefix cache of one resident model, in one of two kinds.
//!
//! A started job takes a place, learns at the beginning of its prefill how much of its prompt is
//! there, adds what it computes, and gives the place back. What a cache holds is bounded by its
//! parameters; it never claims more than was computed.

use super::blocks::BlockCache;
use super::history::History;
use super::job::Job;
use super::slots::SlotCache;

/// Which cache, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheParams {
    /// As Ollama and llama.cpp: whole conversations, one a slot. `kept` of more than the model's
    /// slots adds conversations in RAM; fewer counts as one a slot.
    PerSlot { kept: usize },
    /// As vLLM: blocks shared by all conversations, least recently used out first.
    Blocks { blocks: usize, block_tokens: u32 },
}

#[derive(Clone, Debug)]
pub(super) enum Cache {
    PerSlot(SlotCache),
    Blocks(BlockCache),
}

/// Where in the cache a job's history lives; of no meaning to a cache of blocks.
pub(super) type Place = usize;

impl Cache {
    pub fn new(params: CacheParams, slots: u32) -> Cache {
        match params {
            CacheParams::PerSlot { kept } => Cache::PerSlot(SlotCache::new(kept.max(slots as usize))),
            CacheParams::Blocks { blocks, block_tokens } => Cache::Blocks(BlockCache::new(blocks, block_tokens)),
        }
    }

    pub fn place(&mut self, job: &Job) -> Place {
        match self {
            Cache::PerSlot(slots) => slots.place(&job.history, job.prompt_tokens),
            Cache::Blocks(_) => 0,
        }
    }

    /// Tokens of the history that are there already.
    pub fn begin(&mut self, place: Place, history: &History) -> u32 {
        match self {
            Cache::PerSlot(slots) => slots.begin(place, history),
            Cache::Blocks(blocks) => blocks.begin(history),
        }
    }

    /// The first `tokens` of the history are computed now.
    pub fn hold(&mut self, place: Place, history: &History, tokens: u32) {
        match self {
            Cache::PerSlot(slots) => slots.hold(place, tokens),
            Cache::Blocks(blocks) => blocks.hold(history, tokens),
        }
    }

    pub fn release(&mut self, place: Place) {
        if let Cache::PerSlot(slots) = self {
            slots.release(place);
        }
    }
}
