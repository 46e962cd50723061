//! What an operator sees: the dashboard, explanations and receipts, and that all of them tell the same.

use serde_json::{Value, json};

use crate::client::{Conn, Reply, Request};
use crate::exposition::Exposition;
use crate::gate::{Gate, Settings};
use crate::patience::within;
use crate::rig::{Pair, Single, finished, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::tenants::{by, tenants};
use crate::upstream::{Hold, Script};

/// A request to the admin port, as a program on this machine sends it.
async fn ask(gate: &Gate, request: Request) -> Reply {
    let request = request.replacing("Host", &gate.admin_address().to_string());
    Conn::open(gate.admin_address()).await.exchange(&request).await
}

fn explained(path: &str, body: impl Into<bytes::Bytes>) -> Request {
    Request::post(&format!("/fleet/explain?path={path}"), body)
}

#[tokio::test]
async fn a_snapshot_says_what_metrics_and_receipts_say() {
    let mut pair = Pair::new(Dialect::Ollama).await;
    let counted = json!({"model": MODEL, "done": true, "prompt_eval_count": 40, "eval_count": 3});
    for (n, topic) in ["fern", "moss", "stone"].iter().enumerate() {
        let node = if n == 1 { &pair.home } else { &pair.away };
        node.next(Script::ndjson().chunk(Dialect::Ollama.frame("one")).chunk(format!("{counted}\n")).finish());
        finished(&pair.gate, &Talk::about(Dialect::Ollama, topic)).await;
    }
    pair.gate.post("/api/chat", json!({"model": "nowhere", "messages": []}).to_string()).await;
    pair.home.kill().await;
    let moved = finished(&pair.gate, &pair.talk).await;
    assert_eq!(moved.affinity(), "moved");
    pair.gate.idle().await;

    let snapshot = pair.gate.admin("/fleet/snapshot").await;
    let metrics = pair.gate.metrics().await;

    let total = &snapshot["hour"]["total"];
    assert_eq!(total["requests"].as_f64(), Some(sum(&metrics, "warmgate_requests_total{")));
    assert_eq!(total["first_bytes"].as_f64(), Some(sum(&metrics, "warmgate_first_byte_seconds_count{")));
    let told = Exposition::parse(&metrics).expect("what a collector can read");
    let tokens = |labels: &[(&str, &str)]| told.sum("warmgate_prompt_tokens_total", labels);
    let (cached, uncached) = (("kind", "cached"), ("kind", "uncached"));
    let half_told = ("source", "half_told");
    assert_eq!(total["cached_tokens"].as_f64(), Some(tokens(&[cached, ("source", "told")])));
    let others = tokens(&[uncached, ("source", "told")]) + tokens(&[half_told]);
    assert_eq!(total["uncached_tokens"].as_f64(), Some(others));
    assert_eq!(total["believed_cached_tokens"].as_f64(), Some(tokens(&[cached, half_told])));
    assert_eq!(total["saved_s_estimated"].as_f64(), Some(told.sum("warmgate_prefill_saved_seconds_total", &[])));
    assert_eq!(total["moved"].as_f64(), Some(sum(&metrics, "warmgate_affinity_total{affinity=\"moved\"}")));
    assert_eq!(total["moved"].as_f64(), Some(sum(&metrics, "warmgate_lost_warmth_total{")));
    assert_eq!(total["lost_s_estimated"].as_f64(), Some(sum(&metrics, "warmgate_lost_warmth_seconds_total ")));
    let lost_tokens = told.sum("warmgate_lost_warmth_tokens_total", &[]);
    assert_eq!(total["lost_tokens_estimated"].as_f64(), Some(lost_tokens));
    for (name, tally) in total["nodes"].as_object().expect("nodes") {
        let of = |what: &str| told.sum(&format!("warmgate_first_byte_seconds_{what}"), &[("node", name)]);
        assert_eq!(tally["answered"].as_f64(), Some(of("count")), "{name}");
        let mean = tally["first_byte_mean_ms"].as_f64().unwrap_or(0.0);
        assert!((mean - 1000.0 * of("sum") / of("count")).abs() < 0.001, "{name}: {tally}");
    }

    let recent = snapshot["recent"].as_array().expect("decisions");
    assert!(recent.len() >= 5, "{recent:#?}");
    for shown in recent {
        let receipt = pair.gate.receipt(shown["request_id"].as_str().expect("an id")).await;
        for field in ["node", "score", "affinity", "outcome", "session", "lost", "wall_ms"] {
            assert_eq!(shown[field], receipt[field], "{field}");
        }
        assert_eq!(shown["signals"], receipt["decision"]["chosen"]["signals"]);
        assert_eq!(shown["first_byte_ms"], receipt["times_ms"]["first_byte"]);
        if let Some(signals) = shown["signals"].as_object() {
            let sum: f64 = signals.values().filter_map(Value::as_f64).sum();
            assert!((sum - shown["score"].as_f64().expect("a score")).abs() < 1e-9, "{shown}");
        }
    }
    let loss = &snapshot["hour"]["losses"][0];
    assert_eq!((&loss["request_id"], &loss["from"]), (&json!(moved.request_id()), &json!(pair.home.name())));
    let told = &recent[0]["lost"];
    assert_eq!((&loss["why"], &loss["tokens_estimated"]), (&told["why"], &told["tokens_estimated"]));
    assert!(["failed", "down"].contains(&loss["why"].as_str().unwrap_or_default()), "{loss}");
    assert!(loss["tokens_estimated"].as_u64() > Some(0), "{loss}");
}

#[tokio::test]
async fn tenants_nodes_and_the_process_are_told_as_metrics_and_status_tell_them() {
    let (n1, n2) = (node("n1").await, node("n2").await);
    let both = tenants(&[("quiet", ""), ("busy", "limits: {rpm: 3, tpm: 100000, concurrent: 2}")]);
    let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(&both)).await;
    let ask_as_busy = |topic: &str| by("busy", Talk::about(Dialect::Ollama, topic).ask());
    for (n, topic) in ["fern", "moss", "one too many"].iter().enumerate() {
        let mut reply = gate.send(&ask_as_busy(topic)).await;
        assert_eq!(reply.status, 200, "{n}");
        reply.whole().await;
    }
    assert_eq!(gate.send(&ask_as_busy("over the limit")).await.status, 429);
    let drained = ask(&gate, Request::post("/fleet/nodes/n2/drain", "")).await;
    assert_eq!(drained.status, 200);
    let hold = Hold::new();
    n1.next(Script::held(&hold).then_usual());
    let request = by("quiet", Talk::about(Dialect::Ollama, "heath").ask());
    let conn = gate.connect().await;
    let running = tokio::spawn(async move { conn.exchange(&request).await.whole().await });
    within("the request to arrive", async {
        while n1.in_flight() == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;

    let snapshot = gate.admin("/fleet/snapshot").await;
    let status = gate.status().await;
    let metrics = gate.metrics().await;
    hold.open();
    running.await.expect("the running one");

    let shown = snapshot["tenants"].as_array().expect("tenants");
    assert_eq!((shown.len(), &snapshot["tenants_in_all"]), (2, &json!(2)));
    assert_eq!(shown[0]["name"], "busy", "who asks most comes first");
    for tenant in shown {
        let name = tenant["name"].as_str().expect("a name");
        let same = status["tenants"].as_array().expect("tenants").iter().find(|other| other["name"] == name);
        assert_eq!(Some(tenant), same);
        let of = |metric: &str| sum(&metrics, &format!("warmgate_tenant_{metric}{{tenant=\"{name}\"}}"));
        assert_eq!(tenant["running"].as_f64(), Some(of("running")), "{tenant}");
        let ok = sum(&metrics, &format!("warmgate_tenant_requests_total{{outcome=\"ok\",tenant=\"{name}\"}}"));
        // Those that run are booked, and those that were refused are not.
        assert_eq!(tenant["requests_last_minute"].as_f64(), Some(ok + of("running")), "{tenant}");
        let receipts = gate.admin("/fleet/receipts?limit=500").await;
        let receipts = receipts.as_array().expect("receipts").iter();
        let charged: u64 = receipts
            .filter(|receipt| receipt["tenant"] == name && receipt["outcome"] == "ok")
            .filter_map(|receipt| receipt["tokens"]["charged"].as_u64())
            .sum();
        if tenant["running"] == 0 {
            assert_eq!(tenant["tokens_last_minute"].as_u64(), Some(charged), "{tenant}");
        }
    }
    for (shown, told) in
        snapshot["nodes"].as_array().expect("nodes").iter().zip(status["nodes"].as_array().expect("nodes"))
    {
        for field in ["name", "draining", "drained_by", "in_flight"] {
            assert_eq!(shown[field], told[field], "{field}");
        }
    }
    assert_eq!(snapshot["nodes"][1]["drained_by"], json!(["admin"]));
    assert_eq!(snapshot["in_flight"], status["in_flight"]);
    assert_eq!(
        (&snapshot["process"]["stage"], &snapshot["process"]["has_successor"]),
        (&json!("serving"), &json!(false))
    );
    assert!(snapshot["process"]["since_ms"].as_u64() <= snapshot["at_ms"].as_u64());
}

fn without_moments(mut told: Value) -> Value {
    match &mut told {
        Value::Object(members) => {
            members.retain(|name, _| name != "since_ms" && name != "until_ms");
            members.values_mut().for_each(|value| *value = without_moments(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| *value = without_moments(value.take())),
        _ => {}
    }
    told
}

#[tokio::test]
async fn an_explanation_is_the_decision_that_follows_and_leaves_nothing_behind() {
    let pair = Pair::new(Dialect::Ollama).await;
    let request = pair.talk.ask();
    // Moments are told by two clocks, and off by a millisecond now and then.
    let nodes = async || without_moments(pair.gate.status().await["nodes"].take());
    let before = nodes().await;

    let explained = ask(&pair.gate, explained("/api/chat", request.body().to_vec())).await.json().await;
    let again = nodes().await;
    let sent = finished(&pair.gate, &pair.talk).await;
    let receipt = pair.gate.receipt(sent.request_id()).await;

    assert_eq!(before, again, "nothing booked, nothing learnt");
    assert_eq!(pair.home.count() + pair.away.count(), 2, "sent nowhere");
    assert_eq!(explained["outcome"]["action"], "send");
    assert_eq!(explained["outcome"]["node"], pair.home.name());
    assert_eq!((&explained["affinity"], sent.affinity()), (&json!("session"), "session"));
    assert_eq!(explained["session"], receipt["session"]);
    assert_eq!(explained["decision"]["pin"], receipt["decision"]["pin"]);
    let points = |told: &Value| {
        let rows = told["decision"]["candidates"].as_array().expect("candidates").clone();
        rows.into_iter().map(|row| (row["node"].clone(), row["signals"]["session"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(points(&explained), points(&receipt));
    assert_eq!(receipt["decision"]["runner_up"]["node"], pair.away.name());
}

#[tokio::test]
async fn an_explanation_tells_what_would_be_waited_for_and_what_would_be_refused() {
    let single = {
        let node = node("n1").await;
        let gate = Gate::start(&Settings::over(&[&node]).slots(1).more("admission: {engine_queue: 0}")).await;
        Single { gate, node }
    };
    let hold = Hold::new();
    single.node.next(Script::held(&hold).then_usual());
    let talk = Talk::about(Dialect::Ollama, "moss");
    let request = talk.ask();
    let conn = single.gate.connect().await;
    let first = tokio::spawn(async move { conn.exchange(&request).await.whole().await });
    single.node.request(0).await;

    let waits = ask(&single.gate, explained("/api/chat", talk.ask().body().to_vec())).await.json().await;
    let body = json!({"model": "nowhere", "messages": []}).to_string();
    let refused = ask(&single.gate, explained("/v1/chat/completions", body)).await.json().await;
    let live = single.gate.admin("/fleet/snapshot").await["live"].clone();
    hold.open();
    first.await.expect("the first");

    assert_eq!((&waits["outcome"]["action"], &waits["outcome"]["node"]), (&json!("wait"), &json!("n1")), "{waits:#}");
    assert_eq!((&refused["outcome"]["action"], &refused["outcome"]["status"]), (&json!("refuse"), &json!(404)));
    assert_eq!((&live[0]["phase"], &live[0]["node"]), (&json!("waiting for the first byte"), &json!("n1")), "{live}");
}

#[tokio::test]
async fn the_command_explains_as_the_port_does() {
    let pair = Pair::new(Dialect::Ollama).await;
    let folder = tempfile::tempdir().expect("a directory");
    let body = folder.path().join("body.json");
    std::fs::write(&body, pair.talk.ask().body()).expect("the body's file");
    let config = folder.path().join("warmgate.yaml");
    std::fs::write(&config, format!("admin: {{address: {}}}", pair.gate.admin_address())).expect("the configuration");
    let explain = |more: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_warmgate"));
        command.args(["explain", "--request"]).arg(&body).arg("-c").arg(&config).args(more);
        async move { command.output().await.expect("the command") }
    };

    let table = explain(&[]).await;
    let json = explain(&["--json"]).await;
    let nowhere = explain(&["--admin", "127.0.0.1:9"]).await;
    let odd = explain(&["--path", "/nowhere"]).await;

    let text = String::from_utf8_lossy(&table.stdout);
    assert!(table.status.success(), "{text}");
    assert!(text.contains(&format!("it would go to {} now", pair.home.name())), "{text}");
    assert!(text.contains(&format!("\n>  {}", pair.home.name())), "{text}");
    let told: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(told["outcome"]["node"], pair.home.name());
    assert_eq!((nowhere.status.code(), odd.status.code()), (Some(1), Some(1)));
    assert_eq!(pair.home.count() + pair.away.count(), 1, "sent nowhere");
}

#[tokio::test]
async fn explanations_are_bounded_and_not_for_pages_of_others() {
    let single = Single::new().await;
    for (path, body, status) in [
        ("/api/chat", &b"{"[..], 400),
        ("/api/chat", b"{\"messages\": []}", 400),
        ("/nowhere", b"{}", 400),
        ("/v1/audio/transcriptions", b"{}", 400),
    ] {
        let reply = ask(&single.gate, explained(path, body.to_vec())).await;
        assert_eq!(reply.status, status, "{path}");
    }
    let body = json!({"model": MODEL, "messages": []}).to_string();
    for (name, value) in [("Origin", "http://evil.test"), ("Sec-Fetch-Site", "cross-site"), ("Origin", "null")] {
        let reply = ask(&single.gate, explained("/api/chat", body.clone()).header(name, value)).await;
        assert_eq!(reply.status, 403, "{name}: {value}");
    }
    let own = format!("http://{}", single.gate.admin_address());
    assert_eq!(ask(&single.gate, explained("/api/chat", body).header("Origin", &own)).await.status, 200);
}

#[tokio::test]
async fn receipts_by_session_and_by_node() {
    let pair = Pair::new(Dialect::Ollama).await;
    let second = finished(&pair.gate, &pair.talk).await;
    finished(&pair.gate, &Talk::about(Dialect::Ollama, "another matter")).await;
    let session = pair.gate.receipt(second.request_id()).await["session"].clone();

    let key = session.as_str().expect("a conversation");
    let of_session = pair.gate.admin(&format!("/fleet/receipts?session={key}")).await;
    let of_node = pair.gate.admin(&format!("/fleet/receipts?limit=500&node={}", pair.home.name())).await;
    let of_nobody = pair.gate.admin("/fleet/receipts?node=none%20such").await;

    let sessions: Vec<&Value> = of_session.as_array().expect("a list").iter().map(|it| &it["session"]).collect();
    assert_eq!(sessions, [&session, &session]);
    assert_eq!(of_node.as_array().map(Vec::len), Some(pair.home.count()));
    assert_eq!(of_nobody, json!([]));
}

#[tokio::test]
async fn the_page_comes_with_its_policy_and_the_stream_with_snapshots() {
    let single = Single::new().await;
    for (path, kind) in [("/", "text/html"), ("/dashboard.js", "text/javascript"), ("/dashboard.css", "text/css")] {
        let reply = ask(&single.gate, Request::get(path)).await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.header("content-type").is_some_and(|it| it.starts_with(kind)), "{path}");
        let policy = reply.header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }
    assert!(ask(&single.gate, Request::get("/help")).await.whole().await.starts_with(b"warmgate admin"));

    let mut stream = ask(&single.gate, Request::get("/fleet/events")).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    for _ in 0..2 {
        let event = stream.expect_piece().await;
        let data = event.strip_prefix(b"data: ").expect("an event");
        let snapshot: Value = serde_json::from_slice(data).expect("a snapshot");
        assert_eq!(snapshot["nodes"][0]["name"], "n1");
    }
    let mut streams = Vec::new();
    let full = loop {
        let reply = ask(&single.gate, Request::get("/fleet/events")).await;
        assert!(streams.len() < 100, "listeners are not bounded");
        match reply.status {
            200 => streams.push(reply),
            status => break status,
        }
    };
    assert_eq!(full, 503);
}

fn sum(metrics: &str, start: &str) -> f64 {
    metrics.lines().filter(|line| line.starts_with(start)).filter_map(value).sum()
}

fn value(line: &str) -> Option<f64> {
    line.rsplit_once(' ')?.1.parse().ok()
}
