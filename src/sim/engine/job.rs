//! One request to the engine, from its submission to its end, and what is told of it.

use std::time::Duration;

use super::Turn;
use super::cache::Place;
use super::history::History;
use super::params::KeepAlive;
use crate::routing::moment::Moment;

/// A job's name, unique within its engine and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// What a request asks of an engine.
#[derive(Clone, Debug)]
pub struct Job {
    /// As spelt in `ModelParams::name`.
    pub model: String,
    /// The prompt's blocks, then the answer's as far as they are known. Empty: nothing is looked up
    /// and nothing kept, as for an embedding.
    pub history: History,
    /// Zero only wants the model in memory.
    pub prompt_tokens: u32,
    /// Zero ends with the prompt.
    pub output_tokens: u32,
    /// Context window asked for; one that differs from the loaded model's forces a reload.
    pub context_tokens: Option<u32>,
    /// How long its model is to stay afterwards; the last job that says so is heard.
    pub keep_alive: Option<KeepAlive>,
    /// Factor on this job's prefill and decode; 1 is the model's own speed.
    pub slowness: f64,
    /// Whether each token is told; a simulation that asks for ends only saves the events.
    pub tell_tokens: bool,
}

/// Why a job was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("as many jobs wait as may")]
    Busy,
    #[error("no such model")]
    UnknownModel,
    #[error("the model is larger than the node's memory")]
    TooLarge,
}

/// Something that happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Moment,
    pub job: JobId,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It got a slot.
    Started,
    /// The prompt is computed and the first token there.
    FirstToken(Usage),
    /// A further token, counted from one.
    Token { number: u32 },
    /// The end. Nothing follows.
    Done(Usage),
}

/// What a job took, so far or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u32,
    /// Of these, found in the cache; the others were computed.
    pub cached_tokens: u32,
    pub output_tokens: u32,
    /// From submission until its model was in memory, where it was not.
    pub load: Duration,
    /// For a slot and for the compute unit.
    pub waited: Duration,
    pub prefill: Duration,
    /// From the first token on.
    pub decode: Duration,
}

/// What is asked of one model at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Jobs that hold a slot.
    pub running: usize,
    /// Jobs that wait for the model or a slot.
    pub waiting: usize,
    /// Prompts and answers, so far, of those that run.
    pub held_tokens: u64,
}

impl Usage {
    pub fn total(&self) -> Duration {
        self.load + self.waited + self.prefill + self.decode
    }
}

/// A job that has not ended.
#[derive(Debug)]
pub(super) struct Live {
    pub job: Job,
    pub model: usize,
    pub submitted: Moment,
    pub started: bool,
    pub prefilled: bool,
    pub place: Option<Place>,
    /// Seconds from one token to the next.
    pub token_s: f64,
    /// When its prefill, and later its decode, began.
    pub phase_began: Moment,
    /// Its one entry on the agenda.
    pub due: Option<Turn>,
    pub usage: Usage,
}

impl Live {
    pub fn new(job: Job, model: usize, now: Moment) -> Live {
        let usage = Usage { prompt_tokens: job.prompt_tokens, ..Usage::default() };
        Live {
            job,
            model,
            submitted: now,
            started: false,
            prefilled: false,
            place: None,
            token_s: 0.0,
            phase_began: now,
            due: None,
            usage,
        }
    }

    /// Brings the account up to the moment of a cancellation.
    pub fn interrupt(&mut self, now: Moment) {
        let phase = now.since(self.phase_began);
        if !self.prefilled {
            self.usage.prefill = self.usage.prefill.min(phase);
            return;
        }
        self.usage.decode = phase;
        if !self.job.tell_tokens && self.token_s > 0.0 {
            let more = (phase.as_secs_f64() / self.token_s) as u32;
            let output_tokens = more.saturating_add(1);
            self.usage.output_tokens = output_tokens.min(self.job.output_tokens);
        }
    }
}
