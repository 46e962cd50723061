//! The paths that Warmgate answers itself, with the fleet up and with the fleet down.

use serde_json::{Value, json};

use crate::client::{Conn, Request};
use crate::gate::{Gate, Settings};
use crate::rig::{Pair, Single, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Model, Polls, Upstream};

#[tokio::test]
async fn cat_14_the_root_and_the_version_answer_with_all_nodes_down() {
    let (gate, _node) = dead_fleet().await;
    for path in ["/", "/api/version", "/healthz"] {
        assert_eq!(gate.get(path).await.status, 200, "GET {path}");
    }
    for path in ["/", "/api/version"] {
        let mut reply = gate.send(&Request::new("HEAD", path)).await;
        assert_eq!(reply.status, 200, "HEAD {path}");
        assert_eq!(reply.whole().await, "", "HEAD {path} has no body");
    }
    let root = gate.get("/").await.whole().await;
    assert_eq!(root, "Ollama is running", "what clients look for");
}

#[tokio::test]
async fn hlt_16_ready_means_that_some_node_can_serve() {
    let (dead, _node) = dead_fleet().await;
    let lively = Single::new().await;
    assert_eq!(dead.get("/readyz").await.status, 503);
    assert_eq!(lively.gate.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_dead_fleet_is_503_with_a_sentence_in_the_dialect() {
    let mut single = Single::new().await;
    single.node.kill().await;
    for dialect in Dialect::BOTH {
        let mut reply = single.gate.send(&Talk::about(dialect, "moss").ask()).await;
        let body = reply.json().await;

        let status = reply.status;
        assert!(matches!(status, 502 | 503), "{dialect:?}: {status} {body}");
        let sentence = dialect.error_text(&body);
        let sentence = sentence.unwrap_or_else(|| panic!("{dialect:?}: form of {body}"));
        let url = single.node.address().to_string();
        assert!(!sentence.contains(&url), "sec_09: it names the node's address");
    }
}

#[tokio::test]
async fn lists_are_merged_over_the_fleet() {
    let n1 = Upstream::ollama("n1", vec![Model::resident(MODEL), Model::on_disk("fern:3b")]).await;
    let n2 = Upstream::ollama("n2", vec![Model::resident(MODEL)]).await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2])).await;

    let tags = gate.get("/api/tags").await.json().await;
    let ps = gate.get("/api/ps").await.json().await;
    let models = gate.get("/v1/models").await.json().await;

    assert_eq!(names(&tags["models"], "name"), ["fern:3b", MODEL]);
    assert_eq!(names(&ps["models"], "name"), [MODEL, MODEL], "cat_11: every loaded copy");
    assert_eq!(names(&ps["models"], "node"), ["n1", "n2"]);
    assert_eq!(names(&models["data"], "id"), ["fern:3b", MODEL]);
}

#[tokio::test]
async fn cat_06_a_node_that_never_answers_does_not_delay_the_lists() {
    let silent = node("silent").await;
    silent.set_polls(Polls::Silent);
    let lively = node("lively").await;
    let gate = Gate::start(&Settings::over(&[&silent, &lively])).await;

    let started = std::time::Instant::now();
    let tags = gate.get("/api/tags").await.json().await;

    assert_eq!(names(&tags["models"], "name"), [MODEL]);
    let took = started.elapsed();
    assert!(took.as_millis() < 200, "the list took {took:?}");
}

#[tokio::test]
async fn cat_01_no_tag_means_latest_and_no_other_tag() {
    let latest = Upstream::ollama("latest", vec![Model::resident("moss:latest")]).await;
    let small = Upstream::ollama("small", vec![Model::resident("fern:3b")]).await;
    let gate = Gate::start(&Settings::over(&[&latest, &small])).await;

    let found = gate.post("/api/chat", chat("moss")).await;
    let missing = gate.post("/api/chat", chat("fern")).await;

    assert_eq!(found.status, 200);
    assert_eq!(found.node(), "latest");
    assert_eq!(missing.status, 404);
}

#[tokio::test]
async fn cat_02_case_folds_for_ollama_and_for_nobody_else() {
    let ollama = node("ollama").await;
    let openai = Upstream::openai("openai", vec![Model::resident("Fern-3B")]).await;
    let gate = Gate::start(&Settings::over(&[&ollama, &openai])).await;

    let folded = gate.post("/api/chat", chat("Moss:7B")).await;
    let exact = gate.post("/v1/chat/completions", chat("Fern-3B")).await;
    let other = gate.post("/v1/chat/completions", chat("fern-3b")).await;

    assert_eq!(folded.status, 200);
    assert_eq!(exact.status, 200);
    assert_eq!(exact.node(), "openai");
    assert_eq!(other.status, 404);
    let asked: Value = serde_json::from_slice(&ollama.request(0).await.body).expect("JSON");
    assert_eq!(asked["model"], MODEL, "the node's own spelling");
    assert_eq!(folded.header("x-fleet-model"), Some(MODEL));
}

#[tokio::test]
async fn sec_06_nodes_see_their_own_host_and_not_the_client_s() {
    let single = Single::new().await;
    single.gate.send(&Talk::about(Dialect::Ollama, "moss").ask()).await.whole().await;

    let record = single.node.request(0).await;

    let own = single.node.address().to_string();
    assert_eq!(record.head.get("host"), Some(own.as_str()));
}

#[tokio::test]
async fn one_connection_carries_a_whole_conversation() {
    let pair = Pair::new(Dialect::Ollama).await;
    let mut conn: Conn = pair.gate.connect().await;
    let mut talk = pair.talk.clone();
    for turn in 1..=5 {
        let reply = conn.exchange(&talk.ask()).await;
        assert_eq!(reply.node(), pair.home.name(), "turn {turn}");
        conn = reply.reuse().await;
        talk = talk.then(&format!("And then, {turn}?"));
    }
}

#[tokio::test]
async fn ops_10_a_request_id_is_kept_or_made() {
    let single = Single::new().await;
    let request = Talk::about(Dialect::Ollama, "moss").ask();

    let made = single.gate.send(&request).await;
    let kept = single.gate.send(&request.header("X-Request-Id", "moss-17")).await;

    assert!(!made.request_id().is_empty());
    assert_eq!(kept.request_id(), "moss-17");
}

/// A gate over a killed node; the node keeps its port from others.
async fn dead_fleet() -> (Gate, Upstream) {
    let mut node = node("n1").await;
    node.kill().await;
    let gate = Gate::start_not_ready(&Settings::over(&[&node])).await;
    (gate, node)
}

fn chat(model: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": "moss?"}]}).to_string()
}

fn names<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let entries = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut names: Vec<&str> = entries.iter().filter_map(|e| e[field].as_str()).collect();
    names.sort_unstable();
    names
}
