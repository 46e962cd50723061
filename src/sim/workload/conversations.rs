//! Conversations that nobody had: of so many turns, with pauses, over shared system prompts.

use std::sync::Arc;
use std::time::Duration;

use super::text::{Text, Voice};
use super::{Request, Turns};
use crate::routing::chain::mix;
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;

/// A number of tokens or turns: log-normal around its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    pub mean: f64,
    /// Standard deviation of the logarithm; 0: always the mean.
    pub spread: f64,
}

impl Size {
    pub fn draw(self, chance: &mut Chance) -> u32 {
        // The cast saturates.
        chance.around(self.mean, self.spread).round().max(1.0) as u32
    }
}

/// How requests come to their client addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// One web front for all.
    One,
    Each,
    /// So many, evenly.
    Of(u32),
}

/// What the conversations are like.
#[derive(Clone, Debug)]
pub struct Script {
    pub conversations: usize,
    pub turns: Size,
    /// From one beginning to the next, in the mean.
    pub every: Duration,
    /// Beginnings come as chance has it, and not by the clock.
    pub by_chance: bool,
    pub think: Duration,
    pub system_prompts: usize,
    pub system: Size,
    /// The first message, which may bring a document along.
    pub first: Size,
    pub question: Size,
    pub answer: Size,
    pub models: Vec<(Arc<str>, f64)>,
    pub clients: Clients,
}

impl Script {
    pub fn requests(&self) -> usize {
        (self.conversations as f64 * self.turns.mean.max(1.0)).round() as usize
    }
}

pub struct Conversations {
    script: Arc<Script>,
    seed: u64,
    starts: Vec<Moment>,
    talks: Vec<Talk>,
}

/// One conversation so far.
struct Talk {
    chance: Chance,
    text: Text,
    turns_left: u32,
    turn: u64,
    model: Arc<str>,
    client: u64,
    system_prompt: u64,
}

impl Conversations {
    pub fn new(script: Arc<Script>, seed: u64) -> Conversations {
        let mut pauses = Chance::new(seed, 0);
        let mut at = 0.0;
        let mut starts = Vec::with_capacity(script.conversations);
        for _ in 0..script.conversations {
            starts.push(Moment::default() + Duration::from_secs_f64(at));
            let every = script.every.as_secs_f64();
            at += if script.by_chance { pauses.pause(every) } else { every };
        }
        let talks = (0..script.conversations).map(|number| talk(&script, seed, number as u64)).collect();
        Conversations { script, seed, starts, talks }
    }
}

fn talk(script: &Script, seed: u64, number: u64) -> Talk {
    let mut chance = Chance::new(seed, 1 + number);
    let turns_left = script.turns.draw(&mut chance);
    let model = draw_model(script, &mut chance);
    let system_prompt = chance.below(script.system_prompts.max(1)) as u64;
    let client = match script.clients {
        Clients::One => 0,
        Clients::Each => number,
        Clients::Of(count) => number % u64::from(count.max(1)),
    };
    Talk { chance, text: Text::default(), turns_left, turn: 0, model, client, system_prompt }
}

fn draw_model(script: &Script, chance: &mut Chance) -> Arc<str> {
    let all: f64 = script.models.iter().map(|(_, share)| share).sum();
    let mut left = chance.share() * all;
    let found = script.models.iter().find(|(_, share)| {
        left -= share;
        left < 0.0
    });
    found.or(script.models.last()).map_or_else(|| "".into(), |(model, _)| model.clone())
}

impl Turns for Conversations {
    fn starts(&self) -> Vec<Moment> {
        self.starts.clone()
    }

    fn turn(&mut self, conversation: usize) -> Option<Arc<Request>> {
        let (script, talk) = (&self.script, self.talks.get_mut(conversation)?);
        talk.turns_left = talk.turns_left.checked_sub(1)?;
        let own = mix(mix(self.seed, 7), conversation as u64);
        if talk.turn == 0 && script.system_prompts > 0 {
            // The same for all that have it, its length included.
            let mut same = Chance::new(self.seed, u64::MAX - talk.system_prompt);
            let content = same.number();
            talk.text.say(Voice::System, content, script.system.draw(&mut same));
        }
        let question = if talk.turn == 0 { script.first } else { script.question };
        talk.text.say(Voice::User, mix(own, 2 * talk.turn), question.draw(&mut talk.chance));
        let (chain, prompt_tokens) = (talk.text.chain(), talk.text.tokens());
        let output_tokens = script.answer.draw(&mut talk.chance);
        talk.text.say(Voice::Assistant, mix(own, 2 * talk.turn + 1), output_tokens);
        talk.turn += 1;
        Some(Arc::new(Request {
            model: talk.model.clone(),
            chain,
            history: talk.text.history(),
            prompt_tokens,
            output_tokens,
            conversation: conversation as u64,
            client: talk.client,
        }))
    }

    fn think(&self) -> Duration {
        self.script.think
    }
}
