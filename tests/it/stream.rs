//! Streams arrive as they are written: each chunk at once, as many as there were, byte for byte.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;

use crate::rig::Single;
use crate::talk::{Dialect, Talk};
use crate::upstream::{Hold, Script};

const FRAMES: usize = 10;

#[tokio::test]
async fn str_01_each_chunk_arrives_before_the_next_is_written() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let hold = Hold::new();
        single.node.next(stepwise(dialect, &hold));
        let mut reply = single.gate.send(&talk(dialect).ask()).await;

        for n in 0..FRAMES {
            hold.release(1);
            let piece = reply.expect_piece().await;
            assert_eq!(piece, frame(dialect, n), "{dialect:?}: one write, one piece");
        }
        hold.release(1);
        let end = reply.piece().await.expect("a clean end");
        assert_eq!(end, None, "{dialect:?}: as many pieces as writes");
    }
}

#[tokio::test]
async fn str_01_a_chunk_takes_no_longer_than_its_way() {
    let dialect = Dialect::OpenAi;
    let single = Single::new().await;
    let hold = Hold::new();
    single.node.next(stepwise(dialect, &hold));
    let mut reply = single.gate.send(&talk(dialect).ask()).await;

    let mut slowest = Duration::ZERO;
    for _ in 0..FRAMES {
        let started = Instant::now();
        hold.release(1);
        reply.expect_piece().await;
        slowest = slowest.max(started.elapsed());
    }
    assert!(slowest < Duration::from_millis(50), "slowest chunk: {slowest:?}");
}

#[tokio::test]
async fn str_01_outer_proxies_are_told_not_to_hold_streams() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let reply = single.gate.send(&talk(dialect).ask()).await;
        assert_eq!(reply.header("x-accel-buffering"), Some("no"), "{dialect:?}");
        assert_eq!(reply.header("cache-control"), Some("no-cache"), "{dialect:?}");
    }
}

#[tokio::test]
async fn str_03_characters_cut_at_every_byte_arrive_intact() {
    let single = Single::new().await;
    let frame = Dialect::OpenAi.frame("\u{1f33f} \u{82d4}\u{3068}\u{6c34}");
    let bytes = frame.chunks(1).map(Bytes::copy_from_slice);
    let script = bytes.fold(Script::sse(), Script::chunk).finish();
    single.node.next(script);

    let mut reply = single.gate.send(&talk(Dialect::OpenAi).ask()).await;

    assert_eq!(reply.whole().await, frame);
}

#[tokio::test]
async fn str_04_lines_that_do_not_match_chunks_arrive_intact() {
    let single = Single::new().await;
    let frames: Vec<Bytes> = (0..3).map(|n| frame(Dialect::Ollama, n)).collect();
    let mut whole = frames.concat();
    whole.pop();
    let cut = frames[0].len() + frames[1].len() + 9;
    let script = Script::ndjson().chunk(whole[..cut].to_vec());
    single.node.next(script.chunk(whole[cut..].to_vec()).finish());

    let mut reply = single.gate.send(&talk(Dialect::Ollama).ask()).await;

    assert_eq!(reply.whole().await, whole);
}

#[tokio::test]
async fn str_06_one_very_large_event_arrives_intact() {
    let single = Single::new().await;
    let large = Dialect::OpenAi.frame(&"m".repeat(4 << 20));
    let script = Script::sse().chunk(large.clone()).chunk("data: [DONE]\n\n");
    single.node.next(script.finish());

    let mut reply = single.gate.send(&talk(Dialect::OpenAi).ask()).await;

    let expected = [large.as_ref(), b"data: [DONE]\n\n"].concat();
    assert!(reply.whole().await == expected, "other bytes than the node wrote");
}

#[tokio::test]
async fn str_07_comments_and_unknown_events_pass() {
    let single = Single::new().await;
    let text = ":\n\n: wait\n\nevent: zig\ndata: {}\n\ndata: [DONE]\n\n";
    single.node.next(Script::sse().chunk(text).finish());

    let mut reply = single.gate.send(&talk(Dialect::OpenAi).ask()).await;

    assert_eq!(reply.whole().await, text);
}

#[tokio::test]
async fn str_11_an_error_inside_a_stream_passes_unchanged() {
    let single = Single::new().await;
    let error = "{\"error\":\"runner stopped\"}\n";
    let script = Script::ndjson().chunk(frame(Dialect::Ollama, 0));
    single.node.next(script.chunk(error).finish());

    let mut reply = single.gate.send(&talk(Dialect::Ollama).ask()).await;

    let expected = [frame(Dialect::Ollama, 0).as_ref(), error.as_bytes()].concat();
    assert_eq!(reply.whole().await, expected);
}

#[tokio::test]
async fn str_14_a_stream_that_nobody_asked_for_in_words_comes_piece_by_piece() {
    let single = Single::new().await;
    let hold = Hold::new();
    single.node.next(stepwise(Dialect::Ollama, &hold));
    let request = talk(Dialect::Ollama).ask_with(json!({}));
    let mut reply = single.gate.send(&request).await;

    hold.release(1);

    assert_eq!(reply.expect_piece().await, frame(Dialect::Ollama, 0));
}

#[tokio::test]
async fn str_16_blanks_before_a_plain_answer_arrive_at_once() {
    let single = Single::new().await;
    let hold = Hold::new();
    let script = Script::json_of_any_length(200).chunk(" ").hold(&hold);
    single.node.next(script.chunk(" {}").finish());
    let request = talk(Dialect::OpenAi).ask_with(json!({"stream": false}));
    let mut reply = single.gate.send(&request).await;

    assert_eq!(reply.expect_piece().await, " ");
    hold.open();
    assert_eq!(reply.whole().await, " {}");
}

/// A stream that waits before each frame, and before its end.
fn stepwise(dialect: Dialect, hold: &Hold) -> Script {
    let frames = (0..FRAMES).map(|n| frame(dialect, n));
    let script = frames.fold(dialect.stream(), |s, f| s.hold(hold).chunk(f));
    script.hold(hold).finish()
}

fn frame(dialect: Dialect, n: usize) -> Bytes {
    dialect.frame(&format!("word{n} "))
}

fn talk(dialect: Dialect) -> Talk {
    Talk::about(dialect, "moss")
}
