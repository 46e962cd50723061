//! A node that fails before the first byte costs the client nothing: another one gets the request.

use bytes::Bytes;
use serde_json::json;

use crate::client::{Reply, Request};
use crate::rig::{Pair, finished};
use crate::talk::Dialect;
use crate::upstream::Script;

/// A chat with images, as large as they get.
const LARGE_BYTES: usize = 20 * 1024 * 1024;

#[tokio::test]
async fn ret_06_statuses_that_say_broken_go_elsewhere_for_both_shapes() {
    for status in [502, 503, 504] {
        for stream in [true, false] {
            let pair = Pair::new(Dialect::OpenAi).await;
            pair.home.next(Script::json(status, &json!({"error": {"message": "no"}})));

            let request = pair.talk.ask_with(json!({"stream": stream}));
            let mut reply = pair.gate.send(&request).await;
            reply.whole().await;

            let case = format!("{status}, stream: {stream}");
            assert_second_attempt(&pair, &reply, &case);
        }
    }
}

#[tokio::test]
async fn ret_07_20_mib_are_replayed_intact_after_a_reset() {
    replays_intact(Script::resetting()).await;
}

#[tokio::test]
async fn ret_07_20_mib_are_replayed_intact_after_a_reset_before_they_were_read() {
    replays_intact(Script::resetting().before_body()).await;
}

#[tokio::test]
async fn ret_07_20_mib_are_replayed_intact_after_a_close() {
    replays_intact(Script::closing()).await;
}

#[tokio::test]
async fn ret_07_20_mib_are_replayed_intact_after_a_503() {
    replays_intact(Script::json(503, &json!({"error": "server busy"}))).await;
}

#[tokio::test]
async fn ret_07_20_mib_are_replayed_intact_after_a_503_before_they_were_read() {
    let busy = Script::json(503, &json!({"error": "server busy"}));
    replays_intact(busy.before_body().close()).await;
}

#[tokio::test]
async fn ret_07_20_mib_are_replayed_intact_after_a_refusal() {
    let mut pair = Pair::new(Dialect::Ollama).await;
    pair.home.kill().await;
    let request = large_turn(&pair);

    let mut reply = pair.gate.send(&request).await;
    reply.whole().await;

    assert_eq!(reply.status, 200);
    assert_eq!(reply.node(), pair.away.name());
    assert_arrived(&pair.away.request(0).await.body, request.body(), "the other node");
}

#[tokio::test]
async fn ret_07_a_chunked_body_is_replayed_intact() {
    let pair = Pair::new(Dialect::Ollama).await;
    pair.home.next(Script::resetting());
    pair.home.next(Script::resetting());
    let request = large_turn(&pair).chunked(100_000);

    let mut reply = pair.gate.send(&request).await;
    reply.whole().await;

    assert_moved(&pair, &reply, "chunked");
    assert_arrived(&pair.away.request(0).await.body, request.body(), "the other node");
}

#[tokio::test]
async fn ret_02_a_kept_connection_that_went_stale_does_not_cost_the_conversation_its_node() {
    for _ in 0..10 {
        let pair = Pair::new(Dialect::Ollama).await;
        pair.home.next(Script::resetting());

        let reply = finished(&pair.gate, &pair.talk).await;

        if pair.home.request(0).await.peer != pair.home.request(1).await.peer {
            // The answer was here before its connection was back among the kept ones; nothing was stale.
            continue;
        }
        assert_eq!(reply.status, 200);
        assert_eq!(reply.node(), pair.home.name(), "asked again on a fresh connection");
        assert_eq!(reply.header("x-fleet-attempts"), Some("1"), "which is no attempt of its own");
        assert_eq!(reply.affinity(), "session");
        return;
    }
    panic!("the opening's connection was never used again");
}

#[tokio::test]
async fn ret_09_affinity_does_not_pick_the_same_broken_node_again() {
    let mut pair = Pair::new(Dialect::Ollama).await;
    pair.home.kill().await;
    let moved = finished(&pair.gate, &pair.talk).await;
    pair.home.revive();

    let talk = pair.talk.clone().then("Since when?");
    let after = finished(&pair.gate, &talk).await;

    assert_eq!(moved.affinity(), "moved");
    assert_eq!(after.node(), pair.away.name(), "bound to where it went");
    assert_eq!(pair.home.count(), 1, "nothing but the opening went to the broken node");
}

#[tokio::test]
async fn ret_10_client_mistakes_pass_through_and_do_not_count() {
    let pair = Pair::new(Dialect::OpenAi).await;
    let mistake = json!({"error": {"message": "too long", "type": "invalid_request_error"}});
    for n in 0..20 {
        pair.home.next(Script::json(400, &mistake));
        let mut reply = pair.gate.send(&pair.talk.ask()).await;
        assert_eq!(reply.status, 400, "request {n}");
        assert_eq!(reply.json().await, mistake, "ret_14: the node's own words");
    }

    let reply = finished(&pair.gate, &pair.talk).await;

    assert_eq!(reply.status, 200);
    assert_eq!(reply.node(), pair.home.name(), "still the first choice");
    assert_eq!(pair.away.count(), 0, "nothing was sent elsewhere");
}

#[tokio::test]
async fn ret_12_a_model_that_is_gone_from_its_node_is_found_on_another() {
    let pair = Pair::new(Dialect::Ollama).await;
    let gone = json!({"error": "model 'moss:7b' not found"});
    pair.home.next(Script::json(404, &gone));

    let reply = finished(&pair.gate, &pair.talk).await;

    assert_second_attempt(&pair, &reply, "404");
}

async fn replays_intact(failure: Script) {
    let pair = Pair::new(Dialect::Ollama).await;
    let unread = failure.before_body;
    // A connection lost on the one kept from the opening may just have been stale: the node that holds
    // the conversation is asked once more, on a fresh one, before another is.
    pair.home.next(failure.clone());
    pair.home.next(failure);
    let request = large_turn(&pair);

    let mut reply = pair.gate.send(&request).await;
    reply.whole().await;

    assert_moved(&pair, &reply, "20 MiB");
    if !unread {
        assert_arrived(&pair.home.request(1).await.body, request.body(), "the first node");
    }
    assert_arrived(&pair.away.request(0).await.body, request.body(), "the other node");
    pair.gate.idle().await;
}

fn assert_second_attempt(pair: &Pair, reply: &Reply, case: &str) {
    assert_moved(pair, reply, case);
    assert_eq!(pair.home.count(), 2, "{case}: the opening and the attempt");
}

fn assert_moved(pair: &Pair, reply: &Reply, case: &str) {
    assert_eq!(reply.status, 200, "{case}");
    assert_eq!(reply.node(), pair.away.name(), "{case}");
    assert_eq!(reply.header("x-fleet-attempts"), Some("2"), "{case}");
    assert_eq!(pair.away.count(), 1, "{case}: at the other node");
}

fn assert_arrived(got: &Bytes, sent: &Bytes, where_to: &str) {
    let hash = |bytes: &Bytes| xxhash_rust::xxh3::xxh3_128(bytes);
    assert_eq!(got.len(), sent.len(), "length at {where_to}");
    assert!(hash(got) == hash(sent), "same length, other bytes at {where_to}");
}

/// The next turn of the pair's conversation, with an image that makes it large.
fn large_turn(pair: &Pair) -> Request {
    pair.talk.clone().with_picture(LARGE_BYTES).ask()
}
