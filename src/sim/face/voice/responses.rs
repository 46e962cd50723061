//! Answers of OpenAI's Responses: events that are numbered, and a response that grows.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Ending, Voice};
use crate::date::unix_seconds;
use crate::sim::face::form::ToolCall;

/// Events before the first piece of text.
const OPENING: usize = 4;

/// The id that a later request may name as its `previous_response_id`.
pub fn id(voice: &Voice) -> String {
    format!("resp_{}", voice.id)
}

pub fn opening(voice: &Voice) -> Vec<Bytes> {
    let response = response(voice, "in_progress");
    let mut events = vec![
        json!({"type": "response.created", "response": response}),
        json!({"type": "response.in_progress", "response": response}),
    ];
    if voice.call.form.call().is_none() {
        let mut item = message(voice, "", "in_progress");
        item["content"] = json!([]);
        events.push(json!({"type": "response.output_item.added", "output_index": 0, "item": item}));
        let mut event = of_text(voice, "response.content_part.added");
        event["part"] = part("");
        events.push(event);
    }
    numbered(0, events)
}

pub fn piece(voice: &Voice, index: usize, text: &str) -> Bytes {
    let mut event = of_text(voice, "response.output_text.delta");
    event["delta"] = json!(text);
    event["logprobs"] = json!([]);
    named(OPENING + index, event)
}

/// A whole function call, or the end of the text; then the whole response.
pub fn closing(voice: &Voice, ending: &Ending) -> Vec<Bytes> {
    let (first, mut events) = match voice.call.form.call() {
        Some(call) => (OPENING / 2, function_call_events(voice, call)),
        None => (OPENING + ending.usage.output_tokens as usize, text_events(voice, ending)),
    };
    events.push(json!({"type": "response.completed", "response": answer(voice, ending)}));
    numbered(first, events)
}

pub fn answer(voice: &Voice, ending: &Ending) -> Value {
    let cut_short = voice.call.form.call().is_none() && ending.reason == "length";
    let mut response = response(voice, if cut_short { "incomplete" } else { "completed" });
    if cut_short {
        response["incomplete_details"] = json!({"reason": "max_output_tokens"});
    }
    let usage = &ending.usage;
    response["output"] = json!([item(voice, ending)]);
    response["usage"] = json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": u64::from(usage.prompt_tokens) + u64::from(usage.output_tokens),
    });
    response
}

fn response(voice: &Voice, status: &str) -> Value {
    json!({
        "id": id(voice),
        "object": "response",
        "created_at": unix_seconds(voice.time),
        "status": status,
        "error": null,
        "incomplete_details": null,
        "instructions": null,
        "max_output_tokens": voice.call.output_tokens_max,
        "metadata": {},
        "model": voice.model,
        "output": [],
        "parallel_tool_calls": true,
        "previous_response_id": voice.call.previous_response,
        "store": voice.call.store,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": null,
    })
}

fn text_events(voice: &Voice, ending: &Ending) -> Vec<Value> {
    let mut text = of_text(voice, "response.output_text.done");
    text["text"] = json!(ending.text);
    text["logprobs"] = json!([]);
    let mut part_done = of_text(voice, "response.content_part.done");
    part_done["part"] = part(&ending.text);
    vec![text, part_done, item_done(item(voice, ending))]
}

fn function_call_events(voice: &Voice, call: &ToolCall) -> Vec<Value> {
    let arguments = call.arguments.to_string();
    let item_id = function_call_id(voice);
    vec![
        json!({"type": "response.output_item.added", "output_index": 0, "item": function_call(voice, call, "")}),
        json!({
            "type": "response.function_call_arguments.delta",
            "output_index": 0, "item_id": item_id, "delta": arguments,
        }),
        json!({
            "type": "response.function_call_arguments.done",
            "output_index": 0, "item_id": item_id, "name": call.name, "arguments": arguments,
        }),
        item_done(function_call(voice, call, &arguments)),
    ]
}

fn item_done(item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": 0, "item": item})
}

fn item(voice: &Voice, ending: &Ending) -> Value {
    match voice.call.form.call() {
        Some(call) => function_call(voice, call, &call.arguments.to_string()),
        None => message(voice, &ending.text, "completed"),
    }
}

fn message(voice: &Voice, text: &str, status: &str) -> Value {
    json!({
        "id": message_id(voice),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [part(text)],
    })
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// Without arguments it has only begun.
fn function_call(voice: &Voice, call: &ToolCall, arguments: &str) -> Value {
    json!({
        "id": function_call_id(voice),
        "type": "function_call",
        "call_id": format!("call_{}", voice.id),
        "name": call.name,
        "arguments": arguments,
        "status": if arguments.is_empty() { "in_progress" } else { "completed" },
    })
}

fn of_text(voice: &Voice, name: &str) -> Value {
    json!({"type": name, "output_index": 0, "content_index": 0, "item_id": message_id(voice)})
}

fn message_id(voice: &Voice) -> String {
    format!("msg_{}", voice.id)
}

fn function_call_id(voice: &Voice) -> String {
    format!("fc_{}", voice.id)
}

fn numbered(first: usize, events: Vec<Value>) -> Vec<Bytes> {
    events.into_iter().enumerate().map(|(index, event)| named(first + index, event)).collect()
}

fn named(number: usize, mut event: Value) -> Bytes {
    event["sequence_number"] = json!(number);
    Bytes::from(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
}
