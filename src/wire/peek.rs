//! What a request's body asks for, found in one pass over its bytes.
//!
//! `peek` distils an `Ask` and tells where the model's name stands, so that it alone can be exchanged.
//! It judges only what routing cannot do without: that the body is a JSON object, or a form, and names
//! one model. Any other oddity is for the engine to answer. The body is never changed.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::DeserializeSeed;
use serde_json::Deserializer;
use serde_json::de::Read;
use serde_json::value::RawValue;
use thiserror::Error;

use super::body::{Body, Reader, Said};
use super::edit::Edit;
use super::lexer::{Declined, Lexer};
use super::steps::{ENTRY_LIMIT, TOO_MANY};
use super::value::Take;
use super::{form, number, stream_options, surrogate};
use crate::routing::ask::{Ask, Dialect, Endpoint, Needs};
use crate::routing::chain::Chain;
use crate::routing::runner::RunnerOption;

/// An ask, and the places in the body that may have to change.
#[derive(Clone, Debug, PartialEq)]
pub struct Peeked {
    pub ask: Ask,
    /// The model's JSON string, quotes included; in a form the bare name.
    pub model_span: Range<usize>,
    /// What would make a stream of OpenAI's tell its counts; `None`: it was asked to, or is none.
    pub usage_edit: Option<Edit>,
    /// It names models besides, that a gateway behind could take instead.
    pub names_others: bool,
    /// The values of Ollama's options that a model is loaded with, in order; one that came twice is there twice.
    pub option_spans: Vec<(RunnerOption, Range<usize>)>,
}

/// A model's name as it has to be spelled where a body names it.
pub fn spell(endpoint: Endpoint, model: &str) -> Vec<u8> {
    if endpoint.takes_form() {
        model.as_bytes().to_vec()
    } else {
        serde_json::Value::from(model).to_string().into_bytes()
    }
}

/// The value of such an option as a body has it. Ollama takes null for an option that is left out.
pub fn spell_option(option: RunnerOption, value: Option<i32>) -> Vec<u8> {
    match (option, value) {
        (_, None) => b"null".to_vec(),
        (RunnerOption::UseMmap, Some(on)) => (on != 0).to_string().into_bytes(),
        (_, Some(value)) => value.to_string().into_bytes(),
    }
}

/// Why a body cannot be routed. All are the client's to mend: status 400.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeekError {
    #[error("the request has no body; send a JSON object with a `model`")]
    Empty,
    #[error(
        "the request body is not valid JSON (line {line}, column {column}); send one JSON object and nothing after it"
    )]
    NotJson { line: usize, column: usize },
    #[error("the request body is nested too deeply; send at most 127 levels")]
    TooDeep,
    #[error("the request body is JSON but no object; send an object with a `model`")]
    NotObject,
    #[error("the request body is no form; send multipart/form-data with a `model` part")]
    NotForm,
    #[error(
        "a part of the form names itself in more than one way; give each one Content-Disposition with one plain `name`"
    )]
    OddPart,
    #[error("the request has no `model`; name one of the models listed by GET {list}")]
    NoModel { list: &'static str },
    #[error("the request's `model` is empty; name one of the models listed by GET {list}")]
    EmptyModel { list: &'static str },
    #[error("the request's `model` is not a string; name one of the models listed by GET {list}")]
    ModelNotText { list: &'static str },
    #[error("the request names its `model` twice; name it once")]
    ModelTwice,
    #[error("the request's `model` is longer than {NAME_LIMIT} bytes; name one of the models listed by GET {list}")]
    ModelTooLong { list: &'static str },
    #[error("the request's `model` holds control characters; name one of the models listed by GET {list}")]
    ModelUnprintable { list: &'static str },
    #[error("the request has more than {ENTRY_LIMIT} messages, parts or texts; send fewer")]
    TooMany,
}

/// Longest name of a model, in bytes: it goes into headers and logs.
const NAME_LIMIT: usize = 256;

/// Reads a JSON body that came to `endpoint`, and of those that are not quite JSON the ones which engines take.
/// To mend such a body it is copied.
pub fn peek(bytes: &[u8], endpoint: Endpoint) -> Result<Peeked, PeekError> {
    let found = peek_as_it_is(bytes, endpoint);
    if !matches!(found, Err(PeekError::NotJson { .. })) {
        return found;
    }
    let mut mended = Cow::Borrowed(bytes);
    surrogate::mend(&mut mended);
    number::mend(&mut mended);
    if matches!(mended, Cow::Owned(_)) { peek_as_it_is(&mended, endpoint) } else { found }
}

/// Reads a form that came to `endpoint`; its content type names the boundary of its parts.
pub fn peek_form(bytes: &[u8], content_type: &str, endpoint: Endpoint) -> Result<Peeked, PeekError> {
    let list = models_path(endpoint.dialect());
    let boundary = form::boundary(content_type).ok_or(PeekError::NotForm)?;
    let (mut span, mut stream) = (None, endpoint.streams_by_default());
    for (n, part) in form::Parts::new(bytes, &boundary).enumerate() {
        match part.name.as_str() {
            _ if n >= ENTRY_LIMIT => return Err(PeekError::TooMany),
            _ if part.is_odd => return Err(PeekError::OddPart),
            _ if part.is_file => {}
            "model" if span.replace(part.value.clone()).is_some() => return Err(PeekError::ModelTwice),
            "stream" => {
                stream = [b"true" as &[u8], b"1"].iter().any(|yes| bytes[part.value.clone()].eq_ignore_ascii_case(yes))
            }
            _ => {}
        }
    }
    let model_span = span.ok_or(PeekError::NoModel { list })?;
    let model = std::str::from_utf8(&bytes[model_span.clone()]).map_err(|_| PeekError::ModelNotText { list })?;
    check_name(model, list)?;
    Ok(Peeked {
        ask: Ask { stream, ..Ask::new(endpoint, model.to_string()) },
        model_span,
        option_spans: Vec::new(),
        usage_edit: None,
        names_others: false,
    })
}

/// Reads a JSON body and copies none.
pub fn peek_as_it_is(bytes: &[u8], endpoint: Endpoint) -> Result<Peeked, PeekError> {
    read(bytes, endpoint).and_then(|body| understood(body, bytes, endpoint))
}

fn understood(body: Body<'_>, bytes: &[u8], endpoint: Endpoint) -> Result<Peeked, PeekError> {
    let (model, raw) = model(&body, endpoint.dialect())?;
    let model_span = span(bytes, raw);
    let stream = body.stream.unwrap_or(endpoint.streams_by_default());
    let counts_on_request = matches!(endpoint, Endpoint::OpenAiChat | Endpoint::OpenAiCompletions);
    let usage_edit =
        (stream && counts_on_request).then(|| stream_options::usage_edit(bytes, &body.stream_options)).flatten();
    let max_output_tokens = body.max_completion_tokens.or(body.max_tokens).or(body.options.num_predict);
    let (runner, thinking, tools) = (body.options.runner, body.thinks, body.tools.any());
    let option_spans = body.options.spans.iter().map(|(option, raw)| (*option, span(bytes, raw))).collect();
    let (session_name, previous_response) = (body.cache_key, body.previous_response);
    let names_others = body.names_others;
    let (chain, size) = body.into_chain();
    let ask = Ask {
        stream,
        chain: if endpoint.is_conversation() { chain } else { Chain::default() },
        prompt_tokens: size.tokens().max(1),
        max_output_tokens,
        runner,
        needs: Needs { vision: size.images > 0, tools, embedding: is_embedding(endpoint), thinking },
        session_name,
        previous_response,
        ..Ask::new(endpoint, model)
    };
    Ok(Peeked { ask, model_span, option_spans, usage_edit, names_others })
}

const BOM: &[u8] = b"\xef\xbb\xbf";

fn read(bytes: &[u8], endpoint: Endpoint) -> Result<Body<'_>, PeekError> {
    let json = bytes.strip_prefix(BOM).unwrap_or(bytes);
    if json.trim_ascii().is_empty() {
        return Err(PeekError::Empty);
    }
    // One look at all bytes is cheaper than one at each text; where it fails, the place is told by the other way.
    match simdutf8::basic::from_utf8(json) {
        Ok(text) => read_fast(text, endpoint).unwrap_or_else(|_| read_from(Deserializer::from_str(text), endpoint)),
        Err(_) => read_from(Deserializer::from_slice(json), endpoint),
    }
}

fn read_fast(text: &str, endpoint: Endpoint) -> Result<Result<Body<'_>, PeekError>, Declined> {
    let (mut from, mut body) = (Lexer::new(text), Body::default());
    Take(Reader { endpoint, body: &mut body }).deserialize(&mut from)?;
    from.end()?;
    Ok(if body.is_object { Ok(body) } else { Err(PeekError::NotObject) })
}

fn read_from<'de, R: Read<'de>>(mut from: Deserializer<R>, endpoint: Endpoint) -> Result<Body<'de>, PeekError> {
    let mut body = Body::default();
    Take(Reader { endpoint, body: &mut body }).deserialize(&mut from).and_then(|()| from.end()).map_err(unreadable)?;
    if body.is_object { Ok(body) } else { Err(PeekError::NotObject) }
}

fn unreadable(error: serde_json::Error) -> PeekError {
    // serde_json tells these cases by their words only.
    match error.to_string() {
        words if words.starts_with("recursion limit exceeded") => PeekError::TooDeep,
        words if words.starts_with(TOO_MANY) => PeekError::TooMany,
        _ => PeekError::NotJson { line: error.line(), column: error.column() },
    }
}

/// The model's name and its place: `model`, or on Ollama's paths `name` where `model` says nothing.
fn model<'de>(body: &Body<'de>, dialect: Dialect) -> Result<(String, &'de RawValue), PeekError> {
    let list = models_path(dialect);
    match named(&body.model, list) {
        Err(missing @ (PeekError::NoModel { .. } | PeekError::EmptyModel { .. })) => {
            named(&body.name, list).map_err(|older| if body.name.raw.is_some() { older } else { missing })
        }
        found => found,
    }
}

fn named<'de>(said: &Said<'de>, list: &'static str) -> Result<(String, &'de RawValue), PeekError> {
    if said.twice {
        return Err(PeekError::ModelTwice);
    }
    let raw = said.raw.filter(|raw| raw.get() != "null").ok_or(PeekError::NoModel { list })?;
    let model: String = serde_json::from_str(raw.get()).map_err(|_| PeekError::ModelNotText { list })?;
    check_name(&model, list)?;
    Ok((model, raw))
}

fn check_name(model: &str, list: &'static str) -> Result<(), PeekError> {
    if model.trim().is_empty() {
        Err(PeekError::EmptyModel { list })
    } else if model.len() > NAME_LIMIT {
        Err(PeekError::ModelTooLong { list })
    } else if model.bytes().any(|b| b.is_ascii_control()) {
        Err(PeekError::ModelUnprintable { list })
    } else {
        Ok(())
    }
}

fn models_path(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Ollama => "/api/tags",
        Dialect::OpenAi | Dialect::Anthropic => "/v1/models",
    }
}

/// A raw value borrows from the body, so its address tells its place.
pub(super) fn span(bytes: &[u8], raw: &RawValue) -> Range<usize> {
    let text = raw.get();
    let start = (text.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
    start..start + text.len()
}

fn is_embedding(endpoint: Endpoint) -> bool {
    matches!(endpoint, Endpoint::OllamaEmbed | Endpoint::OllamaEmbeddings | Endpoint::OpenAiEmbeddings)
}

#[cfg(test)]
mod tests;
