//! An answer's bytes, in the dialect of the request.
//!
//! One chunk a token between the opening frames and the closing ones; or the whole answer at once. A
//! tool call is one chunk, as engines that parse their model's output send it. What differs between the
//! dialects is in `ollama`, `openai` and `anthropic`; nothing here knows about sockets.

use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Value;

use super::form::Form;
use super::service::Service;
use super::text::Token;
use super::{anthropic, ollama, openai};
use crate::routing::ask::Dialect;
use crate::sim::engine::Usage;

/// Who answers whom.
pub struct Voice {
    pub service: Service,
    /// As the client spelt it.
    pub model: String,
    pub include_usage: bool,
    /// What the answer has to be.
    pub form: Form,
    /// `encoding_format: base64`.
    pub base64: bool,
    pub time: SystemTime,
    /// Tells answers apart; part of the ids in them.
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
        match (stream, self.service.dialect) {
            (false, _) => "application/json; charset=utf-8",
            (true, Dialect::Ollama) => "application/x-ndjson",
            (true, _) => "text/event-stream",
        }
    }

    /// The chunks of a stream before its first token.
    pub fn opening(&self, usage: &Usage) -> Vec<Bytes> {
        match self.service.dialect {
            Dialect::Anthropic => anthropic::opening(self, usage),
            Dialect::Ollama | Dialect::OpenAi => Vec::new(),
        }
    }

    /// One token of a stream; nothing while a tool call is generated.
    pub fn piece(&self, text: &str) -> Option<Bytes> {
        if self.form.call().is_some() {
            return None;
        }
        Some(match self.service.dialect {
            Dialect::Ollama => ollama::line(&ollama::piece(self, text)),
            Dialect::OpenAi => openai::event(&openai::piece(self, text)),
            Dialect::Anthropic => anthropic::piece(text),
        })
    }

    /// The last chunks of a stream.
    pub fn closing(&self, ending: &Ending) -> Vec<Bytes> {
        match self.service.dialect {
            Dialect::Ollama => ollama::closing(self, ending),
            Dialect::OpenAi => openai::closing(self, ending),
            Dialect::Anthropic => anthropic::closing(self, ending),
        }
    }

    /// The answer in one piece.
    pub fn whole(&self, text: &str, ending: &Ending) -> Value {
        match self.service.dialect {
            Dialect::Ollama => ollama::answer(self, text, ending),
            Dialect::OpenAi => openai::answer(self, text, ending),
            Dialect::Anthropic => anthropic::answer(self, text, ending),
        }
    }

    pub fn embeddings(&self, vectors: &[Vec<f32>], usage: &Usage) -> Value {
        match self.service.dialect {
            Dialect::Ollama => ollama::embeddings(self, vectors, usage),
            _ => openai::embeddings(self, vectors, usage),
        }
    }
}

/// An error in the form that a path's callers understand.
pub fn error(path: &str, status: u16, message: &str) -> Value {
    match Dialect::of_path(path) {
        Dialect::Ollama => ollama::error(message),
        Dialect::OpenAi => openai::error(status, message),
        Dialect::Anthropic => anthropic::error(status, message),
    }
}
