//! An answer's bytes, in the dialect of the request.
//!
//! One chunk a token between the opening frames and the closing ones; or the whole answer at once. A
//! tool call is one chunk, as engines that parse their model's output send it. What differs between the
//! dialects is in the files below; nothing here knows about sockets.

pub mod anthropic;
pub mod ollama;
pub mod openai;
pub mod rerank;
pub mod responses;

use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Value;

use super::call::Call;
use super::kind::Kind;
use super::text::Token;
use crate::routing::ask::{Dialect, Endpoint};
use crate::sim::engine::Usage;

/// Who answers what.
pub struct Voice {
    pub kind: &'static Kind,
    pub call: Call,
    /// As the client spelt it, where it did.
    pub model: String,
    pub time: SystemTime,
    /// Tells answers apart, those of other nodes too; part of the ids in them.
    pub id: String,
}

/// How an answer ended.
pub struct Ending {
    pub usage: Usage,
    /// Ollama's `done_reason`: `stop`, `length`, `load` or `unload`.
    pub reason: &'static str,
    pub text: String,
    /// Prompt and answer, for Ollama's `context`.
    pub context: Vec<Token>,
}

/// The ways to tell an answer: the dialects, and OpenAI's second one.
enum Manner {
    Ollama,
    OpenAi,
    Responses,
    Anthropic,
}

impl Ending {
    /// Nothing was made but room.
    pub fn of_unload() -> Ending {
        Ending { usage: Usage::default(), reason: "unload", text: String::new(), context: Vec::new() }
    }
}

impl Voice {
    pub fn content_type(&self, stream: bool) -> &'static str {
        match (stream, self.call.endpoint.dialect()) {
            (false, _) => "application/json; charset=utf-8",
            (true, Dialect::Ollama) => "application/x-ndjson",
            (true, _) => "text/event-stream",
        }
    }

    /// The chunks of a stream before its first token.
    pub fn opening(&self, usage: &Usage) -> Vec<Bytes> {
        match self.manner() {
            Manner::Ollama => Vec::new(),
            Manner::OpenAi => openai::opening(self),
            Manner::Responses => responses::opening(self),
            Manner::Anthropic => anthropic::opening(self, usage),
        }
    }

    /// One token of a stream, counted from zero; nothing while a tool call is generated.
    pub fn piece(&self, index: usize, text: &str) -> Option<Bytes> {
        if self.call.form.call().is_some() {
            return None;
        }
        Some(match self.manner() {
            Manner::Ollama => ollama::line(&ollama::piece(self, text)),
            Manner::OpenAi => openai::event(&openai::piece(self, text)),
            Manner::Responses => responses::piece(self, index, text),
            Manner::Anthropic => anthropic::piece(text),
        })
    }

    /// The last chunks of a stream.
    pub fn closing(&self, ending: &Ending) -> Vec<Bytes> {
        match self.manner() {
            Manner::Ollama => ollama::closing(self, ending),
            Manner::OpenAi => openai::closing(self, ending),
            Manner::Responses => responses::closing(self, ending),
            Manner::Anthropic => anthropic::closing(self, ending),
        }
    }

    /// The answer in one piece.
    pub fn whole(&self, ending: &Ending) -> Value {
        match self.manner() {
            Manner::Ollama => ollama::answer(self, ending),
            Manner::OpenAi => openai::answer(self, ending),
            Manner::Responses => responses::answer(self, ending),
            Manner::Anthropic => anthropic::answer(self, ending),
        }
    }

    pub fn embeddings(&self, vectors: &[Vec<f32>], usage: &Usage) -> Value {
        match self.manner() {
            Manner::Ollama => ollama::embeddings(self, vectors, usage),
            _ => openai::embeddings(self, vectors, usage),
        }
    }

    fn manner(&self) -> Manner {
        match (self.call.endpoint, self.call.endpoint.dialect()) {
            (Endpoint::OpenAiResponses, _) => Manner::Responses,
            (_, Dialect::Ollama) => Manner::Ollama,
            (_, Dialect::OpenAi) => Manner::OpenAi,
            (_, Dialect::Anthropic) => Manner::Anthropic,
        }
    }
}
