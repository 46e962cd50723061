//! The kit proven by itself, without Warmgate: what the other tests rely on is so.

use std::time::Duration;

use serde_json::json;

use crate::client::{Conn, Request};
use crate::rig::node;
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Polls, Script};

#[tokio::test]
async fn a_node_answers_polls_and_both_dialects() {
    let node = node("n1").await;
    for path in ["/api/version", "/api/tags", "/api/ps", "/v1/models"] {
        let reply = Conn::open(node.address()).await;
        let mut reply = reply.exchange(&Request::get(path)).await;
        assert_eq!(reply.status, 200, "{path}");
        reply.json().await;
    }
    for dialect in Dialect::BOTH {
        for stream in [true, false] {
            let request = Talk::about(dialect, "moss").ask_with(json!({"stream": stream}));
            let mut reply = Conn::open(node.address()).await.exchange(&request).await;
            let text = String::from_utf8_lossy(&reply.whole().await).into_owned();
            let chunked = reply.header("transfer-encoding").is_some();
            assert_eq!(chunked, stream, "{dialect:?}");
            assert!(text.contains("well"), "{dialect:?}: {text}");
        }
    }
    assert_eq!(node.count(), 4, "polls are not counted");
}

#[tokio::test]
async fn a_held_stream_comes_chunk_by_chunk() {
    let node = node("n1").await;
    let hold = Hold::new();
    node.next(Script::sse().chunk("a").hold(&hold).chunk("b").finish());
    let request = Talk::about(Dialect::OpenAi, "moss").ask().chunked(7);

    let mut reply = Conn::open(node.address()).await.exchange(&request).await;

    assert_eq!(reply.expect_piece().await, "a");
    assert_eq!(node.in_flight(), 1);
    hold.open();
    assert_eq!(reply.expect_piece().await, "b");
    assert_eq!(reply.piece().await.expect("a clean end"), None);
    let answered = node.answered(0).await;
    let record = node.request(0).await;
    assert_eq!(record.method, "POST");
    assert_eq!(record.path, "/v1/chat/completions");
    assert_eq!(record.body, request.body());
    assert!(record.received < answered);
}

#[tokio::test]
async fn a_node_sees_a_client_leave() {
    let node = node("n1").await;
    node.always(Script::silent());
    for (n, by_reset) in [false, true].into_iter().enumerate() {
        let mut conn = Conn::open(node.address()).await;
        conn.send(&Talk::about(Dialect::Ollama, "moss").ask()).await;
        node.request(n).await;
        if by_reset {
            conn.reset();
        } else {
            drop(conn);
        }
        node.peer_gone(n).await;
    }
}

#[tokio::test]
async fn broken_answers_look_broken() {
    let node = node("n1").await;
    let request = Talk::about(Dialect::Ollama, "moss").ask();
    for script in [Script::closing(), Script::resetting()] {
        node.next(script.clone());
        let conn = Conn::open(node.address()).await;
        let reply = conn.try_exchange(&request).await;
        assert!(reply.is_err(), "{script:?} passed as an answer");
    }
    let cuts = [
        Script::ndjson().chunk("{}\n").close(),
        Script::ndjson().chunk("{}\n").reset(),
        Script::json_head(200, 9).chunk("{}\n").close(),
    ];
    for script in cuts {
        node.next(script.clone());
        let mut reply = Conn::open(node.address()).await.exchange(&request).await;
        assert!(reply.rest().await.1.is_err(), "{script:?} passed as whole");
    }
}

#[tokio::test]
async fn a_node_can_be_killed_and_revived_on_its_port() {
    let mut node = node("n1").await;
    node.next(Script::silent());
    let request = Talk::about(Dialect::Ollama, "moss").ask();
    let mut conn = Conn::open(node.address()).await;
    conn.send(&request).await;
    node.request(0).await;

    node.kill().await;
    let refused = tokio::net::TcpStream::connect(node.address()).await;
    node.revive();
    let mut reply = Conn::open(node.address()).await.exchange(&request).await;

    assert!(refused.is_err(), "a killed node took a connection");
    assert_eq!(reply.status, 200);
    reply.whole().await;
}

#[tokio::test]
async fn a_node_s_models_can_change() {
    let node = node("n1").await;
    node.set_models(Vec::new());
    let poll = Request::get("/api/ps");
    let mut reply = Conn::open(node.address()).await.exchange(&poll).await;
    assert_eq!(reply.json().await, json!({"models": []}));
}

#[tokio::test]
async fn a_node_can_be_busy_or_deaf_to_polls() {
    let node = node("n1").await;
    node.set_polls(Polls::Failing);
    let poll = Request::get("/api/tags");
    let failing = Conn::open(node.address()).await.exchange(&poll).await;
    assert_eq!(failing.status, 500);

    node.set_polls(Polls::Silent);
    let conn = Conn::open(node.address()).await;
    let silence = conn.try_exchange(&poll);
    let answered = tokio::time::timeout(Duration::from_millis(50), silence).await;
    assert!(answered.is_err(), "a silent node answered");
}

#[tokio::test]
async fn a_refusal_before_the_body_is_readable() {
    let node = node("n1").await;
    let busy = Script::json(503, &json!({"error": "busy"}));
    node.next(busy.before_body().hold(&Hold::new()));
    let request = Talk::about(Dialect::Ollama, "moss").with_picture(8 << 20).ask();

    let mut reply = Conn::open(node.address()).await.exchange(&request).await;

    assert_eq!(reply.status, 503);
    assert_eq!(reply.json().await["error"], "busy");
}
