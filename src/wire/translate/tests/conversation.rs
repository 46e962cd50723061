//! A conversation with tools, there and back and there again.

use serde_json::json;

use super::*;
use Endpoint::OllamaChat;

const ANSWER: &[u8] = br#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}

data: {"choices":[{"index":0,"delta":{"reasoning_content":"Two cities."}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"chatcmpl-tool-1","type":"function","function":{"name":"weather","arguments":""}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\": "}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"Paris\"}"}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"chatcmpl-tool-2","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}}]}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":31}}

data: [DONE]

"#;

/// The message that a client makes of the lines, as Ollama's own client does.
fn message_of(lines: &[Value]) -> Value {
    let mut message = json!({"role": "assistant", "content": "", "thinking": ""});
    for line in lines {
        for text in ["content", "thinking"] {
            let more = line["message"][text].as_str().unwrap_or("");
            message[text] = json!(format!("{}{more}", message[text].as_str().unwrap()));
        }
        if let Some(calls) = line["message"].get("tool_calls") {
            message["tool_calls"] = calls.clone();
        }
    }
    message
}

#[test]
fn acc_03_calls_come_back_with_their_ids_and_results() {
    let lines = lines(&translated(OllamaChat, 200, SSE, &[ANSWER]).bytes);
    let assistant = message_of(&lines);
    assert_eq!(assistant["tool_calls"][0]["function"]["arguments"], json!({"city": "Paris"}));
    assert_eq!(lines.last().unwrap()["done_reason"], "stop");

    let result = |text: &str| json!({"role": "tool", "tool_name": "weather", "content": text});
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "Weather?"}, assistant, result("12"), result("21"),
    ]});
    let (_, sent) = call(OllamaChat, &body);
    let called = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}});
    assert_eq!(
        sent["messages"],
        json!([
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant", "content": "",
                "reasoning_content": "Two cities.", "reasoning": "Two cities.",
                "tool_calls": [
                    called("chatcmpl-tool-1", r#"{"city":"Paris"}"#),
                    called("chatcmpl-tool-2", r#"{"city":"Rome"}"#),
                ],
            },
            {"role": "tool", "content": "12", "tool_call_id": "chatcmpl-tool-1"},
            {"role": "tool", "content": "21", "tool_call_id": "chatcmpl-tool-2"},
        ])
    );
}

/// Ids of calls, and of the calls that results belong to, in order.
fn ids(messages: Value) -> Vec<String> {
    let (_, sent) = call(OllamaChat, &json!({"model": "m", "messages": messages}));
    let of_message = |message: &Value| {
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        calls
            .iter()
            .map(|call| &call["id"])
            .chain([&message["tool_call_id"]])
            .filter_map(Value::as_str)
            .map(String::from)
            .collect::<Vec<_>>()
    };
    sent["messages"].as_array().unwrap().iter().flat_map(of_message).collect()
}

fn calls(names: &[&str]) -> Value {
    let calls: Vec<_> = names.iter().map(|name| json!({"function": {"name": name, "arguments": {}}})).collect();
    json!({"role": "assistant", "content": "", "tool_calls": calls})
}

#[test]
fn made_up_ids_tie_results_to_calls_by_name_and_order() {
    let result = |tool: &str| json!({"role": "tool", "tool_name": tool, "content": "1"});
    assert_eq!(
        ids(json!([calls(&["f", "g", "f"]), result("g"), result("f"), result("f")])),
        ["call00000", "call00001", "call00002", "call00001", "call00000", "call00002"]
    );
    // Each call in a message of its own, as clients that append every line have it.
    assert_eq!(
        ids(json!([calls(&["f"]), calls(&["g"]), result("f"), result("g")])),
        ["call00000", "call00001", "call00000", "call00001"]
    );
    // Without a name, the oldest; a call that the user interrupted gets no result any more.
    let user = json!({"role": "user", "content": "Stop"});
    assert_eq!(
        ids(json!([calls(&["f"]), user, calls(&["f"]), {"role": "tool", "content": "1"}])),
        ["call00000", "call00001", "call00001"]
    );
}

#[test]
fn earlier_turns_are_spelled_the_same_in_every_turn() {
    let result = json!({"role": "tool", "tool_name": "f", "content": "1"});
    let mut messages = vec![json!({"role": "user", "content": "Hi"}), calls(&["f"]), result];
    let before = call(OllamaChat, &json!({"messages": messages})).1;
    messages.push(calls(&["f"]));
    let after = call(OllamaChat, &json!({"messages": messages})).1;
    assert_eq!(before["messages"].as_array().unwrap()[..], after["messages"].as_array().unwrap()[..3]);
}
