//! What tenants may use: exact to the request, settled to what engines count, and nobody else's trouble.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::{Reply, Request};
use crate::gate::{Gate, Settings};
use crate::patience::within_time;
use crate::rig::node;
use crate::talk::{Dialect, MODEL, Talk};
use crate::tenants::{by, tenants};
use crate::upstream::{Hold, Script, Upstream};

fn ask(fields: Value) -> Request {
    Talk::about(Dialect::OpenAi, "moss").ask_with(fields)
}

fn number(reply: &Reply, header: &str) -> i64 {
    let text = reply.header(header).unwrap_or_else(|| panic!("no {header} in {:#?}", reply.head));
    text.trim_end_matches('s').parse().unwrap_or_else(|e| panic!("{header}: {text:?}: {e}"))
}

/// The tenant's part of the status.
async fn used(gate: &Gate, tenant: &str) -> Value {
    let status = gate.status().await;
    let mut all = status["tenants"].as_array().expect("tenants").iter();
    all.find(|entry| entry["name"] == tenant).expect("the tenant").clone()
}

#[tokio::test]
async fn a_limit_is_exact_to_the_request_with_64_clients_at_once() {
    const RPM: usize = 100;
    let n1 = node("n1").await;
    let yaml = tenants(&[("a", "limits: {rpm: 100}"), ("b", "")]);
    let gate = Arc::new(Gate::start(&Settings::over(&[&n1]).more(&yaml)).await);
    let began = Instant::now();
    let admitted = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for client in 0..64 {
        let (gate, admitted) = (gate.clone(), admitted.clone());
        clients.spawn(async move {
            let mut conn = gate.connect().await;
            for n in 0..4 {
                let request = by("a", Talk::about(Dialect::OpenAi, &format!("{client} {n}")).ask());
                let reply = conn.exchange(&request).await;
                match reply.status {
                    200 => drop(admitted.fetch_add(1, Ordering::Relaxed)),
                    429 => {
                        assert!((1..=61).contains(&number(&reply, "retry-after")));
                        assert_eq!(number(&reply, "x-ratelimit-limit-requests"), RPM as i64);
                        assert_eq!(number(&reply, "x-ratelimit-remaining-requests"), 0);
                    }
                    other => panic!("{other}"),
                }
                conn = reply.reuse().await;
            }
        });
    }
    // Beside all that, the other tenant is served as if it were alone.
    for n in 0..20 {
        let mut reply = gate.send(&by("b", Talk::about(Dialect::OpenAi, &format!("b {n}")).ask())).await;
        assert_eq!((reply.status, reply.header("x-ratelimit-limit-requests")), (200, None));
        reply.whole().await;
    }
    while let Some(client) = clients.join_next().await {
        client.expect("a client");
    }

    assert!(began.elapsed() < Duration::from_secs(55), "the machine is too slow for one minute's worth of requests");
    assert_eq!(admitted.load(Ordering::Relaxed), RPM);
    assert_eq!(n1.count(), RPM + 20, "what the node saw");
    assert_eq!(gate.counter("warmgate_tenant_limited_total{limit=\"requests\",tenant=\"a\"}").await, 156.0);
    assert_eq!(used(&gate, "a").await["requests_last_minute"], RPM);
}

#[tokio::test]
async fn a_tenant_at_its_limit_is_told_at_once_and_slows_nobody() {
    let (n1, hold) = (node("n1").await, Hold::new());
    n1.next(Script::held(&hold).then_usual());
    let settings = Settings::over(&[&n1]).slots(2).more("admission: {engine_queue: 0}");
    let gate = Gate::start(&settings.more(&tenants(&[("a", "limits: {concurrent: 1}"), ("b", "")]))).await;
    let (mut first, request) = (gate.connect().await, by("a", ask(json!({"stream": true}))));
    first.send(&request).await;
    n1.request(0).await;

    for path in ["/api/chat", "/v1/chat/completions", "/v1/messages"] {
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}).to_string();
        let mut reply = gate.send(&by("a", Request::post(path, body))).await;
        assert_eq!((reply.status, number(&reply, "retry-after")), (429, 1), "{path}");
        let told = reply.json().await;
        match path {
            "/api/chat" => assert!(told["error"].as_str().expect("text").contains("1 requests at once"), "{told}"),
            _ => assert_eq!(told["error"]["type"], "rate_limit_error", "{told}"),
        }
    }
    // A body of which nothing has come is not waited for.
    let large = by("a", Request::post("/v1/chat/completions", vec![b'x'; 4 << 20]));
    let mut conn = gate.connect().await;
    conn.send_head(&large).await;
    assert_eq!(conn.reply(&large).await.status, 429);

    let mut of_b = gate.send(&by("b", Talk::about(Dialect::OpenAi, "b").ask())).await;
    of_b.whole().await;
    assert_eq!((of_b.status, of_b.header("x-fleet-queue-ms")), (200, Some("0")));
    assert_eq!(n1.count(), 2, "the node saw nothing of what was refused");
    hold.open();
    first.reply(&request).await.whole().await;
    assert_eq!(gate.send(&by("a", ask(json!({"stream": true})))).await.status, 200);
}

#[tokio::test]
async fn tokens_settle_to_what_the_engine_counts() {
    let n1 = node("n1").await;
    let yaml = tenants(&[("a", "limits: {tpm: 10000}")]);
    let gate = Gate::start(&Settings::over(&[&n1]).more(&yaml).more("usage_probe: on")).await;

    let mut reply = gate.send(&by("a", ask(json!({"max_tokens": 5000})))).await;
    let left = number(&reply, "x-ratelimit-remaining-tokens");
    assert!((4900..5000).contains(&left), "prompt and answer are booked at first: {left} left");
    assert_eq!(reply.header("x-ratelimit-limit-requests"), None, "of requests there is no limit");
    reply.whole().await;

    // As the node told: twelve and two.
    assert_eq!(used(&gate, "a").await["tokens_last_minute"], 14);
    let tokens = gate.receipt(reply.request_id()).await["tokens"].clone();
    assert_eq!((&tokens["charged"], &tokens["charge_is_estimated"]), (&json!(14), &json!(false)));
    assert_eq!(gate.counter("warmgate_tenant_tokens_total{kind=\"told\",tenant=\"a\"}").await, 14.0);

    // A stream that the client did not ask to count, and more than was guessed.
    let counts = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7000,\"completion_tokens\":2990}}\n\n";
    let script = Script::sse().chunk(Dialect::OpenAi.frame("one")).chunk(counts).chunk("data: [DONE]\n\n");
    n1.next(script.finish());
    gate.send(&by("a", ask(json!({"stream": true})))).await.whole().await;
    assert_eq!(used(&gate, "a").await["tokens_last_minute"], 14 + 9990);
    let refused = gate.send(&by("a", ask(json!({"max_tokens": 1})))).await;
    assert_eq!((refused.status, number(&refused, "x-ratelimit-remaining-tokens")), (429, 0));
    assert!((1..=61).contains(&number(&refused, "retry-after")));
    assert!((1..=61).contains(&number(&refused, "x-ratelimit-reset-tokens")));
}

#[tokio::test]
async fn what_nobody_told_is_charged_as_an_estimate_and_said_to_be_one() {
    let n1 = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&n1]).more(&tenants(&[("a", "limits: {tpm: 10000}")]))).await;
    let estimated = json!(true);

    let mut reply = gate.send(&by("a", ask(json!({"stream": true, "max_tokens": 100})))).await;
    reply.whole().await;
    let tokens = gate.receipt(reply.request_id()).await["tokens"].clone();
    let prompt = tokens["prompt_estimated"].as_u64().expect("an estimate");
    assert_eq!((tokens["charged"].as_u64(), &tokens["charge_is_estimated"]), (Some(prompt + 100), &estimated));
    assert_eq!(
        gate.counter("warmgate_tenant_tokens_total{kind=\"estimated\",tenant=\"a\"}").await,
        (prompt + 100) as f64
    );

    // The client leaves after three words, of the hundred that it allowed.
    let words = ["a", "b", "c"].map(|word| Dialect::OpenAi.frame(word)).concat();
    n1.next(Script::sse().chunk(words).hold(&Hold::new()));
    let mut reply = gate.send(&by("a", ask(json!({"stream": true, "max_tokens": 100})))).await;
    reply.expect_piece().await;
    let id = reply.request_id().to_owned();
    drop(reply);
    gate.idle().await;
    let tokens = gate.receipt(&id).await["tokens"].clone();
    assert_eq!((tokens["charged"].as_u64(), &tokens["charge_is_estimated"]), (Some(prompt + 3), &estimated));

    // A node's refusal costs no tokens, but it was a request.
    let before = used(&gate, "a").await;
    n1.next(Script::json(400, &json!({"error": "no"})));
    assert_eq!(gate.send(&by("a", ask(json!({"max_tokens": 100})))).await.status, 400);
    let after = used(&gate, "a").await;
    assert_eq!(after["tokens_last_minute"], before["tokens_last_minute"]);
    assert_eq!(after["requests_last_minute"], 3);
}

#[tokio::test]
async fn what_the_fleet_cannot_begin_is_given_back() {
    let (n1, hold) = (node("n1").await, Hold::new());
    n1.always(Script::held(&hold).then_usual());
    let settings = Settings::over(&[&n1]).slots(1).more("admission: {engine_queue: 0, max_queue: 0}");
    let gate = Gate::start(&settings.more(&tenants(&[("a", "limits: {rpm: 2, concurrent: 2}")]))).await;
    let (mut first, request) = (gate.connect().await, by("a", ask(json!({"stream": true}))));
    first.send(&request).await;
    n1.request(0).await;

    for _ in 0..5 {
        assert_eq!(gate.send(&by("a", ask(json!({"stream": true})))).await.status, 503, "the queue is full");
    }

    let now = used(&gate, "a").await;
    assert_eq!((&now["requests_last_minute"], &now["running"]), (&json!(1), &json!(1)));
    hold.open();
    first.reply(&request).await.whole().await;
    assert_eq!(gate.send(&by("a", ask(json!({"stream": true})))).await.status, 200);
    assert_eq!(gate.send(&by("a", ask(json!({"stream": true})))).await.status, 429);
}

#[tokio::test]
async fn que_05_places_come_back_however_requests_end() {
    const ROUNDS: usize = 10;
    let n1 = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&n1]).more(&tenants(&[("a", "limits: {concurrent: 2}")]))).await;
    for path in ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"] {
        for round in 0..ROUNDS {
            for how in ["whole", "stream", "abort", "reset"] {
                let what = format!("{path}, round {round}: {how}");
                end_one(&gate, &n1, path, how, &what).await;
            }
        }
    }
    let running = async {
        while used(&gate, "a").await["running"] != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within_time(Duration::from_secs(10), "the gauge to return to 0", running).await;
    assert_eq!(gate.counter("warmgate_tenant_running{tenant=\"a\"}").await, 0.0);
    assert_eq!(gate.in_flight().await, 0);
}

async fn end_one(gate: &Gate, n1: &Upstream, path: &str, how: &str, what: &str) {
    let stream = how != "whole";
    let message = json!([{"role": "user", "content": what}]);
    let body = json!({"model": MODEL, "messages": message, "input": what, "max_tokens": 9, "stream": stream});
    let one = || Script::sse().chunk(Dialect::OpenAi.frame("one"));
    match how {
        "abort" => n1.next(one().hold(&Hold::new())),
        "reset" => n1.next(one().reset()),
        "stream" => n1.next(one().chunk("data: [DONE]\n\n").finish()),
        _ => n1.next(Script::json(200, &json!({"usage": {}}))),
    }
    let mut reply = gate.send(&by("a", Request::post(path, body.to_string()))).await;
    assert_eq!(reply.status, 200, "{what}");
    if how == "abort" {
        reply.expect_piece().await;
        drop(reply);
        gate.idle().await;
    } else {
        let _ = reply.rest().await;
    }
}

#[tokio::test]
async fn clients_without_tenants_see_no_limits_and_need_no_key() {
    let n1 = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&n1])).await;
    n1.next(Script::json(200, &json!({"choices": []})).header("x-ratelimit-remaining-requests", "7"));
    let mut reply = gate.send(&ask(json!({})).header("Authorization", "Bearer anything")).await;
    assert_eq!((reply.status, reply.header("x-ratelimit-remaining-requests")), (200, Some("7")));
    assert_eq!(reply.header("x-ratelimit-limit-requests"), None);
    reply.whole().await;
    let receipt = gate.receipt(reply.request_id()).await;
    assert_eq!((&receipt["tenant"], &receipt["tokens"]["charged"]), (&Value::Null, &Value::Null));
    assert!(!gate.metrics().await.contains("warmgate_tenant_"), "no series without tenants");
}

#[tokio::test]
async fn embeddings_cost_their_prompts_and_calls_that_run_no_model_cost_nothing() {
    let n1 = node("n1").await;
    let gate = Gate::start(&Settings::over(&[&n1]).more(&tenants(&[("a", "limits: {rpm: 2, tpm: 1000}")]))).await;
    let embed = || Request::post("/api/embed", json!({"model": MODEL, "input": "x"}).to_string());
    for prompt in [7, 8] {
        n1.next(Script::json(200, &json!({"model": MODEL, "embeddings": [[0.1]], "prompt_eval_count": prompt})));
        gate.send(&by("a", embed())).await.whole().await;
    }
    let now = used(&gate, "a").await;
    assert_eq!((&now["tokens_last_minute"], &now["requests_last_minute"]), (&json!(15), &json!(2)));
    assert_eq!(gate.send(&by("a", embed())).await.status, 429);

    let show = Request::post("/api/show", json!({"model": MODEL}).to_string());
    for request in [show, Request::get("/api/tags"), Request::get("/v1/models")] {
        assert_eq!(gate.send(&by("a", request)).await.status, 200, "a tenant at its limit still looks around");
    }
}
