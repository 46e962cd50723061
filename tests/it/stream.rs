//! Streams arrive as they are written: each chunk at once, as many as there were, byte for byte.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;

use crate::client::{Reply, Request};
use crate::rig::Single;
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Script};

const FRAMES: usize = 10;

#[tokio::test]
async fn str_01_each_chunk_arrives_before_the_next_is_written() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let hold = Hold::new();
        single.node.next(stepwise(dialect, &hold));
        let mut reply = begun(&single, &talk(dialect).ask(), &hold).await;

        for n in 0..FRAMES {
            if n > 0 {
                hold.release(1);
            }
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
    let mut reply = begun(&single, &talk(dialect).ask(), &hold).await;
    reply.expect_piece().await;

    let mut took = Vec::new();
    for _ in 1..FRAMES {
        let started = Instant::now();
        hold.release(1);
        reply.expect_piece().await;
        took.push(started.elapsed());
    }
    took.sort();
    // A timer in the way would delay most of them; a busy machine delays some.
    let median = took[took.len() / 2];
    assert!(median < Duration::from_millis(30), "half of the chunks took longer than {median:?}");
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
async fn str_02_streams_are_never_compressed() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let hold = Hold::new();
        single.node.next(stepwise(dialect, &hold));
        let request = talk(dialect).ask().header("Accept-Encoding", "gzip, br");
        let mut reply = begun(&single, &request, &hold).await;

        assert_eq!(reply.header("content-encoding"), None, "{dialect:?}");
        for n in 0..FRAMES {
            assert_eq!(reply.expect_piece().await, frame(dialect, n), "{dialect:?}");
            hold.release(1);
        }
        assert_eq!(single.node.request(0).await.head.get("accept-encoding"), None, "{dialect:?}");
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
async fn str_04_counts_are_read_off_a_last_line_of_300_kb() {
    let single = Single::new().await;
    let context: Vec<u32> = (0..50_000).map(|n| 100_000 + n).collect();
    let last = json!({"model": MODEL, "done": true, "context": context, "prompt_eval_count": 12, "eval_count": 31});
    let whole = [frame(Dialect::Ollama, 0).as_ref(), last.to_string().as_bytes()].concat();
    assert!(whole.len() > 300_000);
    let writes = whole.chunks(1_001).map(Bytes::copy_from_slice);
    single.node.next(writes.fold(Script::ndjson(), Script::chunk).finish());

    let mut reply = single.gate.send(&talk(Dialect::Ollama).ask()).await;

    assert!(reply.whole().await == whole, "other bytes than the node wrote");
    assert_counted(&single, &reply, 12, 31).await;
}

#[tokio::test]
async fn str_05_every_form_of_events_passes_unchanged_and_is_understood() {
    let lf = format!(
        "data: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
        json!({"choices": [{"index": 0, "delta": {"content": "hi"}}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 31}}),
    );
    let crlf = lf.replace('\n', "\r\n");
    let split: Vec<String> = crlf.split_inclusive('\r').map(str::to_owned).collect();
    for writes in [vec![lf.clone()], vec![crlf], split, vec![lf.replace("data: ", "data:")]] {
        let single = Single::new().await;
        single.node.next(writes.iter().cloned().fold(Script::sse(), Script::chunk).finish());

        let mut reply = single.gate.send(&talk(Dialect::OpenAi).ask()).await;

        assert_eq!(reply.whole().await, writes.concat());
        assert_counted(&single, &reply, 12, 31).await;
    }
}

#[tokio::test]
async fn str_06_one_very_large_event_arrives_intact() {
    let single = Single::new().await;
    let large = Dialect::OpenAi.frame(&"m".repeat(4 << 20));
    let counts = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":31}}\n\n";
    let script = Script::sse().chunk(large.clone()).chunk(counts).chunk("data: [DONE]\n\n");
    single.node.next(script.finish());

    let mut reply = single.gate.send(&talk(Dialect::OpenAi).ask()).await;

    let expected = [large.as_ref(), counts.as_bytes(), b"data: [DONE]\n\n"].concat();
    assert!(reply.whole().await == expected, "other bytes than the node wrote");
    assert_counted(&single, &reply, 12, 31).await;
}

#[tokio::test]
async fn str_07_comments_and_unknown_events_pass() {
    let single = Single::new().await;
    let text = ":\n\n:\n\n:\n\ndata: {}\n\n: wait\n\nevent: zig\ndata: {}\n\ndata: [DONE]\n\n";
    single.node.next(Script::sse().chunk(text).finish());

    let mut reply = single.gate.send(&talk(Dialect::OpenAi).ask()).await;

    assert_eq!(reply.whole().await, text);
}

#[tokio::test]
async fn str_07_a_stream_is_not_judged_by_its_content_type() {
    for content_type in ["application/x-ndjson", "text/plain", "application/octet-stream"] {
        let single = Single::new().await;
        single.node.next(Script::stream(content_type).chunk("{\"a\":1}\n").chunk("{\"b\":2}\n").finish());

        let mut reply = single.gate.send(&talk(Dialect::OpenAi).ask()).await;

        assert_eq!((reply.status, reply.header("content-type")), (200, Some(content_type)));
        assert_eq!(reply.whole().await, "{\"a\":1}\n{\"b\":2}\n");
    }
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
    assert_eq!(single.gate.receipt(reply.request_id()).await["outcome"], "stream_error");
}

#[tokio::test]
async fn str_13_no_end_marker_is_missed_and_none_is_added() {
    let stop = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}));
    let done = "data: [DONE]\n\n";
    for stream in [stop.clone(), format!("{stop}{done}")] {
        let single = Single::new().await;
        single.node.next(Script::sse().chunk(stream.clone()).finish());

        let mut reply = single.gate.send(&talk(Dialect::OpenAi).ask()).await;

        assert_eq!(reply.whole().await, stream);
        assert_eq!(single.gate.receipt(reply.request_id()).await["outcome"], "ok");
    }
}

#[tokio::test]
async fn str_14_a_stream_that_nobody_asked_for_in_words_comes_piece_by_piece() {
    let single = Single::new().await;
    let hold = Hold::new();
    single.node.next(stepwise(Dialect::Ollama, &hold));
    let request = talk(Dialect::Ollama).ask_with(json!({}));
    let mut reply = begun(&single, &request, &hold).await;

    assert_eq!(reply.expect_piece().await, frame(Dialect::Ollama, 0));
    hold.release(1);
    assert_eq!(reply.expect_piece().await, frame(Dialect::Ollama, 1));
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

#[tokio::test]
async fn str_15_readers_who_do_not_read_fill_no_memory() {
    let single = Single::new().await;
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let endless = (0..READERS_PIECES).fold(Script::sse(), |script, _| script.chunk(piece.clone()));
    let before = single.gate.memory_bytes();
    let mut readers = Vec::new();
    for _ in 0..READERS {
        single.node.next(endless.clone());
        let mut reply = single.gate.send(&talk(Dialect::OpenAi).ask()).await;
        reply.expect_piece().await;
        readers.push(reply);
    }

    // Others are served meanwhile, which gives the streams time to fill what there is to fill.
    for n in 0..20 {
        single.gate.send(&Talk::about(Dialect::Ollama, &format!("topic{n}")).ask()).await.whole().await;
    }

    let grown = single.gate.memory_bytes().saturating_sub(before);
    assert!(grown < READERS_BYTES_MAX, "memory grew by {grown} bytes");
    assert_eq!(single.node.in_flight(), READERS, "the node waits for room to write");
    drop(readers);
    single.gate.idle().await;
}

const READERS: usize = 5;
/// 256 MiB each, far more than the sockets between hold.
const READERS_PIECES: usize = 4096;
/// A quarter of one answer. The process grows by some 20 MiB with its first requests, whoever sends them.
const READERS_BYTES_MAX: u64 = 64 << 20;

#[tokio::test]
async fn str_17_a_client_of_http_1_0_gets_no_chunks_but_each_piece_at_once() {
    let single = Single::new().await;
    let hold = Hold::new();
    single.node.next(stepwise(Dialect::OpenAi, &hold));
    let body = json!({"model": MODEL, "prompt": "hello", "stream": true}).to_string();
    let mut conn = single.gate.connect().await;
    let head = format!("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    conn.write(head.as_bytes()).await;
    hold.release(1);

    let mut reply = conn.reply(&Request::post("/v1/completions", "")).await;

    assert_eq!((reply.status, reply.header("transfer-encoding")), (200, None));
    for n in 0..FRAMES {
        assert_eq!(reply.expect_piece().await, frame(Dialect::OpenAi, n));
        hold.release(1);
    }
    assert_eq!(reply.piece().await.expect("a close"), None);
}

/// The counts of that answer as Warmgate read them, and that it saw its end.
async fn assert_counted(single: &Single, reply: &Reply, prompt: u32, output: u32) {
    let receipt = single.gate.receipt(reply.request_id()).await;
    assert_eq!((&receipt["tokens"]["prompt"], &receipt["tokens"]["output"]), (&json!(prompt), &json!(output)));
    assert_eq!(receipt["outcome"], "ok");
}

/// The request's answer after the first step of its script.
async fn begun(single: &Single, request: &Request, hold: &Hold) -> Reply {
    let mut conn = single.gate.connect().await;
    conn.send(request).await;
    hold.release(1);
    conn.reply(request).await
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
