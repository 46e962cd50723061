//! The lists of models that clients see, over nodes that agree, differ, change and hang.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::Request;
use crate::gate::{Gate, Settings};
use crate::patience::within;
use crate::talk::MODEL;
use crate::upstream::{Model, Polls, Script, Upstream};

/// Short intervals, so that changes are seen soon.
const OFTEN: &str = "telemetry: {interval: 100ms}\nhealth: {interval: 100ms, timeout: 2s}";

#[tokio::test]
async fn cat_03_each_full_name_reaches_its_node_and_no_other() {
    let (small, large) = ("hub.test/pebblelab/moss-GGUF:Q4_K_M", "hub.test/pebblelab/moss-GGUF:Q8_0");
    let n1 = Upstream::ollama("n1", vec![Model::resident(small), Model::resident(MODEL)]).await;
    let n2 = Upstream::ollama("n2", vec![Model::resident(large)]).await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2])).await;

    for (name, node, asked_for) in [
        (small, "n1", small),
        (large, "n2", large),
        ("library/moss:7b", "n1", MODEL),
        ("registry.ollama.ai/library/moss:7b", "n1", MODEL),
    ] {
        for path in ["/api/chat", "/v1/chat/completions"] {
            let reply = gate.post(path, chat(name)).await;
            let got = (reply.status, reply.node(), reply.header("x-fleet-model"));
            assert_eq!(got, (200, node, Some(asked_for)), "{path}: {name}");
        }
    }
    for name in ["pebblelab/moss:7b", "hub.test/pebblelab/moss-GGUF", "moss-GGUF:Q8_0", "other.test/library/moss:7b"] {
        assert_eq!(gate.post("/api/chat", chat(name)).await.status, 404, "{name}");
    }
}

#[tokio::test]
async fn cat_02_a_model_with_several_spellings_is_listed_once_and_found_on_all_its_nodes() {
    let spellings = ["Moss:7b", "moss:7b", "registry.ollama.ai/library/moss:7b"];
    let mut nodes = Vec::new();
    for (n, spelling) in spellings.iter().enumerate() {
        nodes.push(Upstream::ollama(&format!("n{n}"), vec![Model::resident(spelling)]).await);
    }
    let gate = Gate::start(&Settings::over(&nodes.iter().collect::<Vec<_>>())).await;

    let tags = gate.get("/api/tags").await.json().await;
    let models = gate.get("/v1/models").await.json().await;
    let reply = gate.post("/api/chat", chat("MOSS:7b")).await;

    assert_eq!((column(&tags["models"], "name"), column(&models["data"], "id")), (vec!["moss:7b"], vec!["moss:7b"]));
    assert_eq!(tags["models"][0]["nodes"], json!(["n0", "n1", "n2"]));
    let receipt = gate.receipt(reply.request_id()).await;
    assert_eq!(receipt["decision"]["candidates"].as_array().map(Vec::len), Some(3));
    let n: usize = reply.node()[1..].parse().expect("a number");
    let asked: Value = serde_json::from_slice(&nodes[n].request(0).await.body).expect("JSON");
    assert_eq!(asked["model"], spellings[n], "the node's own spelling");
}

#[tokio::test]
async fn cat_04_every_listed_id_is_found_by_path_raw_and_encoded() {
    let n1 = Upstream::ollama("n1", vec![Model::resident("hub.test/pebblelab/moss-GGUF:Q4_K_M")]).await;
    let n2 = Upstream::openai("n2", vec![Model::resident("Moss/Moss-7B"), Model::resident("fern")]).await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2])).await;

    let models = gate.get("/v1/models").await.json().await;
    let ids = column(&models["data"], "id");

    assert_eq!(ids, ["Moss/Moss-7B", "fern", "hub.test/pebblelab/moss-GGUF:Q4_K_M"]);
    for id in ids {
        let encoded = id.replace('/', "%2F").replace(':', "%3A");
        let lower = id.replace('/', "%2f").replace(':', "%3a");
        for path in [id, &encoded, &lower] {
            let mut reply = gate.get(&format!("/v1/models/{path}")).await;
            assert_eq!(reply.status, 200, "{path}");
            assert_eq!(reply.json().await["id"], id, "{path}");
        }
    }
    assert_eq!(gate.get("/v1/models/hub.test/pebblelab").await.status, 404);
}

#[tokio::test]
async fn cat_05_tags_merge_by_name_and_a_differing_digest_is_seen() {
    let of = |name: &str, digest: &str| Model { digest: digest.into(), ..Model::resident(name) };
    let n1 = Upstream::ollama("n1", vec![of("moss:7b", "d1"), of("moss:prod", "d1")]).await;
    let n2 = Upstream::ollama("n2", vec![of("moss:7b", "d2"), of("fern:3b", "d3")]).await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2])).await;

    let tags = gate.get("/api/tags").await.json().await;

    assert_eq!(column(&tags["models"], "name"), ["fern:3b", "moss:7b", "moss:prod"]);
    for model in tags["models"].as_array().expect("models") {
        for field in ["name", "model", "modified_at", "size", "digest", "details"] {
            assert!(!model[field].is_null(), "{field} in {model}");
        }
    }
    for _ in 0..5 {
        assert_eq!(gate.post("/api/chat", chat("moss:prod")).await.node(), "n1");
    }
    let conflict = json!({"model": "moss:7b", "kind": "digest", "values": {"d1": ["n1"], "d2": ["n2"]}});
    assert_eq!(gate.status().await["conflicts"], json!([conflict]));
}

#[tokio::test]
async fn cat_07_a_deleted_model_is_gone_with_the_next_poll() {
    let n1 = Upstream::ollama("n1", vec![Model::resident(MODEL), Model::on_disk("fern:3b")]).await;
    let gate = Gate::start(&Settings::over(&[&n1]).more(OFTEN)).await;
    assert!(gate.get("/api/tags").await.json().await.to_string().contains("fern:3b"));

    n1.set_models(vec![Model::resident(MODEL)]);
    n1.take_polls();
    let is_without = |list: &Value| !list.to_string().contains("fern:3b");
    for path in ["/api/tags", "/v1/models"] {
        gate.list_once(path, "fern:3b to vanish from the lists", is_without).await;
    }

    assert_eq!(gate.get("/v1/models/fern:3b").await.status, 404);
    assert_eq!(gate.post("/api/chat", chat("fern:3b")).await.status, 404);
    assert_eq!(gate.post("/api/chat", chat(MODEL)).await.status, 200);
}

/// As Ollama's own client reads `/api/ps` (`ProcessModelResponse`): fields of these names and types.
#[derive(Debug, Deserialize)]
struct Process {
    name: String,
    model: String,
    size: i64,
    digest: String,
    details: Details,
    expires_at: String,
    size_vram: i64,
    context_length: i64,
}

#[derive(Debug, Deserialize)]
struct Details {
    parent_model: String,
    format: String,
    family: String,
    families: Option<Vec<String>>,
    parameter_size: String,
    quantization_level: String,
}

#[tokio::test]
async fn cat_11_ps_names_every_copy_and_its_node_and_ollama_s_client_reads_it() {
    let n1 = Upstream::ollama("n1", vec![Model::resident(MODEL)]).await;
    let mut n2 = Upstream::ollama("n2", vec![Model::resident(MODEL), Model::resident("fern:3b")]).await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(OFTEN)).await;

    let ps = gate.get("/api/ps").await.json().await;
    let read: Vec<Process> = serde_json::from_value(ps["models"].clone()).expect("the client's form");
    n2.kill().await;
    let after = gate.list_once("/api/ps", "the copies of a dead node to go", |ps| !ps.to_string().contains("n2")).await;

    let names: Vec<&str> = read.iter().map(|process| process.name.as_str()).collect();
    assert_eq!(names, ["fern:3b", MODEL, MODEL]);
    assert_eq!(column(&ps["models"], "node"), ["n2", "n1", "n2"]);
    for process in &read {
        assert_eq!(process.model, process.name);
        assert!(process.size > 0 && process.size_vram > 0 && process.context_length > 0, "{process:?}");
        assert!(!process.digest.is_empty() && process.expires_at.contains('T'), "{process:?}");
        let details = &process.details;
        let told = [&details.format, &details.family, &details.parameter_size, &details.quantization_level];
        assert!(told.iter().all(|text| !text.is_empty()), "{process:?}");
        assert_eq!((details.parent_model.as_str(), details.families.as_ref().map(Vec::len)), ("", Some(1)));
    }
    assert_eq!((column(&after["models"], "name"), column(&after["models"], "node")), (vec![MODEL], vec!["n1"]));
}

#[tokio::test]
async fn a_model_that_differs_is_logged_once_and_seen_until_it_does_not() {
    let of = |name: &str, digest: &str, quantization: &str, context_tokens| Model {
        digest: digest.into(),
        quantization: quantization.into(),
        context_tokens,
        ..Model::resident(name)
    };
    let n1 = Upstream::ollama("n1", vec![of("moss:latest", "d1", "Q4_K_M", 4096)]).await;
    let n2 = Upstream::ollama("n2", vec![of("Moss", "d2", "Q8_0", 8192)]).await;
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(OFTEN)).await;

    n1.take_polls();
    let mut polls = 0;
    within("ten polls", async {
        while polls < 10 {
            polls += n1.take_polls().iter().filter(|poll| poll.path == "/api/tags").count();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;

    let differs =
        |kind: &str, a: &str, b: &str| json!({"model": "moss:latest", "kind": kind, "values": {a: ["n1"], b: ["n2"]}});
    let conflicts = json!([
        differs("digest", "d1", "d2"),
        differs("quantisation", "Q4_K_M", "Q8_0"),
        differs("context", "4096", "8192"),
    ]);
    assert_eq!(gate.status().await["conflicts"], conflicts);
    let metrics = gate.admin_text("/metrics").await;
    for kind in ["digest", "quantisation", "context"] {
        let told = format!("moss:latest: its {kind} differs");
        assert_eq!(gate.log().matches(&told).count(), 1, "once in ten polls: {told}");
        let line = format!("warmgate_model_drift{{kind=\"{kind}\",model=\"moss:latest\"}} 1");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }

    n2.set_models(vec![of("Moss", "d1", "Q4_K_M", 4096)]);
    within("the conflicts to end", async {
        while gate.status().await["conflicts"] != json!([]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(!gate.admin_text("/metrics").await.contains("warmgate_model_drift{"));
    assert_eq!(gate.log().matches("moss:latest: its digest no longer differs").count(), 1);
}

#[tokio::test]
async fn cat_06_one_of_five_nodes_that_hangs_costs_lists_and_the_others_nothing() {
    let hung = Upstream::ollama("hung", vec![Model::resident("fern:3b")]).await;
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3", "n4"] {
        nodes.push(Upstream::ollama(name, vec![Model::resident(MODEL)]).await);
    }
    let gate = Gate::start(&Settings::over(&[&hung, &nodes[0], &nodes[1], &nodes[2], &nodes[3]])).await;
    hung.set_polls(Polls::Silent);
    hung.always(Script::silent());
    let mut stuck = gate.connect().await;
    stuck.send(&Request::post("/api/chat", chat("fern:3b"))).await;
    hung.request(0).await;

    let mut conn = gate.connect().await;
    let mut times = Vec::new();
    for n in 0..200 {
        let began = Instant::now();
        let reply = conn.exchange(&Request::get("/api/tags")).await;
        assert_eq!(reply.status, 200);
        conn = reply.reuse().await;
        times.push(began.elapsed());
        if n % 10 == 0 {
            let mut reply = gate.post("/api/chat", chat(MODEL)).await;
            reply.whole().await;
            assert_ne!(reply.node(), "hung");
        }
    }

    times.sort_unstable();
    println!("/api/tags beside a node that hangs: p50 {:?}, p99 {:?}", times[100], times[198]);
    // On an idle machine a fraction of a millisecond; see perf/hanging_node. Whoever waited for the node
    // or its timeout would take seconds.
    assert!(times[100] < Duration::from_millis(250) && times[198] < Duration::from_secs(2), "{:?}", times[198]);
    assert_eq!(nodes.iter().map(Upstream::count).sum::<usize>(), 20);
    assert_eq!(hung.count(), 1);
}

fn chat(model: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": "moss?"}], "stream": false}).to_string()
}

fn column<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    let entries = list.as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter_map(|entry| entry[field].as_str()).collect()
}
