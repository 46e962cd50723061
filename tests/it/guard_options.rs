//! Options that would make a node load its model anew, under each `option_guard`.
//!
//! The client is one like Open WebUI, which sends a `num_ctx` of its own with every request.

use serde_json::{Value, json};

use crate::client::{Reply, Request};
use crate::gate::{Gate, Settings};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Model, Upstream};

/// A node with the model in memory, loaded with that window.
async fn node(name: &str, window: u32) -> Upstream {
    let model = Model { context_tokens: window, ..Model::resident(MODEL) };
    Upstream::ollama(name, vec![model]).await
}

async fn gate(nodes: &[&Upstream], guard: &str) -> Gate {
    Gate::start(&Settings::over(nodes).more(&format!("routing: {{option_guard: {guard}}}"))).await
}

fn asking_for(topic: &str, options: Value) -> Request {
    Talk::about(Dialect::Ollama, topic).ask_with(json!({"options": options, "keep_alive": "5m", "stream": false}))
}

async fn finished(gate: &Gate, request: &Request) -> Reply {
    let mut reply = gate.send(request).await;
    reply.whole().await;
    assert_eq!(reply.status, 200);
    reply
}

async fn count(gate: &Gate, action: &str) -> f64 {
    gate.counter(&format!("warmgate_option_reloads_total{{action=\"{action}\",node=\"n1\"}}")).await
}

/// Points of the only candidate for the model in memory.
fn loaded_points(receipt: &Value) -> f64 {
    receipt["decision"]["candidates"][0]["signals"]["model_loaded"].as_f64().expect("points")
}

#[tokio::test]
async fn pass_routes_with_it_in_view_and_says_nothing() {
    let n1 = node("n1", 4096).await;
    let gate = gate(&[&n1], "pass").await;
    let request = asking_for("moss", json!({"num_ctx": 8192}));

    let reply = finished(&gate, &request).await;

    assert_eq!(n1.request(0).await.body, request.body());
    let receipt = gate.receipt(reply.request_id()).await;
    assert_eq!((&receipt["option_guard"], loaded_points(&receipt)), (&Value::Null, 10.0));
    assert_eq!((count(&gate, "warned").await, count(&gate, "pinned").await), (0.0, 0.0));
    assert!(!gate.log().contains("num_ctx"));
}

#[tokio::test]
async fn warn_says_it_in_receipt_metric_and_once_in_the_log() {
    let n1 = node("n1", 4096).await;
    let gate = gate(&[&n1], "warn").await;
    let request = asking_for("moss", json!({"temperature": 0.10, "num_ctx": 8192}));

    let reply = finished(&gate, &request).await;
    // Nobody has loaded it anew after all; the node says so, and the next one would again.
    n1.polled("/api/ps", 2).await;
    let again = finished(&gate, &asking_for("fern", json!({"num_ctx": 8192}))).await;

    assert_eq!(n1.request(0).await.body, request.body());
    let receipt = gate.receipt(reply.request_id()).await;
    let said = json!({"action": "warned", "options": {"num_ctx": {"asked": 8192, "resident": 4096}}});
    assert_eq!((&receipt["option_guard"], loaded_points(&receipt)), (&said, 10.0));
    assert_eq!(receipt["attempts"][0]["option_guard"], said);
    assert_eq!(gate.receipt(again.request_id()).await["option_guard"], said);
    assert_eq!((count(&gate, "warned").await, count(&gate, "pinned").await), (2.0, 0.0));
    assert_eq!(gate.log().matches("num_ctx 8192 where 4096").count(), 1, "{}", gate.log());
}

#[tokio::test]
async fn pin_sends_the_window_in_memory_and_changes_nothing_else() {
    let n1 = node("n1", 4096).await;
    let gate = gate(&[&n1], "pin").await;
    let body = format!(
        r#"{{ "options":{{"seed":9007199254740993, "num_ctx" : 8192,"temperature":0.10}}, "model":"{MODEL}",
            "messages":[{{"role":"user","content":"8192?"}}],"stream":false,"x_grammar":{{"a":1}}}}"#
    );

    let reply = finished(&gate, &Request::post("/api/chat", body.clone())).await;

    let sent = n1.request(0).await;
    assert_eq!(sent.body, body.replace(": 8192", ": 4096").as_bytes());
    assert_eq!(sent.head.get("content-length"), Some(body.len().to_string().as_str()));
    let receipt = gate.receipt(reply.request_id()).await;
    let said = json!({"action": "pinned", "options": {"num_ctx": {"asked": 8192, "resident": 4096}}});
    assert_eq!((&receipt["option_guard"], loaded_points(&receipt)), (&said, 50.0));
    assert_eq!((count(&gate, "warned").await, count(&gate, "pinned").await), (0.0, 1.0));
    assert_eq!(gate.log().matches("num_ctx 8192 where 4096").count(), 1, "{}", gate.log());
}

#[tokio::test]
async fn pin_leaves_a_window_alone_that_the_prompt_needs() {
    let n1 = node("n1", 4096).await;
    let gate = gate(&[&n1], "pin").await;
    let request = asking_for(&"a long story. ".repeat(1000), json!({"num_ctx": 8192}));

    let reply = finished(&gate, &request).await;

    assert_eq!(n1.request(0).await.body_hash(), xxhash_rust::xxh3::xxh3_128(request.body()));
    assert_eq!(gate.receipt(reply.request_id()).await["option_guard"]["action"], "warned");
}

#[tokio::test]
async fn pin_knows_other_options_from_what_was_served() {
    let n1 = node("n1", 4096).await;
    let gate = gate(&[&n1], "pin").await;
    let plain = finished(&gate, &asking_for("moss", json!({"num_thread": 8, "use_mmap": true}))).await;
    let other = asking_for("fern", json!({"num_thread": 4, "use_mmap": true, "num_batch": 64}));

    let reply = finished(&gate, &other).await;

    assert_eq!(gate.receipt(plain.request_id()).await["option_guard"], Value::Null, "nothing was known");
    let sent: Value = serde_json::from_slice(&n1.request(1).await.body).expect("JSON");
    assert_eq!(sent["options"], json!({"num_thread": 8, "use_mmap": true, "num_batch": null}));
    let receipt = gate.receipt(reply.request_id()).await;
    let options = json!({"num_batch": {"asked": 64, "resident": null}, "num_thread": {"asked": 4, "resident": 8}});
    assert_eq!(receipt["option_guard"], json!({"action": "pinned", "options": options}));
}

#[tokio::test]
async fn the_node_whose_window_agrees_wins_unless_it_is_pinned() {
    for guard in ["pass", "warn"] {
        let (n1, n2) = (node("n1", 4096).await, node("n2", 8192).await);
        let gate = gate(&[&n1, &n2], guard).await;
        for (topic, num_ctx, expected) in [("moss", 8192, "n2"), ("fern", 4096, "n1"), ("larch", 8192, "n2")] {
            let reply = finished(&gate, &asking_for(topic, json!({"num_ctx": num_ctx}))).await;
            assert_eq!(reply.node(), expected, "{guard}: {topic}");
        }
    }
}

#[tokio::test]
async fn openai_paths_have_no_such_options() {
    let n1 = node("n1", 4096).await;
    let gate = gate(&[&n1], "pin").await;
    let request = Talk::about(Dialect::OpenAi, "moss").ask_with(json!({"options": {"num_ctx": 8192}}));

    let reply = finished(&gate, &request).await;

    assert_eq!(n1.request(0).await.body, request.body());
    assert_eq!(gate.receipt(reply.request_id()).await["option_guard"], Value::Null);
}
