//! Requests under way, and the conversations they belong to.

use std::sync::Arc;

use warmgate::routing::ask::{Ask, Endpoint, Priority};
use warmgate::routing::chain::{Chain, Link, mix};
use warmgate::routing::fleet::{HoldingId, LeaseId, UpstreamId};
use warmgate::routing::moment::Moment;
use warmgate::routing::queue::WaiterId;
use warmgate::routing::runner::RunnerOptions;
use warmgate::routing::select::Query;
use warmgate::sim::engine::{Block, History, Job, JobId};

use crate::chance::Chance;
use crate::node::MODELS;

/// Attempts for one request, as in the product's defaults.
pub const ATTEMPTS: usize = 3;

pub struct Request {
    pub query: Arc<Query>,
    pub attempts: usize,
    pub tried: Vec<UpstreamId>,
    pub current: Option<Attempt>,
    /// Its place in the queue, while it waits there.
    pub waiting: Option<Waiting>,
    /// It waits in the queue no longer than this.
    pub deadline: Moment,
    /// Where its conversation is kept.
    pub conversation: Option<usize>,
    output_tokens: u32,
}

/// The running attempt.
#[derive(Clone, Copy)]
pub struct Attempt {
    pub lease: LeaseId,
    pub upstream: UpstreamId,
    pub holding: HoldingId,
    /// `None`: booked, and not sent yet.
    pub job: Option<JobId>,
    pub begun: bool,
    /// Options that the node is sent.
    pub sent: RunnerOptions,
}

#[derive(Clone, Copy)]
pub struct Waiting {
    pub id: WaiterId,
    /// The best node when it lined up.
    pub best: Option<HoldingId>,
    /// Later comers that were given the place it waited for.
    pub passed: u32,
}

/// Turns so far.
#[derive(Clone)]
pub struct Conversation {
    endpoint: Endpoint,
    model: String,
    links: Vec<Link>,
    named: Option<u64>,
}

impl Conversation {
    pub fn draw(chance: &mut Chance) -> Conversation {
        // Some begin with the same system text.
        let system = chance.below(3) as u64;
        let mut conversation = Conversation {
            endpoint: *chance.pick(&[Endpoint::OpenAiChat, Endpoint::OllamaChat]),
            model: chance.pick(&MODELS).0.to_owned(),
            links: Vec::new(),
            named: chance.one_in(5).then(|| chance.next() % 8),
        };
        conversation.say(system, 200);
        conversation.say(chance.next(), 20 + chance.below(2000) as u32);
        conversation
    }

    /// The answer of the last turn and the question of the next.
    pub fn goes_on(&mut self, chance: &mut Chance) {
        self.say(chance.next(), 50);
        self.say(chance.next(), 10 + chance.below(300) as u32);
    }

    fn say(&mut self, content: u64, tokens: u32) {
        let (hash, before) = self.links.last().map_or((0, 0), |link| (link.hash, link.tokens));
        self.links.push(Link { hash: mix(hash, content), tokens: before + tokens, ends_message: true });
    }

    fn ask(&self) -> Ask {
        Ask {
            chain: Chain {
                links: self.links.clone(),
                root: 1,
                answers: (self.links.len() as u32).saturating_sub(2) / 2,
            },
            prompt_tokens: self.links.last().map_or(1, |link| link.tokens),
            session_name: self.named,
            ..Ask::new(self.endpoint, self.model.clone())
        }
    }
}

impl Request {
    pub fn of(conversation: &Conversation, at: Option<usize>, number: u64, chance: &mut Chance) -> Request {
        let mut ask = conversation.ask();
        if at.is_none() {
            ask.endpoint = *chance.pick(&[Endpoint::OpenAiEmbeddings, Endpoint::OllamaShow, Endpoint::OllamaGenerate]);
            ask.chain = Chain::default();
            // Names that nobody holds, and other spellings.
            ask.model = chance.pick(&["zig", "MOSS:7b", "fern:3b", "larch:32b", "group"]).to_string();
        }
        if chance.one_in(20) {
            ask.runner = RunnerOptions::with_num_ctx(16_384);
        }
        if chance.one_in(4) {
            ask.priority = Priority::Batch;
        }
        ask.tenant = chance.below(3) as u64;
        ask.max_output_tokens = chance.one_in(3).then_some(500);
        let query = Arc::new(Query { ask, tried: Vec::new(), request: mix(7, number) });
        Request {
            query,
            attempts: 0,
            tried: Vec::new(),
            current: None,
            waiting: None,
            deadline: Moment::MAX,
            conversation: at,
            output_tokens: chance.below(120) as u32,
        }
    }

    /// An attempt failed there.
    pub fn tries(&mut self, upstream: UpstreamId, holding: HoldingId) {
        self.tried.push(upstream);
        Arc::make_mut(&mut self.query).tried.push(holding);
    }

    /// The work it is for an engine. `model` is spelled as the node does.
    pub fn job(&self, model: &str, sent: RunnerOptions) -> Job {
        let ask = &self.query.ask;
        let blocks = ask.chain.links.iter().map(|link| Block { hash: link.hash, tokens_end: link.tokens });
        Job {
            model: model.to_owned(),
            history: History::new(blocks.collect()),
            prompt_tokens: ask.prompt_tokens,
            output_tokens: if ask.endpoint.is_conversation() { self.output_tokens } else { 0 },
            context_tokens: sent.num_ctx(),
            keep_alive: None,
            slowness: 1.0,
            tell_tokens: false,
        }
    }
}
