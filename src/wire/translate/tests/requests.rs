//! What a request in Ollama's words becomes.

use serde_json::json;

use super::*;
use Endpoint::{OllamaChat, OllamaEmbed, OllamaEmbeddings, OllamaGenerate, OllamaShow};

const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

#[track_caller]
fn check(endpoint: Endpoint, body: Value, path: &str, expected: Value) {
    let (call, sent) = super::call(endpoint, &body);
    assert_eq!((call.path, sent), (path, expected));
}

#[track_caller]
fn check_chat(more: Value, expected: Value) {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": false});
    let mut sent = json!({"model": "Qwen/Qwen3-32B", "messages": body["messages"], "stream": false});
    for (to, from) in [(&mut body, more), (&mut sent, expected)] {
        to.as_object_mut().unwrap().extend(from.as_object().unwrap().clone());
    }
    check(OllamaChat, body, "/v1/chat/completions", sent);
}

#[track_caller]
fn check_refused(endpoint: Endpoint, body: Value, field: &str) {
    let refused = request(endpoint, body.to_string().as_bytes(), "m").expect_err("refused");
    assert_eq!(refused.field, field);
    assert!(refused.to_string().starts_with(&format!("`{field}` cannot be translated for")), "{refused}");
}

#[test]
fn str_14_a_chat_streams_unless_told_not_to_and_asks_for_counts() {
    check(
        OllamaChat,
        json!({"model": "qwen3:32b", "messages": [{"role": "user", "content": "Guten 🦀"}]}),
        "/v1/chat/completions",
        json!({
            "model": "Qwen/Qwen3-32B",
            "messages": [{"role": "user", "content": "Guten 🦀"}],
            "stream": true,
            "stream_options": {"include_usage": true},
        }),
    );
    check_chat(json!({}), json!({}));
}

#[test]
fn options_go_under_the_engines_names() {
    check_chat(
        json!({"options": {
            "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "seed": 7, "stop": ["\n\n"],
            "num_predict": 128, "repeat_penalty": 1.1, "presence_penalty": 0.1, "frequency_penalty": 0.2,
        }}),
        json!({
            "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "seed": 7, "stop": ["\n\n"],
            "max_tokens": 128, "repetition_penalty": 1.1, "repeat_penalty": 1.1, "presence_penalty": 0.1,
            "frequency_penalty": 0.2,
        }),
    );
    check_chat(json!({"options": {"num_predict": -1, "temperature": null}}), json!({}));
}

#[test]
fn what_only_shapes_the_runner_is_left_out_and_noted() {
    let body = json!({
        "model": "m", "messages": [{"role": "user", "content": "Hi"}], "keep_alive": -1, "truncate": true,
        "options": {"num_ctx": 8192, "num_thread": 8, "use_mmap": true, "mirostat": 0, "mirostat_tau": 5.0},
    });
    let (call, sent) = super::call(OllamaChat, &body);
    assert_eq!(
        call.dropped,
        ["mirostat", "mirostat_tau", "num_ctx", "num_thread", "use_mmap", "keep_alive", "truncate"]
    );
    assert_eq!(sent.as_object().unwrap().len(), 4, "{sent}");
}

#[test]
fn a_format_is_a_word_or_a_schema_in_its_own_order() {
    check_chat(json!({"format": "json"}), json!({"response_format": {"type": "json_object"}}));
    check_chat(json!({"format": ""}), json!({}));
    let schema = r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer"}}}"#;
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}}],"format":{schema}}}"#);
    let Ok(Translated::Call(call)) = request(OllamaChat, body.as_bytes(), "m") else { panic!() };
    let sent = String::from_utf8(call.body).unwrap();
    let wanted = format!(
        r#""response_format":{{"type":"json_schema","json_schema":{{"name":"answer","strict":true,"schema":{schema}}}}}"#
    );
    assert!(sent.contains(&wanted), "{sent}");
}

#[test]
fn thinking_is_a_variable_of_the_template() {
    let switched = |on| json!({"chat_template_kwargs": {"enable_thinking": on, "thinking": on}});
    check_chat(json!({"think": true}), switched(true));
    check_chat(json!({"think": false}), switched(false));
    check_chat(json!({"think": null}), json!({}));
    check_chat(
        json!({"think": "high"}),
        json!({
            "reasoning_effort": "high",
            "chat_template_kwargs": {"enable_thinking": true, "thinking": true, "reasoning_effort": "high"},
        }),
    );
}

#[test]
fn tools_and_unknown_fields_go_through() {
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    check_chat(json!({"tools": tools, "cache_salt": "x"}), json!({"tools": tools, "cache_salt": "x"}));
    check_chat(json!({"tools": [], "logprobs": true, "top_logprobs": 2}), json!({"logprobs": true, "top_logprobs": 2}));
}

#[test]
fn images_stand_before_the_text() {
    let url = format!("data:image/png;base64,{PNG}");
    let parts = json!([{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"}]);
    check_chat(
        json!({"messages": [{"role": "user", "content": "What is it?", "images": [PNG]}]}),
        json!({"messages": [{"role": "user", "content": parts}]}),
    );
    check(
        OllamaGenerate,
        json!({"model": "m", "prompt": "What is it?", "images": [PNG], "stream": false}),
        "/v1/chat/completions",
        json!({"model": "Qwen/Qwen3-32B", "messages": [{"role": "user", "content": parts}], "stream": false}),
    );
}

#[test]
fn a_prompt_is_a_chat_and_a_raw_one_a_completion() {
    check(
        OllamaGenerate,
        json!({"model": "m", "system": "Be brief.", "prompt": "Why?", "context": [], "template": "", "suffix": ""}),
        "/v1/chat/completions",
        json!({
            "model": "Qwen/Qwen3-32B",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
            "stream": true,
            "stream_options": {"include_usage": true},
        }),
    );
    check(
        OllamaGenerate,
        json!({"model": "m", "prompt": "<s>Why?", "raw": true, "stream": false, "format": "json"}),
        "/v1/completions",
        json!({
            "model": "Qwen/Qwen3-32B", "prompt": "<s>Why?", "stream": false, "max_tokens": null,
            "response_format": {"type": "json_object"},
        }),
    );
    let limited = json!({"model": "m", "prompt": "x", "raw": true, "max_tokens": 6});
    assert_eq!(super::call(OllamaGenerate, &limited).1["max_tokens"], 6);
    let limited = json!({"model": "m", "prompt": "x", "raw": true, "options": {"num_predict": 5}});
    assert_eq!(super::call(OllamaGenerate, &limited).1["max_tokens"], 5);
}

#[test]
fn acc_04_a_batch_goes_as_one() {
    check(
        OllamaEmbed,
        json!({"model": "m", "input": ["a", "", "a"], "dimensions": 256, "options": {"num_ctx": 512, "temperature": 0}}),
        "/v1/embeddings",
        json!({"model": "Qwen/Qwen3-32B", "input": ["a", "", "a"], "encoding_format": "float", "dimensions": 256}),
    );
    check(
        OllamaEmbeddings,
        json!({"model": "m", "prompt": "a", "keep_alive": "5m"}),
        "/v1/embeddings",
        json!({"model": "Qwen/Qwen3-32B", "input": "a", "encoding_format": "float"}),
    );
}

#[test]
fn a_field_of_another_type_is_no_request_to_load() {
    for wrong in [json!({}), json!(false), json!("")] {
        check_refused(OllamaChat, json!({"model": "m", "messages": wrong}), "messages");
    }
    for wrong in [json!({}), json!([]), json!(false)] {
        check_refused(OllamaGenerate, json!({"model": "m", "prompt": wrong}), "prompt");
    }
}

#[test]
fn a_request_to_load_runs_nothing() {
    for (endpoint, body) in [
        (OllamaChat, json!({"model": "m"})),
        (OllamaChat, json!({"model": "m", "messages": [], "keep_alive": "10m"})),
        (OllamaGenerate, json!({"model": "m", "prompt": "", "keep_alive": -1})),
        (OllamaEmbed, json!({"model": "m", "input": []})),
        (OllamaEmbeddings, json!({"model": "m", "prompt": ""})),
    ] {
        assert_eq!(request(endpoint, body.to_string().as_bytes(), "m"), Ok(Translated::NothingToRun), "{body}");
    }
    for unload in [json!(0), json!("0"), json!("0s")] {
        check_refused(OllamaGenerate, json!({"model": "m", "keep_alive": unload}), "keep_alive");
    }
}

#[test]
fn what_has_no_translation_is_refused_by_name() {
    for (field, value) in [
        ("context", json!([1, 2])),
        ("template", json!("{{ .Prompt }}")),
        ("suffix", json!("return x")),
        ("adapters", json!({"a": 1})),
        ("raw", json!("yes")),
        ("stream", json!(1)),
        ("format", json!("xml")),
        ("think", json!("hard")),
        ("options", json!(3)),
    ] {
        check_refused(OllamaGenerate, json!({"model": "m", "prompt": "x", field: value}), field);
    }
    for (field, value) in [("images", json!([PNG])), ("system", json!("x")), ("think", json!(true))] {
        check_refused(OllamaGenerate, json!({"model": "m", "prompt": "x", "raw": true, field: value}), field);
    }
    for (option, value) in
        [("mirostat", json!(2)), ("tfs_z", json!(0.9)), ("num_predict", json!("x")), ("zig", json!(1))]
    {
        let field = format!("options.{option}");
        check_refused(OllamaGenerate, json!({"model": "m", "prompt": "x", "options": {option: value}}), &field);
    }
    // Said twice: which would count?
    check_refused(
        OllamaGenerate,
        json!({"model": "m", "prompt": "x", "temperature": 1, "options": {"temperature": 0}}),
        "temperature",
    );
    check_refused(OllamaShow, json!({"model": "m"}), "/api/show");
}

#[test]
fn broken_messages_are_refused_by_their_place() {
    for (message, field) in [
        (json!(1), "messages[0]"),
        (json!({"content": "x"}), "messages[0]"),
        (json!({"role": "user", "content": "x", "images": ["http://intranet/"]}), "messages[0].images[0]"),
        (json!({"role": "user", "content": ["x"], "images": [PNG]}), "messages[0].images"),
        (json!({"role": "tool", "content": "x", "tool_name": "f"}), "messages[0]"),
        (json!({"role": "assistant", "tool_calls": [{"function": {}}]}), "messages[0].tool_calls[0]"),
        (
            json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}),
            "messages[0].tool_calls[0].function.arguments",
        ),
    ] {
        check_refused(OllamaChat, json!({"model": "m", "messages": [message]}), field);
    }
    check_refused(OllamaChat, json!({"model": "m", "messages": "x"}), "messages");
    check_refused(OllamaChat, json!([]), "the body");
    let long = "x".repeat(500);
    check_refused(OllamaChat, json!({"messages": [1], "options": {}, long.as_str(): 1}), "messages[0]");
}
