//! When the client leaves, its node is told at once and its slot is free.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Request;
use crate::rig::{Pair, Single, finished};
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
