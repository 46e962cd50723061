//! What is asked of nodes, and what is said of those that load, want a key or are something else.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gate::{Gate, Settings};
use crate::patience::within;
use crate::rig::node;
use crate::talk::MODEL;
use crate::upstream::{Model, Polled, Polls, Upstream};

const OFTEN: &str = "telemetry: {interval: 100ms}\nhealth: {interval: 100ms, timeout: 2s}";

#[tokio::test]
async fn hlt_03_a_loading_node_gets_no_request_and_the_first_as_soon_as_it_is_ready() {
    let loading = Upstream::llama_cpp("loading", vec![Model::resident(MODEL)]).await;
    loading.set_polls(Polls::Loading);
    // Health checks are rare: that it is ready must be seen by the more frequent looks.
    let rare = "telemetry: {interval: 100ms}\nhealth: {interval: 60s}";
    let gate = Gate::start_not_ready(&Settings::over(&[&loading]).more(rare)).await;

    let state = gate.node_once("loading", "to be starting", |node| node["standing"]["state"] == "starting").await;
    for _ in 0..5 {
        assert_eq!(gate.post("/v1/chat/completions", chat()).await.status, 503);
    }
    assert_eq!(loading.count(), 0, "no request while it loads");
    assert_eq!((&state["problem"], &state["healthy"]), (&json!("loading"), &json!(false)));

    loading.set_polls(Polls::Answered);
    gate.node_once("loading", "to be up", |node| node["standing"]["state"] == "up").await;
    let reply = gate.post("/v1/chat/completions", chat()).await;
    assert_eq!((reply.status, reply.header("x-fleet-attempts")), (200, Some("1")));
    assert!(!gate.log().contains("taken out"), "loading is no failure");
}

#[tokio::test]
async fn hlt_04_a_page_is_a_wrong_type_and_gets_no_traffic() {
    let page = node("page").await;
    page.set_polls(Polls::Page);
    let good = node("good").await;
    let gate = Gate::start(&Settings::over(&[&page, &good]).more(OFTEN)).await;

    let state =
        gate.node_once("page", "to be of the wrong type", |node| node["standing"]["state"] == "wrong type").await;
    for _ in 0..10 {
        assert_eq!(gate.post("/api/chat", chat()).await.node(), "good");
    }

    assert_eq!(page.count(), 0);
    let problem = state["problem"].as_str().expect("a reason");
    assert!(problem.contains("what answers there is not ollama"), "{problem}");
    gate.node_once("good", "to be up", |node| node["standing"]["state"] == "up" && node["problem"].is_null()).await;
}

#[tokio::test]
async fn hlt_14_probes_and_lists_carry_the_node_s_key_and_a_wrong_one_is_called_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let key_file = folder.path().join("key");
    let fields = format!("api_key: {{file: \"{}\"}}", key_file.display());
    for (key, is_right) in [("kx-node-1", true), ("kx-node-2", false)] {
        std::fs::write(&key_file, key).expect("a key");
        for node in [node("n1").await, Upstream::vllm("n1", vec![Model::resident(MODEL)]).await] {
            node.demand("Bearer kx-node-1");
            let settings = Settings::over(&[&node]).with_fields(&fields).more(OFTEN);
            let engine = node.engine();
            let state = if is_right {
                let gate = Gate::start(&settings).await;
                assert_eq!(gate.post("/v1/chat/completions", chat()).await.status, 200, "{engine}");
                gate.node_once("n1", "to be up", |node| node["standing"]["state"] == "up").await
            } else {
                let gate = Gate::start_not_ready(&settings).await;
                gate.node_once("n1", "to want its key", |node| node["standing"]["state"] == "auth").await
            };

            let expected = if is_right { Value::Null } else { json!("it refuses our key (401): see `api_key`") };
            assert_eq!(state["problem"], expected, "{engine}");
            let sent: BTreeSet<_> = node.take_polls().into_iter().map(|poll| poll.authorization).collect();
            assert_eq!(sent, [Some(format!("Bearer {key}"))].into(), "{engine}: with every poll");
        }
    }
}

/// All that may be asked of a node for which nobody wants anything.
const CHEAP: [&str; 9] =
    ["/", "/api/version", "/api/tags", "/api/ps", "/v1/models", "/health", "/props", "/metrics", "/version"];

#[tokio::test]
async fn hlt_15_idle_nodes_see_cheap_reads_and_nothing_else() {
    let models = || vec![Model::resident(MODEL), Model::on_disk("fern:3b")];
    let nodes = [
        Upstream::ollama("n1", models()).await,
        Upstream::openai("n2", models()).await,
        Upstream::vllm("n3", models()).await,
        Upstream::llama_cpp("n4", models()).await,
    ];
    let gate = Gate::start(&Settings::over(&nodes.each_ref()).more(OFTEN)).await;

    for node in &nodes {
        let mut polls: Vec<Polled> = Vec::new();
        within("thirty polls", async {
            while polls.len() < 30 {
                polls.extend(node.take_polls());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        for poll in &polls {
            assert!(CHEAP.contains(&poll.path.as_str()), "{}: {poll:?}", node.engine());
        }
        for n in 0..node.count() {
            // Reads what a model is, and loads nothing.
            assert_eq!(node.request(n).await.path, "/api/show", "{}", node.engine());
        }
    }
    assert_eq!(gate.in_flight().await, 0);
}

fn chat() -> String {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "moss?"}], "stream": false}).to_string()
}
