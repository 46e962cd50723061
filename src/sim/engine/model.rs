//! One model on the node: where it is, who runs on it, who waits for it.

use std::collections::VecDeque;
use std::time::Duration;

use super::cache::Cache;
use super::job::{JobId, Live};
use super::params::{ModelParams, seconds};
use crate::routing::moment::Moment;

/// A model's way into memory: `OnDisk -> Queued -> Loading -> Resident -> OnDisk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    OnDisk,
    /// Waits for its turn to load.
    Queued,
    Loading,
    Resident,
}

/// A job in a model's queue, with the context window it needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub job: JobId,
    pub context_tokens: u32,
}

#[derive(Debug)]
pub(super) struct Model {
    pub params: ModelParams,
    pub whereabouts: Whereabouts,
    /// Context window it was loaded with.
    pub context_tokens: u32,
    pub cache: Cache,
    pub waiting: VecDeque<Waiting>,
    pub running: u32,
    /// Prompts and answers, in full, of the jobs that run.
    held_tokens: u64,
    pub used: Moment,
    /// Starts nothing new, because a load waits for its memory.
    pub draining: bool,
    pub unload_when_idle: bool,
    /// How long it stays when idle, as jobs may wish; `None`: until it is displaced.
    pub keep_alive: Option<Duration>,
    /// The soonest `Idle` entry for it on the agenda.
    pub idle_promised: Option<Moment>,
    keep_alive_default: Option<Duration>,
}

impl Model {
    pub fn new(mut params: ModelParams, keep_alive: Option<Duration>) -> Model {
        params.slots = params.slots.max(1);
        params.context_tokens_max = params.context_tokens_max.max(params.context_tokens);
        Model {
            whereabouts: Whereabouts::OnDisk,
            context_tokens: params.context_tokens,
            cache: Cache::new(params.cache, params.slots),
            waiting: VecDeque::new(),
            running: 0,
            held_tokens: 0,
            used: Moment::default(),
            draining: false,
            unload_when_idle: false,
            keep_alive,
            idle_promised: None,
            keep_alive_default: keep_alive,
            params,
        }
    }

    pub fn is_resident(&self) -> bool {
        self.whereabouts == Whereabouts::Resident
    }

    pub fn is_idle(&self) -> bool {
        self.is_resident() && self.running == 0 && self.waiting.is_empty()
    }

    pub fn takes_memory(&self) -> bool {
        matches!(self.whereabouts, Whereabouts::Loading | Whereabouts::Resident)
    }

    /// Whether a job that needs this context would start without waiting.
    pub fn could_start(&self, context_tokens: u32) -> bool {
        self.waiting.is_empty() && self.has_slot_for(context_tokens)
    }

    /// The next job to start, taken out of the queue.
    pub fn take_startable(&mut self) -> Option<JobId> {
        let next = *self.waiting.front()?;
        if !self.has_slot_for(next.context_tokens) {
            return None;
        }
        self.waiting.pop_front();
        Some(next.job)
    }

    /// Takes a cache place for a job that got a slot.
    pub fn occupy(&mut self, live: &mut Live) {
        self.running += 1;
        if let Some(keep_alive) = live.job.keep_alive {
            self.keep_alive = keep_alive.length();
        }
        self.held_tokens += tokens_in_all(live);
        let load = self.params.decode_load;
        let batch_s = load.job_s * f64::from(self.running) + load.token_s * self.held_tokens as f64;
        live.token_s = live.job.slowness * (1.0 / self.params.decode_tokens_per_s + batch_s);
        if !live.job.history.is_empty() {
            live.place = Some(self.cache.place(&live.job));
        }
    }

    /// Looks up what is cached and says how long the rest takes to compute.
    pub fn begin_prefill(&mut self, live: &mut Live) -> Duration {
        let prompt_tokens = live.job.prompt_tokens;
        if let Some(place) = live.place {
            let cached = self.cache.begin(place, &live.job.history);
            // The last token is always computed: its result is what the answer starts from.
            live.usage.cached_tokens = cached.min(prompt_tokens - 1);
        }
        let uncached = prompt_tokens - live.usage.cached_tokens;
        seconds(self.params.prefill.seconds(uncached, prompt_tokens) * live.job.slowness)
    }

    /// What was computed so far stays in the cache.
    pub fn hold(&mut self, live: &Live) {
        if let Some(place) = live.place.filter(|_| live.prefilled) {
            let tokens = live.usage.prompt_tokens + live.usage.output_tokens;
            self.cache.hold(place, &live.job.history, tokens);
        }
    }

    /// Gives the slot of an ended job back.
    pub fn release(&mut self, live: &Live, now: Moment) {
        self.hold(live);
        if let Some(place) = live.place {
            self.cache.release(place);
        }
        self.running -= 1;
        self.held_tokens -= tokens_in_all(live);
        self.used = now;
    }

    /// When it is to leave if nothing more is asked of it; `None`: never.
    pub fn expires(&self, now: Moment) -> Option<Moment> {
        let idle_since = if self.is_idle() { self.used } else { now };
        self.keep_alive.map(|keep_alive| idle_since + keep_alive)
    }

    /// Whether it should leave memory now, because of a load that waits, a job that needs another
    /// context, or a wish.
    pub fn should_leave(&self) -> bool {
        let other_context = (self.waiting.front()).is_some_and(|next| next.context_tokens != self.context_tokens);
        let unwanted = self.unload_when_idle && self.waiting.is_empty();
        self.is_resident() && self.running == 0 && (self.draining || other_context || unwanted)
    }

    /// Out of memory as soon as nothing runs or waits; nothing to do for a model on disk.
    pub fn ask_to_leave(&mut self) {
        self.unload_when_idle = self.whereabouts != Whereabouts::OnDisk;
    }

    pub fn leave(&mut self) {
        self.whereabouts = Whereabouts::OnDisk;
        self.cache = Cache::new(self.params.cache, self.params.slots);
        self.draining = false;
        self.unload_when_idle = false;
        self.keep_alive = self.keep_alive_default;
    }

    fn has_slot_for(&self, context_tokens: u32) -> bool {
        self.is_resident()
            && !self.draining
            && self.running < self.params.slots
            && self.context_tokens == context_tokens
    }
}

fn tokens_in_all(live: &Live) -> u64 {
    u64::from(live.job.prompt_tokens) + u64::from(live.job.output_tokens)
}
