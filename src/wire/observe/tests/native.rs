//! Streams and bodies of Anthropic's messages and OpenAI's Responses.

use super::*;
use crate::routing::chain::hash_text;

const MESSAGES: Endpoint = Endpoint::AnthropicMessages;
const RESPONSES: Endpoint = Endpoint::OpenAiResponses;

pub const ANTHROPIC: &str = concat!(
    "event: message_start\n",
    "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],",
    "\"usage\":{\"input_tokens\":3,\"cache_creation_input_tokens\":20,\"cache_read_input_tokens\":100,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\n",
    "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    "event: content_block_delta\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: message_delta\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

pub const RESPONSE: &str = concat!(
    "event: response.created\n",
    "data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"usage\":null,\"error\":null}}\n\n",
    "event: response.output_text.delta\n",
    "data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n",
    "event: response.completed\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"error\":null,\"output\":[{}],",
    "\"usage\":{\"input_tokens\":9,\"input_tokens_details\":{\"cached_tokens\":8},\"output_tokens\":4}}}\n\n",
);

#[track_caller]
fn check(endpoint: Endpoint, content_type: &str, answer: &str, expected: Observed) {
    assert_eq!(observe(endpoint, content_type, [answer]), expected);
    assert_eq!(observe(endpoint, content_type, answer.as_bytes().chunks(7)), expected, "in pieces");
}

fn counts(prompt: u32, cached: impl Into<Option<u32>>, output: u32) -> Observed {
    Observed {
        prompt_tokens: Some(prompt),
        cached_tokens: cached.into(),
        output_tokens: Some(output),
        content_events: 1,
        complete: true,
        ..Observed::default()
    }
}

#[test]
fn anthropics_stream_is_read_to_its_end() {
    let seen = counts(123, 100, 15);
    check(MESSAGES, SSE, ANTHROPIC, seen);
    let cut = ANTHROPIC.find("event: message_stop").unwrap();
    check(MESSAGES, SSE, &ANTHROPIC[..cut], Observed { complete: false, ..seen });
    let failed =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n";
    let expected = Observed { complete: false, error: true, ..seen };
    check(MESSAGES, SSE, &format!("{}{failed}", &ANTHROPIC[..cut]), expected);
}

#[test]
fn responses_stream_is_read_to_its_end() {
    let seen = Observed { response_id: Some(hash_text("resp_1")), ..counts(9, 8, 4) };
    check(RESPONSES, SSE, RESPONSE, seen);
    check(RESPONSES, SSE, &RESPONSE.replace("response.completed", "response.incomplete"), seen);
    let failed = RESPONSE.replace("response.completed", "response.failed");
    check(RESPONSES, SSE, &failed, Observed { error: true, ..seen });
    let cut = RESPONSE.find("event: response.completed").unwrap();
    let begun = Observed { response_id: seen.response_id, content_events: 1, ..Observed::default() };
    check(RESPONSES, SSE, &RESPONSE[..cut + 40], begun);
}

#[test]
fn plain_bodies_tell_the_same() {
    check(
        MESSAGES,
        JSON,
        r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":23,"cache_read_input_tokens":100,"output_tokens":15}}"#,
        counts(123, 100, 15),
    );
    check(
        RESPONSES,
        JSON,
        r#"{"id":"resp_1","object":"response","status":"completed","error":null,"output":[{"type":"message"}],"usage":{"input_tokens":9,"output_tokens":4}}"#,
        Observed { response_id: Some(hash_text("resp_1")), ..counts(9, None, 4) },
    );
    check(
        MESSAGES,
        JSON,
        r#"{"type":"error","error":{"type":"api_error","message":"x"}}"#,
        Observed { complete: true, error: true, ..Observed::default() },
    );
}

#[test]
fn str_06_the_last_event_may_be_too_long_to_read() {
    let long = RESPONSE.replace("\"output\":[{}]", &format!("\"output\":[\"{}\"]", "x".repeat(EVENT_LIMIT)));
    let expected =
        Observed { response_id: Some(hash_text("resp_1")), content_events: 1, complete: true, ..Observed::default() };
    check(RESPONSES, SSE, &long, expected);
}
