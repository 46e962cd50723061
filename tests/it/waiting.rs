//! Requests beyond what nodes may be given wait here: bounded, in turn, seen, and left at once.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinHandle;

use crate::client::{Conn, Reply, Request};
use crate::gate::{Gate, Settings};
use crate::patience::{until, within};
use crate::rig::node;
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Script, Upstream};

/// Nothing waits at engines, so that what a node holds is what runs.
const NONE_AT_ENGINES: &str = "engine_queue: 0";

/// A refusal is a matter of milliseconds; the rest is room for a busy machine.
const AT_ONCE: Duration = Duration::from_millis(500);

struct Rig {
    gate: Gate,
    node: Upstream,
    hold: Hold,
    asked: usize,
}

impl Rig {
    /// One node with that many slots, whose answers wait for the hold.
    async fn new(slots: u32, admission: &str) -> Rig {
        let node = node("n1").await;
        let hold = Hold::new();
        node.always(Script::held(&hold).then_usual());
        let yaml = format!("admission: {{{NONE_AT_ENGINES}, {admission}}}");
        let gate = Gate::start(&Settings::over(&[&node]).slots(slots).more(&yaml)).await;
        Rig { gate, node, hold, asked: 0 }
    }

    /// A request of its own conversation, as it is sent.
    fn request(&mut self) -> Request {
        self.asked += 1;
        Talk::about(Dialect::OpenAi, &format!("topic {}", self.asked)).ask()
    }

    /// Sends a request whose answer is read to its end.
    async fn send(&mut self) -> JoinHandle<Reply> {
        let request = self.request();
        self.send_as(request).await
    }

    async fn send_as(&mut self, request: Request) -> JoinHandle<Reply> {
        let conn = self.gate.connect().await;
        tokio::spawn(async move {
            let mut reply = conn.exchange(&request).await;
            reply.whole().await;
            reply
        })
    }
}

#[tokio::test]
async fn que_01_what_does_not_fit_waits_and_is_served() {
    let mut rig = Rig::new(3, "").await;
    let mut clients = Vec::new();
    for _ in 0..11 {
        clients.push(rig.send().await);
    }
    rig.gate.waiting(8).await;
    rig.node.request(2).await;
    assert_eq!(rig.node.in_flight(), 3, "what the node was given");

    rig.hold.open();

    let mut waited = 0;
    for client in clients {
        let reply = client.await.expect("an answer");
        assert_eq!(reply.status, 200);
        let receipt = rig.gate.receipt(reply.request_id()).await;
        if receipt["queue_position"].is_u64() {
            waited += 1;
            let header: f64 = reply.header("x-fleet-queue-ms").and_then(|ms| ms.parse().ok()).expect("a number");
            let receipt_ms = receipt["times_ms"]["queue"].as_f64().expect("a number");
            assert!((header - receipt_ms).abs() <= 1.0, "{header} and {receipt_ms}");
        }
    }
    assert_eq!(waited, 8);
    rig.gate.waiting(0).await;
    rig.gate.idle().await;
}

#[tokio::test]
async fn que_03_a_full_queue_refuses_at_once_and_a_long_wait_ends() {
    let mut rig = Rig::new(1, "max_queue: 2, queue_timeout: 2s").await;
    let first = rig.send().await;
    rig.node.request(0).await;
    let waiting = [rig.send().await, rig.send().await];
    rig.gate.waiting(2).await;

    let asked = Instant::now();
    let refused = rig.send().await.await.expect("an answer");
    assert!(asked.elapsed() < AT_ONCE, "refused only after {:?}", asked.elapsed());
    assert_refused(&refused);

    for client in waiting {
        assert_refused(&client.await.expect("an answer"));
    }
    assert!(asked.elapsed() < Duration::from_secs(10), "nobody waits past the deadline");
    let labels = [("dialect", "openai"), ("model", MODEL), ("outcome", "queue_timeout")];
    assert_eq!(rig.gate.sum("warmgate_requests_total", &labels).await, 2.0);
    assert_eq!(rig.gate.sum("warmgate_queue_wait_seconds_count", &[("model", MODEL)]).await, 2.0);
    rig.hold.open();
    assert_eq!(first.await.expect("an answer").status, 200);
    assert_eq!(rig.node.count(), 1, "who was refused was not sent");
}

#[tokio::test]
async fn que_04_what_needs_no_slot_does_not_wait() {
    let mut rig = Rig::new(1, "max_queue: 1").await;
    let _running = rig.send().await;
    rig.node.request(0).await;
    let _waiting = rig.send().await;
    rig.gate.waiting(1).await;
    for path in ["/api/tags", "/api/ps", "/v1/models", "/healthz", "/readyz"] {
        let asked = Instant::now();
        let mut reply = rig.gate.get(path).await;
        reply.whole().await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(asked.elapsed() < AT_ONCE, "{path} took {:?}", asked.elapsed());
    }
    assert!(rig.metrics().await.contains("warmgate_queue_waiting 1"));
}

#[tokio::test]
async fn can_02_a_client_that_leaves_the_queue_is_gone_at_once() {
    let mut rig = Rig::new(1, "").await;
    let running = rig.send().await;
    rig.node.request(0).await;
    let request = rig.request();
    let mut conn = rig.gate.connect().await;
    conn.send(&request).await;
    rig.gate.waiting(1).await;

    drop(conn);

    rig.gate.waiting(0).await;
    rig.hold.open();
    running.await.expect("an answer");
    rig.gate.idle().await;
    assert_eq!(rig.node.count(), 1, "nobody works for a client that has left");
    let metrics = rig.metrics().await;
    assert!(metrics.contains("outcome=\"client_gone\"} 1"), "{metrics}");
}

#[tokio::test]
async fn an_interactive_request_goes_before_batch_that_came_earlier() {
    let mut rig = Rig::new(1, "").await;
    let mut clients = vec![rig.send().await];
    rig.node.request(0).await;
    for n in 1..=2 {
        let batch = rig.request().header("X-Fleet-Priority", "batch");
        clients.push(rig.send_as(batch).await);
        rig.gate.waiting(n).await;
    }
    let urgent = rig.request();
    clients.push(rig.send_as(urgent.clone()).await);
    rig.gate.waiting(3).await;

    rig.hold.open();

    for client in clients {
        assert_eq!(client.await.expect("an answer").status, 200);
    }
    assert_eq!(rig.node.request(1).await.body, urgent.body(), "the second that the node was sent");
    let sent_on = rig.node.request(2).await.head.get("x-fleet-priority").is_some();
    assert!(!sent_on, "the header is ours");
}

/// Paths whose requests run models, each with a body that streams or does not.
const PATHS: [&str; 4] = ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"];

fn call(path: &str, n: usize, stream: bool) -> Request {
    let text = format!("question {n}");
    let messages = json!([{"role": "user", "content": text}]);
    let body = json!({"model": MODEL, "messages": messages, "input": text, "max_tokens": 9, "stream": stream});
    Request::post(path, body.to_string())
}

#[tokio::test]
async fn que_05_every_slot_comes_back_however_a_request_ends() {
    let node = node("n1").await;
    let yaml = "admission: {engine_queue: 0, max_queue: 0}\nresilience: {breaker: {failures: 1000}}";
    let gate = Gate::start(&Settings::over(&[&node]).slots(1).more(yaml)).await;
    for path in PATHS {
        for cycle in 0..6 {
            for stream in [false, true] {
                let mut reply = gate.send(&call(path, node.count(), stream)).await;
                reply.whole().await;
                assert_eq!(reply.status, 200, "{path}, cycle {cycle}");
            }
            let n = node.count();
            node.next(Script::silent());
            let mut conn = gate.connect().await;
            conn.send(&call(path, n, true)).await;
            node.request(n).await;
            drop(conn);
            node.peer_gone(n).await;
            gate.idle().await;
            // Over a connection that was kept it is taken for a stale one and sent again.
            node.next(Script::resetting());
            let reply = gate.send(&call(path, n + 1, false)).await;
            assert!([200, 502].contains(&reply.status), "{path}, cycle {cycle}: {}", reply.status);
            drop(reply);
            gate.idle().await;
            served_soon(&gate, path).await;
        }
    }
    assert_eq!(gate.status().await["queue"]["waiting"], 0);
    assert_eq!(node.in_flight(), 0);
}

/// A failure leaves the only holder alone for a moment; a good answer ends that.
async fn served_soon(gate: &Gate, path: &str) {
    within("to be served again", async {
        loop {
            let mut reply = gate.send(&call(path, 0, false)).await;
            reply.whole().await;
            if reply.status == 200 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn que_06_a_thousand_streams_run_at_once() {
    const STREAMS: usize = 1_000;
    let nodes = [node("n1").await, node("n2").await];
    let hold = Hold::new();
    let frame = Dialect::OpenAi.frame("moss");
    for node in &nodes {
        node.always(Script::sse().chunk(frame.clone()).hold(&hold).chunk(Dialect::OpenAi.last_frame()).finish());
    }
    let gate = Gate::start(&Settings::over(&nodes.each_ref())).await;
    let mut running = Vec::new();
    for n in 0..STREAMS {
        let conn = gate.connect().await;
        let request = Talk::about(Dialect::OpenAi, &format!("topic {n}")).ask();
        running.push(tokio::spawn(async move {
            let mut reply = conn.exchange(&request).await;
            reply.expect_piece().await;
            reply
        }));
    }
    let mut replies = Vec::new();
    for reply in running {
        replies.push(reply.await.expect("a stream that has begun"));
    }
    assert_eq!(nodes.iter().map(Upstream::in_flight).sum::<usize>(), STREAMS, "all at the nodes");

    let asked = Instant::now();
    assert_eq!(gate.get("/healthz").await.status, 200);
    assert!(asked.elapsed() < AT_ONCE, "alive after {:?}", asked.elapsed());
    hold.open();

    for mut reply in replies {
        assert_eq!(reply.whole().await, Dialect::OpenAi.last_frame());
    }
    gate.idle().await;
}

#[tokio::test]
async fn que_07_with_few_descriptors_some_are_turned_away_and_the_rest_goes_on() {
    let node = node("n1").await;
    let hold = Hold::new();
    node.always(Script::held(&hold).then_usual());
    let mut gate = Gate::start(&Settings::over(&[&node]).files(256)).await;
    assert!(gate.log().contains("this process may open 256 files"), "{}", gate.log());

    let mut clients = Vec::new();
    for n in 0..400 {
        let mut conn = gate.connect().await;
        // Those who are turned away may find that out while they write.
        let request = Talk::about(Dialect::OpenAi, &format!("topic {n}")).ask();
        conn.try_send(&request).await;
        clients.push(conn);
    }
    // Before their request is read, or when it has not come soon.
    let kinds = ["warmgate_connections_refused_total", "warmgate_connections_displaced_total"];
    within("the others to be turned away", async {
        while gate.counter(kinds[0]).await + gate.counter(kinds[1]).await < 368.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let used = gate.cpu_seconds();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(gate.cpu_seconds() - used < 0.25, "it spins");
    assert_eq!(gate.status().await["nodes"][0]["in_flight"], 32, "the admin port answers, and 32 are served");
    assert!(gate.lives());

    drop(clients);
    hold.open();
    gate.idle().await;
    // The last of those who left are let go of a moment after.
    until("the descriptors to come back", async || (gate.open_files() < 160).then_some(())).await;
    let reply = crate::rig::finished(&gate, &Talk::about(Dialect::OpenAi, "moss")).await;
    assert_eq!(reply.status, 200, "full service again");
}

#[tokio::test]
async fn que_08_a_node_s_429_keeps_its_headers_and_ours_has_one() {
    let node = node("n1").await;
    let words = json!({"error": {"message": "slow down", "type": "rate_limit"}});
    node.always(
        Script::json(429, &words)
            .header("Retry-After", "30")
            .header("x-ratelimit-remaining-requests", "0")
            .header("x-ratelimit-reset-requests", "30s"),
    );
    let gate = Gate::start(&Settings::over(&[&node]).more("admission: {max_queue: 0}")).await;

    let mut passed = gate.send(&Talk::about(Dialect::OpenAi, "moss").ask()).await;
    let ours = gate.send(&Talk::about(Dialect::OpenAi, "moss").ask()).await;

    assert_eq!(passed.status, 429);
    assert_eq!(passed.header("retry-after"), Some("30"));
    assert_eq!(passed.header("x-ratelimit-remaining-requests"), Some("0"));
    assert_eq!(passed.header("x-ratelimit-reset-requests"), Some("30s"));
    assert_eq!(passed.json().await, words);
    assert_refused(&ours);
    assert_eq!(node.count(), 1, "left alone for as long as it said");
}

#[tokio::test]
async fn que_10_nobody_waits_beside_a_free_slot() {
    const STRESS: Duration = Duration::from_secs(4);
    let mut nodes = [node("steady").await, node("flaps").await];
    let yaml = "admission: {engine_queue: 0, max_queue: 64, queue_timeout: 20s}";
    let gate = Gate::start(&Settings::over(&nodes.each_ref()).slots(1).more(yaml)).await;
    let began = Instant::now();
    let (address, mut clients) = (gate.address(), Vec::new());
    for client in 0..12_u64 {
        clients.push(tokio::spawn(async move {
            let mut chance = client;
            let mut served = 0;
            while began.elapsed() < STRESS {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let request = Talk::about(Dialect::OpenAi, &format!("{chance}")).ask();
                let mut conn = Conn::open(address).await;
                conn.send(&request).await;
                if chance >> 60 < 5 {
                    // It leaves: in the queue, before the answer or within it.
                    tokio::time::sleep(Duration::from_millis(chance >> 60)).await;
                    continue;
                }
                let mut reply = conn.reply(&request).await;
                served += usize::from(reply.status == 200);
                let _ = reply.rest().await;
            }
            served
        }));
    }
    let mut stuck_since = None;
    while began.elapsed() < STRESS {
        let third = began.elapsed().as_millis() / 500 % 3;
        if third == 2 {
            nodes[1].kill().await;
            nodes[1].revive();
        }
        let status = gate.status().await;
        let steady = status["nodes"].as_array().and_then(|nodes| nodes.iter().find(|node| node["name"] == "steady"));
        let free = steady.is_some_and(|node| node["in_flight"] == 0 && status["queue"]["waiting"] != 0);
        let since = *stuck_since.get_or_insert_with(Instant::now);
        if !free {
            stuck_since = None;
        }
        assert!(!free || since.elapsed() < Duration::from_secs(1), "a free slot beside those who wait: {status:#}");
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    let mut served = 0;
    for client in clients {
        served += client.await.expect("a client");
    }
    assert!(served > 50, "only {served} were served");
    gate.waiting(0).await;
    gate.idle().await;
}

#[tokio::test]
async fn hlt_09_requests_wait_for_the_first_that_may_be_asked_and_no_longer_than_they_may() {
    for (wait, served) in [("6s", true), ("1s", false)] {
        let [n1, n2] = [node("n1").await, node("n2").await];
        n1.next(Script::json(503, &json!({"error": "busy"})).header("Retry-After", "9"));
        n2.next(Script::json(503, &json!({"error": "busy"})).header("Retry-After", "2"));
        let yaml = format!("admission: {{queue_timeout: {wait}}}");
        let gate = Gate::start(&Settings::over(&[&n1, &n2]).more(&yaml)).await;
        let asked = Instant::now();
        crate::rig::finished(&gate, &Talk::about(Dialect::OpenAi, "fern")).await;

        let reply = crate::rig::finished(&gate, &Talk::about(Dialect::OpenAi, "moss")).await;

        let took = asked.elapsed();
        println!("queue_timeout {wait}: {} after {took:?}", reply.status);
        if served {
            assert_eq!((reply.status, reply.node()), (200, "n2"));
            assert!(took >= Duration::from_millis(1_900), "{took:?}");
            assert_eq!(n1.count(), 1, "the one with nine seconds is left alone");
        } else {
            assert_refused(&reply);
            assert!(took < Duration::from_secs(4), "{took:?}");
        }
    }
}

#[tokio::test]
async fn hlt_16_with_many_waiting_it_is_alive_and_says_how_many() {
    const WAITING: u64 = 600;
    let mut rig = Rig::new(1, "max_queue: 700").await;
    let mut clients = Vec::new();
    for _ in 0..=WAITING {
        clients.push(rig.send().await);
    }
    rig.gate.waiting(WAITING).await;
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let asked = Instant::now();
        assert_eq!(rig.gate.get("/healthz").await.status, 200);
        slowest = slowest.max(asked.elapsed());
    }
    println!("alive within {slowest:?} beside {WAITING} waiting");
    assert!(slowest < AT_ONCE, "{slowest:?}");
    assert_eq!(rig.gate.get("/readyz").await.status, 200, "busy is ready");

    clients.iter().for_each(JoinHandle::abort);
    rig.gate.waiting(0).await;
    rig.gate.idle().await;
}

impl Rig {
    async fn metrics(&self) -> String {
        let request = Request::get_as("localhost", "/metrics");
        let conn = crate::client::Conn::open(self.gate.admin_address()).await;
        String::from_utf8_lossy(&conn.exchange(&request).await.whole().await).into_owned()
    }
}

#[track_caller]
fn assert_refused(reply: &Reply) {
    assert_eq!(reply.status, 503);
    let seconds: u64 = reply.header("retry-after").and_then(|s| s.parse().ok()).expect("Retry-After in seconds");
    assert!(seconds >= 1);
}
