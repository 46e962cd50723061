//! Anthropic's messages, OpenAI's Responses and what is asked for besides talk.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::chain::{chain, chat, message};
use super::spelling::whim;
use super::*;
use crate::routing::chain::{Chain, PIECE_CHARS, hash_text};

fn anthropic(messages: Value) -> Chain {
    chain(Endpoint::AnthropicMessages, &json!({"model": "m", "max_tokens": 9, "messages": messages}))
}

fn responses(input: Value) -> Chain {
    chain(Endpoint::OpenAiResponses, &json!({"model": "m", "input": input}))
}

#[track_caller]
fn check_differ(a: Chain, b: Chain) {
    assert_ne!(a.end().unwrap().hash, b.end().unwrap().hash);
}

#[test]
fn a_text_talk_has_the_same_chain_in_every_dialect() {
    let talk = [json!({"role": "user", "content": "Who?"}), json!({"role": "assistant", "content": "I."})];
    let inside = chat(json!([{"role": "system", "content": "Be brief."}, talk[0], talk[1]]));
    let cached = json!([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]);
    for system in [json!("Be brief."), cached] {
        let body = json!({"model": "m", "system": system, "messages": talk, "max_tokens": 9});
        assert_eq!(chain(Endpoint::AnthropicMessages, &body), inside);
    }
    let items = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Who?"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "I.", "annotations": []}]},
    ]);
    for input in [items, json!(talk)] {
        let body = json!({"model": "m", "instructions": "Be brief.", "input": input});
        assert_eq!(chain(Endpoint::OpenAiResponses, &body), inside);
    }
    assert_eq!(responses(json!("Who?")), chat(json!([talk[0]])));
    assert_eq!(inside.root, 1);
}

#[test]
fn claude_codes_billing_line_and_cache_marks_do_not_enter() {
    let turn = |line: &str, mark: Value| {
        let system = json!([{"type": "text", "text": line}, {"type": "text", "text": "You are a coder."}]);
        let content = json!([{"type": "text", "text": "Hi", "cache_control": mark}]);
        let body = json!({"model": "m", "system": system, "messages": [{"role": "user", "content": content}]});
        chain(Endpoint::AnthropicMessages, &body)
    };
    let one = turn("x-anthropic-billing-header: cc_version=2; cch=a1b2c;", json!({"type": "ephemeral"}));
    assert_eq!(one, turn("x-anthropic-billing-header: cc_version=2; cch=00000;", json!(null)));
    assert_ne!(one, turn("Another first line.", json!(null)));
}

#[test]
fn a_tools_call_and_result_are_in_the_chain() {
    let call = |input: Value| {
        let call = json!({"type": "tool_use", "id": "t1", "name": "read", "input": input});
        anthropic(json!([{"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, call]}]))
    };
    check_differ(call(json!({"path": "a"})), call(json!({"path": "b"})));
    let result = |id: &str, content: Value| {
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": content});
        anthropic(json!([{"role": "user", "content": [result]}]))
    };
    check_differ(result("t1", json!("a")), result("t1", json!("b")));
    check_differ(result("t1", json!("a")), result("t2", json!("a")));
    assert_eq!(result("t1", json!("a")), result("t1", json!([{"type": "text", "text": "a"}])));
    let long = result("t1", json!("x".repeat(2 * PIECE_CHARS + 1)));
    assert_eq!(long.links.len(), 3, "a long result is cut into pieces");
}

#[test]
fn images_are_needed_wherever_they_stand() {
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let beside = json!([image, {"type": "text", "text": "What?"}]);
    let within = json!([{"type": "tool_result", "tool_use_id": "t1", "content": [image]}]);
    for content in [beside.clone(), within] {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": content}]});
        assert!(ask(Endpoint::AnthropicMessages, &body.to_string()).needs.vision, "{content}");
    }
    let ollama = json!([{"role": "user", "content": "What?", "images": ["AAAA"]}]);
    assert_eq!(anthropic(json!([{"role": "user", "content": beside}])), chat(ollama));
    let file = |id: &str| responses(json!([{"role": "user", "content": [{"type": "input_image", "file_id": id}]}]));
    check_differ(file("f1"), file("f2"));
}

#[test]
fn items_of_a_response_are_in_the_chain() {
    let call = json!({"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{\"path\":\"a\"}"});
    let output = json!({"type": "function_call_output", "call_id": "c1", "output": "text"});
    let question = json!({"role": "user", "content": "Who?"});
    let said = responses(json!([question, call, output]));
    assert_eq!(said.links.len(), 3);
    for (at, field, other) in [
        (1, "name", json!("write")),
        (1, "arguments", json!("{}")),
        (1, "call_id", json!("c2")),
        (2, "output", json!("other")),
        (2, "type", json!("custom_tool_call_output")),
    ] {
        let mut items = json!([question, call, output]);
        items[at][field] = other;
        check_differ(said.clone(), responses(items));
    }
    let thought = json!({
        "type": "reasoning", "id": "rs_1", "encrypted_content": "AAAA", "summary": [{"type": "summary_text", "text": "s"}],
        "content": [{"type": "reasoning_text", "text": "x".repeat(PIECE_CHARS)}],
    });
    assert_eq!(responses(json!([question, thought, call, output])), said);
}

#[test]
fn a_response_says_what_it_goes_on_from_and_how_far() {
    let read = |fields: &str| ask(Endpoint::OpenAiResponses, &format!(r#"{{"model":"m",{fields}}}"#));
    let next = read(r#""previous_response_id":"resp_1","max_output_tokens":7,"prompt_cache_key":"k","tools":[{}]"#);
    assert_eq!(next.previous_response, Some(hash_text("resp_1")));
    assert_eq!((next.max_output_tokens, next.session_name), (Some(7), Some(hash_text("k"))));
    assert!(next.needs.tools && !next.stream);
    assert_eq!(read(r#""previous_response_id":null"#).previous_response, None);
    assert_eq!(ask(Endpoint::OpenAiChat, r#"{"model":"m","previous_response_id":"r"}"#).previous_response, None);
}

#[test]
fn tokens_are_estimated_where_there_is_no_talk() {
    use Endpoint::*;
    check_tokens(AnthropicCountTokens, r#""system":"abcd","messages":[{"role":"user","content":"abcdefgh"}]"#, 11);
    check_tokens(OpenAiRerank, r#""query":"abcd","documents":["abcdefgh",{"text":"abcd","title":"x"}]"#, 4);
    check_tokens(OpenAiSpeech, r#""input":"abcdefgh","voice":"x""#, 2);
    check_tokens(OpenAiResponses, r#""input":"abcdefgh""#, 6);
}

/// Messages without anything but text, in roles that every dialect has.
fn text_talk() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(message(), 1..5).prop_map(|talk| {
        let spoken = |message: &Value| matches!(message["role"].as_str(), Some("user" | "assistant"));
        let text_only = |m: Value| json!({"role": m["role"], "content": m["content"]});
        talk.into_iter().filter(spoken).map(text_only).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_dialect_or_spelling_changes_a_text_talk(talk in text_talk(), mut whim in whim()) {
        let messages = [vec![json!({"role": "system", "content": "Be brief."})], talk.clone()].concat();
        let expected = chat(json!(messages));
        let anthropic = json!({"model": "m", "system": "Be brief.", "messages": talk});
        prop_assert_eq!(&ask(Endpoint::AnthropicMessages, &whim.spell(&anthropic)).chain, &expected);
        let responses = json!({"model": "m", "instructions": "Be brief.", "input": talk});
        prop_assert_eq!(&ask(Endpoint::OpenAiResponses, &whim.spell(&responses)).chain, &expected);
    }
}
