//! What Warmgate asks nodes by itself, and what it sends them besides.

use serde_json::json;

use crate::gate::{Gate, Settings};
use crate::rig::{Single, finished};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Model, Script, Upstream};

fn shown(capabilities: &[&str]) -> Model {
    let shown = json!({
        "parameters": "num_ctx 8192",
        "model_info": {"general.architecture": "moss", "moss.context_length": 8192},
        "capabilities": capabilities,
    });
    Model { shown: Some(shown), context_tokens: 8192, ..Model::resident(MODEL) }
}

#[tokio::test]
async fn hlt_15_an_idle_node_is_asked_lists_and_once_about_each_model() {
    let models =
        vec![shown(&["completion"]), Model { name: "fern:3b".into(), ..shown(&[]) }, Model::on_disk("larch:1b")];
    let node = Upstream::ollama("n1", models).await;
    let _gate = Gate::start(&Settings::over(&[&node]).more("telemetry: {interval: 100ms}")).await;

    node.polled("/api/ps", 10).await;

    let polls = node.polls();
    let posts: Vec<&String> = polls.iter().filter(|poll| !poll.starts_with("GET ")).collect();
    // It reads the model's file and loads nothing.
    assert_eq!(posts, ["POST /api/show"; 3]);
    let lists = ["GET /api/version", "GET /api/tags", "GET /api/ps", "POST /api/show"];
    assert!(polls.iter().all(|poll| lists.contains(&poll.as_str())), "{polls:?}");
    assert_eq!(node.count(), 0, "nothing ran");
}

#[tokio::test]
async fn a_request_for_thoughts_goes_to_who_may_think() {
    let plain = Upstream::ollama("plain", vec![shown(&["completion"])]).await;
    let thinker = Upstream::ollama("thinker", vec![shown(&["completion", "thinking"])]).await;
    let gate = Gate::start(&Settings::over(&[&plain, &thinker]).more("telemetry: {interval: 100ms}")).await;
    plain.polled("/api/ps", 3).await;
    thinker.polled("/api/ps", 3).await;

    for topic in ["moss", "fern", "larch", "oak", "elm", "ash"] {
        let request = Talk::about(Dialect::Ollama, topic).ask_with(json!({"think": true}));
        let mut reply = gate.send(&request).await;
        reply.whole().await;
        assert_eq!(reply.node(), "thinker");
        let receipt = gate.receipt(reply.request_id()).await;
        assert_eq!(receipt["decision"]["excluded"], json!([{"node": "plain", "reason": "lacks_ability"}]));
    }
}

#[tokio::test]
async fn where_nobody_thinks_the_engine_says_so() {
    let plain = Upstream::ollama("plain", vec![shown(&["completion"])]).await;
    let gate = Gate::start(&Settings::over(&[&plain]).more("telemetry: {interval: 100ms}")).await;
    plain.polled("/api/ps", 3).await;
    let words = json!({"error": "\"moss:7b\" does not support thinking"});
    plain.next(Script::json(400, &words));

    let mut reply = gate.send(&Talk::about(Dialect::Ollama, "moss").ask_with(json!({"think": "high"}))).await;

    assert_eq!((reply.status, reply.json().await), (400, words));
}

#[tokio::test]
async fn litellm_is_told_at_every_attempt_not_to_try_again_itself() {
    let models = || vec![Model::resident(MODEL)];
    let (n1, n2) = (Upstream::litellm("n1", models()).await, Upstream::litellm("n2", models()).await);
    let gate = Gate::start(&Settings::over(&[&n1, &n2])).await;
    for node in [&n1, &n2] {
        node.next(Script::json(503, &json!({"error": {"message": "busy"}})));
    }
    let request = Talk::about(Dialect::OpenAi, "moss").ask().header("X-LiteLLM-Num-Retries", "9");
    gate.send(&request).await.whole().await;

    for node in [&n1, &n2] {
        assert_eq!(node.request(0).await.head.get("x-litellm-num-retries"), Some("0"));
    }

    let single = Single::new().await;
    finished(&single.gate, &Talk::about(Dialect::OpenAi, "moss")).await;
    assert_eq!(single.node.request(0).await.head.get("x-litellm-num-retries"), None);
}
