//! An answer's bytes, in the dialect of the request.
//!
//! One chunk a token, then the closing frames; or the whole answer at once. What differs between the
//! dialects is in `ollama` and `openai`; nothing here knows about sockets.

use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Value;

use super::text::Token;
use super::{ollama, openai};
use crate::routing::ask::{Dialect, Endpoint};
use crate::sim::engine::Usage;

/// Who answers whom.
pub struct Voice {
    pub endpoint: Endpoint,
    /// As the client spelt it.
    pub model: String,
    pub include_usage: bool,
    pub time: SystemTime,
    /// Tells answers apart; part of OpenAI's ids.
    pub number: u64,
}

/// How an answer ended.
pub struct Ending {
    pub usage: Usage,
    /// Ollama's `done_reason`: `stop`, `length`, `load` or `unload`.
    pub reason: &'static str,
    /// Prompt and answer, for Ollama's `context`.
    pub context: Vec<Token>,
}

impl Ending {
    /// Nothing was made but room.
    pub fn of_unload() -> Ending {
        Ending { usage: Usage::default(), reason: "unload", context: Vec::new() }
    }
}

impl Voice {
    pub fn content_type(&self, stream: bool) -> &'static str {
        match (stream, self.endpoint.dialect()) {
            (false, _) => "application/json; charset=utf-8",
            (true, Dialect::Ollama) => "application/x-ndjson",
            (true, _) => "text/event-stream",
        }
    }

    /// One token of a stream.
    pub fn piece(&self, text: &str) -> Bytes {
        match self.endpoint.dialect() {
            Dialect::Ollama => ollama::line(&ollama::piece(self, text)),
            _ => openai::event(&openai::piece(self, text)),
        }
    }

    /// The last chunks of a stream.
    pub fn closing(&self, ending: &Ending) -> Vec<Bytes> {
        match self.endpoint.dialect() {
            Dialect::Ollama => vec![ollama::line(&ollama::answer(self, "", ending))],
            _ => openai::closing(self, ending),
        }
    }

    /// The answer in one piece.
    pub fn whole(&self, text: &str, ending: &Ending) -> Value {
        match self.endpoint.dialect() {
            Dialect::Ollama => ollama::answer(self, text, ending),
            _ => openai::answer(self, text, ending),
        }
    }

    pub fn embeddings(&self, vectors: &[Vec<f32>], usage: &Usage) -> Value {
        match self.endpoint.dialect() {
            Dialect::Ollama => ollama::embeddings(self, vectors, usage),
            _ => openai::embeddings(self, vectors, usage),
        }
    }
}

/// An error in the form that a path's callers understand.
pub fn error(path: &str, status: u16, message: &str) -> Value {
    match Dialect::of_path(path) {
        Dialect::Ollama => ollama::error(message),
        _ => openai::error(status, message),
    }
}
