//! Models that are not in memory: when to wait for a warm node, and how often to load.

use std::collections::BTreeSet;

use serde_json::json;

use crate::gate::{Gate, Settings};
use crate::talk::MODEL;
use crate::upstream::{Hold, Model, Script, Upstream};

fn chat(n: usize) -> String {
    json!({"model": MODEL, "messages": [{"role": "user", "content": format!("question {n}")}]}).to_string()
}

#[tokio::test]
async fn a_burst_for_a_cold_model_loads_it_on_one_node() {
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3"] {
        nodes.push(Upstream::ollama(name, vec![Model::on_disk(MODEL)]).await);
    }
    let hold = Hold::new();
    nodes.iter().for_each(|node| node.always(Script::held(&hold).then_usual()));
    let gate = Gate::start(&Settings::over(&nodes.iter().collect::<Vec<_>>()).slots(4)).await;

    let mut asked = Vec::new();
    for n in 0..20 {
        let conn = gate.connect().await;
        let request = crate::client::Request::post("/api/chat", chat(n));
        asked.push(tokio::spawn(async move {
            let mut reply = conn.exchange(&request).await;
            reply.whole().await;
            reply.node().to_owned()
        }));
    }
    let counts = || nodes.iter().map(Upstream::count).collect::<Vec<_>>();
    // Its slots, and as many more as may wait at the engine; the rest waits here, for the same node.
    gate.waiting(12).await;
    while counts().iter().sum::<usize>() < 8 {
        tokio::task::yield_now().await;
    }
    assert_eq!(counts().iter().max(), Some(&8), "{:?}", counts());
    hold.open();

    let mut served = BTreeSet::new();
    for reply in asked {
        served.insert(reply.await.expect("a reply"));
    }
    assert_eq!(served.len(), 1, "loaded on {served:?}: {:?}", counts());
    gate.idle().await;
}

#[tokio::test]
async fn the_sums_of_a_busy_warm_node_and_a_cold_one_are_those_worked_out_by_hand() {
    let warm = Upstream::ollama("warm", vec![Model::resident(MODEL)]).await;
    let cold = Upstream::ollama("cold", vec![Model::on_disk(MODEL)]).await;
    let hold = Hold::new();
    warm.always(Script::held(&hold).then_usual());
    let gate = Gate::start(&Settings::over(&[&warm, &cold]).slots(1).more("admission: {engine_queue: 8}")).await;
    let mut waiting = Vec::new();
    // One that runs and three that wait there.
    for n in 0..4 {
        let mut conn = gate.connect().await;
        conn.send(&crate::client::Request::post("/api/chat", chat(n))).await;
        warm.request(n).await;
        waiting.push(conn);
    }

    let mut conn = gate.connect().await;
    let request = crate::client::Request::post("/api/chat", chat(9)).header("X-Request-Id", "by-hand");
    conn.send(&request).await;
    warm.request(4).await;
    hold.open();
    conn.reply(&request).await.whole().await;

    // Of both nodes neither memory nor bandwidth nor any speed is known, and nothing has failed.
    let by_hand = [("warm", [50.0, 20.0, -6.0 * 4.0, 0.0, 0.0, 10.0]), ("cold", [10.0, 10.0, 0.0, 0.0, 0.0, 10.0])];
    let names = ["model_loaded", "memory_fit", "queue_depth", "latency", "role", "availability"];
    let receipt = gate.receipt("by-hand").await;
    for (node, expected) in by_hand {
        let candidates = receipt["decision"]["candidates"].as_array().expect("candidates");
        let row = candidates.iter().find(|row| row["node"] == node).expect("a row");
        for (name, points) in names.iter().zip(expected) {
            println!("{node:<5} {name:<13} by hand {points:>6} recorded {:>6}", row["signals"][name]);
            assert_eq!(row["signals"][name], points, "{node} {name}");
        }
        let signals = row["signals"].as_object().expect("signals").values();
        let sum: f64 = signals.filter_map(|points| points.as_f64()).sum();
        assert!((row["score"].as_f64().expect("a score") - sum).abs() < 1e-9, "L4");
    }
    assert_eq!(receipt["node"], "warm", "56 and its window against 30");
}
