//! Heartbeats keep a silent stream open, and harm neither its events nor the watch over its node.

use std::time::Duration;

use serde_json::json;

use crate::client::Reply;
use crate::patience::within;
use crate::rig::{Pair, Single, finished};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script};

const BEAT: &str = "timeouts: {heartbeat: 50ms}";

#[tokio::test]
async fn tmo_04_a_silent_stream_is_kept_open_from_its_head_on() {
    for dialect in Dialect::BOTH {
        let single = Single::with(BEAT).await;
        let hold = Hold::new();
        let script = dialect.stream().hold(&hold).chunk(dialect.frame("one")).hold(&hold);
        single.node.next(script.chunk(dialect.last_frame()).finish());

        let mut reply = single.gate.send(&Talk::about(dialect, "moss").ask()).await;
        for _ in 0..3 {
            assert_eq!(reply.expect_piece().await, blank(dialect), "{dialect:?}: before the first event");
        }
        hold.release(1);
        assert_eq!(after_blanks(dialect, &mut reply).await, dialect.frame("one"));
        for _ in 0..3 {
            assert_eq!(reply.expect_piece().await, blank(dialect), "{dialect:?}: between two events");
        }
        hold.release(1);
        assert_eq!(after_blanks(dialect, &mut reply).await, dialect.last_frame());
        assert_eq!(reply.piece().await.expect("a clean end"), None);
    }
}

#[tokio::test]
async fn tmo_04_without_heartbeats_there_are_no_bytes_but_the_node_s() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let hold = Hold::new();
        let script = dialect.stream().chunk(dialect.frame("one")).hold(&hold);
        single.node.next(script.chunk(dialect.last_frame()).finish());
        let mut reply = single.gate.send(&Talk::about(dialect, "moss").ask()).await;
        reply.expect_piece().await;

        let silence = tokio::time::timeout(Duration::from_millis(300), reply.piece()).await;

        assert!(silence.is_err(), "{dialect:?}: {silence:?}");
        hold.open();
        assert_eq!(reply.whole().await, dialect.last_frame());
    }
}

#[tokio::test]
async fn str_08_nothing_is_said_before_the_head_so_that_a_failure_can_still_move() {
    let pair = Pair::with(Dialect::OpenAi, BEAT).await;
    let hold = Hold::new();
    pair.home.next(Script::held(&hold).then_json(503, &json!({"error": {"message": "busy"}})));
    let request = pair.talk.ask();
    let mut conn = pair.gate.connect().await;
    conn.send(&request).await;
    pair.home.request(1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;

    hold.open();
    let mut reply = conn.reply(&request).await;

    assert_eq!((reply.status, reply.node()), (200, pair.away.name()));
    reply.whole().await;
}

#[tokio::test]
async fn str_08_nothing_is_said_within_an_event() {
    for dialect in Dialect::BOTH {
        let single = Single::with(BEAT).await;
        let hold = Hold::new();
        let frame = dialect.frame("one");
        let script = dialect.stream().chunk(frame.slice(..20)).hold(&hold).chunk(frame.slice(20..));
        single.node.next(script.chunk(dialect.last_frame()).finish());
        let mut reply = single.gate.send(&Talk::about(dialect, "moss").ask()).await;
        assert_eq!(reply.expect_piece().await, frame.slice(..20));

        let silence = tokio::time::timeout(Duration::from_millis(300), reply.piece()).await;
        assert!(silence.is_err(), "{dialect:?}: {silence:?}");
        hold.open();

        assert_eq!(reply.whole().await, [frame.slice(20..), dialect.last_frame()].concat(), "{dialect:?}");
    }
}

#[tokio::test]
async fn str_09_heartbeats_do_not_hide_a_dead_node() {
    for dialect in Dialect::BOTH {
        let single = Single::with("timeouts: {heartbeat: 50ms, idle: 400ms, first_byte: 400ms}").await;
        let script = dialect.stream().chunk(dialect.frame("one")).chunk(dialect.frame("two"));
        single.node.next(script.hold(&Hold::new()));
        let mut reply = single.gate.send(&Talk::about(dialect, "moss").ask()).await;

        let (got, _) = within("the stream to end", reply.rest()).await;

        let text = String::from_utf8_lossy(&got);
        let (beats, error) = text.split_at(text.rfind("{\"error\"").unwrap_or_else(|| panic!("no error: {text:?}")));
        let beats = beats.replace("data: ", "");
        assert!(beats.contains(blank(dialect)), "{dialect:?}: no heartbeat in {text:?}");
        let error = serde_json::from_str(error.trim()).unwrap_or_default();
        assert!(dialect.error_text(&error).is_some(), "{dialect:?}: {text:?}");
        single.node.peer_gone(0).await;
        single.gate.idle().await;
        let receipt = single.gate.receipt(reply.request_id()).await;
        assert_eq!(receipt["outcome"], "stalled");
    }
}

#[tokio::test]
async fn str_12_an_answer_that_was_only_heartbeats_is_marked_and_counted_as_empty() {
    for dialect in Dialect::BOTH {
        let single = Single::with(BEAT).await;
        let hold = Hold::new();
        single.node.next(dialect.stream().hold(&hold).finish());
        let mut reply = single.gate.send(&Talk::about(dialect, "moss").ask()).await;
        reply.expect_piece().await;
        hold.open();

        let (rest, _) = reply.rest().await;

        assert!(String::from_utf8_lossy(&rest).contains("{\"error\""), "{dialect:?}: {rest:?}");
        assert_eq!(single.gate.receipt(reply.request_id()).await["outcome"], "empty");
    }
}

#[tokio::test]
async fn heartbeats_do_not_come_into_plain_answers_and_connections_go_on() {
    let single = Single::with(BEAT).await;
    let hold = Hold::new();
    single.node.next(Script::json_of_any_length(200).chunk(" ").hold(&hold).chunk("{}").finish());
    let request = Talk::about(Dialect::OpenAi, "moss").ask_with(json!({"stream": false}));
    let mut reply = single.gate.send(&request).await;
    reply.expect_piece().await;
    let silence = tokio::time::timeout(Duration::from_millis(200), reply.piece()).await;
    assert!(silence.is_err(), "{silence:?}");
    hold.open();
    let conn = reply.reuse().await;

    let mut reply = conn.exchange(&Talk::about(Dialect::OpenAi, "moss").ask()).await;
    assert!(reply.whole().await.ends_with(b"data: [DONE]\n\n"));
    assert_eq!(finished(&single.gate, &Talk::about(Dialect::Ollama, "fern")).await.status, 200);
}

/// What a heartbeat writes.
fn blank(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Ollama => " ",
        Dialect::OpenAi => ":\n\n",
    }
}

async fn after_blanks(dialect: Dialect, reply: &mut Reply) -> bytes::Bytes {
    loop {
        let piece = reply.expect_piece().await;
        if piece != blank(dialect) {
            return piece;
        }
    }
}
