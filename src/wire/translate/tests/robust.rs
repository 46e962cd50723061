//! Any bytes, cut anywhere.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::*;

const STREAMED: [Endpoint; 4] =
    [Endpoint::OllamaChat, Endpoint::OllamaGenerate, Endpoint::OllamaEmbed, Endpoint::OllamaEmbeddings];

/// What streams are made of, whole and broken.
const EVENTS: [&str; 14] = [
    "data: {\"choices\":[{\"delta\":{\"content\":\"語🦀 \\ud83e\\udd80 \\ud83e\"}}]}",
    "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm\"}}]}",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}",
    "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\" \"}}]},\"finish_reason\":\"tool_calls\"}]}",
    "data: {\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1}}",
    "data: {\"choices\":\ndata: []}",
    "data: {\"error\":\"x\"}",
    "data: [DONE]",
    ": ping",
    "event: error",
    "\n",
    "\r\n\r\n",
    "\r",
    "data: {",
];

/// Fields that requests are made of, and what stands in them, sensible or not.
const FIELDS: [&str; 20] = [
    "model",
    "messages",
    "prompt",
    "input",
    "system",
    "images",
    "tools",
    "format",
    "think",
    "options",
    "stream",
    "raw",
    "context",
    "keep_alive",
    "max_tokens",
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "zig",
];
const VALUES: [&str; 16] = [
    "null",
    "true",
    "false",
    "0",
    "-1e999",
    "\"\"",
    "\"x\"",
    "\"\\ud83e\"",
    "\"iVBORw0KGgoAAAAN\"",
    "[]",
    "[[[[]]]]",
    "[\"iVBORw0KGgoAAAAN\"]",
    "{}",
    "{\"num_predict\": 1e999, \"stop\": [{}]}",
    "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"index\":[]}}]},{\"role\":\"tool\"}]",
    "[{\"role\":\"user\",\"content\":{},\"images\":null,\"name\":1}]",
];

/// Cuts into chunks of the given sizes, the last of what is left.
fn cut<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = vec![];
    for &size in sizes {
        let (chunk, rest) = bytes.split_at(size.min(bytes.len()));
        chunks.push(chunk);
        bytes = rest;
    }
    chunks.push(bytes);
    chunks
}

proptest! {
    #[test]
    fn chunking_does_not_change_the_output(
        events in prop::collection::vec(prop::sample::select(&EVENTS[..]), 0..20),
        separator in prop::sample::select(&["\n\n", "\r\n\r\n", "\r\r", "\n"][..]),
        sizes in prop::collection::vec(0..40_usize, 0..60),
        endpoint in prop::sample::select(&STREAMED[..]),
        content_type in prop::sample::select(&[SSE, JSON][..]),
    ) {
        let bytes = events.join(separator).into_bytes();
        let whole = translated(endpoint, 200, content_type, &[&bytes]);
        prop_assert_eq!(&translated(endpoint, 200, content_type, &cut(&bytes, &sizes)), &whole);
        let closing = String::from_utf8_lossy(&whole.bytes).matches("\"done\":true").count();
        prop_assert!(closing <= usize::from(whole.end == End::Whole), "closed though not complete");
    }

    #[test]
    fn no_answer_makes_it_panic(bytes: Vec<u8>, status in 100..600_u16, endpoint in prop::sample::select(&STREAMED[..])) {
        for content_type in [SSE, JSON] {
            let ending = translated(endpoint, status, content_type, &[&bytes]);
            prop_assert!(ending.end == End::Whole || !String::from_utf8_lossy(&ending.bytes).contains("\"done\":true"));
        }
    }

    #[test]
    fn no_request_makes_it_panic(bytes: Vec<u8>, endpoint in prop::sample::select(&Endpoint::ALL[..])) {
        prop_assert!(request(endpoint, &bytes, "m").is_err());
    }

    #[test]
    fn every_request_is_refused_or_becomes_an_object(
        members in prop::collection::vec((prop::sample::select(&FIELDS[..]), prop::sample::select(&VALUES[..])), 0..8),
        endpoint in prop::sample::select(&STREAMED[..]),
    ) {
        let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let body = format!("{{{}}}", members.join(","));
        if let Ok(Translated::Call(call)) = request(endpoint, body.as_bytes(), "m") {
            prop_assert!(serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(&call.body).is_ok(), "{}", body);
        }
    }

    #[test]
    fn any_text_arrives_as_it_was_said(text: String) {
        let event = format!("data: {}\n\n", serde_json::json!({"choices": [{"delta": {"content": &text}}]}));
        let told = lines(&translated(Endpoint::OllamaChat, 200, SSE, &[event.as_bytes(), b"data: [DONE]\n\n"]).bytes);
        let said: String = told.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
        prop_assert_eq!(said, text.clone());

        let body = serde_json::json!({"messages": [{"role": "user", "content": &text}]});
        prop_assert_eq!(&call(Endpoint::OllamaChat, &body).1["messages"][0]["content"], &serde_json::json!(text));
    }
}
