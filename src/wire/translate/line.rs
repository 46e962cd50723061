//! Answers as Ollama writes them: a line for each piece, and a last one with `done:true`.
//!
//! A plain answer is that last line alone, with all of the text in it. Counts and times that are unknown are
//! left out, as Ollama leaves out its zeros.

use std::time::Duration;

use super::json::{Json, Object};
use super::said::Usage;
use crate::routing::ask::{Dialect, Endpoint};
use crate::wire::error;

/// How long the answer took, counted from the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Until its first byte.
    pub first_token: Duration,
    /// Until its end.
    pub total: Duration,
}

/// What a client is shown of the model's output at once.
#[derive(Debug, Default)]
pub(super) struct Piece<'a> {
    pub content: Option<Json<'a>>,
    pub thinking: Option<Json<'a>>,
    pub tool_calls: Option<Json<'a>>,
    pub logprobs: Option<Json<'a>>,
}

/// How an answer ended.
#[derive(Debug)]
pub(super) struct Done<'a> {
    pub reason: &'a str,
    pub usage: Usage,
    pub total: Duration,
    /// Where a stream allows to tell them apart: until the first token, and from there on.
    pub phases: Option<(Duration, Duration)>,
}

/// An answer's kind and its model as the client wrote it.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub endpoint: Endpoint,
    pub model: String,
}

impl Form {
    /// One answer object, closed or not. `at` is the time that it carries.
    pub fn object<'a>(&'a self, at: &'a str, piece: Piece<'a>, done: Option<&'a Done<'a>>) -> Object<'a> {
        let mut object = Object::of([("model", Json::text(&self.model)), ("created_at", Json::text(at))]);
        let content = piece.content.unwrap_or(Json::text(""));
        if self.endpoint == Endpoint::OllamaGenerate {
            object.put("response", content);
            object.put_some("thinking", piece.thinking);
            object.put_some("tool_calls", piece.tool_calls);
        } else {
            let mut message = Object::of([("role", Json::text("assistant")), ("content", content)]);
            message.put_some("thinking", piece.thinking);
            message.put_some("tool_calls", piece.tool_calls);
            object.put("message", message.into());
        }
        object.put_some("logprobs", piece.logprobs);
        object.put("done", Json::Bool(done.is_some()));
        if let Some(done) = done {
            done.put_into(&mut object);
        }
        object
    }
}

impl<'a> Done<'a> {
    fn put_into(&'a self, object: &mut Object<'a>) {
        let (prompt, output) = self.phases.unwrap_or_default();
        object.put("done_reason", Json::text(self.reason));
        object.put_some("total_duration", nanos(self.total));
        object.put_some("prompt_eval_count", self.usage.prompt.map(Json::Count));
        object.put_some("prompt_eval_duration", nanos(prompt));
        object.put_some("eval_count", self.usage.output.map(Json::Count));
        object.put_some("eval_duration", nanos(output));
    }
}

/// OpenAI's word for why a model stopped, in Ollama's. Words that Ollama has none for stay.
pub(super) fn done_reason(finish: &str) -> &str {
    match finish {
        "tool_calls" | "function_call" => "stop",
        other => other,
    }
}

/// Whether OpenAI's word says that the model was stopped in the midst of what it wrote.
pub(super) fn is_cut(finish: &str) -> bool {
    matches!(finish, "length" | "content_filter")
}

/// Nanoseconds; `None` for none.
pub(super) fn nanos<'a>(duration: Duration) -> Option<Json<'a>> {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    (nanos > 0).then_some(Json::Count(nanos))
}

pub(super) fn write(object: &Object<'_>, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&object.to_bytes());
    // Parts lent from the engine may be laid out over several lines. Within JSON's texts there are none.
    out[at..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    out.push(b'\n');
}

pub(super) fn write_error(message: &str, out: &mut Vec<u8>) {
    // The status is of no matter to this dialect.
    out.extend_from_slice(&error::body(Dialect::Ollama, 502, message));
    out.push(b'\n');
}

/// The answer to a request that ran nothing, as JSON. The model is there, so it is loaded.
pub fn nothing_run(endpoint: Endpoint, model: &str, created_at: &str) -> Vec<u8> {
    let object = match endpoint {
        Endpoint::OllamaEmbed => Object::of([("model", Json::text(model)), ("embeddings", Json::List(Vec::new()))]),
        Endpoint::OllamaEmbeddings => Object::of([("embedding", Json::List(Vec::new()))]),
        _ => {
            let form = Form { endpoint, model: model.to_owned() };
            let done = Done { reason: "load", usage: Usage::default(), total: Duration::ZERO, phases: None };
            return form.object(created_at, Piece::default(), Some(&done)).to_bytes();
        }
    };
    object.to_bytes()
}
