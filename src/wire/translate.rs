//! A client that speaks Ollama, an engine that speaks OpenAI: both ways, and only these ways.
//!
//! `request` turns a body of `/api/chat`, `/api/generate`, `/api/embed` or `/api/embeddings` into what the
//! engine's `/v1` path takes; `Answer` turns what comes back, chunk by chunk, into what an Ollama would
//! have said. Nothing that shapes the answer is lost in silence: it is said in the engine's words,
//! refused by the name of its field, or, where losing it cannot change the answer, noted in `dropped`.
//! Fields that Ollama does not know go through as they are: the engine knows best whether it does.

mod answer;
mod call;
mod chat;
mod draft;
mod embed;
mod fault;
mod fields;
mod format;
mod gather;
mod generate;
mod image;
mod json;
mod line;
mod message;
mod options;
mod raw;
mod refusal;
mod said;
mod stream;
mod think;
mod vectors;

pub use answer::{Answer, End, Ending};
pub use line::{Took, nothing_run};
pub use refusal::Untranslatable;

use crate::routing::ask::Endpoint;
use fields::Fields;
use refusal::refuse;

/// What a request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Translated {
    /// Send this to the engine.
    Call(Call),
    /// The request only wanted the model loaded, which here it always is, or had nothing in it to embed:
    /// answer with `nothing_run`.
    NothingToRun,
}

/// A request in the engine's dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub path: &'static str,
    pub body: Vec<u8>,
    /// Fields and options that steer Ollama's runner or its memory, not the answer, and were left out.
    pub dropped: Vec<&'static str>,
}

/// Translates a body that came to one of Ollama's paths. `model` is the upstream's name for the model.
pub fn request(endpoint: Endpoint, body: &[u8], model: &str) -> Result<Translated, Untranslatable> {
    let fields = Fields::read(body).ok_or_else(|| Untranslatable::new("the body", fields::UNREADABLE))?;
    match endpoint {
        Endpoint::OllamaChat => chat::request(fields, model),
        Endpoint::OllamaGenerate => generate::request(fields, model),
        Endpoint::OllamaEmbed => embed::request(fields, model, "input"),
        Endpoint::OllamaEmbeddings => embed::request(fields, model, "prompt"),
        _ => refuse(endpoint.path(), "such an engine has nothing like it"),
    }
}

#[cfg(test)]
mod tests;
