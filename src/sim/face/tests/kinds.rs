//! The kinds as clients and Warmgate meet them: detected, read, refused by.

use std::time::Instant;

use serde_json::{Value, json};

use super::*;
use crate::engines;
use crate::routing::report::{Abilities, Load};
use crate::sim::fleet::batching_node;

const MODEL: &str = "org/moss-7b";
const OPENAI: &str = "/v1/chat/completions";

fn params_of(kind: &str) -> NodeParams {
    let mut params = batching_node(Kind::find(kind).unwrap(), kind, MODEL);
    params.answer_tokens = ANSWER_TOKENS;
    params.models[0].engine.decode_tokens_per_s = 500.0;
    params
}

fn node_as(kind: &str) -> Node {
    node_of(params_of(kind))
}

/// One that works at a tenth of a token a second, two requests at once.
fn slow_node_as(kind: &str) -> Node {
    let mut params = params_of(kind);
    params.models[0].engine.slots = 2;
    params.models[0].engine.decode_tokens_per_s = 0.1;
    node_of(params)
}

fn asked(text: &str) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 4})
}

/// What a round of telemetry reads from the node.
async fn reading(node: &Node, engine: &engines::Engine) -> engines::Reading {
    let mut bodies = Vec::new();
    for poll in engine.polls {
        let reply = get(node, poll.path).await;
        bodies.push((reply.status == 200).then(|| reply.text().into_bytes()));
    }
    let bodies: Vec<Option<&[u8]>> = bodies.iter().map(Option::as_deref).collect();
    (engine.read)(&bodies).unwrap()
}

async fn detected(node: &Node) -> &'static str {
    for engine in engines::detection_order() {
        let reply = get(node, engine.fingerprint_path).await;
        if reply.status == 200 && (engine.recognises)(reply.text().as_bytes()) {
            return engine.name;
        }
    }
    "nothing"
}

#[tokio::test]
async fn every_kind_is_detected_probed_and_read_as_what_it_passes_for() {
    for kind in ROSTER {
        let node = node_as(kind.name);
        assert_eq!(detected(&node).await, kind.name);
        let engine = engines::find(kind.name).unwrap();
        let probe = get(&node, engine.probe.path).await;
        assert!(probe.status == 200 && (engine.probe.says_up)(probe.text().as_bytes()), "{}", kind.name);
        let reading = reading(&node, engine).await;
        let model = &reading.report.models[0];
        assert_eq!((model.name.as_str(), model.resident), (MODEL, true), "{}", kind.name);
        assert_eq!(model.context_tokens, Some(32_768), "{}", kind.name);
    }
}

#[tokio::test]
async fn those_that_tell_their_load_tell_what_runs_and_what_waits() {
    for kind in ["llama_cpp", "sglang", "vllm"] {
        let node = slow_node_as(kind);
        let engine = engines::find(kind).unwrap();
        let idle = reading(&node, engine).await.report;
        assert_eq!(idle.load, Some(Load { running: 0, waiting: 0 }), "{kind}");
        assert_eq!(idle.slots, (kind != "vllm").then_some(2), "{kind}");
        let mut streams = Vec::new();
        for text in ["one", "two", "three"] {
            streams.push(open(&node, "POST", OPENAI, &asked(text).to_string()).await);
        }
        while reading(&node, engine).await.report.load.unwrap().waiting < 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let busy = reading(&node, engine).await.report.load;
        assert_eq!(busy, Some(Load { running: 2, waiting: 1 }), "{kind}");
    }
}

#[tokio::test]
async fn sglang_counts_alike_in_all_its_places() {
    let node = slow_node_as("sglang");
    let _streams = [open(&node, "POST", OPENAI, &asked("one").to_string()).await];
    let loads = async || get(&node, "/v1/loads?include=core").await.json()["loads"][0].clone();
    while loads().await["num_running_reqs"] == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let metrics = get(&node, "/metrics").await.text();
    let labels = r#"engine_type="unified",tp_rank="0",pp_rank="0",model_name="org/moss-7b""#;
    assert!(metrics.contains(&format!("sglang:num_running_reqs{{{labels}}} 1.0\n")), "{metrics}");
    assert_eq!(get(&node, "/server_info").await.json()["max_running_requests"], 2);
    assert_eq!(get(&node, "/model_info").await.json()["model_path"], MODEL);
}

#[tokio::test]
async fn vllm_counts_its_cache_in_tokens() {
    let node = node_as("vllm");
    let long = "a long question ".repeat(40);
    let first = post(&node, OPENAI, asked(&long)).await.json();
    let stream = with(asked(&long), json!({"stream": true, "stream_options": {"include_usage": true}}));
    let frames = post(&node, OPENAI, stream).await.frames();
    let role_first = &frames[0]["choices"][0]["delta"];
    assert_eq!(role_first, &json!({"role": "assistant", "content": ""}));
    let usage = &frames.last().unwrap()["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert!(cached > 100, "{usage}");
    let prompts = 2 * first["usage"]["prompt_tokens"].as_u64().unwrap();
    records(&node, 2).await;
    let metrics = get(&node, "/metrics").await.text();
    let labels = r#"engine="0",model_name="org/moss-7b""#;
    for (name, value) in [("queries", prompts), ("hits", cached)] {
        let line = format!("vllm:prefix_cache_{name}_total{{{labels}}} {value}.0\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    assert!(metrics.contains(&format!("vllm:kv_cache_usage_perc{{{labels}}} 0.0\n")), "{metrics}");
}

#[tokio::test]
async fn sglangs_health_takes_a_second_and_its_readiness_none() {
    let node = node_as("sglang");
    let asked_at = Instant::now();
    assert_eq!(get(&node, "/health").await.status, 200);
    assert!(asked_at.elapsed() >= Duration::from_secs(1));
    assert_eq!(get(&node, "/ready").await.status, 200);
}

// === refusals ===

async fn check(node: &Node, path: &str, body: Value, status: u16, expected: Value) {
    let reply = post(node, path, body).await;
    assert_eq!((reply.status, reply.json()), (status, expected), "{path}");
}

#[tokio::test]
async fn vllm_refuses_in_its_own_words() {
    let node = node_as("vllm");
    let error = |message: &str, kind: &str, param: Value, code: u16| json!({"error": {"message": message, "type": kind, "param": param, "code": code}});
    let unknown = error("The model `x` does not exist.", "NotFoundError", json!("model"), 404);
    check(&node, OPENAI, with(asked("hi"), json!({"model": "x"})), 404, unknown).await;
    let nowhere = error("Not Found", "Not Found", Value::Null, 404);
    for path in [CHAT, "/api/generate", "/api/embed", "/api/show"] {
        check(&node, path, asked("hi"), 404, nowhere.clone()).await;
    }
    assert_eq!(get(&node, "/api/version").await.status, 404);
    assert_eq!(get(&node, OPENAI).await.status, 405);
    let long = post(&node, OPENAI, with(asked("hi"), json!({"max_tokens": 40_000}))).await;
    assert_eq!(long.status, 400);
    assert!(long.text().contains("maximum context length is 32768 tokens"), "{}", long.text());
    let unnamed = post(&node, OPENAI, json!({"messages": [{"role": "user", "content": "hi"}]})).await.json();
    assert_eq!(unnamed["model"], MODEL);
}

#[tokio::test]
async fn sglangs_errors_are_flat_and_any_name_is_its_models() {
    let node = node_as("sglang");
    let flat = json!({"object": "error", "message": "messages must be a list", "type": "BadRequestError",
        "param": null, "code": 400});
    check(&node, OPENAI, json!({"model": MODEL}), 400, flat).await;
    assert_eq!(post(&node, OPENAI, with(asked("hi"), json!({"model": "x"}))).await.status, 200);
    let anthropic = post(&node, "/v1/messages", json!({"model": MODEL})).await.json();
    assert_eq!(anthropic["type"], "error");
}

#[tokio::test]
async fn llama_cpp_tells_how_much_too_long_a_prompt_is() {
    let node = node_as("llama_cpp");
    let long = post(&node, OPENAI, asked(&"word".repeat(33_000))).await;
    let error = &long.json()["error"];
    assert_eq!((long.status, &error["type"]), (400, &json!("exceed_context_size_error")));
    assert_eq!(error["n_ctx"], 32_768);
}

#[tokio::test]
async fn a_full_queue_is_a_503_in_the_words_of_the_engine() {
    for (kind, words) in [("vllm", "queued requests"), ("sglang", "The request queue is full.")] {
        let mut params = params_of(kind);
        params.max_waiting = 0;
        params.models[0].engine.slots = 1;
        params.models[0].engine.decode_tokens_per_s = 0.1;
        let node = node_of(params);
        let _first = open(&node, "POST", OPENAI, &asked("hi").to_string()).await;
        while get(&node, "/sim/stats").await.json()["running"] == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let second = post(&node, OPENAI, asked("ho")).await;
        assert_eq!(second.status, 503, "{kind}");
        assert!(second.text().contains(words), "{}", second.text());
    }
}

// === what Ollama has not ===

#[tokio::test]
async fn tokens_are_counted_without_a_slot() {
    for kind in ["llama_cpp", "sglang", "vllm"] {
        let node = node_as(kind);
        let counted = post(&node, "/v1/messages/count_tokens", asked("hello")).await.json();
        let answered = post(&node, "/v1/messages", asked("hello")).await.json();
        assert_eq!(counted, json!({"input_tokens": answered["usage"]["input_tokens"]}), "{kind}");
    }
}

#[tokio::test]
async fn documents_are_ranked_in_two_forms() {
    let ranked = async |kind: &str| {
        let mut params = params_of(kind);
        params.models[0].card.abilities = Abilities { embedding: true, ..Abilities::default() };
        let node = node_of(params);
        let documents = json!(["nothing", {"text": "Moss on stone"}]);
        let body = json!({"model": MODEL, "query": "moss on stone", "documents": documents, "top_n": 1});
        let answer = post(&node, "/v1/rerank", body).await.json();
        let embedded = post(&node, "/v1/embeddings", json!({"model": MODEL, "input": "one"})).await.json();
        assert_eq!(embedded["data"][0]["embedding"].as_array().unwrap().len(), 4096);
        assert_eq!(post(&node, OPENAI, asked("hi")).await.status, 400);
        answer
    };
    let vllm = ranked("vllm").await;
    let best = json!({"index": 1, "document": {"text": "Moss on stone"}, "relevance_score": 1.0});
    assert_eq!(vllm["results"], json!([best]));
    assert!(vllm["usage"]["total_tokens"].as_u64().unwrap() > 4, "{vllm}");
    let sglang = ranked("sglang").await;
    assert_eq!((&sglang[0]["index"], &sglang[0]["score"]), (&json!(1), &json!(1.0)));
}
