//! Answers in OpenAI's dialect: server-sent events and their one-piece forms.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Ending, Voice};
use crate::date::unix_seconds;
use crate::routing::ask::Endpoint;
use crate::sim::engine::Usage;
use crate::sim::face::form::ToolCall;
use crate::sim::face::text;

pub fn event(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// The chunk with a role and no text, where the engine begins with one.
pub fn opening(voice: &Voice) -> Vec<Bytes> {
    if !voice.kind.role_first || voice.call.endpoint != Endpoint::OpenAiChat {
        return Vec::new();
    }
    let mut first = piece(voice, "");
    first["choices"][0]["delta"]["role"] = json!("assistant");
    vec![event(&first)]
}

pub fn piece(voice: &Voice, text: &str) -> Value {
    chunk(voice, text, None)
}

/// The tool call if there is one, the finish, the usage if the client asked for it, and the end mark.
pub fn closing(voice: &Voice, ending: &Ending) -> Vec<Bytes> {
    let mut events = Vec::new();
    if let Some(call) = voice.call.form.call() {
        let mut chunk = piece(voice, "");
        chunk["choices"][0]["delta"]["tool_calls"] = tool_calls(voice, call);
        events.push(event(&chunk));
    }
    events.push(event(&chunk(voice, "", Some(finish_reason(voice, ending)))));
    if voice.call.include_usage {
        let mut last = head(voice, true);
        last["choices"] = json!([]);
        last["usage"] = usage(&ending.usage);
        events.push(event(&last));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}

pub fn answer(voice: &Voice, ending: &Ending) -> Value {
    let mut answer = head(voice, false);
    let reason = finish_reason(voice, ending);
    answer["choices"] = match voice.call.endpoint {
        Endpoint::OpenAiChat => json!([{"index": 0, "message": message(voice, &ending.text), "finish_reason": reason}]),
        _ => json!([{"index": 0, "text": ending.text, "logprobs": null, "finish_reason": reason}]),
    };
    answer["usage"] = usage(&ending.usage);
    answer
}

fn message(voice: &Voice, text: &str) -> Value {
    let mut message = json!({"role": "assistant", "content": text});
    if let Some(call) = voice.call.form.call() {
        message["tool_calls"] = tool_calls(voice, call);
    }
    message
}

pub fn embeddings(voice: &Voice, vectors: &[Vec<f32>], usage: &Usage) -> Value {
    let numbers = |vector: &Vec<f32>| if voice.call.base64 { json!(text::base64(vector)) } else { json!(vector) };
    let entry = |(index, vector)| json!({"object": "embedding", "index": index, "embedding": numbers(vector)});
    json!({
        "object": "list",
        "data": vectors.iter().enumerate().map(entry).collect::<Vec<_>>(),
        "model": voice.model,
        "usage": {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens},
    })
}

pub fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        404 => "not_found_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
}

fn chunk(voice: &Voice, text: &str, finish_reason: Option<&str>) -> Value {
    let mut chunk = head(voice, true);
    chunk["choices"] = match voice.call.endpoint {
        Endpoint::OpenAiChat => json!([{
            "index": 0,
            "delta": delta(voice, text),
            "finish_reason": finish_reason,
        }]),
        _ => json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish_reason}]),
    };
    chunk
}

fn delta(voice: &Voice, text: &str) -> Value {
    if voice.kind.role_first { json!({"content": text}) } else { json!({"role": "assistant", "content": text}) }
}

fn head(voice: &Voice, stream: bool) -> Value {
    let (prefix, object) = match (voice.call.endpoint, stream) {
        (Endpoint::OpenAiChat, true) => ("chatcmpl", "chat.completion.chunk"),
        (Endpoint::OpenAiChat, false) => ("chatcmpl", "chat.completion"),
        _ => ("cmpl", "text_completion"),
    };
    json!({
        "id": format!("{prefix}-{}", voice.id),
        "object": object,
        "created": unix_seconds(voice.time),
        "model": voice.model,
        "system_fingerprint": "fp_simulated",
    })
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": u64::from(usage.prompt_tokens) + u64::from(usage.output_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}

fn tool_calls(voice: &Voice, call: &ToolCall) -> Value {
    json!([{
        "index": 0,
        "id": format!("call_{}", voice.id),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments.to_string()},
    }])
}

/// OpenAI knows no `load`.
fn finish_reason(voice: &Voice, ending: &Ending) -> &'static str {
    match (voice.call.form.call(), ending.reason) {
        (Some(_), _) => "tool_calls",
        (None, "length") => "length",
        (None, _) => "stop",
    }
}
