//! When the client leaves, its node is told at once and its slot is free.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Request;
use crate::gate::{Gate, Settings};
use crate::http2::Http2;
use crate::rig::{Pair, Single, finished, node};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script};

/// The promise is 100 ms; the rest is room for a busy machine.
const AT_ONCE: Duration = Duration::from_millis(500);

#[tokio::test]
async fn can_01_a_client_gone_mid_stream_stops_the_stream() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let script = dialect.stream().chunk(dialect.frame("moss "));
        single.node.next(script.hold(&Hold::new()));
        let mut reply = single.gate.send(&talk(dialect).ask()).await;
        reply.expect_piece().await;

        let left = Instant::now();
        drop(reply);

        assert_told(&single, left).await;
    }
}

#[tokio::test]
async fn can_01_a_client_that_resets_mid_stream_stops_it_too() {
    let dialect = Dialect::OpenAi;
    let single = Single::new().await;
    let script = dialect.stream().chunk(dialect.frame("moss "));
    single.node.next(script.hold(&Hold::new()));
    let mut reply = single.gate.send(&talk(dialect).ask()).await;
    reply.expect_piece().await;

    let left = Instant::now();
    reply.reset();

    assert_told(&single, left).await;
}

#[tokio::test]
async fn can_02_a_client_gone_before_the_first_byte_stops_the_work() {
    for dialect in Dialect::BOTH {
        for stream in [true, false] {
            let request = talk(dialect).ask_with(json!({"stream": stream}));
            leaves_before_the_first_byte(&request).await;
        }
    }
}

#[tokio::test]
async fn can_02_a_client_gone_after_a_large_body_stops_the_work() {
    let talk = talk(Dialect::Ollama).with_picture(5 << 20);
    leaves_before_the_first_byte(&talk.ask()).await;
}

#[tokio::test]
async fn can_02_a_client_gone_between_headers_and_body_stops_the_work() {
    let single = Single::new().await;
    let head = Script::json_of_any_length(200);
    single.node.next(head.chunk(" ").hold(&Hold::new()));
    let request = talk(Dialect::OpenAi).ask_with(json!({"stream": false}));
    let mut reply = single.gate.send(&request).await;
    reply.expect_piece().await;

    let left = Instant::now();
    drop(reply);

    assert_told(&single, left).await;
}

#[tokio::test]
async fn can_04_clients_that_leave_do_not_make_a_node_look_broken() {
    let pair = Pair::new(Dialect::Ollama).await;
    for n in 1..=20 {
        pair.home.next(Script::silent());
        let mut conn = pair.gate.connect().await;
        conn.send(&pair.talk.ask()).await;
        pair.home.request(n).await;
        drop(conn);
        pair.home.peer_gone(n).await;
    }
    pair.gate.idle().await;

    let reply = finished(&pair.gate, &pair.talk).await;

    assert_eq!(reply.node(), pair.home.name(), "request 21");
    assert_eq!(reply.affinity(), "session", "request 21");
    assert_eq!(pair.away.count(), 0, "nothing was sent elsewhere");
}

#[tokio::test]
async fn can_01_a_client_of_http_2_stops_one_stream_and_keeps_the_others() {
    let dialect = Dialect::OpenAi;
    let single = Single::new().await;
    let hold = Hold::new();
    for _ in 0..2 {
        single
            .node
            .next(dialect.stream().chunk(dialect.frame("moss ")).hold(&hold).chunk(dialect.last_frame()).finish());
    }
    let mut client = Http2::open(single.gate.address()).await;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let mut answer = client.post("/v1/chat/completions", talk(dialect).ask().body()).await.answered().await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.piece().await, Some(dialect.frame("moss ")));
        answers.push(answer);
    }

    let left = Instant::now();
    answers.remove(0).cancel();

    let took = single.node.peer_gone(0).await.duration_since(left);
    assert!(took < AT_ONCE, "the node was told only after {took:?}");
    hold.open();
    assert_eq!(answers.remove(0).whole().await, dialect.last_frame(), "the other goes on");
    single.gate.idle().await;
}

#[tokio::test]
async fn can_02_a_client_of_http_2_that_leaves_before_the_first_byte_stops_the_work() {
    for by_reset in [true, false] {
        let single = Single::new().await;
        single.node.next(Script::silent());
        let mut client = Http2::open(single.gate.address()).await;
        let asked = client.post("/v1/chat/completions", talk(Dialect::OpenAi).ask().body()).await;
        single.node.request(0).await;

        let left = Instant::now();
        if by_reset {
            asked.cancel();
        } else {
            client.close();
        }

        assert_told(&single, left).await;
    }
}

#[tokio::test]
async fn can_02_a_client_of_http_2_leaves_the_queue() {
    let (gate, node, running) = one_slot_taken().await;
    let mut client = Http2::open(gate.address()).await;
    let asked = client.post("/v1/chat/completions", Talk::about(Dialect::OpenAi, "fern").ask().body()).await;
    gate.waiting(1).await;

    asked.cancel();

    gate.waiting(0).await;
    drop(running);
    gate.idle().await;
    assert_eq!(node.count(), 1);
}

/// Half a close counts as one, wherever the request is: Warmgate cannot tell the two apart until it writes, and
/// work for a client that has left is dearer than a client that has to keep its side open.
#[tokio::test]
async fn can_03_a_client_that_closes_its_side_has_left_wherever_its_request_is() {
    let dialect = Dialect::OpenAi;
    // In the queue.
    let (gate, node, running) = one_slot_taken().await;
    let mut queued = gate.connect().await;
    queued.send(&Talk::about(dialect, "fern").ask()).await;
    gate.waiting(1).await;
    queued.half_close().await;
    gate.waiting(0).await;
    assert!(queued.is_closed().await, "in the queue");
    assert_eq!(node.count(), 1);
    drop(running);

    // Before the answer.
    let single = Single::new().await;
    single.node.next(Script::silent());
    let mut waiting = single.gate.connect().await;
    waiting.send(&talk(dialect).ask()).await;
    single.node.request(0).await;
    let left = Instant::now();
    waiting.half_close().await;
    assert_told(&single, left).await;
    assert!(waiting.is_closed().await, "before the answer");

    // Within the answer.
    let single = Single::new().await;
    single.node.next(dialect.stream().chunk(dialect.frame("moss ")).hold(&Hold::new()));
    let mut reading = single.gate.send(&talk(dialect).ask()).await;
    reading.expect_piece().await;
    let left = Instant::now();
    reading.half_close().await;
    assert_told(&single, left).await;
    assert!(reading.rest().await.1.is_err(), "no clean end");

    let metrics = single.gate.metrics().await;
    assert!(metrics.contains("outcome=\"client_gone\"} 1"), "{metrics}");
}

#[tokio::test]
async fn can_04_clients_that_leave_are_counted_as_such_and_cost_no_retry() {
    let pair = Pair::new(Dialect::OpenAi).await;
    for n in 1..=6 {
        pair.home.next(Script::silent());
        let mut conn = pair.gate.connect().await;
        conn.send(&pair.talk.ask().header("X-Request-Id", &format!("left-{n}"))).await;
        pair.home.request(n).await;
        drop(conn);
        pair.home.peer_gone(n).await;
    }
    pair.gate.idle().await;

    let labels = [("dialect", "openai"), ("outcome", "client_gone")];
    assert_eq!(pair.gate.sum("warmgate_requests_total", &labels).await, 6.0);
    let receipt = pair.gate.receipt("left-1").await;
    assert_eq!((&receipt["status"], &receipt["outcome"]), (&json!(499), &json!("client_gone")));
    let metrics = pair.gate.metrics().await;
    assert!(!metrics.contains("warmgate_retries_refused_total{"), "{metrics}");
}

#[tokio::test]
async fn can_05_what_had_come_before_the_client_left_is_on_record() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let mut script = dialect.stream();
        for n in 0..12 {
            script = script.chunk(dialect.frame(&format!("{n} ")));
        }
        single.node.next(script.hold(&Hold::new()));
        let mut reply = single.gate.send(&talk(dialect).ask().header("X-Request-Id", "partial")).await;
        for _ in 0..12 {
            reply.expect_piece().await;
        }

        drop(reply);

        single.node.peer_gone(0).await;
        single.gate.idle().await;
        let receipt = single.gate.receipt("partial").await;
        assert_eq!(receipt["outcome"], "client_gone", "{dialect:?}");
        assert_eq!((&receipt["partial"], &receipt["partial_events"]), (&json!(true), &json!(12)), "{dialect:?}");
        assert!(receipt["tokens"]["output"].is_null(), "unknown is not zero: {receipt:#}");
    }
}

#[tokio::test]
async fn can_06_an_attempt_is_over_before_the_next_begins() {
    let pair = Pair::new(Dialect::OpenAi).await;
    let hold = Hold::new();
    // It refuses, and would go on with its answer for ever.
    pair.home.next(Script::json_head(503, 1_000).chunk("{").hold(&Hold::new()));
    pair.away.next(Script::held(&hold).then_usual());
    let request = pair.talk.ask();
    let mut conn = pair.gate.connect().await;
    conn.send(&request).await;

    pair.away.request(0).await;
    pair.home.peer_gone(1).await;

    let running = |name: &str, count: u64| {
        let name = name.to_owned();
        move |node: &serde_json::Value| node["name"] == name.as_str() && node["in_flight"] == count
    };
    let (home, away) = (pair.home.name(), pair.away.name());
    pair.gate.node_once(home, "the first to be free", running(home, 0)).await;
    pair.gate.node_once(away, "the second to be busy", running(away, 1)).await;
    hold.open();
    conn.reply(&request).await.whole().await;
    pair.gate.idle().await;
}

/// A gate over one node whose only slot is taken by the client that is returned.
async fn one_slot_taken() -> (Gate, crate::upstream::Upstream, crate::client::Conn) {
    let node = node("n1").await;
    node.always(Script::silent());
    let gate = Gate::start(&Settings::over(&[&node]).slots(1).more("admission: {engine_queue: 0}")).await;
    let mut running = gate.connect().await;
    running.send(&talk(Dialect::OpenAi).ask()).await;
    node.request(0).await;
    (gate, node, running)
}

async fn leaves_before_the_first_byte(request: &Request) {
    let single = Single::new().await;
    single.node.next(Script::silent());
    let mut conn = single.gate.connect().await;
    conn.send(request).await;
    single.node.request(0).await;

    let left = Instant::now();
    drop(conn);

    assert_told(&single, left).await;
}

/// The node saw its peer go in time, and no lease is left.
async fn assert_told(single: &Single, left: Instant) {
    let took = single.node.peer_gone(0).await.duration_since(left);
    assert!(took < AT_ONCE, "the node was told only after {took:?}");
    single.gate.idle().await;
    assert_eq!(single.node.count(), 1, "the node was asked once");
}

fn talk(dialect: Dialect) -> Talk {
    Talk::about(dialect, "moss")
}
