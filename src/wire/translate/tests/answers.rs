//! Plain answers, vectors and errors.

use serde_json::json;

use super::*;
use Endpoint::{OllamaChat, OllamaEmbed, OllamaEmbeddings, OllamaGenerate};

#[track_caller]
fn check(endpoint: Endpoint, status: u16, body: &str, expected: Value) {
    let chunks: Vec<&[u8]> = body.as_bytes().chunks(5).collect();
    for chunks in [&[body.as_bytes()][..], &chunks] {
        let ending = translated(endpoint, status, JSON, chunks);
        assert!(ending.end == End::Whole);
        assert_eq!(super::json(&ending.bytes), expected);
    }
}

const LLAMA_CPP: &str = r#" {"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant",
    "reasoning_content":"Hm","content":"Guten 🦀"}}],"created":1,"model":"x","object":"chat.completion",
    "usage":{"completion_tokens":4,"prompt_tokens":9,"total_tokens":13},"timings":{"cache_n":8}}"#;

#[test]
fn acc_02_a_plain_answer_is_its_last_line() {
    let told = json!({
        "model": "qwen3:32b", "created_at": NOW, "done": true, "done_reason": "stop",
        "total_duration": 1_000_000_000, "prompt_eval_count": 9, "eval_count": 4,
    });
    let with = |key: &str, value: Value| {
        let mut told = told.clone();
        told[key] = value;
        told
    };
    let chat = with("message", json!({"role": "assistant", "content": "Guten 🦀", "thinking": "Hm"}));
    check(OllamaChat, 200, LLAMA_CPP, chat);
    let mut prompt = with("response", json!("Guten 🦀"));
    prompt["thinking"] = json!("Hm");
    check(OllamaGenerate, 200, LLAMA_CPP, prompt);
    let completion = r#"{"choices":[{"text":"Hi","finish_reason":"length"}]}"#;
    let told = json!({"model": "qwen3:32b", "created_at": NOW, "response": "Hi", "done": true, "done_reason": "length", "total_duration": 1_000_000_000});
    check(OllamaGenerate, 200, completion, told);
}

#[test]
fn plain_calls_have_objects_as_arguments() {
    let body = r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":[1]}"}}]},"finish_reason":"tool_calls"}]}"#;
    let told = super::json(&translated(OllamaChat, 200, JSON, &[body.as_bytes()]).bytes);
    let call = json!({"id": "a", "function": {"index": 0, "name": "f", "arguments": {"x": [1]}}});
    assert_eq!(told["message"], json!({"role": "assistant", "content": "", "tool_calls": [call]}));
    assert_eq!(told["done_reason"], "stop");
}

#[test]
fn acc_04_vectors_keep_their_order_and_their_digits() {
    let body = r#"{"object":"list","data":[{"embedding":[2.50,-1e-7],"index":1},{"embedding":[1.0],"index":0}],
        "usage":{"prompt_tokens":7,"total_tokens":7}}"#;
    let ending = translated(OllamaEmbed, 200, JSON, &[body.as_bytes()]);
    let told =
        r#"{"model":"qwen3:32b","embeddings":[[1.0],[2.50,-1e-7]],"total_duration":1000000000,"prompt_eval_count":7}"#;
    assert_eq!(String::from_utf8(ending.bytes).unwrap(), told);
    check(OllamaEmbeddings, 200, r#"{"data":[{"embedding":[0.5]}]}"#, json!({"embedding": [0.5]}));
}

#[test]
fn errors_are_texts() {
    check(
        OllamaChat,
        404,
        r#"{"error":{"message":"no model `x`","type":"NotFoundError"}}"#,
        json!({"error": "no model `x`"}),
    );
    check(OllamaEmbed, 503, r#"{"object":"error","message":"queue full","code":503}"#, json!({"error": "queue full"}));
    check(OllamaChat, 502, "<h1>Bad Gateway</h1>", json!({"error": "<h1>Bad Gateway</h1>"}));
    check(OllamaChat, 500, "", json!({"error": "the node answered 500 without a reason"}));
    let answer = Answer::new(OllamaChat, "m", 500, SSE);
    assert_eq!(answer.content_type(), "application/json; charset=utf-8");
}

#[test]
fn str_10_a_body_that_is_no_answer_is_not_complete() {
    let none = Ending { bytes: Vec::new(), end: End::Untold };
    for body in ["", "{}", "OK", r#"{"choices":[]}"#, r#"{"error":"x"}"#, &LLAMA_CPP.trim()[..100]] {
        assert_eq!(translated(OllamaChat, 200, JSON, &[body.as_bytes()]), none, "{body}");
    }
    for body in ["", "{}", r#"{"data":[{"embedding":"AAAA"}]}"#, r#"{"data":[{"embedding":[0.1"#] {
        assert_eq!(translated(OllamaEmbed, 200, JSON, &[body.as_bytes()]), none, "{body}");
    }
    let long = format!(r#"{{"choices":[{{"message":{{"content":"{}"}}}}]}}"#, "x".repeat(4 << 20));
    assert_eq!(translated(OllamaChat, 200, JSON, &[long.as_bytes()]), none);
}

#[test]
fn arguments_that_are_no_object_are_the_models_doing() {
    let body = |finish: &str| {
        let call = |arguments: &str| json!({"function": {"name": "f", "arguments": arguments}});
        let message = json!({"content": "Hm", "tool_calls": [call("{}"), call("{\"x\":")]});
        json!({"choices": [{"message": message, "finish_reason": finish}]}).to_string()
    };
    let ending = translated(OllamaChat, 200, JSON, &[body("tool_calls").as_bytes()]);
    let error = json!({"error": "the model called a tool with arguments that are not a JSON object"});
    assert_eq!((super::json(&ending.bytes), ending.end), (error, End::Misspoken));

    let ending = translated(OllamaChat, 200, JSON, &[body("length").as_bytes()]);
    let told = super::json(&ending.bytes);
    let calls = json!([{"function": {"index": 0, "name": "f", "arguments": {}}}]);
    assert_eq!((&told["message"]["tool_calls"], &told["done_reason"]), (&calls, &json!("length")));
    assert_eq!((&told["message"]["content"], ending.end), (&json!("Hm"), End::Whole));
}

#[test]
fn a_form_feed_before_an_error_is_no_blank_of_json() {
    check(OllamaChat, 502, "\u{c} \n<html>", json!({"error": "<html>"}));
}

#[test]
fn str_16_blanks_that_keep_a_connection_alive_go_on() {
    let mut answer = Answer::new(OllamaChat, "m", 200, JSON);
    assert_eq!(answer.feed(b" ", NOW), b" ");
    assert_eq!(answer.feed(b"\n {", NOW), b"\n ");
    assert_eq!(answer.feed(b" }", NOW), b"");
}

#[test]
fn nothing_run_has_each_endpoints_form() {
    for (endpoint, told) in [
        (
            OllamaChat,
            json!({"model": "m", "created_at": NOW, "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "load"}),
        ),
        (OllamaGenerate, json!({"model": "m", "created_at": NOW, "response": "", "done": true, "done_reason": "load"})),
        (OllamaEmbed, json!({"model": "m", "embeddings": []})),
        (OllamaEmbeddings, json!({"embedding": []})),
    ] {
        assert_eq!(super::json(&nothing_run(endpoint, "m", NOW)), told);
    }
}
