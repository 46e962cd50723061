//! A client that sends its next request before it has the answer to the last.

use serde_json::json;

use crate::client::Request;
use crate::rig::Single;
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Script};

/// A request with a body of about that size.
fn sized(bytes: usize, topic: &str) -> Request {
    let content = format!("{topic} {}", "x".repeat(bytes));
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": content}], "stream": false});
    Request::post("/api/chat", body.to_string())
}

fn line(content: &str, done: bool) -> String {
    json!({"message": {"role": "assistant", "content": content}, "done": done}).to_string() + "\n"
}

async fn check(single: &Single, bytes: usize) {
    let before = single.node.count();
    let topics = ["first", "second", "third"];
    let requests = topics.map(|topic| sized(bytes, topic));
    let mut conn = single.gate.connect().await;
    // In one write: what belongs to the next is read along with the one before it.
    let all: Vec<u8> =
        requests.iter().flat_map(|request| [request.head_bytes(), request.body().to_vec()].concat()).collect();
    conn.write(&all).await;
    for (n, (request, topic)) in requests.iter().zip(topics).enumerate() {
        let mut reply = conn.reply(request).await;
        assert_eq!(reply.status, 200, "{bytes} bytes, {topic}");
        reply.json().await;
        let asked = single.node.request(before + n).await;
        assert_eq!(asked.body, request.body(), "{bytes} bytes: the node sees the {topic} in its turn");
        conn = reply.reuse().await;
    }
    assert_eq!(conn.exchange(&sized(10, "last")).await.status, 200, "{bytes} bytes: and the connection goes on");
}

#[tokio::test]
async fn requests_that_come_on_one_another_s_heels_are_answered_in_their_order() {
    let single = Single::new().await;
    for bytes in [10, 2_000, 5_000, 70_000] {
        check(&single, bytes).await;
    }
}

#[tokio::test]
async fn a_request_that_comes_while_the_one_before_it_is_answered_waits_for_its_turn() {
    let single = Single::new().await;
    let hold = Hold::new();
    single.node.next(Script::ndjson().chunk(line("a", false)).hold(&hold).chunk(line("", true)).finish());
    let first = Talk::about(Dialect::Ollama, "moss").ask();
    let second = sized(2_000, "second");
    let mut conn = single.gate.connect().await;
    conn.send(&first).await;
    single.node.request(0).await;
    conn.send(&second).await;
    let mut reply = conn.reply(&first).await;
    assert_eq!(reply.status, 200);
    reply.expect_piece().await;
    assert_eq!(single.node.count(), 1, "one at a time");
    hold.open();
    let conn = reply.reuse().await;
    assert_eq!(conn.reply(&second).await.status, 200);
}

#[tokio::test]
async fn a_client_that_sends_a_line_break_behind_its_body_gets_its_answer() {
    let single = Single::new().await;
    let request = sized(100, "moss");
    let mut conn = single.gate.connect().await;
    conn.write(&[request.head_bytes(), request.body().to_vec(), b"\r\n".to_vec()].concat()).await;
    let reply = conn.reply(&request).await;
    assert_eq!(reply.status, 200);
    let conn = reply.reuse().await;
    assert_eq!(conn.exchange(&sized(100, "fern")).await.status, 200);
}

#[tokio::test]
async fn behind_chunks_nothing_is_taken_for_a_request_and_their_answer_comes_whole() {
    let single = Single::new().await;
    for at_once in [true, false] {
        let before = single.node.count();
        let hold = Hold::new();
        single.node.next(Script::held(&hold).then_usual());
        let first = Talk::about(Dialect::Ollama, "moss").ask().chunked(70);
        let second = sized(2_000, "second");
        let mut conn = single.gate.connect().await;
        conn.send(&first).await;
        if !at_once {
            single.node.request(before).await;
        }
        conn.send(&second).await;
        single.node.request(before).await;
        hold.open();
        let reply = conn.reply(&first).await;
        assert_eq!(reply.status, 200);
        assert!(reply.closes_after().await, "and its connection ends");
        assert_eq!(single.node.count(), before + 1);
    }
}
