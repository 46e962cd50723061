//! Request bodies arrive as they were sent, whatever their size, framing and coding.

use std::io::Write;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;

use crate::client::{Reply, Request};
use crate::gate::{Gate, Settings};
use crate::rig::{Single, node};
use crate::talk::{Dialect, MODEL, Talk};
use crate::upstream::{Hold, Model, Record, Script, Upstream};

#[tokio::test]
async fn bod_01_20_mib_of_pictures_arrive_intact() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let talk = Talk::about(dialect, "moss").with_picture(20 * 1024 * 1024);
        let request = talk.ask();

        let mut reply = single.gate.send(&request).await;
        reply.whole().await;

        assert_eq!(reply.status, 200, "{dialect:?}");
        assert_same(&single.node.request(0).await, request.body(), "20 MiB");
    }
}

#[tokio::test]
async fn bod_01_one_limit_holds_on_every_path_and_is_named() {
    let single = Single::with("limits: {body: 1MiB}").await;
    for path in ["/api/chat", "/api/embed", "/v1/chat/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"] {
        let large = chat_of_size(800_000);
        let mut served = single.gate.post(path, large.clone()).await;
        served.whole().await;
        assert_eq!(served.status, 200, "{path}");
        assert_same(&single.node.request(single.node.count() - 1).await, &large, path);

        for framed in
            [Request::post(path, chat_of_size(2 << 20)), Request::post(path, chat_of_size(2 << 20)).chunked(65_536)]
        {
            let mut refused = single.gate.send(&framed).await;
            assert_eq!(refused.status, 413, "{path}");
            assert_eq!(refused.header("content-type"), Some("application/json"), "{path}");
            let text = refused.json().await.to_string();
            assert!(text.contains("1MiB"), "{path}: {text}");
        }
    }
    assert_eq!(single.node.count(), 6, "what is refused is not sent on");
}

/// Once part of an answer is with its client nobody else is sent the request, however long the answer lasts.
#[tokio::test]
async fn a_body_is_let_go_of_when_its_answer_has_begun() {
    let single = Single::with("limits: {body: 1MiB, memory_for_bodies: 1MiB}").await;
    let (first, second) = (Hold::new(), Hold::new());
    let line = "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"done\":false}\n";
    single.node.next(Script::ndjson().chunk(line).hold(&first).chunk(line).hold(&second).finish());
    let mut open = single.gate.post("/api/chat", chat_of_size(700_000)).await;
    open.expect_piece().await;
    first.open();
    open.expect_piece().await;

    let mut other = single.gate.post("/api/chat", chat_of_size(700_000)).await;
    other.whole().await;

    assert_eq!((open.status, other.status), (200, 200), "the first one's body would leave no room");
    assert_same(&single.node.request(0).await, &chat_of_size(700_000), "the whole of it was sent");
}

#[tokio::test]
async fn bod_02_only_the_top_level_model_counts_and_escapes_are_understood() {
    let moss = node("moss").await;
    let fern = Upstream::ollama("fern", vec![Model::resident("fern:3b")]).await;
    let gate = Gate::start(&Settings::over(&[&moss, &fern])).await;
    let body = r#"{"messages":[{"role":"user","content":"use \"model\":\"moss:7b\""}],
        "metadata":{"model":"moss:7b"},"mod\u0065l":"fern:\u0033b"}"#;

    let mut reply = gate.post("/api/chat", body).await;
    reply.whole().await;

    assert_eq!(reply.status, 200);
    assert_eq!(fern.request(0).await.body, body.as_bytes());
    assert_eq!(moss.count(), 0);
}

#[tokio::test]
async fn bod_03_compressed_bodies_are_sent_on_plain() {
    let plain = Talk::about(Dialect::OpenAi, "moss").with_picture(6 << 20).ask();
    let plain = plain.body();
    for (coding, packed) in [("gzip", gzip(plain)), ("zstd", zstd(plain))] {
        let single = Single::new().await;
        let request = Request::post("/v1/chat/completions", packed);

        let mut reply = single.gate.send(&request.header("Content-Encoding", coding)).await;
        reply.whole().await;

        assert_eq!(reply.status, 200, "{coding}");
        let record = single.node.request(0).await;
        assert_same(&record, plain, coding);
        assert_eq!(record.head.get("content-encoding"), None, "{coding}");
    }
}

#[tokio::test]
async fn bod_03_a_body_that_unpacks_beyond_the_limit_is_413() {
    let single = Single::with("limits: {body: 8MiB}").await;
    let bomb = vec![b' '; 256 << 20];
    for (coding, packed) in [("gzip", gzip(&bomb)), ("zstd", zstd(&bomb))] {
        let started = Instant::now();
        let request = Request::post("/api/chat", packed).header("Content-Encoding", coding);

        let reply = single.gate.send(&request).await;

        assert_eq!(reply.status, 413, "{coding}");
        assert!(started.elapsed() < Duration::from_secs(1), "{coding}: slow to refuse");
        assert_eq!(single.node.count(), 0, "{coding}");
    }
}

#[tokio::test]
async fn bod_03_an_unknown_coding_is_415() {
    let single = Single::new().await;
    let request = Talk::about(Dialect::OpenAi, "moss").ask();

    let reply = single.gate.send(&request.header("Content-Encoding", "zig")).await;

    assert_eq!(reply.status, 415);
    assert_eq!(single.node.count(), 0);
}

#[tokio::test]
async fn bod_04_every_size_around_the_buffers_arrives_whole() {
    let single = Single::new().await;
    for (n, size) in [100, 65_535, 65_536, 65_537, 5_000_000].into_iter().enumerate() {
        let body = chat_of_size(size);
        let by_length = Request::post("/api/chat", body.clone());
        let chunked = by_length.clone().chunked(32_768);

        single.gate.send(&by_length).await.whole().await;
        single.gate.send(&chunked).await.whole().await;

        assert_same(&single.node.request(2 * n).await, &body, "by length");
        assert_same(&single.node.request(2 * n + 1).await, &body, "chunked");
    }
}

#[tokio::test]
async fn bod_05_one_byte_chunks_with_extension_and_trailer_are_one_body() {
    let single = Single::new().await;
    let body = chat_of_size(20_000);
    let mut raw = b"POST /api/chat HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for byte in &body {
        raw.extend_from_slice(b"1;note=x\r\n");
        raw.extend_from_slice(&[*byte, b'\r', b'\n']);
    }
    raw.extend_from_slice(b"0\r\nX-Note: x\r\n\r\n");

    let mut conn = single.gate.connect().await;
    conn.write(&raw).await;
    let reply = conn.reply(&Request::new("POST", "/api/chat")).await;

    assert_eq!(reply.status, 200);
    assert_same(&single.node.request(0).await, &body, "the node");
}

#[tokio::test]
async fn bod_05_chunks_without_end_are_413_at_the_limit() {
    let single = Single::with("limits: {body: 1MiB}").await;
    let mut conn = single.gate.connect().await;
    conn.write(b"POST /api/chat HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 65_536], b"\r\n"].concat();
    for _ in 0..20 {
        conn.write(&chunk).await;
    }

    let reply = conn.reply(&Request::post("/api/chat", "")).await;

    assert_eq!(reply.status, 413);
    assert_eq!(single.node.count(), 0);
}

#[tokio::test]
async fn bod_06_a_client_of_http_1_0_is_not_told_to_go_on() {
    let single = Single::new().await;
    let body = chat_of_size(2_000);
    let head = format!("POST /api/chat HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut conn = single.gate.connect().await;
    conn.write(head.as_bytes()).await;
    conn.write(&body).await;

    assert_eq!(conn.interim().await, 200, "the first status");
}

#[tokio::test]
async fn bod_06_an_expectation_is_answered_and_not_passed_on() {
    let single = Single::new().await;
    let body = chat_of_size(20_000);
    let request = Request::post("/api/chat", body.clone()).header("Expect", "100-continue");

    let mut conn = single.gate.connect().await;
    conn.send_head(&request).await;
    let interim = conn.interim().await;
    let mut reply = conn.send_body(&request).await;
    reply.whole().await;

    assert_eq!(interim, 100);
    assert_eq!(reply.status, 200);
    let record = single.node.request(0).await;
    assert_same(&record, &body, "the node");
    assert_eq!(record.head.get("expect"), None);
}

#[tokio::test]
async fn bod_06_an_expectation_of_too_much_is_413_at_once() {
    let single = Single::with("limits: {body: 1MiB}").await;
    let request = Request::post("/api/chat", vec![b' '; 2 << 20]);
    let request = request.header("Expect", "100-continue");

    let mut conn = single.gate.connect().await;
    conn.send_head(&request).await;

    assert_eq!(conn.interim().await, 413, "the first status, no byte of body sent");
}

#[tokio::test]
async fn bod_07_the_length_follows_another_name() {
    let long = "fern-3b-q4-a-long-name:latest";
    let node = Upstream::ollama("n1", vec![Model::resident(long), Model::resident("y:1")]).await;
    let names = format!(
        "models:\n  - {{name: fast, targets: [{{upstream: n1, model: \"{long}\"}}]}}\n  \
         - {{name: an-alias-that-is-longer, targets: [{{upstream: n1, model: \"y:1\"}}]}}"
    );
    let gate = Gate::start(&Settings::over(&[&node]).more(&names)).await;
    let body = |model: &str| {
        let text = "Grüße, 草木 and \\u00e4";
        format!(
            "{{ \"seed\":9007199254740993, \"model\" : \"{model}\", \"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}] }}"
        )
    };
    let mut asked = 0;
    for (alias, model) in [("fast", long), ("an-alias-that-is-longer", "y:1")] {
        let by_length = Request::post("/v1/chat/completions", body(alias));
        for request in [by_length.clone(), by_length.chunked(7)] {
            let mut reply = gate.send(&request).await;
            reply.whole().await;

            assert_eq!(reply.status, 200, "{alias}");
            assert_same(&node.request(asked).await, body(model).as_bytes(), alias);
            asked += 1;
        }
    }
}

#[tokio::test]
async fn bod_08_unknown_fields_odd_numbers_and_spaces_survive() {
    let single = Single::new().await;
    let body = concat!(
        "{ \"x_grammar\" : {\"a\":1}, \"seed\":9007199254740993,\n\t\"temperature\":0.10,",
        "\"messages\":[{\"content\":\"ein \\u00fc\",\"role\":\"user\"}],",
        "\"model\":\"moss:7b\",\"top_p\":1e0 }\n",
    );

    let reply = single.gate.post("/api/chat", body).await;

    assert_eq!(reply.status, 200);
    assert_same(&single.node.request(0).await, body.as_bytes(), "the node");
}

#[tokio::test]
async fn bod_11_the_model_decides_on_every_endpoint() {
    let moss = node("moss").await;
    let embed = Upstream::ollama("embed", vec![Model::resident("larch-embed:1b")]).await;
    let gate = Gate::start(&Settings::over(&[&moss, &embed])).await;
    let paths = [
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/embeddings",
        "/api/show",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
    ];
    for (n, path) in paths.into_iter().enumerate() {
        ask_for(&gate, path, MODEL).await.whole().await;
        ask_for(&gate, path, "larch-embed:1b").await.whole().await;

        assert_eq!(moss.request(n).await.path, path, "{MODEL}");
        assert_eq!(embed.request(n).await.path, path, "larch-embed:1b");
    }
}

async fn ask_for(gate: &Gate, path: &str, model: &str) -> Reply {
    let body = json!({
        "model": model,
        "messages": [{"role": "user", "content": "moss?"}],
        "prompt": "moss?",
        "input": "moss?",
        "stream": false,
    });
    let reply = gate.post(path, body.to_string()).await;
    assert_eq!(reply.status, 200, "{path} for {model}");
    reply
}

/// A chat of exactly that many bytes.
fn chat_of_size(size: usize) -> Bytes {
    let frame = |text: &str| format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let text = "m".repeat(size - frame("").len());
    frame(&text).into()
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(plain).expect("memory");
    packer.finish().expect("memory")
}

fn zstd(plain: &[u8]) -> Vec<u8> {
    zstd::encode_all(plain, 1).expect("memory")
}

/// The node received these bytes, framed in exactly one way.
fn assert_same(record: &Record, sent: &[u8], what: &str) {
    assert_eq!(record.body.len(), sent.len(), "length, {what}");
    let same = record.body_hash() == xxhash_rust::xxh3::xxh3_128(sent);
    assert!(same, "same length, other bytes: {what}");
    let lengths = record.head.count("content-length");
    let codings = record.head.count("transfer-encoding");
    assert_eq!(lengths + codings, 1, "framing, {what}: {:#?}", record.head);
}
