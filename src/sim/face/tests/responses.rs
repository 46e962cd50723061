//! OpenAI's Responses: told whole and in events, kept by the node that made them.

use serde_json::{Value, json};

use super::*;
use crate::sim::fleet::batching_node;

const RESPONSES: &str = "/v1/responses";

fn node_as(kind: &str) -> Node {
    let mut params = batching_node(Kind::find(kind).unwrap(), kind, "moss");
    params.answer_tokens = ANSWER_TOKENS;
    params.models[0].engine.decode_tokens_per_s = 500.0;
    node_of(params)
}

fn asked(input: &str) -> Value {
    json!({"model": "moss", "input": input})
}

fn after(id: &Value) -> Value {
    with(asked("and then?"), json!({"previous_response_id": id}))
}

#[track_caller]
fn text(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap()
}

/// The events, whose names must be their types and whose numbers must have no gap.
#[track_caller]
fn numbered_events(reply: &Reply) -> Vec<Value> {
    let events = reply.chunks.iter().enumerate().map(|(number, chunk)| {
        let (name, data) = chunk.trim_end().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
        assert_eq!(data["sequence_number"], number);
        data
    });
    events.collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap().trim_start_matches("response.")).collect()
}

#[tokio::test]
async fn a_response_in_one_piece_and_in_events_says_the_same() {
    let node = node_as("vllm");
    let whole = post(&node, RESPONSES, with(asked("hello"), json!({"max_output_tokens": 3}))).await.json();
    assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(whole["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(whole["usage"]["output_tokens"], 3);
    assert!(whole["usage"]["input_tokens"].as_u64().unwrap() > 0);

    let reply = post(&node, RESPONSES, with(asked("hello"), json!({"stream": true, "max_output_tokens": 3}))).await;
    assert!(reply.head.contains("content-type: text/event-stream"));
    let events = numbered_events(&reply);
    let opening = ["created", "in_progress", "output_item.added", "content_part.added"];
    let closing = ["output_text.done", "content_part.done", "output_item.done", "completed"];
    let deltas = ["output_text.delta"; 3];
    assert_eq!(names(&events), [&opening[..], &deltas, &closing].concat());
    let told: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(told, text(&whole));
    assert!(told.starts_with("[simulated]"), "{told}");
    assert_eq!(text(&events.last().unwrap()["response"]), told);
}

#[tokio::test]
async fn a_function_is_called_by_an_item_of_its_own() {
    let node = node_as("vllm");
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tool = json!({"type": "function", "name": "get_weather", "parameters": parameters});
    let call = with(asked("call get_weather"), json!({"tools": [tool]}));
    let whole = post(&node, RESPONSES, call.clone()).await.json();
    let item = &whole["output"][0];
    assert_eq!((&item["type"], &item["name"]), (&json!("function_call"), &json!("get_weather")));
    assert_eq!(item["arguments"], r#"{"city":"[simulated]"}"#);
    let events = numbered_events(&post(&node, RESPONSES, with(call, json!({"stream": true}))).await);
    let arguments = ["function_call_arguments.delta", "function_call_arguments.done"];
    let around = (["created", "in_progress", "output_item.added"], ["output_item.done", "completed"]);
    assert_eq!(names(&events), [&around.0[..], &arguments, &around.1].concat());
}

#[tokio::test]
async fn a_response_is_gone_on_from_where_it_was_made_and_nowhere_else() {
    for kind in ["vllm", "sglang"] {
        let (node, other) = (node_as(kind), node_as(kind));
        for stream in [false, true] {
            let long = format!("{stream}: {}", "a long question ".repeat(40));
            let reply = post(&node, RESPONSES, with(asked(&long), json!({"stream": stream}))).await;
            let first = if stream { numbered_events(&reply).pop().unwrap()["response"].clone() } else { reply.json() };
            let next = post(&node, RESPONSES, after(&first["id"])).await.json();
            assert_eq!(next["previous_response_id"], first["id"]);
            let held = first["usage"]["total_tokens"].as_u64().unwrap();
            let cached = next["usage"]["input_tokens_details"]["cached_tokens"].as_u64().unwrap();
            assert!(cached <= held && cached + 16 > held, "{kind}: {cached} of {held}");
            let elsewhere = post(&other, RESPONSES, after(&first["id"])).await;
            assert_eq!(elsewhere.status, 404);
            let words = format!("Response with id '{}' not found.", first["id"].as_str().unwrap());
            assert_eq!(elsewhere.json()["error"]["message"], words);
        }
    }
}

#[tokio::test]
async fn what_is_not_stored_cannot_be_gone_on_from() {
    let node = node_as("vllm");
    let kept = post(&node, RESPONSES, asked("hello")).await.json();
    let dropped = post(&node, RESPONSES, with(asked("hello"), json!({"store": false}))).await.json();
    assert_eq!(post(&node, RESPONSES, after(&dropped["id"])).await.status, 404);
    assert_eq!(post(&node, RESPONSES, after(&kept["id"])).await.status, 200);
    node.stop().await;
    node.start().unwrap();
    assert_eq!(post(&node, RESPONSES, after(&kept["id"])).await.status, 404, "the process is another");
}

#[tokio::test]
async fn ollama_passes_over_the_id_and_llama_cpp_refuses_it() {
    let id = json!("resp_nobodys");
    let asked = with(after(&id), json!({"model": "qwen3.6:27b"}));
    assert_eq!(post(&node(), RESPONSES, asked).await.json()["previous_response_id"], Value::Null);
    assert_eq!(post(&node_as("llama_cpp"), RESPONSES, after(&id)).await.status, 400);
}
