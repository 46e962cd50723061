//! Bodies of the shapes that real clients and engines send, both ways.

mod answers;
mod conversation;
mod requests;
mod robust;
mod streams;

use std::time::Duration;

use serde_json::Value;

use super::*;

const NOW: &str = "2026-01-02T03:04:05.678Z";
const TOOK: Took = Took { first_token: Duration::from_millis(250), total: Duration::from_millis(1_000) };
const SSE: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(text)))
}

#[track_caller]
fn call(endpoint: Endpoint, body: &Value) -> (Call, Value) {
    match request(endpoint, body.to_string().as_bytes(), "Qwen/Qwen3-32B") {
        Ok(Translated::Call(call)) => {
            let sent = json(&call.body);
            (call, sent)
        }
        other => panic!("{other:?}"),
    }
}

/// Everything that an answer comes to.
fn translated(endpoint: Endpoint, status: u16, content_type: &str, chunks: &[&[u8]]) -> Ending {
    let mut answer = Answer::new(endpoint, "qwen3:32b", status, content_type);
    let mut bytes: Vec<u8> = chunks.iter().flat_map(|chunk| answer.feed(chunk, NOW)).collect();
    let ending = answer.finish(NOW, TOOK);
    bytes.extend_from_slice(&ending.bytes);
    Ending { bytes, ..ending }
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    assert!(bytes.is_empty() || bytes.ends_with(b"\n"));
    bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).map(json).collect()
}
