//! Vectors as Ollama writes them, their numbers copied as the engine wrote them.
//!
//! The order is that of the request's texts, which OpenAI's form tells by `index` and not by place. An answer
//! of another shape is none: a batch comes back whole or not at all.

use std::time::Duration;

use serde_json::value::RawValue;

use super::fields::Fields;
use super::json::{Json, Object};
use super::line::{self, Form};
use super::raw;
use super::said::Usage;
use crate::routing::ask::Endpoint;

/// The answer's body; `None` if the engine's is no list of vectors.
pub(super) fn translate(body: &[u8], form: &Form, total: Duration) -> Option<Vec<u8>> {
    let mut fields = Fields::read(body)?;
    let usage = Usage::take(&mut fields);
    let mut vectors = raw::items(fields.take("data")?)?
        .into_iter()
        .enumerate()
        .map(|(at, item)| vector(at, item))
        .collect::<Option<Vec<_>>>()?;
    vectors.sort_by_key(|(index, _)| *index);
    let mut vectors = vectors.into_iter().map(|(_, vector)| Json::Raw(vector));
    if form.endpoint == Endpoint::OllamaEmbeddings {
        return Some(Object::of([("embedding", vectors.next()?)]).to_bytes());
    }
    let mut object = Object::of([("model", Json::text(&form.model)), ("embeddings", Json::List(vectors.collect()))]);
    object.put_some("total_duration", line::nanos(total));
    object.put_some("prompt_eval_count", usage.prompt.map(Json::Count));
    Some(object.to_bytes())
}

fn vector(at: usize, item: &RawValue) -> Option<(u64, &RawValue)> {
    let mut fields = Fields::of(item)?;
    let index = fields.take("index").and_then(raw::count).unwrap_or(at as u64);
    let vector = fields.take("embedding").filter(|vector| raw::is_list(vector))?;
    Some((index, vector))
}
