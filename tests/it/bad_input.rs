//! Bad input gets the answers of the contract's table, in the caller's dialect, and reaches no node.

use bytes::Bytes;
use serde_json::json;

use crate::client::{Reply, Request};
use crate::rig::Single;
use crate::talk::{Dialect, MODEL, Talk};

#[tokio::test]
async fn bod_10_what_is_not_json_is_400() {
    for body in ["moss", r#"{"model":"moss:7b","#, "[1,2]", "null", "\u{0}"] {
        refused(body, 400, body).await;
    }
}

#[tokio::test]
async fn an_empty_body_is_400() {
    refused("", 400, "empty").await;
    refused(" ", 400, "blank").await;
}

#[tokio::test]
async fn a_missing_model_is_400_and_says_so() {
    for (dialect, sentence) in refused(r#"{"messages":[]}"#, 400, "no model").await {
        assert!(sentence.contains("model"), "{dialect:?}: {sentence}");
    }
}

#[tokio::test]
async fn a_model_that_is_no_string_is_400() {
    for model in ["42", "null", "{}", r#"["moss:7b"]"#, "true", r#""""#] {
        let body = format!(r#"{{"model":{model},"messages":[]}}"#);
        refused(&body, 400, model).await;
    }
}

#[tokio::test]
async fn two_model_keys_are_400() {
    let body = r#"{"model":"moss:7b","messages":[],"model":"fern:3b"}"#;
    refused(body, 400, "two models").await;
}

#[tokio::test]
async fn bod_10_deep_nesting_is_400_and_no_crash() {
    let deep = "[".repeat(10_000);
    let closed = format!("{deep}{}", "]".repeat(10_000));
    for nested in [deep.as_str(), &closed] {
        let body = format!(r#"{{"model":"{MODEL}","messages":{nested}}}"#);
        refused(&body, 400, "nested").await;
    }
}

#[tokio::test]
async fn an_unknown_model_is_404_in_the_engine_s_words_with_the_nearest_names() {
    let body = r#"{"model":"mos:7b","messages":[{"role":"user","content":"moss?"}]}"#;
    for (dialect, sentence) in refused(body, 404, "unknown model").await {
        assert!(sentence.starts_with("model 'mos:7b' not found"), "{dialect:?}: {sentence}");
        assert!(sentence.contains(MODEL), "{dialect:?}: no near name: {sentence}");
    }
}

#[tokio::test]
async fn a_model_named_after_a_10_mib_field_is_found() {
    for dialect in Dialect::BOTH {
        let single = Single::new().await;
        let filler = "m".repeat(10 << 20);
        let body = format!(r#"{{"filler":"{filler}","messages":[],"model":"{MODEL}"}}"#);

        let mut reply = single.gate.post(dialect.chat_path(), body).await;
        reply.whole().await;

        assert_eq!(reply.status, 200, "{dialect:?}");
        assert_eq!(reply.node(), "n1", "{dialect:?}");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_a_readable_413() {
    for dialect in Dialect::BOTH {
        let single = Single::with("limits: {body: 1MiB}").await;
        let talk = Talk::about(dialect, "moss").with_picture(8 << 20);
        let by_length = talk.ask();
        let chunked = by_length.clone().chunked(65_536);

        for (framing, request) in [("by length", by_length), ("chunked", chunked)] {
            let reply = single.gate.send(&request).await;
            let sentence = assert_refusal(reply, 413, dialect, framing).await;
            assert!(sentence.contains("1MiB"), "the limit in {sentence:?}");
        }
        assert_eq!(single.node.count(), 0, "{dialect:?}");
    }
}

#[tokio::test]
async fn the_wrong_method_is_405_and_names_the_right_one() {
    let single = Single::new().await;
    for dialect in Dialect::BOTH {
        for method in ["GET", "PUT", "DELETE"] {
            let request = Request::new(method, dialect.chat_path());
            let reply = single.gate.send(&request).await;
            assert_eq!(reply.header("allow"), Some("POST"), "{method} {dialect:?}");
            assert_refusal(reply, 405, dialect, method).await;
        }
    }
    let reply = single.gate.post("/api/tags", "{}").await;
    assert_refusal(reply, 405, Dialect::Ollama, "POST /api/tags").await;
    assert_eq!(single.node.count(), 0);
}

#[tokio::test]
async fn an_unknown_path_is_404_in_the_dialect_of_its_neighbours() {
    let single = Single::new().await;
    let paths = [("/api/nothing", Dialect::Ollama), ("/nothing", Dialect::Ollama), ("/v1/nothing", Dialect::OpenAi)];
    for (path, dialect) in paths {
        let reply = single.gate.post(path, "{}").await;
        assert_refusal(reply, 404, dialect, path).await;
    }
    assert_eq!(single.node.count(), 0);
}

#[tokio::test]
async fn bod_10_a_byte_order_mark_is_no_mistake() {
    let single = Single::new().await;
    let body = json!({"model": MODEL, "messages": []});
    let reply = single.gate.post("/api/chat", format!("\u{feff}{body}")).await;
    assert_eq!(reply.status, 200);
}

/// Sends the body in both dialects; both must refuse it, with no node asked and the gate alive.
async fn refused(body: &str, status: u16, case: &str) -> [(Dialect, String); 2] {
    let mut single = Single::new().await;
    let mut sentences = Vec::new();
    for dialect in Dialect::BOTH {
        let bytes = Bytes::copy_from_slice(body.as_bytes());
        let reply = single.gate.post(dialect.chat_path(), bytes).await;
        sentences.push((dialect, assert_refusal(reply, status, dialect, case).await));
    }
    assert_eq!(single.node.count(), 0, "{case}: a node was asked");
    assert!(single.gate.lives(), "{case}: the gate has died");
    sentences.try_into().expect("one for each dialect")
}

/// The status, and the sentence in the dialect's form.
async fn assert_refusal(mut reply: Reply, status: u16, dialect: Dialect, case: &str) -> String {
    let body = reply.json().await;
    assert_eq!(reply.status, status, "{case}, {dialect:?}: {body}");
    let sentence = dialect.error_text(&body);
    let sentence = sentence.unwrap_or_else(|| panic!("{case}, {dialect:?}: form of {body}"));
    assert!(sentence.len() > 10, "{case}, {dialect:?}: says nothing: {sentence:?}");
    sentence.to_owned()
}
