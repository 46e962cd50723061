//! What is asked of a simulated fleet, and when.
//!
//! A trace is an open loop: its requests come when they came, whatever becomes of them. Conversations are
//! closed loops: the next turn comes after the answer to the last and a pause. Every request carries the
//! same text in two forms, hashes of blocks for the engines' caches and a chain of links for routers.

pub mod agents;
pub mod azure;
pub mod conversations;
pub mod mooncake;
pub mod text;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::chance::Chance;
use super::engine::History;
use crate::routing::ask::{Ask, Endpoint};
use crate::routing::chain::Chain;
use crate::routing::moment::Moment;
use conversations::Conversations;

/// One request, before anybody has decided anything about it.
#[derive(Clone, Debug)]
pub struct Request {
    pub model: Arc<str>,
    /// What a router can see of the text.
    pub chain: Chain,
    /// What engines keep of it, the answer included as far as it is known.
    pub history: History,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// The conversation it belongs to.
    pub conversation: u64,
    /// The address it comes from.
    pub client: u64,
}

impl Request {
    /// As the product would have read it from the client's bytes.
    pub fn ask(&self, tenant: u64) -> Ask {
        Ask {
            chain: self.chain.clone(),
            prompt_tokens: self.prompt_tokens,
            tenant,
            ..Ask::new(Endpoint::OpenAiChat, self.model.to_string())
        }
    }
}

/// Requests that come when they come, in order of time.
pub type Trace = Arc<Vec<(Moment, Arc<Request>)>>;

/// Where requests come from. The same seed gives the same requests.
#[derive(Clone)]
pub enum Source {
    Trace(Trace),
    Conversations(Arc<conversations::Script>),
    Agents(Arc<agents::Agents>),
}

impl Source {
    /// Begins anew, with times that run `rate` times as fast.
    pub fn open(&self, seed: u64, rate: f64) -> Workload {
        match self {
            Source::Trace(trace) => Workload::Trace { trace: trace.clone(), next: 0, rate },
            Source::Conversations(script) => {
                Workload::Talks(Talks::new(Box::new(Conversations::new(script.clone(), seed)), seed, rate))
            }
            Source::Agents(agents) => Workload::Talks(Talks::new(Box::new(agents.open(seed)), seed, rate)),
        }
    }

    /// As many requests as there can be.
    pub fn requests(&self) -> usize {
        match self {
            Source::Trace(trace) => trace.len(),
            Source::Conversations(script) => script.requests(),
            Source::Agents(agents) => agents.requests(),
        }
    }
}

/// A source under way.
pub enum Workload {
    Trace { trace: Trace, next: usize, rate: f64 },
    Talks(Talks),
}

impl Workload {
    /// When the next request comes, as far as that is settled.
    pub fn next_at(&self) -> Option<Moment> {
        match self {
            Workload::Trace { trace, next, rate } => trace.get(*next).map(|(at, _)| sooner(*at, *rate)),
            Workload::Talks(talks) => talks.due.peek().map(|Reverse((at, _))| *at),
        }
    }

    /// That request.
    pub fn take(&mut self) -> Option<Arc<Request>> {
        match self {
            Workload::Trace { trace, next, .. } => {
                *next += 1;
                trace.get(*next - 1).map(|(_, request)| request.clone())
            }
            Workload::Talks(talks) => talks.take(),
        }
    }

    /// A request was answered or refused; who waited for it goes on.
    pub fn over(&mut self, request: &Request, now: Moment) {
        if let Workload::Talks(talks) = self {
            talks.over(request.conversation, now);
        }
    }
}

fn sooner(at: Moment, rate: f64) -> Moment {
    Moment((at.0 as f64 / rate).round() as u64)
}

/// Conversations that are told turn by turn.
pub trait Turns: Send {
    /// When each conversation begins.
    fn starts(&self) -> Vec<Moment>;
    /// The next request of a conversation; `None`: it is over.
    fn turn(&mut self, conversation: usize) -> Option<Arc<Request>>;
    /// Mean pause between an answer and the next request.
    fn think(&self) -> Duration;
}

/// Conversations in a closed loop.
pub struct Talks {
    turns: Box<dyn Turns>,
    /// The next request of each conversation that has one.
    ready: Vec<Option<Arc<Request>>>,
    due: BinaryHeap<Reverse<(Moment, usize)>>,
    /// Of each conversation, so that its pauses are the same whatever the others do.
    chances: Vec<Chance>,
    rate: f64,
}

impl Talks {
    fn new(mut turns: Box<dyn Turns>, seed: u64, rate: f64) -> Talks {
        let starts = turns.starts();
        let ready = (0..starts.len()).map(|conversation| turns.turn(conversation)).collect();
        let due = starts.iter().enumerate().map(|(number, at)| Reverse((sooner(*at, rate), number))).collect();
        let chances = (0..starts.len()).map(|number| Chance::new(seed, THINKING + number as u64)).collect();
        Talks { turns, ready, due, chances, rate }
    }

    fn take(&mut self) -> Option<Arc<Request>> {
        let Reverse((_, conversation)) = self.due.pop()?;
        self.ready.get_mut(conversation)?.take()
    }

    fn over(&mut self, conversation: u64, now: Moment) {
        let number = conversation as usize;
        let Some(next) = self.turns.turn(number) else { return };
        let mean = self.turns.think().as_secs_f64() / self.rate;
        let pause = self.chances.get_mut(number).map_or(0.0, |chance| chance.pause(mean));
        if let Some(ready) = self.ready.get_mut(number) {
            *ready = Some(next);
            self.due.push(Reverse((now + Duration::from_secs_f64(pause), number)));
        }
    }
}

/// Streams of chance from here on are the conversations' pauses.
const THINKING: u64 = 1 << 32;
