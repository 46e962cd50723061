//! Requests beyond what nodes may be given wait here: bounded, in turn, seen, and left at once.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::client::{Reply, Request};
use crate::gate::{Gate, Settings};
use crate::rig::node;
use crate::talk::{Dialect, Talk};
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
    let metrics = rig.metrics().await;
    assert!(metrics.contains("warmgate_requests_total{dialect=\"openai\",outcome=\"queue_timeout\"} 2"), "{metrics}");
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
