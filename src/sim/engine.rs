//! One engine in virtual time: jobs in, events out.
//!
//! It is told the time and never asks for it; no I/O, no clock, no chance. One mutation
//! (`submit`, `cancel`, `unload`), then `advance(now)` drains what came of it, and `next_event` says
//! when to call again. A job waits for its model and a slot, then for the node's one compute unit,
//! which prefills one job at a time; from its first token on it decodes at its own constant rate.
//!
//! Invariants: a model never runs more jobs than it has slots; every accepted job ends exactly once,
//! by `Done` or by `cancel`; cached and computed tokens add up to the prompt; the same calls give the
//! same events.

mod blocks;
mod cache;
mod history;
mod job;
mod memory;
mod model;
mod params;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use crate::routing::moment::Moment;

pub use cache::CacheParams;
pub use history::{Block, History};
pub use job::{Demand, Event, Job, JobId, Refused, Usage, What};
pub use memory::Resident;
pub use params::{DecodeLoad, EngineParams, KeepAlive, ModelParams, PrefillCost};

use job::Live;
use memory::Memory;
use model::Waiting;
use params::seconds;

/// See the module.
pub struct Engine {
    max_waiting: usize,
    memory: Memory,
    jobs: BTreeMap<JobId, Live>,
    /// Started jobs whose prompt is not computed yet, in order; the compute unit's queue.
    to_prefill: VecDeque<JobId>,
    prefilling: Option<JobId>,
    /// What will happen by itself, in order of time and then of promise.
    agenda: BTreeMap<Turn, Due>,
    events: Vec<Event>,
    now: Moment,
    jobs_accepted: u64,
    turns_given: u64,
}

/// A place on the agenda; the number keeps simultaneous entries in the order they were made.
type Turn = (Moment, u64);

/// What falls due.
#[derive(Clone, Copy, Debug)]
enum Due {
    Loaded(usize),
    Prefilled(JobId),
    Decoded(JobId),
    /// A model may have been idle for as long as the engine keeps one.
    Idle(usize),
}

impl Engine {
    pub fn new(params: EngineParams) -> Engine {
        let mut engine = Engine {
            max_waiting: params.max_waiting,
            memory: Memory::new(params),
            jobs: BTreeMap::new(),
            to_prefill: VecDeque::new(),
            prefilling: None,
            agenda: BTreeMap::new(),
            events: Vec::new(),
            now: Moment::default(),
            jobs_accepted: 0,
            turns_given: 0,
        };
        engine.dispatch();
        engine
    }

    /// Accepts a job, or says why not. Its events follow from `advance`.
    pub fn submit(&mut self, now: Moment, job: Job) -> Result<JobId, Refused> {
        self.run_to(now);
        let index = self.memory.find(&job.model).ok_or(Refused::UnknownModel)?;
        if !self.memory.could_ever_hold(index) {
            return Err(Refused::TooLarge);
        }
        let model = &self.memory.models[index];
        let context_tokens = model.params.context_for(job.context_tokens);
        if !model.could_start(context_tokens) && self.waiting() >= self.max_waiting {
            return Err(Refused::Busy);
        }
        self.jobs_accepted += 1;
        let id = JobId(self.jobs_accepted);
        self.jobs.insert(id, Live::new(job, index, self.now));
        self.memory.models[index].waiting.push_back(Waiting { job: id, context_tokens });
        self.dispatch();
        Ok(id)
    }

    /// Ends a job at once, wherever it is, and frees what it holds. `None` if it has ended already.
    pub fn cancel(&mut self, now: Moment, id: JobId) -> Option<Usage> {
        self.run_to(now);
        let mut live = self.jobs.remove(&id)?;
        if let Some(turn) = live.due.take() {
            self.agenda.remove(&turn);
        }
        live.interrupt(self.now);
        let model = &mut self.memory.models[live.model];
        if live.started {
            self.to_prefill.retain(|queued| *queued != id);
            if self.prefilling == Some(id) {
                self.prefilling = None;
            }
            model.release(&live, self.now);
        } else {
            model.waiting.retain(|waiting| waiting.job != id);
        }
        self.dispatch();
        Some(live.usage)
    }

    /// Takes a model out of memory, now or as soon as it is idle.
    pub fn unload(&mut self, now: Moment, model: &str) {
        self.run_to(now);
        if let Some(index) = self.memory.find(model) {
            self.memory.models[index].ask_to_leave();
            self.dispatch();
        }
    }

    /// When `advance` has something to tell next, if ever.
    pub fn next_event(&self) -> Option<Moment> {
        if let Some(event) = self.events.first() {
            return Some(event.at);
        }
        self.agenda.keys().next().map(|(at, _)| *at)
    }

    /// Lets time pass up to `now` and tells everything that happened, in order.
    pub fn advance(&mut self, now: Moment) -> Vec<Event> {
        self.run_to(now);
        std::mem::take(&mut self.events)
    }

    /// The models in memory.
    pub fn resident(&self) -> Vec<Resident> {
        self.memory.resident(self.now)
    }

    /// Every model the engine could run, in the order of its parameters.
    pub fn installed(&self) -> impl Iterator<Item = &ModelParams> {
        self.memory.models.iter().map(|model| &model.params)
    }

    /// Jobs that hold a slot.
    pub fn running(&self) -> usize {
        self.memory.models.iter().map(|model| model.running as usize).sum()
    }

    /// Jobs that wait for a model or a slot.
    pub fn waiting(&self) -> usize {
        self.memory.models.iter().map(|model| model.waiting.len()).sum()
    }

    /// What is asked of each model now, in the order of the parameters.
    pub fn demand(&self) -> Vec<Demand> {
        let models = self.memory.models.iter().enumerate();
        models
            .map(|(index, model)| {
                let held = |live: &Live| u64::from(live.job.prompt_tokens) + u64::from(live.usage.output_tokens);
                let started = self.jobs.values().filter(|live| live.started && live.model == index);
                Demand {
                    running: model.running as usize,
                    waiting: model.waiting.len(),
                    held_tokens: started.map(held).sum(),
                }
            })
            .collect()
    }

    /// Models loaded since the beginning, those resident at the start not counted.
    pub fn loads(&self) -> u64 {
        self.memory.loads
    }

    // === the life of a job, in order ===

    fn run_to(&mut self, now: Moment) {
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let ((at, _), due) = entry.remove_entry();
            self.now = self.now.max(at);
            match due {
                Due::Loaded(index) => self.loaded(index),
                Due::Prefilled(id) => self.prefilled(id),
                Due::Decoded(id) => self.decoded(id),
                Due::Idle(index) => self.memory.unload_if_idle(index, self.now),
            }
            self.dispatch();
        }
        self.now = self.now.max(now);
    }

    /// Starts whatever can start. A job that ends as it starts makes room for others: then again.
    fn dispatch(&mut self) {
        loop {
            let jobs = self.jobs.len();
            if let Some((index, load)) = self.memory.settle() {
                self.promise(self.now + load, Due::Loaded(index));
            }
            for index in 0..self.memory.models.len() {
                self.start_waiting(index);
            }
            if self.jobs.len() == jobs {
                break;
            }
        }
        self.start_prefill();
        for (index, idle_for) in self.memory.newly_idle(self.now) {
            self.promise(self.now + idle_for, Due::Idle(index));
        }
    }

    fn loaded(&mut self, index: usize) {
        self.memory.loaded(index, self.now);
        for waiting in &self.memory.models[index].waiting {
            if let Some(live) = self.jobs.get_mut(&waiting.job) {
                live.usage.load = self.now.since(live.submitted);
            }
        }
        // Before anything else can ask for the memory, or two models could displace each other for
        // ever without either answering.
        self.start_waiting(index);
    }

    fn start_waiting(&mut self, index: usize) {
        while let Some(id) = self.memory.models[index].take_startable() {
            self.start(id);
        }
    }

    fn start(&mut self, id: JobId) {
        let Some(live) = self.jobs.get_mut(&id) else {
            return;
        };
        live.started = true;
        self.memory.models[live.model].occupy(live);
        self.tell(id, What::Started);
        if self.jobs[&id].job.prompt_tokens == 0 {
            // Nothing to compute: the caller only wanted the model in memory.
            self.finish(id);
        } else {
            self.to_prefill.push_back(id);
        }
    }

    fn start_prefill(&mut self) {
        if self.prefilling.is_some() {
            return;
        }
        let Some(id) = self.to_prefill.pop_front() else {
            return;
        };
        let Some(live) = self.jobs.get_mut(&id) else {
            return;
        };
        let length = self.memory.models[live.model].begin_prefill(live);
        live.usage.waited = self.now.since(live.submitted + live.usage.load);
        live.usage.prefill = length;
        live.phase_began = self.now;
        self.prefilling = Some(id);
        self.promise_to(id, self.now + length, Due::Prefilled(id));
    }

    fn prefilled(&mut self, id: JobId) {
        self.prefilling = None;
        let Some(live) = self.jobs.get_mut(&id) else {
            return;
        };
        live.prefilled = true;
        live.phase_began = self.now;
        self.memory.models[live.model].hold(live);
        if live.job.output_tokens == 0 {
            self.finish(id);
            return;
        }
        live.usage.output_tokens = 1;
        let usage = live.usage;
        self.tell(id, What::FirstToken(usage));
        self.await_next_token(id);
    }

    fn decoded(&mut self, id: JobId) {
        let Some(live) = self.jobs.get_mut(&id) else {
            return;
        };
        live.usage.decode = self.now.since(live.phase_began);
        if live.job.tell_tokens {
            live.usage.output_tokens += 1;
            let number = live.usage.output_tokens;
            self.tell(id, What::Token { number });
        } else {
            live.usage.output_tokens = live.job.output_tokens;
        }
        self.await_next_token(id);
    }

    fn await_next_token(&mut self, id: JobId) {
        let live = &self.jobs[&id];
        if live.usage.output_tokens == live.job.output_tokens {
            self.finish(id);
            return;
        }
        let wanted = if live.job.tell_tokens { live.usage.output_tokens + 1 } else { live.job.output_tokens };
        // Counted from the first token, so that rounding does not add up.
        let at = live.phase_began + seconds(live.token_s * f64::from(wanted - 1));
        self.promise_to(id, at, Due::Decoded(id));
    }

    fn finish(&mut self, id: JobId) {
        if let Some(live) = self.jobs.remove(&id) {
            self.memory.models[live.model].release(&live, self.now);
            self.tell(id, What::Done(live.usage));
        }
    }

    // === bookkeeping ===

    fn tell(&mut self, job: JobId, what: What) {
        self.events.push(Event { at: self.now, job, what });
    }

    fn promise_to(&mut self, id: JobId, at: Moment, due: Due) {
        let turn = self.promise(at, due);
        if let Some(live) = self.jobs.get_mut(&id) {
            live.due = Some(turn);
        }
    }

    fn promise(&mut self, at: Moment, due: Due) -> Turn {
        self.turns_given += 1;
        let turn = (at, self.turns_given);
        self.agenda.insert(turn, due);
        turn
    }
}
