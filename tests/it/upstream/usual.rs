//! A healthy engine's answers, in the form that each path's callers expect.
//!
//! Every answer says "all is well" in two pieces and counts twelve prompt tokens and two more.

use bytes::Bytes;
use serde_json::{Value, json};

const PIECES: [&str; 2] = ["all is ", "well"];

/// An answer: its content type, and its writes.
pub struct Usual {
    pub content_type: &'static str,
    pub streamed: bool,
    pub writes: Vec<Bytes>,
}

/// The answer to a request for that path with that body.
pub fn answer(path: &str, body: &[u8]) -> Usual {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let model = asked["model"].as_str().unwrap_or("moss:7b");
    let stream = asked["stream"].as_bool();
    match path {
        "/api/chat" | "/api/generate" if stream != Some(false) => ndjson(path, model),
        "/api/chat" | "/api/generate" => whole(last_line(path, model, &PIECES.concat())),
        "/v1/chat/completions" | "/v1/completions" if stream == Some(true) => sse(model),
        "/v1/chat/completions" | "/v1/completions" => whole(completion(model)),
        _ => whole(json!({"model": model, "embeddings": [[0.1, 0.2]]})),
    }
}

fn whole(body: Value) -> Usual {
    Usual { content_type: "application/json", streamed: false, writes: vec![body.to_string().into()] }
}

fn ndjson(path: &str, model: &str) -> Usual {
    let pieces = PIECES.map(|text| line(path, model, text, false));
    let lines = pieces.into_iter().chain([last_line(path, model, "")]);
    Usual {
        content_type: "application/x-ndjson",
        streamed: true,
        writes: lines.map(|line| format!("{line}\n").into()).collect(),
    }
}

fn line(path: &str, model: &str, text: &str, done: bool) -> Value {
    let mut line = json!({"model": model, "created_at": "2026-01-01T00:00:00Z", "done": done});
    match path {
        "/api/chat" => line["message"] = json!({"role": "assistant", "content": text}),
        _ => line["response"] = json!(text),
    }
    line
}

fn last_line(path: &str, model: &str, text: &str) -> Value {
    let mut line = line(path, model, text, true);
    line["done_reason"] = json!("stop");
    line["total_duration"] = json!(2_000_000);
    line["prompt_eval_count"] = json!(12);
    line["prompt_eval_duration"] = json!(1_000_000);
    line["eval_count"] = json!(2);
    line["eval_duration"] = json!(1_000_000);
    line
}

fn sse(model: &str) -> Usual {
    let piece = |text: &str| json!({"delta": {"content": text}, "index": 0});
    let stop = json!({"delta": {}, "index": 0, "finish_reason": "stop"});
    let choices = PIECES.map(piece).into_iter().chain([stop]);
    let events = choices.map(|choice| chunk_event(model, choice));
    let done = Bytes::from_static(b"data: [DONE]\n\n");
    Usual { content_type: "text/event-stream", streamed: true, writes: events.chain([done]).collect() }
}

fn chunk_event(model: &str, choice: Value) -> Bytes {
    let chunk = json!({
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": model,
        "choices": [choice],
    });
    format!("data: {chunk}\n\n").into()
}

fn completion(model: &str) -> Value {
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": PIECES.concat()},
            "finish_reason": "stop",
        }],
        "usage": {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14},
    })
}
