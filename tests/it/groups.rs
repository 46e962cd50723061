//! Names over several nodes' models: what clients ask for, what nodes are asked for.

use serde_json::{Value, json};

use crate::gate::{Gate, Settings};
use crate::upstream::{Model, Script, Upstream};

const GROUPS: &str = "models:
  - name: fast
    targets:
      - {upstream: n1, model: \"fern:3b\", cost: 2}
      - {upstream: n2, model: Fern-3B, cost: 1}
    fallbacks: [\"moss:7b\"]
    policy: cost
";

/// An Ollama node and an OpenAI-type one, each with a model behind `fast`; the first has the fallback.
async fn fleet() -> (Gate, Upstream, Upstream) {
    let n1 = Upstream::ollama("n1", vec![Model::resident("fern:3b"), Model::resident("moss:7b")]).await;
    let n2 = Upstream::openai("n2", vec![Model::resident("Fern-3B")]).await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(GROUPS)).await;
    (gate, n1, n2)
}

fn chat(text: &str) -> String {
    // Odd spacing, numbers and fields, which must all arrive as they are.
    format!(
        r#"{{ "x":{{"model":"decoy"}} ,"model" : "fast","seed":9007199254740993, "temperature":0.10,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    )
}

#[tokio::test]
async fn cat_13_a_name_is_written_as_each_node_spells_it_and_nothing_else_changes() {
    let (gate, _, n2) = fleet().await;

    let mut reply = gate.post("/v1/chat/completions", chat("hello")).await;
    reply.whole().await;

    assert_eq!((reply.node(), reply.header("x-fleet-model")), ("n2", Some("Fern-3B")), "the cheaper target");
    let expected = chat("hello").replace("\"fast\"", "\"Fern-3B\"");
    let record = n2.request(0).await;
    assert_eq!(String::from_utf8_lossy(&record.body), expected, "bod_08");
    assert_eq!(record.head.get("content-length"), Some(expected.len().to_string().as_str()), "bod_07");
}

#[tokio::test]
async fn the_targets_come_before_the_fallbacks() {
    let (gate, n1, n2) = fleet().await;
    let busy = Script::json(503, &json!({"error": {"message": "busy"}}));
    n2.next(busy.clone());
    n1.next(busy);

    let mut reply = gate.post("/v1/chat/completions", chat("hello")).await;
    reply.whole().await;

    assert_eq!(reply.status, 200);
    assert_eq!((reply.node(), reply.header("x-fleet-model")), ("n1", Some("moss:7b")));
    assert_eq!(reply.header("x-fleet-attempts"), Some("3"));
    let asked: Value = serde_json::from_slice(&n1.request(0).await.body).expect("JSON");
    assert_eq!(asked["model"], "fern:3b", "the other target was tried before");
}

#[tokio::test]
async fn cat_13_lists_show_the_name_while_a_target_is_there() {
    let (gate, ..) = fleet().await;

    let models = gate.get("/v1/models").await.json().await.to_string();
    let tags = gate.get("/api/tags").await.json().await.to_string();
    let one = gate.get("/v1/models/fast").await.json().await;

    assert!(models.contains("\"fast\""), "{models}");
    assert!(tags.contains("\"fast\""), "{tags}");
    assert_eq!(one["id"], "fast");
}
