//! The face over real sockets, asked as clients ask.

mod client;
mod forms;
mod kinds;
mod responses;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::sim::engine::ModelParams;
use crate::sim::fleet::demo_node;
use client::{Reply, ask, open};

const CHAT: &str = "/api/chat";
const ANSWER_TOKENS: u32 = 8;

/// The demo's models in a hurry.
fn params() -> NodeParams {
    let mut params = demo_node("sim-t");
    params.answer_tokens = ANSWER_TOKENS;
    for model in &mut params.models {
        model.engine =
            ModelParams { load: Duration::from_millis(20), decode_tokens_per_s: 500.0, ..model.engine.clone() };
    }
    params
}

fn node_of(params: NodeParams) -> Node {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    serve(listener, params).unwrap()
}

fn node() -> Node {
    node_of(params())
}

async fn get(node: &Node, path: &str) -> Reply {
    ask(node, "GET", path, "").await
}

async fn post(node: &Node, path: &str, body: Value) -> Reply {
    ask(node, "POST", path, &body.to_string()).await
}

fn chat(text: &str) -> Value {
    json!({"model": "qwen3.6:27b", "messages": [{"role": "user", "content": text}]})
}

fn with(mut body: Value, more: Value) -> Value {
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

/// Polls until the node has recorded so many requests.
async fn records(node: &Node, count: usize) -> Vec<Record> {
    for _ in 0..200 {
        if node.records().len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    node.records()
}

// === lists ===

#[tokio::test]
async fn the_root_and_the_version_are_ollamas() {
    let node = node();
    assert_eq!(get(&node, "/").await.text(), "Ollama is running");
    let head = ask(&node, "HEAD", "/", "").await;
    assert_eq!((head.status, head.text().as_str()), (200, ""));
    let version = get(&node, "/api/version").await.json();
    assert_eq!(version["simulated"], true);
    assert!(version["version"].as_str().unwrap().ends_with("-simulated"));
}

#[tokio::test]
async fn the_lists_have_the_fields_that_clients_read() {
    let node = node();
    let tags = get(&node, "/api/tags").await.json();
    assert_eq!(tags["models"][0]["name"], "qwen3.6:27b");
    assert_eq!(tags["models"][0]["details"]["quantization_level"], "Q4_K_M");
    let ps = get(&node, "/api/ps").await.json();
    assert_eq!(ps["models"].as_array().unwrap().len(), 1);
    assert_eq!(ps["models"][0]["context_length"], 32_768);
    assert!(ps["models"][0]["expires_at"].as_str().unwrap().ends_with('Z'));
    let show = post(&node, "/api/show", json!({"name": "QWEN3.6:27b"})).await.json();
    assert_eq!(show["model_info"]["qwen35.context_length"], 32_768);
    assert_eq!(show["capabilities"], json!(["completion", "tools"]));
    let models = get(&node, "/v1/models").await.json();
    assert_eq!(models["data"][2]["id"], "nomic-embed-text:latest");
    let one = get(&node, "/v1/models/llama3.2:3b").await.json();
    assert_eq!(one["object"], "model");
}

// === answers ===

#[tokio::test]
async fn ollama_streams_one_line_a_token_and_a_last_one() {
    let node = node();
    let reply = post(&node, CHAT, chat("hello")).await;
    assert!(reply.head.contains("content-type: application/x-ndjson"));
    assert!(reply.complete);
    let frames = reply.frames();
    assert_eq!(reply.chunks.len(), ANSWER_TOKENS as usize + 1);
    assert_eq!(frames.len(), reply.chunks.len());
    let text: String = frames.iter().filter_map(|f| f["message"]["content"].as_str()).collect();
    assert!(text.starts_with("[simulated] "), "{text}");
    let last = frames.last().unwrap();
    assert_eq!((&last["done"], &last["done_reason"]), (&json!(true), &json!("stop")));
    assert_eq!(last["eval_count"], ANSWER_TOKENS);
    assert_eq!(last["cached_tokens"], 0);
    for name in ["total_duration", "prompt_eval_count", "prompt_eval_duration", "eval_duration"] {
        assert!(last[name].as_u64().unwrap() > 0, "{name}");
    }
}

#[tokio::test]
async fn openai_streams_events_and_usage_only_when_asked() {
    let node = node();
    let stream = with(chat("hello"), json!({"stream": true, "max_tokens": 3}));
    let reply = post(&node, "/v1/chat/completions", stream.clone()).await;
    assert!(reply.head.contains("content-type: text/event-stream"));
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
    let frames = reply.frames();
    assert_eq!(frames.len(), 3 + 1);
    assert_eq!(frames[3]["choices"][0]["finish_reason"], "length");
    assert!(frames.iter().all(|frame| frame["usage"].is_null()));
    let asked = with(stream, json!({"stream_options": {"include_usage": true}}));
    let frames = post(&node, "/v1/chat/completions", asked).await.frames();
    let last = frames.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 3);
}

#[tokio::test]
async fn whole_answers_carry_the_same_text_as_streams() {
    let node = node();
    let whole = post(&node, CHAT, with(chat("hi"), json!({"stream": false}))).await.json();
    let openai = post(&node, "/v1/chat/completions", chat("hi")).await.json();
    assert_eq!(openai["choices"][0]["message"]["content"], whole["message"]["content"]);
    let prompt = json!({"model": "llama3.2:3b", "prompt": "hi", "stream": false});
    let generated = post(&node, "/api/generate", prompt.clone()).await.json();
    assert!(generated["response"].as_str().unwrap().starts_with("[simulated] "));
    assert!(generated["load_duration"].as_u64().unwrap() >= 20_000_000);
    let completed = post(&node, "/v1/completions", prompt).await.json();
    assert_eq!(completed["object"], "text_completion");
}

#[tokio::test]
async fn a_follow_up_is_warm_and_says_so() {
    let node = node();
    let question = "a long question ".repeat(40);
    let first = post(&node, "/v1/chat/completions", chat(&question)).await.json();
    let answer = &first["choices"][0]["message"]["content"];
    let follow_up = json!({"model": "qwen3.6:27b", "stream": false, "messages": [
        {"role": "user", "content": question},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "and then?"},
    ]});
    let second = post(&node, CHAT, follow_up).await.json();
    let held = &first["usage"]["total_tokens"].as_u64().unwrap();
    let cached = second["cached_tokens"].as_u64().unwrap();
    assert!(cached <= *held && cached + 16 > *held, "{cached} of {held}");
}

#[tokio::test]
async fn generate_goes_on_from_the_context_it_told() {
    let node = node();
    let prompt = "a long question ".repeat(40);
    let body = json!({"model": "qwen3.6:27b", "prompt": prompt, "stream": false});
    let first = post(&node, "/api/generate", body).await.json();
    let more = json!({"model": "qwen3.6:27b", "prompt": "more", "stream": false,
        "context": first["context"]});
    let second = post(&node, "/api/generate", more).await.json();
    assert!(second["cached_tokens"].as_u64().unwrap() > 150);
}

#[tokio::test]
async fn embeddings_in_all_three_forms() {
    let node = node();
    let two = json!({"model": "nomic-embed-text", "input": ["one", "two"], "prompt": "one"});
    let embed = post(&node, "/api/embed", two.clone()).await.json();
    assert_eq!(embed["embeddings"][1].as_array().unwrap().len(), 768);
    let legacy = post(&node, "/api/embeddings", two.clone()).await.json();
    assert_eq!(legacy["embedding"], embed["embeddings"][0]);
    let openai = post(&node, "/v1/embeddings", two).await.json();
    assert_eq!(openai["data"][1]["embedding"], embed["embeddings"][1]);
    assert_eq!(openai["usage"]["total_tokens"], 2);
}

#[tokio::test]
async fn an_empty_prompt_loads_and_unloads() {
    let node = node();
    let load = json!({"model": "llama3.2:3b", "prompt": ""});
    let loaded = post(&node, "/api/generate", load.clone()).await.frames();
    assert_eq!(loaded[0]["done_reason"], "load");
    assert_eq!(get(&node, "/api/ps").await.json()["models"].as_array().unwrap().len(), 2);
    let unload = with(load, json!({"keep_alive": 0}));
    let unloaded = post(&node, "/api/generate", unload).await.frames();
    assert_eq!(unloaded[0]["done_reason"], "unload");
    assert_eq!(get(&node, "/api/ps").await.json()["models"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another() {
    let node = node();
    let mut stream = TcpStream::connect(node.address()).await.unwrap();
    for _ in 0..3 {
        let request = b"GET /api/version HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut buffer = [0; 1024];
        let mut answer = String::new();
        while !answer.ends_with('}') {
            let read = stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "closed after {answer}");
            answer.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
        assert!(answer.starts_with("HTTP/1.1 200"));
    }
}

// === refusals ===

#[tokio::test]
async fn wrong_requests_get_ollamas_words() {
    let node = node();
    let check = async |method: &str, path: &str, body: &str, status: u16, words: &str| {
        let reply = ask(&node, method, path, body).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        assert!(reply.text().contains(words), "{}", reply.text());
    };
    check("POST", CHAT, "", 400, r#"{"error":"missing request body"}"#).await;
    check("POST", CHAT, "{}", 400, "model is required").await;
    check("GET", CHAT, "", 405, "method not allowed").await;
    check("POST", CHAT, r#"{"model":"x"}"#, 404, r#"{"error":"model 'x' not found"}"#).await;
    let unknown = r#"{"model":"x","messages":[]}"#;
    check("POST", "/v1/chat/completions", unknown, 404, r#""type":"not_found_error""#).await;
    let embedder = r#"{"model":"nomic-embed-text"}"#;
    check("POST", CHAT, embedder, 400, "does not support generate").await;
    check("GET", "/nowhere", "", 404, "404 page not found").await;
    check("POST", "/sim/behave", r#"{"behave":"dance"}"#, 400, "dance").await;
}

#[tokio::test]
async fn a_full_queue_is_a_busy_503() {
    let mut params = params();
    params.max_waiting = 0;
    params.models[0].engine.slots = 1;
    params.models[0].engine.decode_tokens_per_s = 1.0;
    let node = node_of(params);
    let _first = open(&node, "POST", CHAT, &chat("hi").to_string()).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let second = post(&node, CHAT, chat("ho")).await;
    assert_eq!(second.status, 503);
    assert!(second.text().contains("server busy, please try again.  maximum"));
    let record = &records(&node, 1).await[0];
    assert_eq!((record.outcome, record.running), (Outcome::Busy, 1));
}

// === connections ===

/// Leaves after `wait` and checks that the slot is free soon after.
async fn check_leaving(decode_tokens_per_s: f64, prefill_words: usize, wait_ms: u64) {
    let mut params = params();
    params.models[0].engine.decode_tokens_per_s = decode_tokens_per_s;
    let node = node_of(params);
    let body = chat(&"word".repeat(prefill_words)).to_string();
    let stream = open(&node, "POST", CHAT, &body).await;
    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    assert_eq!(get(&node, "/sim/stats").await.json()["running"], 1);
    drop(stream);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let stats = get(&node, "/sim/stats").await.json();
    assert_eq!((&stats["running"], &stats["cancelled"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn a_client_that_leaves_during_prefill_frees_its_slot() {
    check_leaving(500.0, 20_000, 50).await;
}

#[tokio::test]
async fn a_client_that_leaves_the_stream_frees_its_slot() {
    check_leaving(1.0, 1, 150).await;
}

#[tokio::test]
async fn a_stopped_node_refuses_and_a_started_one_serves_on_its_port() {
    let mut params = params();
    params.models[0].engine.decode_tokens_per_s = 1.0;
    let node = node_of(params);
    let mut running = open(&node, "POST", CHAT, &chat("hi").to_string()).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    node.stop().await;
    let mut rest = Vec::new();
    let _ = running.read_to_end(&mut rest).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "cut, not ended");
    assert!(TcpStream::connect(node.address()).await.is_err());
    node.start().unwrap();
    assert_eq!(get(&node, "/").await.status, 200);
    assert_eq!(node.records()[0].outcome, Outcome::Stopped);
}

#[tokio::test]
async fn every_request_is_recorded_with_its_id() {
    let node = node();
    post(&node, CHAT, chat("hello")).await;
    let log = get(&node, "/sim/log").await.json();
    let record = &log[0];
    assert_eq!(record["request_id"], "id-7");
    assert_eq!(record["outcome"], "done");
    assert_eq!(record["output_tokens"], ANSWER_TOKENS);
    assert!(record["first_token_ms"].as_u64() <= record["took_ms"].as_u64());
    assert_eq!(node.stats().done, 1);
}

// === misbehaviour ===

#[tokio::test]
async fn told_a_status_it_answers_with_it_so_often() {
    let node = node();
    let order = json!({"behave": "status", "status": 500, "next": 1});
    assert_eq!(post(&node, "/sim/behave", order).await.status, 200);
    assert_eq!(post(&node, CHAT, chat("hi")).await.status, 500);
    assert_eq!(post(&node, CHAT, chat("hi")).await.status, 200);
}

#[tokio::test]
async fn told_to_die_it_cuts_the_stream_after_so_many_chunks() {
    let node = node();
    for after_chunks in [0, 3] {
        node.behave(Behaviour::Die { after_chunks });
        let reply = post(&node, CHAT, chat("hi")).await;
        assert_eq!(reply.chunks.len(), after_chunks as usize);
        assert!(!reply.complete);
    }
    assert_eq!(get(&node, "/sim/stats").await.json()["running"], 0);
}

#[tokio::test]
async fn told_to_close_it_says_nothing_at_all() {
    let node = node();
    node.behave(Behaviour::Close);
    assert_eq!(post(&node, CHAT, chat("hi")).await.status, 0);
    assert_eq!(get(&node, "/api/version").await.status, 200);
}

#[tokio::test]
async fn told_to_refuse_it_resets_connections() {
    let node = node();
    node.behave(Order { behaviour: Behaviour::Refuse, next: Some(1) });
    let mut stream = TcpStream::connect(node.address()).await.unwrap();
    let mut buffer = [0; 1];
    assert!(matches!(stream.read(&mut buffer).await, Ok(0) | Err(_)));
    assert_eq!(get(&node, "/").await.status, 200);
}

#[tokio::test]
async fn told_to_hang_it_keeps_the_client_waiting() {
    let node = node();
    node.behave(Behaviour::Hang);
    let body = chat("hi").to_string();
    let mut stream = open(&node, "POST", CHAT, &body).await;
    let mut buffer = [0; 1];
    let answered = tokio::time::timeout(Duration::from_millis(200), stream.read(&mut buffer)).await;
    assert!(answered.is_err());
    drop(stream);
    assert_eq!(records(&node, 1).await[0].outcome, Outcome::Misbehaved);
}

#[tokio::test]
async fn told_to_crawl_it_takes_longer() {
    let node = node();
    node.behave(Behaviour::Crawl { times: 10.0 });
    let reply = post(&node, CHAT, chat("hi")).await;
    let last = reply.frames().pop().unwrap();
    // Seven tokens after the first, at 2 ms each, ten times.
    assert_eq!(last["eval_duration"], 140_000_000);
}
