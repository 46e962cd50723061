//! Agents at work, as LMCache recorded them: one file a session, one line a call, with the whole text.
//!
//! The recorded input holds what the agent was told, without its own answers; as a chat client would send
//! it, each call here is the last one, the answer to it, and what was told since. A call that does not go on
//! from the last one begins a conversation anew. Sessions are played as often as is asked, each time with
//! other text of the same lengths.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::text::{BLOCK_TOKENS, TOKEN_CHARS, Text, Voice};
use super::{Request, Turns};
use crate::routing::chain::{hash_text, mix};
use crate::routing::moment::Moment;
use crate::sim::chance::Chance;

/// Recorded sessions and how they are played.
pub struct Agents {
    pub sessions: Vec<Session>,
    pub plays: usize,
    pub every: Duration,
    pub think: Duration,
    pub model: Arc<str>,
}

/// One session.
pub struct Session {
    calls: Vec<Call>,
}

struct Call {
    /// Goes on from the call before.
    continues: bool,
    /// What was told since, or all.
    told: Message,
    answer: Message,
}

struct Message {
    hashes: Vec<u64>,
    tokens: u32,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    input: String,
    #[serde(default)]
    output: String,
}

const BLOCK_CHARS: usize = (BLOCK_TOKENS * TOKEN_CHARS) as usize;

/// The sessions of a folder: its `.jsonl` files whose name begins with `prefix`, in order.
pub fn read(folder: &Path, prefix: &str) -> Result<Vec<Session>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let named = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with(prefix) && name.ends_with(".jsonl")
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(named).collect();
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        text.and_then(|text| parse(&text)).map_err(|error| format!("{}: {error}", path.display()))
    };
    paths.iter().map(read).collect()
}

fn parse(text: &str) -> Result<Session, String> {
    let mut calls = Vec::new();
    let mut before: Option<String> = None;
    for (line, number) in text.lines().zip(1..) {
        let line: Line = serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        let since = before.as_deref().and_then(|before| line.input.strip_prefix(before));
        let since = since.filter(|since| !since.is_empty());
        calls.push(Call {
            continues: since.is_some(),
            told: message(since.unwrap_or(&line.input)),
            answer: message(&line.output),
        });
        before = Some(line.input);
    }
    Ok(Session { calls })
}

fn message(text: &str) -> Message {
    let chars: Vec<char> = text.chars().collect();
    let hashes = chars.chunks(BLOCK_CHARS).map(|block| hash_text(&block.iter().collect::<String>()));
    let hashes: Vec<u64> = if chars.is_empty() { vec![0] } else { hashes.collect() };
    Message { hashes, tokens: (chars.len() as u32).div_ceil(TOKEN_CHARS).max(1) }
}

impl Agents {
    pub fn open(self: &Arc<Self>, seed: u64) -> Playing {
        let mut pauses = Chance::new(seed, 0);
        let mut at = Duration::ZERO;
        let mut starts = Vec::with_capacity(self.plays);
        for _ in 0..self.plays {
            starts.push(Moment::default() + at);
            at += Duration::from_secs_f64(pauses.pause(self.every.as_secs_f64()));
        }
        let talks = (0..self.plays).map(|_| Talk::default()).collect();
        Playing { agents: self.clone(), seed, starts, talks }
    }

    pub fn requests(&self) -> usize {
        (0..self.plays).map(|play| self.session(play).map_or(0, |session| session.calls.len())).sum()
    }

    fn session(&self, play: usize) -> Option<&Session> {
        self.sessions.get(play % self.sessions.len().max(1))
    }
}

/// Sessions under way.
pub struct Playing {
    agents: Arc<Agents>,
    seed: u64,
    starts: Vec<Moment>,
    talks: Vec<Talk>,
}

#[derive(Default)]
struct Talk {
    text: Text,
    call: usize,
}

impl Turns for Playing {
    fn starts(&self) -> Vec<Moment> {
        self.starts.clone()
    }

    fn turn(&mut self, play: usize) -> Option<Arc<Request>> {
        let talk = self.talks.get_mut(play)?;
        let call = self.agents.session(play)?.calls.get(talk.call)?;
        talk.call += 1;
        if !call.continues {
            talk.text = Text::default();
        }
        let salt = mix(self.seed, play as u64);
        let salted = |message: &Message| message.hashes.iter().map(|hash| mix(salt, *hash)).collect::<Vec<u64>>();
        talk.text.add(Voice::User, &salted(&call.told), call.told.tokens);
        let (chain, prompt_tokens) = (talk.text.chain(), talk.text.tokens());
        talk.text.add(Voice::Assistant, &salted(&call.answer), call.answer.tokens);
        Some(Arc::new(Request {
            model: self.agents.model.clone(),
            chain,
            history: talk.text.history(),
            prompt_tokens,
            output_tokens: call.answer.tokens,
            conversation: play as u64,
            client: play as u64,
        }))
    }

    fn think(&self) -> Duration {
        self.agents.think
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_repeats_the_last_goes_on_from_it() {
        let text = r#"{"input": "do this", "output": "done"}
{"input": "do this and that", "output": "done too"}
{"input": "other", "output": ""}"#;
        let session = parse(text).unwrap();
        assert_eq!(session.calls.iter().map(|call| call.continues).collect::<Vec<_>>(), [false, true, false]);
        let think = Duration::from_secs(1);
        let agents = Agents { sessions: vec![session], plays: 2, every: think, think, model: "m".into() };
        let mut playing = Arc::new(agents).open(1);
        let calls: Vec<_> = std::iter::from_fn(|| playing.turn(0)).collect();
        assert_eq!(calls.iter().map(|call| call.chain.links.len()).collect::<Vec<_>>(), [1, 3, 1]);
        assert_eq!(calls[1].chain.links[0], calls[0].chain.links[0]);
        let again = playing.turn(1).unwrap();
        assert_ne!(again.chain.links[0], calls[0].chain.links[0], "another play says something else");
    }
}
