//! Answers in Anthropic's dialect: named events, and a message in one piece.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Ending, Voice};
use crate::sim::engine::Usage;
use crate::sim::face::form::ToolCall;

/// The head of a stream; the block that text goes into stands open.
pub fn opening(voice: &Voice, usage: &Usage) -> Vec<Bytes> {
    let mut message = message(voice);
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    message["usage"] = counts(usage);
    let mut events = vec![event(json!({"type": "message_start", "message": message}))];
    if voice.call.form.call().is_none() {
        events.push(block_start(json!({"type": "text", "text": ""})));
    }
    events
}

pub fn piece(text: &str) -> Bytes {
    block_delta(json!({"type": "text_delta", "text": text}))
}

/// A whole tool call, or the end of the text; then the end of the message.
pub fn closing(voice: &Voice, ending: &Ending) -> Vec<Bytes> {
    let mut events = Vec::new();
    if let Some(call) = voice.call.form.call() {
        events.push(block_start(block_of(voice, call, json!({}))));
        events.push(block_delta(json!({"type": "input_json_delta", "partial_json": call.arguments.to_string()})));
    }
    events.push(event(json!({"type": "content_block_stop", "index": 0})));
    events.push(event(json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(voice, ending), "stop_sequence": null},
        "usage": counts(&ending.usage),
    })));
    events.push(event(json!({"type": "message_stop"})));
    events
}

pub fn answer(voice: &Voice, ending: &Ending) -> Value {
    let mut message = message(voice);
    message["content"] = match voice.call.form.call() {
        Some(call) => json!([block_of(voice, call, call.arguments.clone())]),
        None => json!([{"type": "text", "text": ending.text}]),
    };
    message["stop_reason"] = json!(stop_reason(voice, ending));
    message["usage"] = counts(&ending.usage);
    message
}

/// The answer of `/v1/messages/count_tokens`.
pub fn count(tokens: usize) -> Value {
    json!({"input_tokens": tokens})
}

pub fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        404 => "not_found_error",
        413 => "request_too_large",
        503 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn message(voice: &Voice) -> Value {
    json!({
        "id": format!("msg_{}", voice.id),
        "type": "message",
        "role": "assistant",
        "model": voice.model,
        "stop_sequence": null,
    })
}

fn block_of(voice: &Voice, call: &ToolCall, input: Value) -> Value {
    json!({"type": "tool_use", "id": format!("toolu_{}", voice.id), "name": call.name, "input": input})
}

/// Here what was cached does not count as input.
fn counts(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    })
}

fn stop_reason(voice: &Voice, ending: &Ending) -> &'static str {
    match (voice.call.form.call(), ending.reason) {
        (Some(_), _) => "tool_use",
        (None, "length") => "max_tokens",
        (None, _) => "end_turn",
    }
}

fn block_start(block: Value) -> Bytes {
    event(json!({"type": "content_block_start", "index": 0, "content_block": block}))
}

fn block_delta(delta: Value) -> Bytes {
    event(json!({"type": "content_block_delta", "index": 0, "delta": delta}))
}

fn event(value: Value) -> Bytes {
    Bytes::from(format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default()))
}
