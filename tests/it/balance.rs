//! Work is spread over the nodes by what they have to do, and warmth never outweighs that for long.

use std::time::Duration;

use serde_json::json;

use crate::client::{Conn, Request};
use crate::gate::{Gate, Settings};
use crate::patience::within;
use crate::rig::{Pair, finished, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Model, Script, Upstream};

fn stranger(n: usize) -> Talk {
    Talk::about(Dialect::OpenAi, &format!("{n} is a number and"))
}

/// A chat for the model whose first 8 KB are those of all others.
fn chat(model: &str, n: usize) -> Request {
    let system = "You are a patient gardener who knows mosses. ".repeat(180);
    let messages = json!([{"role": "system", "content": system}, {"role": "user", "content": format!("question {n}")}]);
    Request::post("/v1/chat/completions", json!({"model": model, "messages": messages}).to_string())
}

/// Returns when the nodes have received so many requests between them.
async fn arrived(nodes: &[&Upstream], total: usize) {
    within(&format!("{total} requests at the nodes"), async {
        while nodes.iter().map(|node| node.count()).sum::<usize>() < total {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn bal_01_a_prefix_that_all_share_makes_no_hot_node() {
    let nodes = [node("n1").await, node("n2").await, node("n3").await, node("n4").await];
    let nodes = nodes.each_ref();
    let gate = Gate::start(&Settings::over(&nodes)).await;
    // One has the prefix before the rest comes.
    gate.send(&chat(MODEL, 0)).await.whole().await;
    let mut asked = 1;
    for _ in 0..5 {
        let hold = Hold::new();
        nodes.iter().for_each(|node| node.always(Script::held(&hold).then_usual()));
        let mut running = Vec::new();
        for n in asked..asked + 40 {
            let mut conn = gate.connect().await;
            conn.send(&chat(MODEL, n)).await;
            running.push((conn, n));
        }
        asked += 40;
        arrived(&nodes, asked).await;
        let at_once = nodes.map(Upstream::in_flight);
        // Not ten each: what a node is good for is learned from first bytes, which a busy machine delays at random.
        assert!(at_once.iter().all(|count| (2..=20).contains(count)), "of 40 at once: {at_once:?}");
        hold.open();
        for (conn, n) in running {
            conn.reply(&chat(MODEL, n)).await.whole().await;
        }
    }
    let shares = nodes.map(Upstream::count);
    assert!(shares.iter().all(|count| *count <= asked * 2 / 5), "{shares:?}");
}

#[tokio::test]
async fn bal_05_equal_idle_nodes_take_turns() {
    let nodes = [node("n1").await, node("n2").await, node("n3").await];
    let gate = Gate::start(&Settings::over(&nodes.each_ref())).await;

    for n in 0..300 {
        finished(&gate, &stranger(n)).await;
    }

    // A third each; the bounds are five standard deviations away.
    let counts = nodes.each_ref().map(Upstream::count);
    assert!(counts.iter().all(|count| (60..=140).contains(count)), "{counts:?}");
}

#[tokio::test]
async fn bal_10_a_conversation_stays_while_its_node_is_well_and_not_busier() {
    let pair = Pair::new(Dialect::OpenAi).await;
    let stayed = finished(&pair.gate, &pair.talk).await;
    assert_eq!((stayed.node(), stayed.affinity()), (pair.home.name(), "session"));

    pair.home.next(Script::json(503, &json!({"error": "busy"})).header("Retry-After", "20"));
    let cooling = finished(&pair.gate, &pair.talk).await;
    assert_eq!((cooling.status, cooling.node(), cooling.affinity()), (200, pair.away.name(), "moved"));
}

#[tokio::test]
async fn bal_10_a_conversation_leaves_a_node_that_is_filled() {
    let pair = Pair::new(Dialect::OpenAi).await;
    pair.home.always(Script::silent());
    let mut filling: Vec<Conn> = Vec::new();
    // The same conversation again and again is drawn to its node until that is clearly busier.
    for n in 1..=2 {
        let mut conn = pair.gate.connect().await;
        conn.send(&pair.talk.ask()).await;
        pair.home.request(n).await;
        filling.push(conn);
    }

    let moved = finished(&pair.gate, &pair.talk).await;

    assert_eq!((moved.node(), moved.affinity()), (pair.away.name(), "moved"));
}

#[tokio::test]
async fn bal_12_twelve_at_once_load_a_cold_model_once() {
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3"] {
        nodes.push(Upstream::ollama(name, vec![Model::resident("fern:3b"), Model::on_disk(MODEL)]).await);
    }
    let nodes: Vec<&Upstream> = nodes.iter().collect();
    let hold = Hold::new();
    nodes.iter().for_each(|node| node.always(Script::held(&hold).then_usual()));
    let gate = Gate::start(&Settings::over(&nodes).slots(2)).await;
    let mut waiting = Vec::new();
    for n in 0..12 {
        let mut conn = gate.connect().await;
        conn.send(&chat(MODEL, n)).await;
        waiting.push((conn, n));
    }
    // Two run, two more may wait at the engine, and the rest waits here for the same node.
    gate.waiting(8).await;
    arrived(&nodes, 4).await;

    let loading = nodes.iter().filter(|node| node.count() > 0).count();
    assert_eq!(loading, 1, "{:?}", nodes.iter().map(|node| node.count()).collect::<Vec<_>>());
    hold.open();
    for (conn, n) in waiting {
        assert_eq!(conn.reply(&chat(MODEL, n)).await.status, 200);
    }
    gate.idle().await;
}

#[tokio::test]
async fn bal_13_two_models_in_turn_stay_each_where_they_are() {
    let [n1, n2] = [
        Upstream::ollama("n1", vec![Model::resident(MODEL), Model::on_disk("fern:3b")]).await,
        Upstream::ollama("n2", vec![Model::on_disk(MODEL), Model::resident("fern:3b")]).await,
    ];
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).slots(1)).await;
    let mut asked = 0;
    for _ in 0..5 {
        let hold = Hold::new();
        [&n1, &n2].iter().for_each(|node| node.always(Script::held(&hold).then_usual()));
        let mut running = Vec::new();
        for n in asked..asked + 8 {
            let request = chat([MODEL, "fern:3b"][n % 2], n);
            let mut conn = gate.connect().await;
            conn.send(&request).await;
            running.push((conn, request));
        }
        // Two at each engine; the others wait here rather than drive a model out.
        gate.waiting(4).await;
        hold.open();
        for (conn, request) in running {
            let mut reply = conn.reply(&request).await;
            assert_eq!(reply.status, 200);
            reply.whole().await;
        }
        asked += 8;
    }
    for (node, own) in [(&n1, MODEL), (&n2, "fern:3b")] {
        assert_eq!(node.count(), 20);
        for n in 0..20 {
            let body = node.request(n).await.body;
            let asked: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(asked["model"], own, "a swap at {}", node.name());
        }
    }
}

#[tokio::test]
async fn bal_15_a_higher_tier_serves_when_no_lower_one_can() {
    let [mut near, far] = [node("near").await, node("far").await];
    let hold = Hold::new();
    [&near, &far].iter().for_each(|node| node.always(Script::held(&hold).then_usual()));
    let settings = Settings::over(&[&near]).with_fields("slots: 4, tier: 0");
    let (name, url) = (far.name(), far.url());
    let settings = settings.upstream(&format!("name: {name}, url: \"{url}\", engine: ollama, slots: 4, tier: 1"));
    let gate = Gate::start(&settings.more("admission: {engine_queue: 0}")).await;
    let mut running = Vec::new();
    for n in 0..6 {
        let mut conn = gate.connect().await;
        conn.send(&stranger(n).ask()).await;
        running.push((conn, n));
        arrived(&[&near, &far], n + 1).await;
        let counts = (near.count(), far.count());
        assert_eq!(counts, ((n + 1).min(4), (n + 1).saturating_sub(4)), "request {n}");
    }
    hold.open();
    for (conn, n) in running {
        conn.reply(&stranger(n).ask()).await.whole().await;
    }

    assert_eq!(finished(&gate, &stranger(7)).await.node(), "near", "as soon as it has a place again");
    near.kill().await;
    for n in 8..12 {
        assert_eq!(finished(&gate, &stranger(n)).await.node(), "far");
    }
}
