//! What official clients need beyond plain answers: tool calls, JSON, packed embeddings, wishes to
//! keep a model, and Anthropic's messages.

use serde_json::{Value, json};

use super::*;

const OPENAI: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

fn schema() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
}

/// A chat whose last message tells the model to call a tool.
fn tool_chat() -> Value {
    let function = json!({"name": "get_weather", "parameters": schema()});
    with(chat("Please call get_weather."), json!({"tools": [{"type": "function", "function": function}]}))
}

fn message(content: &str) -> Value {
    with(chat(content), json!({"max_tokens": 5, "system": "Be brief."}))
}

// === tool calls and JSON ===

#[tokio::test]
async fn ollama_gives_a_tool_call_as_one_line() {
    let node = node();
    let whole = post(&node, CHAT, with(tool_chat(), json!({"stream": false}))).await.json();
    let function = &whole["message"]["tool_calls"][0]["function"];
    assert_eq!(function, &json!({"index": 0, "name": "get_weather", "arguments": {"city": "[simulated]"}}));
    let frames = post(&node, CHAT, tool_chat()).await.frames();
    assert_eq!(frames.len(), 2);
    assert_eq!(&frames[0]["message"]["tool_calls"][0]["function"], function);
    assert_eq!((&frames[1]["done"], &frames[1]["done_reason"]), (&json!(true), &json!("stop")));
    assert!(frames[1]["eval_count"].as_u64().unwrap() > 1);
}

#[tokio::test]
async fn openai_gives_a_tool_call_with_arguments_as_text() {
    let node = node();
    let whole = post(&node, OPENAI, tool_chat()).await.json();
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    let function = &whole["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(function, &json!({"name": "get_weather", "arguments": r#"{"city":"[simulated]"}"#}));
    let frames = post(&node, OPENAI, with(tool_chat(), json!({"stream": true}))).await.frames();
    assert_eq!(&frames[0]["choices"][0]["delta"]["tool_calls"][0]["function"], function);
    assert_eq!(frames[1]["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn json_comes_in_tokens_and_can_be_cut_short() {
    let node = node();
    let asked = with(chat("hi"), json!({"format": schema()}));
    let frames = post(&node, CHAT, asked.clone()).await.frames();
    let text: String = frames.iter().filter_map(|frame| frame["message"]["content"].as_str()).collect();
    assert_eq!(text, r#"{"city":"[simulated]"}"#);
    let short = with(asked, json!({"options": {"num_predict": 2}}));
    assert_eq!(post(&node, CHAT, short).await.frames().pop().unwrap()["done_reason"], "length");
}

// === embeddings ===

#[tokio::test]
async fn base64_packs_the_same_numbers() {
    let node = node();
    let plain = json!({"model": "nomic-embed-text", "input": "one"});
    let numbers = post(&node, "/v1/embeddings", plain.clone()).await.json();
    let packed = post(&node, "/v1/embeddings", with(plain, json!({"encoding_format": "base64"}))).await.json();
    let numbers = numbers["data"][0]["embedding"].as_array().unwrap().iter();
    let numbers: Vec<f32> = numbers.map(|number| number.as_f64().unwrap() as f32).collect();
    assert_eq!(packed["data"][0]["embedding"], text::base64(&numbers));
}

// === keeping models ===

#[tokio::test]
async fn a_wish_to_keep_the_model_shows_in_the_list() {
    let node = node();
    let load = json!({"model": "llama3.2:3b", "prompt": ""});
    let resident = async || get(&node, "/api/ps").await.json()["models"].as_array().unwrap().clone();
    post(&node, "/api/generate", with(load.clone(), json!({"keep_alive": -1}))).await;
    assert!(resident().await[1]["expires_at"].as_str().unwrap() > "2200");
    post(&node, "/api/generate", with(load.clone(), json!({"keep_alive": "1ms"}))).await;
    let left = async { while resident().await.len() > 1 {} };
    tokio::time::timeout(Duration::from_secs(5), left).await.unwrap();
    let answered = with(load, json!({"prompt": "hi", "keep_alive": 0}));
    assert_eq!(post(&node, "/api/generate", answered).await.frames().pop().unwrap()["done_reason"], "stop");
    assert_eq!(resident().await.len(), 1);
    let nonsense = with(chat("hi"), json!({"keep_alive": "soon"}));
    assert_eq!(post(&node, CHAT, nonsense).await.status, 400);
}

// === Anthropic's messages ===

#[tokio::test]
async fn a_message_in_one_piece() {
    let node = node();
    let reply = post(&node, MESSAGES, message("hello")).await.json();
    assert_eq!((&reply["type"], &reply["role"]), (&json!("message"), &json!("assistant")));
    assert!(reply["content"][0]["text"].as_str().unwrap().starts_with("[simulated] "));
    assert_eq!(reply["stop_reason"], "max_tokens");
    assert_eq!(reply["usage"]["output_tokens"], 5);
    assert!(reply["usage"]["input_tokens"].as_u64().unwrap() > 0);
    assert_eq!(node.records()[0].path, MESSAGES);
}

#[tokio::test]
async fn a_message_as_named_events() {
    let node = node();
    let reply = post(&node, MESSAGES, with(message("hello"), json!({"stream": true}))).await;
    assert!(reply.head.contains("content-type: text/event-stream"));
    let events = named_events(&reply);
    let names: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[2..7], ["content_block_delta"; 5]);
    assert_eq!(names[7..], ["content_block_stop", "message_delta", "message_stop"]);
    assert_eq!(events[8]["delta"]["stop_reason"], "max_tokens");
    assert_eq!(events[8]["usage"]["output_tokens"], 5);
}

#[tokio::test]
async fn a_message_that_calls_a_tool() {
    let node = node();
    let tools = json!({"tools": [{"name": "get_weather", "input_schema": schema()}]});
    let asked = with(message("call get_weather"), tools);
    let whole = post(&node, MESSAGES, asked.clone()).await.json();
    assert_eq!(whole["stop_reason"], "tool_use");
    assert_eq!(whole["content"][0]["input"], json!({"city": "[simulated]"}));
    let events = named_events(&post(&node, MESSAGES, with(asked, json!({"stream": true}))).await);
    assert_eq!(events[1]["content_block"]["name"], "get_weather");
    assert_eq!(events[2]["delta"]["partial_json"], r#"{"city":"[simulated]"}"#);
    assert_eq!(events[4]["delta"]["stop_reason"], "tool_use");
}

#[tokio::test]
async fn errors_about_messages_are_anthropics() {
    let node = node();
    let unlimited = post(&node, MESSAGES, chat("hi")).await;
    assert_eq!(unlimited.status, 400);
    assert_eq!(unlimited.json()["error"]["type"], "invalid_request_error");
    let unknown = with(message("hi"), json!({"model": "x"}));
    assert_eq!(post(&node, MESSAGES, unknown).await.json()["error"]["type"], "not_found_error");
    assert_eq!(post(&node, "/v1/messages/count_tokens", message("hi")).await.status, 404);
}

/// The data of each event, whose name must be its type.
#[track_caller]
fn named_events(reply: &Reply) -> Vec<Value> {
    let events = reply.chunks.iter().map(|chunk| {
        let (name, data) = chunk.trim_end().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
        data
    });
    events.collect()
}
