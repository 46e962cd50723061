//! The head of an answer is no answer: until the first byte after it, another node can still be asked.

use crate::rig::{Pair, Single, finished};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script};

#[tokio::test]
async fn str_12_an_empty_200_goes_to_another_node() {
    for dialect in Dialect::BOTH {
        for empty in empties(dialect) {
            let pair = Pair::new(dialect).await;
            pair.home.next(empty.clone());

            let reply = finished(&pair.gate, &pair.talk).await;

            assert_eq!((reply.status, reply.node()), (200, pair.away.name()), "{dialect:?} {empty:?}");
            assert_eq!(reply.header("x-fleet-attempts"), Some("2"));
            let receipt = pair.gate.receipt(reply.request_id()).await;
            assert_eq!(receipt["attempts"][0]["failure"], "empty");
            assert_eq!(receipt["outcome"], "ok");
            pair.gate.idle().await;
        }
    }
}

#[tokio::test]
async fn str_12_an_empty_200_is_a_502_where_there_is_no_other_node() {
    for dialect in Dialect::BOTH {
        for empty in empties(dialect) {
            let single = Single::new().await;
            single.node.next(empty.clone());

            let mut reply = single.gate.send(&Talk::about(dialect, "moss").ask()).await;

            assert_eq!(reply.status, 502, "{dialect:?} {empty:?}");
            let body = reply.json().await;
            assert!(dialect.error_text(&body).is_some(), "{dialect:?}: {body}");
            let metrics = single.gate.metrics().await;
            assert!(metrics.contains(r#"warmgate_attempts_total{node="n1",result="empty"} 1"#), "{metrics}");
        }
    }
}

#[tokio::test]
async fn a_node_that_breaks_between_head_and_first_byte_costs_nothing() {
    for dialect in Dialect::BOTH {
        for broken in [dialect.stream().reset(), dialect.stream().close()] {
            let pair = Pair::new(dialect).await;
            pair.home.next(broken);

            let reply = finished(&pair.gate, &pair.talk).await;

            assert_eq!((reply.status, reply.node()), (200, pair.away.name()), "{dialect:?}");
            pair.gate.idle().await;
        }
    }
}

#[tokio::test]
async fn a_node_killed_between_head_and_first_byte_costs_nothing() {
    let mut pair = Pair::new(Dialect::OpenAi).await;
    let reached = Hold::new();
    pair.home.next(Script::sse().hold(&reached));
    let request = pair.talk.ask();
    let mut conn = pair.gate.connect().await;
    conn.send(&request).await;
    pair.home.request(1).await;

    pair.home.kill().await;
    let mut reply = conn.reply(&request).await;

    assert_eq!((reply.status, reply.node()), (200, pair.away.name()));
    reply.whole().await;
}

#[tokio::test]
async fn a_head_that_nothing_follows_is_late_and_not_a_broken_stream() {
    let single = Single::with("timeouts: {first_byte: 300ms, idle: 200ms}").await;
    single.node.next(Script::sse().hold(&Hold::new()));

    let mut reply = single.gate.send(&Talk::about(Dialect::OpenAi, "moss").ask()).await;

    assert_eq!(reply.status, 504);
    assert!(Dialect::OpenAi.error_text(&reply.json().await).is_some());
    single.node.peer_gone(0).await;
}

#[tokio::test]
async fn the_head_of_a_refusal_goes_at_once() {
    let single = Single::new().await;
    let hold = Hold::new();
    single.node.next(Script::json_of_any_length(400).hold(&hold).chunk("{}").finish());

    let mut reply = single.gate.send(&Talk::about(Dialect::OpenAi, "moss").ask()).await;
    hold.open();

    assert_eq!(reply.status, 400);
    assert_eq!(reply.whole().await, "{}");
}

/// Every way in which 200 can be said and nothing after it.
fn empties(dialect: Dialect) -> [Script; 4] {
    let stream = dialect.stream();
    [Script::json_head(200, 0), stream.clone().finish(), stream.until_close(), Script::json_of_any_length(200).finish()]
}
