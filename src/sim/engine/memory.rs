//! Which models are in memory, and which comes next.
//!
//! Loads happen one after another in the order they were asked for. A load that does not fit
//! displaces idle models, least recently used first; where that is not enough, busy ones stop taking
//! work and leave when they are done. What is resident or loading never takes more than the memory.

use std::collections::VecDeque;
use std::time::Duration;

use super::model::{Model, Whereabouts};
use super::params::EngineParams;
use crate::routing::moment::Moment;

/// A model in memory, as told to the outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    pub name: String,
    pub memory_bytes: u64,
    pub context_tokens: u32,
    /// When it will leave if nothing more is asked of it; `None`: never.
    pub expires: Option<Moment>,
}

#[derive(Debug)]
pub(super) struct Memory {
    pub models: Vec<Model>,
    bytes: u64,
    to_load: VecDeque<usize>,
    loading: Option<usize>,
    pub loads: u64,
}

impl Memory {
    pub fn new(params: EngineParams) -> Memory {
        let mut memory = Memory {
            models: params.models.into_iter().map(|model| Model::new(model, params.keep_alive)).collect(),
            bytes: params.memory_bytes,
            to_load: VecDeque::new(),
            loading: None,
            loads: 0,
        };
        for index in 0..memory.models.len() {
            let free = memory.free();
            let model = &mut memory.models[index];
            if model.params.resident_at_start && model.params.memory_bytes <= free {
                model.whereabouts = Whereabouts::Resident;
            }
        }
        memory
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.models.iter().position(|model| model.params.name == name)
    }

    pub fn could_ever_hold(&self, index: usize) -> bool {
        self.models[index].params.memory_bytes <= self.bytes
    }

    pub fn resident(&self, now: Moment) -> Vec<Resident> {
        let tell = |model: &Model| Resident {
            name: model.params.name.clone(),
            memory_bytes: model.params.memory_bytes,
            context_tokens: model.context_tokens,
            expires: model.expires(now),
        };
        let resident = self.models.iter().filter(|model| model.is_resident());
        resident.map(tell).collect()
    }

    /// Sends away what should leave, queues what is wanted, and begins the next load if it fits:
    /// the model and how long that takes.
    pub fn settle(&mut self) -> Option<(usize, Duration)> {
        for model in &mut self.models {
            if model.should_leave() {
                model.leave();
            }
        }
        for (index, model) in self.models.iter_mut().enumerate() {
            if model.whereabouts == Whereabouts::OnDisk && !model.waiting.is_empty() {
                model.whereabouts = Whereabouts::Queued;
                self.to_load.push_back(index);
            }
        }
        self.begin_load()
    }

    pub fn loaded(&mut self, index: usize, now: Moment) {
        self.loading = None;
        self.loads += 1;
        self.models[index].whereabouts = Whereabouts::Resident;
        self.models[index].used = now;
    }

    /// Idle models that leave sooner than the agenda says, and how long they may stay.
    pub fn newly_idle(&mut self, now: Moment) -> Vec<(usize, Duration)> {
        let mut idle = Vec::new();
        for (index, model) in self.models.iter_mut().enumerate() {
            let expires = model.expires(now).filter(|_| model.is_idle());
            if let Some(expires) = expires.filter(|at| model.idle_promised.is_none_or(|promised| *at < promised)) {
                model.idle_promised = Some(expires);
                idle.push((index, expires.since(now)));
            }
        }
        idle
    }

    /// Unloads a model that has been idle for long enough. One used since is promised again.
    pub fn unload_if_idle(&mut self, index: usize, now: Moment) {
        let model = &mut self.models[index];
        model.idle_promised = model.idle_promised.filter(|promised| *promised > now);
        let expired = model.expires(now).is_some_and(|at| at <= now);
        if model.is_idle() && expired {
            model.leave();
        }
    }

    fn begin_load(&mut self) -> Option<(usize, Duration)> {
        if self.loading.is_some() {
            return None;
        }
        let index = self.next_wanted();
        let fits = index.is_some_and(|i| self.make_room(self.models[i].params.memory_bytes));
        if index.is_none() || fits {
            for model in &mut self.models {
                model.draining = false;
            }
        }
        let index = index.filter(|_| fits)?;
        self.to_load.pop_front();
        self.loading = Some(index);
        let model = &mut self.models[index];
        model.whereabouts = Whereabouts::Loading;
        if let Some(first) = model.waiting.front() {
            model.context_tokens = first.context_tokens;
        }
        Some((index, model.params.load))
    }

    /// The model to load next; those that nobody waits for any more are passed over.
    fn next_wanted(&mut self) -> Option<usize> {
        while let Some(index) = self.to_load.front().copied() {
            if !self.models[index].waiting.is_empty() {
                return Some(index);
            }
            self.models[index].whereabouts = Whereabouts::OnDisk;
            self.to_load.pop_front();
        }
        None
    }

    /// Displaces models until `need` bytes are free. If busy ones must go, says no for now and lets
    /// them drain.
    fn make_room(&mut self, need: u64) -> bool {
        while self.free() < need {
            match self.least_recent(Model::is_idle) {
                Some(index) => self.models[index].leave(),
                None => {
                    self.drain_for(need);
                    return false;
                }
            }
        }
        true
    }

    /// Those that drain already go on: a new choice at every step would let two busy models take
    /// turns and never leave.
    fn drain_for(&mut self, need: u64) {
        let draining = self.models.iter().filter(|model| model.draining);
        let leaving: u64 = draining.map(|model| model.params.memory_bytes).sum();
        let mut free = self.free() + leaving;
        while free < need {
            let Some(index) = self.least_recent(|model| model.is_resident() && !model.draining) else {
                return;
            };
            self.models[index].draining = true;
            free += self.models[index].params.memory_bytes;
        }
    }

    fn least_recent(&self, eligible: impl Fn(&Model) -> bool) -> Option<usize> {
        let models = self.models.iter().enumerate();
        models.filter(|(_, model)| eligible(model)).min_by_key(|(_, model)| model.used).map(|(index, _)| index)
    }

    fn free(&self) -> u64 {
        let taken = self.models.iter().filter(|model| model.takes_memory());
        let taken: u64 = taken.map(|model| model.params.memory_bytes).sum();
        self.bytes.saturating_sub(taken)
    }
}
