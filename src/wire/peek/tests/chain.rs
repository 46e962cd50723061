//! What enters a chain and what does not.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::spelling::whim;
use super::*;
use crate::routing::chain::{Chain, PIECE_CHARS};

pub fn chain(endpoint: Endpoint, body: &Value) -> Chain {
    ask(endpoint, &body.to_string()).chain
}

pub fn chat(messages: Value) -> Chain {
    chain(Endpoint::OpenAiChat, &json!({"model": "m", "messages": messages}))
}

fn prompt(prompt: &str) -> Chain {
    chain(Endpoint::OllamaGenerate, &json!({"model": "m", "prompt": prompt}))
}

fn ends(chain: &Chain) -> Vec<bool> {
    chain.links.iter().map(|link| link.ends_message).collect()
}

#[track_caller]
fn check_same(a: Value, b: Value) {
    assert_eq!(chat(a), chat(b));
}

#[track_caller]
fn check_differ(a: Value, b: Value) {
    assert_ne!(chat(a).end().unwrap().hash, chat(b).end().unwrap().hash);
}

#[test]
fn a_link_is_made_of_meaning() {
    check_same(
        json!([{"role": "user", "content": "a"}]),
        json!([{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]),
    );
    check_same(
        json!([{"role": "assistant", "content": "a"}]),
        json!([{"role": "assistant", "content": "a", "thinking": "b", "reasoning_content": "c", "reasoning": "d"}]),
    );
    let thought = json!({"type": "thinking", "thinking": "b", "signature": "c"});
    check_same(
        json!([{"role": "assistant", "content": [thought, {"type": "text", "text": "a"}]}]),
        json!([{"role": "assistant", "content": "a", "tool_calls": [], "cache_control": {}}]),
    );
    let call = json!([{"function": {"name": "f", "arguments": {"a": 1, "b": 2}}}]);
    check_same(
        json!([{"role": "assistant", "content": "", "tool_calls": call}]),
        json!([{"role": "assistant", "content": null, "tool_calls": call}]),
    );
}

#[test]
fn everything_that_is_said_is_in_the_link() {
    let said = json!([{"role": "tool", "content": "a", "tool_call_id": "1", "tool_name": "f", "images": ["AAAA"]}]);
    for (field, other) in [
        ("role", json!("user")),
        ("content", json!("b")),
        ("tool_call_id", json!("2")),
        ("tool_name", json!("g")),
        ("images", json!(["BBBB"])),
        ("images", json!(["AAAA", "AAAA"])),
        ("tool_calls", json!([{"function": {"name": "f"}}])),
    ] {
        let mut changed = said.clone();
        changed[0][field] = other;
        check_differ(said.clone(), changed);
    }
    let audio = |data: &str| json!([{"role": "user", "content": [{"type": "input_audio", "input_audio": data}]}]);
    check_differ(audio("AA"), audio("BB"));
}

#[test]
fn the_same_talk_has_the_same_chain_in_both_dialects() {
    let talk = json!([{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I."}]);
    let inside = json!([{"role": "system", "content": "Be brief."}, talk[0], talk[1]]);
    let body = json!({"model": "m", "messages": inside, "tools": [{"type": "function"}]});
    assert_eq!(chain(Endpoint::OllamaChat, &body), chain(Endpoint::OpenAiChat, &body));
    let beside = json!({"model": "m", "system": [{"type": "text", "text": "Be brief."}], "messages": talk});
    assert_eq!(chain(Endpoint::OpenAiChat, &beside), chat(inside));
}

#[test]
fn images_are_known_by_their_bytes_in_any_dialect() {
    let ollama = json!({"model": "m", "messages": [{"role": "user", "content": "a", "images": ["AAAA"]}]});
    let url = json!({"url": "data:image/png;base64,AAAA", "detail": "high"});
    let parts = json!([{"image_url": url, "type": "image_url"}, {"type": "text", "text": "a"}]);
    assert_eq!(chain(Endpoint::OllamaChat, &ollama), chat(json!([{"role": "user", "content": parts}])));
}

#[test]
fn tools_and_system_come_first_wherever_they_stand() {
    let body = |text: &str| ask(Endpoint::OpenAiChat, text).chain;
    let usual = body(r#"{"model":"m","tools":[{"a":1}],"system":"s","messages":[{"role":"user","content":"u"}]}"#);
    let turned = body(r#"{"messages":[{"content":"u","role":"user"}],"system":"s","tools":[{"a":1}],"model":"m"}"#);
    assert_eq!(usual, turned);
    assert_eq!((usual.links.len(), usual.root), (3, 2));
}

#[test]
fn the_root_ends_the_first_user_message() {
    let talk = chat(json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": "x".repeat(PIECE_CHARS)},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "b"},
    ]));
    assert_eq!(ends(&talk), [true, false, true, true, true]);
    assert_eq!(talk.root, 2);
    assert_eq!(chat(json!([{"role": "system", "content": "s"}, {"role": "tool", "content": "t"}])).root, 1);
    assert_eq!(chat(json!([])), Chain::default());
}

/// Roles of messages by their first letters; the answers that are counted.
#[track_caller]
fn check_answers(roles: &str, expected: u32) {
    let role = |letter| match letter {
        's' => "system",
        'u' => "user",
        'a' => "assistant",
        _ => "tool",
    };
    let messages: Vec<Value> = roles.chars().map(|letter| json!({"role": role(letter), "content": "x"})).collect();
    assert_eq!(chat(json!(messages)).answers, expected, "{roles}");
}

#[test]
fn answers_since_the_first_user_message_are_counted() {
    check_answers("", 0);
    check_answers("su", 0);
    check_answers("suu", 0);
    check_answers("sau", 0);
    check_answers("sua", 0);
    check_answers("suau", 1);
    check_answers("suaau", 1);
    check_answers("suatau", 2);
    check_answers("suauau", 2);
    let items = json!([
        {"role": "user", "content": "u"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "x"},
        {"type": "function_call_output", "call_id": "2", "output": "x"},
    ]);
    assert_eq!(chain(Endpoint::OpenAiResponses, &json!({"model": "m", "input": items})).answers, 1);
    assert_eq!(prompt("x").answers, 0);
}

#[test]
fn tokens_add_up_along_the_chain() {
    let long = "x".repeat(PIECE_CHARS + 4);
    let talk = chat(json!([{"role": "user", "content": long}, {"role": "assistant", "content": ""}]));
    assert_eq!(talk.links.iter().map(|link| link.tokens).collect::<Vec<_>>(), [256, 261, 265]);
}

#[test]
fn the_billing_line_does_not_enter() {
    let talk = |cch: &str| {
        let line = format!("x-anthropic-billing-header: cc_version=2; cch={cch};");
        let system = json!([{"type": "text", "text": line}, {"type": "text", "text": "Be brief."}]);
        let messages = json!([{"role": "user", "content": "a"}]);
        chain(Endpoint::OpenAiChat, &json!({"model": "m", "system": system, "messages": messages}))
    };
    assert_eq!(talk("00000"), talk("fffff"));
    let first = |role: &str, text: &str| json!([{"content": text, "role": role}]);
    let (one, two) = ("x-anthropic-billing-header: cch=1;\nBe brief.", "x-anthropic-billing-header: cch=2;\nBe brief.");
    check_same(first("system", one), first("system", "Be brief."));
    check_differ(first("user", one), first("user", two));
}

#[test]
fn a_prompt_is_chained_in_pieces() {
    let long = prompt(&"語".repeat(2 * PIECE_CHARS + 1));
    assert_eq!((ends(&long), long.root), (vec![false, false, true], 0));
    assert_eq!(ends(&prompt("a")), [true]);
    assert_eq!(prompt(""), Chain::default());
    // A prompt that goes on after a full piece still has the link that ended the shorter one.
    let exact = prompt(&"語".repeat(PIECE_CHARS));
    assert_eq!(long.links[0].hash, exact.end().unwrap().hash);
    assert_ne!(prompt("a").links[0].hash, chat(json!([{"role": "user", "content": "a"}])).links[0].hash);
}

#[test]
fn a_prompt_may_be_a_list_of_texts_or_ids() {
    let completion = |prompt: Value| chain(Endpoint::OpenAiCompletions, &json!({"model": "m", "prompt": prompt}));
    assert_eq!(ends(&completion(json!(["a", "b"]))), [false, true]);
    assert_eq!(completion(json!(["a"])), completion(json!("a")));
    let ids: Vec<u32> = (0..300).collect();
    assert_eq!(ends(&completion(json!(ids))), [false, true]);
    assert_eq!(completion(json!(ids)), completion(json!([ids])));
    assert_ne!(completion(json!([[1, 2]])), completion(json!([[1, 3]])));
}

#[test]
fn ollamas_context_is_the_first_part() {
    let generate = |context: Value| {
        chain(Endpoint::OllamaGenerate, &json!({"model": "m", "prompt": "a", "system": "s", "context": context}))
    };
    let with = generate(json!([1, 2]));
    assert_eq!((with.links.len(), with.root), (3, 2));
    assert_ne!(with.links[0], generate(json!([2, 1])).links[0]);
    assert_eq!(generate(json!([])), generate(json!(null)));
}

#[test]
fn images_beside_a_prompt_are_in_every_piece() {
    let seen = |images: &[&str]| {
        let body = json!({"model": "m", "images": images, "prompt": "x".repeat(PIECE_CHARS + 1)});
        chain(Endpoint::OllamaGenerate, &body).links[0].hash
    };
    assert_ne!(seen(&["AAAA"]), seen(&["BBBB"]));
    assert_ne!(seen(&["AAAA"]), seen(&[]));
}

#[test]
fn what_is_no_conversation_has_no_chain() {
    for endpoint in Endpoint::ALL.into_iter().filter(|endpoint| !endpoint.is_conversation()) {
        let body = json!({"model": "m", "input": "a", "prompt": "a", "messages": [{"role": "user", "content": "a"}]});
        assert_eq!(chain(endpoint, &body), Chain::default());
    }
}

pub fn message() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[a\"é🦀\n]{0,8}", Just("long 語 text ".repeat(200))];
    let role = prop::sample::select(vec!["user", "assistant", "tool", "system"]);
    let call = prop::option::of(("[a-c]", any::<i32>(), any::<f64>()));
    (role, text, any::<bool>(), call).prop_map(|(role, text, in_parts, call)| {
        let content = if in_parts { json!([{"type": "text", "text": text}]) } else { json!(text) };
        let mut message = json!({"role": role, "content": content});
        if let Some((name, n, f)) = call {
            let arguments = json!({"n": n, "f": f, "deep": {"a": [1, name], "b": null}});
            message["tool_calls"] = json!([{"function": {"name": name, "arguments": arguments}}]);
        }
        message
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn spelling_does_not_change_the_ask(messages in prop::collection::vec(message(), 0..5), mut whim in whim()) {
        let tools = json!([{"name": "f", "parameters": {"x": 1, "y": [2]}}]);
        let body = json!({"model": "m", "tools": tools, "messages": messages});
        let plain = ask(Endpoint::OllamaChat, &body.to_string());
        prop_assert_eq!(ask(Endpoint::OllamaChat, &whim.spell(&body)), plain);
    }

    #[test]
    fn the_next_turn_goes_through_the_last_link(
        talk in prop::collection::vec(message(), 1..5),
        more in prop::collection::vec(message(), 1..3),
        mut whim in whim(),
    ) {
        let before = chat(json!(talk));
        let messages = [talk, more].concat();
        let body = json!({"model": "m", "messages": messages});
        let after = ask(Endpoint::OpenAiChat, &whim.spell(&body)).chain;
        prop_assert_eq!(&after.links[..before.links.len()], &before.links[..]);
        prop_assert!(after.links.len() > before.links.len());
    }
}
