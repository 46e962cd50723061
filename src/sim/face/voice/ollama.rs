//! Answers in Ollama's dialect: NDJSON lines and their one-piece forms.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Ending, Voice};
use crate::date::rfc3339;
use crate::routing::ask::Endpoint;
use crate::sim::engine::Usage;
use crate::sim::face::form::ToolCall;

pub fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

pub fn piece(voice: &Voice, text: &str) -> Value {
    let mut frame = frame(voice, text);
    frame["done"] = json!(false);
    frame
}

/// The tool call, if the answer is one, on a line of its own; then the last line.
pub fn closing(voice: &Voice, ending: &Ending) -> Vec<Bytes> {
    let call = voice.call.form.call().map(|call| {
        let mut frame = piece(voice, "");
        frame["message"]["tool_calls"] = tool_calls(voice, call);
        line(&frame)
    });
    call.into_iter().chain([line(&last(voice, "", ending))]).collect()
}

/// The whole answer.
pub fn answer(voice: &Voice, ending: &Ending) -> Value {
    let mut frame = last(voice, &ending.text, ending);
    if let Some(call) = voice.call.form.call() {
        frame["message"]["tool_calls"] = tool_calls(voice, call);
    }
    frame
}

fn last(voice: &Voice, text: &str, ending: &Ending) -> Value {
    let mut frame = frame(voice, text);
    frame["done"] = json!(true);
    frame["done_reason"] = json!(ending.reason);
    let usage = &ending.usage;
    let numbers = [
        ("total_duration", usage.total().as_nanos()),
        ("load_duration", usage.load.as_nanos()),
        ("prompt_eval_count", usage.prompt_tokens.into()),
        ("prompt_eval_duration", usage.prefill.as_nanos()),
        ("eval_count", usage.output_tokens.into()),
        ("eval_duration", usage.decode.as_nanos()),
    ];
    for (name, number) in numbers {
        // Ollama leaves zeros out.
        if number > 0 {
            frame[name] = json!(u64::try_from(number).unwrap_or(u64::MAX));
        }
    }
    // Ours: Ollama does not tell.
    frame["cached_tokens"] = json!(usage.cached_tokens);
    if voice.call.endpoint == Endpoint::OllamaGenerate && !ending.context.is_empty() {
        frame["context"] = json!(ending.context);
    }
    frame
}

pub fn embeddings(voice: &Voice, vectors: &[Vec<f32>], usage: &Usage) -> Value {
    if voice.call.endpoint == Endpoint::OllamaEmbeddings {
        return json!({"embedding": vectors.first()});
    }
    json!({
        "model": voice.model,
        "embeddings": vectors,
        "total_duration": usage.total().as_nanos() as u64,
        "load_duration": usage.load.as_nanos() as u64,
        "prompt_eval_count": usage.prompt_tokens,
    })
}

pub fn error(message: &str) -> Value {
    json!({"error": message})
}

fn tool_calls(voice: &Voice, call: &ToolCall) -> Value {
    let function = json!({"index": 0, "name": call.name, "arguments": call.arguments});
    json!([{"id": format!("call_{}", voice.id), "function": function}])
}

fn frame(voice: &Voice, text: &str) -> Value {
    let mut frame = json!({
        "model": voice.model,
        "created_at": rfc3339(voice.time),
    });
    match voice.call.endpoint {
        Endpoint::OllamaChat => frame["message"] = json!({"role": "assistant", "content": text}),
        _ => frame["response"] = json!(text),
    }
    frame
}
