//! Unloading reaches every node that has the model in memory, whatever `management` says.

use serde_json::json;

use crate::client::Request;
use crate::gate::{Gate, Settings};
use crate::rig::node;
use crate::talk::MODEL;
use crate::upstream::{Model, Script, Upstream};

#[tokio::test]
async fn an_unload_reaches_every_copy_in_memory() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    let n3 = Upstream::ollama("n3", vec![Model::on_disk(MODEL)]).await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2, &n3])).await;
    for node in [&n1, &n2] {
        node.next(Script::json(200, &json!({"done": true, "done_reason": "unload"})));
    }
    let body = json!({"model": "MOSS:7b", "prompt": "", "keep_alive": 0}).to_string();

    let mut reply = gate.post("/api/generate", body).await;
    let answer = reply.json().await;

    assert_eq!((&answer["done"], &answer["done_reason"]), (&json!(true), &json!("unload")));
    assert_eq!((&answer["model"], &answer["response"]), (&json!("MOSS:7b"), &json!("")));
    for node in [&n1, &n2] {
        let asked = node.request(0).await;
        assert_eq!(asked.body, json!({"model": MODEL, "prompt": "", "keep_alive": 0}).to_string());
    }
    assert_eq!(n3.count(), 0, "it is not in memory there");
    // The nodes still list it in memory, as an engine does that is letting go.
    let status = gate.status().await;
    assert!(!status.to_string().contains(r#""resident":true"#), "{status:#}");
}

#[tokio::test]
async fn what_nobody_has_in_memory_is_unloaded_as_ollama_says() {
    let n1 = Upstream::ollama("n1", vec![Model::on_disk(MODEL)]).await;
    let gate = Gate::start(&Settings::over(&[&n1])).await;
    for keep_alive in [json!(0), json!("0"), json!("0s")] {
        let body = json!({"model": MODEL, "messages": [], "keep_alive": keep_alive}).to_string();
        let mut reply = gate.post("/api/chat", body).await;
        let answer = reply.json().await;
        assert_eq!((reply.status, &answer["done_reason"]), (200, &json!("unload")), "{keep_alive}");
        assert_eq!(answer["message"], json!({"role": "assistant", "content": ""}));
    }
    assert_eq!(n1.count(), 0);
    let body = json!({"model": "none", "keep_alive": 0}).to_string();
    assert_eq!(gate.post("/api/generate", body).await.status, 404);
    let body = json!({"model": MODEL, "prompt": "moss?", "keep_alive": 0}).to_string();
    gate.post("/api/generate", body).await.whole().await;
    assert_eq!(n1.count(), 1, "a question is no unload");
}

#[tokio::test]
async fn a_node_that_does_not_unload_is_named() {
    let [n1, n2] = [node("n1").await, node("n2").await];
    let gate = Gate::start(&Settings::over(&[&n1, &n2])).await;
    n1.next(Script::json(200, &json!({"done": true})));
    n2.next(Script::json(500, &json!({"error": "stuck"})));
    let request = Request::post("/api/generate", json!({"model": MODEL, "keep_alive": 0}).to_string());

    let mut reply = gate.send(&request).await;

    assert_eq!(reply.status, 502);
    assert_eq!(reply.json().await, json!({"error": "not unloaded on n2: stuck; unloaded on n1"}));
}

#[tokio::test]
async fn a_client_that_leaves_stops_the_unload() {
    let n1 = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&n1])).await;
    n1.next(Script::silent());
    let mut conn = gate.connect().await;
    conn.send(&Request::post("/api/generate", json!({"model": MODEL, "keep_alive": 0}).to_string())).await;
    n1.request(0).await;
    drop(conn);
    n1.peer_gone(0).await;
}
