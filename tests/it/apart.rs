//! Nodes do not stand in each other's way, and routing stands without its optional inputs.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Request;
use crate::gate::{Gate, Settings};
use crate::patience::within;
use crate::rig::node;
use crate::talk::MODEL;
use crate::upstream::{Hold, Model, Script, Upstream};

const STUCK: usize = 500;

#[tokio::test]
async fn hlt_06_five_hundred_requests_stuck_at_one_node_block_nobody() {
    let stuck = Upstream::ollama("stuck", vec![Model::resident("fern:3b")]).await;
    stuck.always(Script::deaf());
    let lively = node("lively").await;
    let gate = Gate::start(&Settings::over(&[&stuck, &lively])).await;
    let mut hanging = Vec::new();
    for n in 0..STUCK {
        // Some are larger than what sockets hold, so that writing to the node hangs too.
        let long = "moss ".repeat(if n % 50 == 0 { 1 << 20 } else { 100 });
        let mut conn = gate.connect().await;
        conn.send(&Request::post("/api/chat", chat("fern:3b", &format!("{n} {long}")))).await;
        hanging.push(conn);
    }
    within("all to be stuck", async {
        while stuck.count() < STUCK {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;

    let mut times = Vec::new();
    for n in 0..100 {
        let began = Instant::now();
        let mut reply = gate.post("/api/chat", chat(MODEL, &format!("{n}"))).await;
        reply.whole().await;
        times.push(began.elapsed());
        assert_eq!((reply.status, reply.node()), (200, "lively"));
    }

    times.sort_unstable();
    println!("beside {STUCK} stuck requests: p50 {:?}, p99 {:?}", times[50], times[98]);
    assert!(times[50] < Duration::from_millis(250) && times[98] < Duration::from_secs(2), "{:?}", times[98]);
    assert_eq!(stuck.in_flight(), STUCK, "they wait on, each for itself");
}

const CLIENTS: usize = 60;

#[tokio::test]
async fn hlt_17_traffic_goes_on_evenly_while_no_metrics_come() {
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3"] {
        nodes.push(Upstream::vllm(name, vec![Model::resident("Moss/Moss-7B")]).await);
    }
    let often = "telemetry: {interval: 100ms}\nhealth: {interval: 100ms, timeout: 1s}";
    let gate = Gate::start(&Settings::over(&nodes.iter().collect::<Vec<_>>()).more(often)).await;
    let hold = Hold::new();
    for node in &nodes {
        node.hang_at("/metrics");
        node.always(Script::held(&hold).then_usual());
    }
    for node in &nodes {
        node.take_polls();
        within("a poll that hangs", async {
            while !node.take_polls().iter().any(|poll| poll.path == "/metrics") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    let mut asked = Vec::new();
    let mut times = Vec::new();
    for n in 0..CLIENTS {
        let before: usize = nodes.iter().map(Upstream::count).sum();
        let mut conn = gate.connect().await;
        let request = Request::post("/v1/chat/completions", chat("Moss/Moss-7B", &format!("question {n}")));
        let began = Instant::now();
        conn.send(&request).await;
        within("the request at a node", async {
            while nodes.iter().map(Upstream::count).sum::<usize>() == before {
                tokio::task::yield_now().await;
            }
        })
        .await;
        times.push(began.elapsed());
        asked.push((conn, request));
    }
    let counts: Vec<usize> = nodes.iter().map(Upstream::count).collect();
    hold.open();
    for (conn, request) in asked {
        let mut reply = conn.reply(&request).await;
        reply.whole().await;
        assert_eq!(reply.status, 200);
    }

    let even = CLIENTS / nodes.len();
    assert!(counts.iter().all(|count| count.abs_diff(even) <= even / 5), "within 20 % of {even}: {counts:?}");
    times.sort_unstable();
    println!("no metrics: {counts:?}, at the node after p50 {:?}, p99 {:?}", times[30], times[58]);
    assert!(times[30] < Duration::from_millis(500), "whoever waited for metrics would take a second: {:?}", times[30]);

    nodes[0].recover_with_metrics("vllm:num_requests_running 0\nvllm:num_requests_waiting 3\n");
    gate.node_once("n1", "its load to be known again", |node| node["foreign_requests"] == 3).await;
}

#[tokio::test]
async fn hlt_17_a_prompt_that_cannot_be_understood_is_routed_all_the_same() {
    let lively = node("lively").await;
    let gate = Gate::start(&Settings::over(&[&lively])).await;
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let odd = [
        json!({"model": MODEL, "messages": [{"role": 7, "content": {"a": [null, 1e300]}}]}).to_string(),
        json!({"model": MODEL, "messages": "none"}).to_string(),
        json!({"model": MODEL, "options": [], "tools": 1, "messages": []}).to_string(),
        format!(r#"{{"model": "{MODEL}", "messages": {deep}}}"#),
        format!(r#"{{"model": "{MODEL}", "messages": [{{"role": "user", "content": "\ud800"}}]}}"#),
    ];
    for (n, body) in odd.iter().enumerate() {
        let mut reply = gate.post("/api/chat", body.clone()).await;
        reply.whole().await;
        assert_eq!(reply.status, 200, "{body}");
        assert_eq!(lively.request(n).await.body, body.as_bytes(), "byte for byte");
    }
}

fn chat(model: &str, text: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": text}], "stream": false}).to_string()
}
