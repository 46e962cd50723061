//! Ollama's `format`: the word `json`, or a JSON schema that the answer has to follow.
//!
//! Ollama enforces a schema, so `strict` is asked for: an engine that cannot promise it should say so.

use serde_json::value::RawValue;

use super::json::{Json, Object};
use super::raw;
use super::refusal::{Untranslatable, refuse};

/// What `response_format` has to be.
pub(super) fn response_format(format: &RawValue) -> Result<Json<'_>, Untranslatable> {
    if raw::is_object(format) {
        let schema =
            Object::of([("name", Json::text("answer")), ("strict", Json::Bool(true)), ("schema", Json::Raw(format))]);
        return Ok(Object::of([("type", Json::text("json_schema")), ("json_schema", schema.into())]).into());
    }
    match raw::text(format).as_deref() {
        Some("json") => Ok(Object::of([("type", Json::text("json_object"))]).into()),
        _ => refuse("format", "it is neither \"json\" nor a JSON schema"),
    }
}
