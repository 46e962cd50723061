//! A stream that its node cuts must look cut to the client, and the next turn must be fine.

use bytes::Bytes;
use serde_json::Value;

use crate::rig::{Pair, Single, finished};
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script};

#[tokio::test]
async fn str_10_a_node_killed_mid_stream_ends_the_stream_with_an_error_frame() {
    for dialect in Dialect::BOTH {
        let mut pair = Pair::new(dialect).await;
        let hold = Hold::new();
        pair.home.next(three_frames(dialect).hold(&hold));
        let mut reply = pair.gate.send(&pair.talk.ask()).await;
        for n in 0..3 {
            let piece = reply.expect_piece().await;
            assert_eq!(piece, dialect.frame(&format!("word{n} ")), "{dialect:?}");
        }

        pair.home.kill().await;
        let (rest, _) = reply.rest().await;
        let next = finished(&pair.gate, &pair.talk).await;

        assert_error_frame(dialect, &rest);
        assert_eq!(next.status, 200, "{dialect:?}: the next turn");
        assert_eq!(next.node(), pair.away.name(), "{dialect:?}: the next turn");
        assert_eq!(next.affinity(), "moved", "{dialect:?}: the next turn");
        pair.gate.idle().await;
    }
}

#[tokio::test]
async fn str_10_a_reset_mid_stream_is_an_error_frame_too() {
    for dialect in Dialect::BOTH {
        let pair = Pair::new(dialect).await;
        let hold = Hold::new();
        pair.home.next(three_frames(dialect).hold(&hold).reset());
        let mut reply = pair.gate.send(&pair.talk.ask()).await;
        for _ in 0..3 {
            reply.expect_piece().await;
        }

        hold.open();
        let (rest, _) = reply.rest().await;

        assert_error_frame(dialect, &rest);
        assert_eq!(pair.away.count(), 0, "ret_03: nothing is sent again");
        pair.gate.idle().await;
    }
}

#[tokio::test]
async fn str_10_a_frame_cut_in_its_middle_does_not_swallow_the_error_frame() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let half = dialect.frame("never finished").slice(..20);
        single.node.next(dialect.stream().chunk(half.clone()).close());
        let mut reply = single.gate.send(&Talk::about(dialect, "moss").ask()).await;

        let (got, _) = reply.rest().await;

        let rest = got.strip_prefix(half.as_ref());
        let rest = rest.unwrap_or_else(|| panic!("{dialect:?}: what came is gone: {got:?}"));
        assert_error_frame(dialect, &Bytes::copy_from_slice(rest));
    }
}

#[tokio::test]
async fn str_10_an_answer_shorter_than_its_length_fails_for_the_client() {
    let single = Single::new().await;
    let some = Bytes::from(vec![b' '; 300]);
    single.node.next(Script::json_head(200, 900).chunk(some).close());
    let request = Talk::about(Dialect::OpenAi, "moss").ask();
    let mut reply = single.gate.send(&request).await;

    let (got, end) = reply.rest().await;

    assert!(end.is_err(), "300 of 900 bytes passed as whole: {got:?}");
    single.gate.idle().await;
}

#[tokio::test]
async fn str_10_a_stream_that_ends_with_its_connection_is_cut_unless_it_says_that_it_is_done() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let request = Talk::about(dialect, "moss").ask();
        let hold = Hold::new();
        single.node.next(three_frames(dialect).hold(&hold).until_close());
        let mut reply = single.gate.send(&request).await;
        reply.expect_piece().await;
        hold.open();
        let (cut, _) = reply.rest().await;
        assert_error_frame(dialect, &cut);

        single.node.next(three_frames(dialect).chunk(dialect.last_frame()).until_close());
        let whole = single.gate.send(&request).await.whole().await;
        assert!(whole.ends_with(&dialect.last_frame()), "{dialect:?}: {whole:?}");
        single.gate.idle().await;
    }
}

fn three_frames(dialect: Dialect) -> Script {
    (0..3).fold(dialect.stream(), |script, n| script.chunk(dialect.frame(&format!("word{n} "))))
}

/// Exactly one more frame, an error in the dialect's form, and nothing that looks like an end.
fn assert_error_frame(dialect: Dialect, rest: &[u8]) {
    let text = String::from_utf8_lossy(rest);
    assert!(!text.contains("[DONE]"), "{dialect:?}: a clean end: {text}");
    let frames: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    let last = frames.last().copied().unwrap_or_default();
    let json = match dialect {
        Dialect::Ollama => last,
        Dialect::OpenAi => last.strip_prefix("data:").unwrap_or_default(),
    };
    let error: Value = serde_json::from_str(json).unwrap_or_default();
    let sentence = dialect.error_text(&error);
    assert!(sentence.is_some(), "{dialect:?}: no error frame in: {text:?}");
    assert_ne!(error["done"], true, "{dialect:?}: a clean end: {text}");
}
