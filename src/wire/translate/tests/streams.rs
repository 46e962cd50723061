//! Streams of events as streams of lines.

use serde_json::json;

use super::*;
use crate::wire::lines::EVENT_LIMIT;
use Endpoint::{OllamaChat, OllamaGenerate};

/// vLLM's shape: the role first, counts in an event of their own.
const VLLM: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":\"Hm\"},\"finish_reason\":null}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Guten\"},\"finish_reason\":null}]}\n\n\
: ping\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" \\ud83e\\udd80\"},\"finish_reason\":null}]}\n\n\
data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"length\"}]}\n\n\
data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\n\
data: [DONE]\n\n";

fn line(message: Value) -> Value {
    json!({"model": "qwen3:32b", "created_at": NOW, "message": message, "done": false})
}

fn last(reason: &str) -> Value {
    json!({
        "model": "qwen3:32b", "created_at": NOW, "message": {"role": "assistant", "content": ""}, "done": true,
        "done_reason": reason, "total_duration": 1_000_000_000, "prompt_eval_count": 9,
        "prompt_eval_duration": 250_000_000, "eval_count": 4, "eval_duration": 750_000_000,
    })
}

#[track_caller]
fn check(events: &str, expected: &[Value], complete: bool) {
    let single: Vec<&[u8]> = events.as_bytes().chunks(1).collect();
    for chunks in [&[events.as_bytes()][..], &single] {
        let ending = translated(OllamaChat, 200, SSE, chunks);
        assert_eq!((lines(&ending.bytes), ending.end == End::Whole), (expected.to_vec(), complete));
    }
}

fn hi() -> Value {
    line(json!({"role": "assistant", "content": "Hi"}))
}

const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";

#[test]
fn acc_02_a_chat_ends_with_counts_and_times() {
    let lines = [
        line(json!({"role": "assistant", "content": "", "thinking": "Hm"})),
        line(json!({"role": "assistant", "content": "Guten"})),
        line(json!({"role": "assistant", "content": " 🦀"})),
        last("length"),
    ];
    check(VLLM, &lines, true);
    check(&VLLM.replace('\n', "\r\n"), &lines, true);
    check(&VLLM.replace("data: ", "data:").replace('\n', "\r"), &lines, true);
}

#[test]
fn str_01_each_delta_is_a_line_at_once() {
    let mut answer = Answer::new(OllamaChat, "m", 200, SSE);
    assert_eq!(answer.content_type(), "application/x-ndjson");
    for word in ["a", "b", "c"] {
        let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{word}\"}}}}]}}\n\n");
        assert_eq!(answer.feed(event.as_bytes(), word).iter().filter(|&&byte| byte == b'\n').count(), 1);
    }
}

#[test]
fn a_prompts_answer_is_text_beside_its_model() {
    for event in [HI, "data: {\"choices\":[{\"text\":\"Hi\"}]}\n\n"] {
        let ending = translated(OllamaGenerate, 200, SSE, &[event.as_bytes(), b"data: [DONE]\n\n"]);
        let lines = lines(&ending.bytes);
        assert_eq!(lines[0], json!({"model": "qwen3:32b", "created_at": NOW, "response": "Hi", "done": false}));
        assert_eq!((&lines[1]["response"], &lines[1]["done_reason"]), (&json!(""), &json!("stop")));
        assert!(lines[1].get("eval_count").is_none() && ending.end == End::Whole);
    }
}

#[test]
fn str_13_either_mark_ends_a_stream() {
    let stop = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}";
    check(&format!("{HI}{stop}\n\n"), &[hi(), last("stop")], true);
    check(&format!("{HI}{stop}"), &[hi(), last("stop")], true);
    check(&format!("{HI}{stop}\n\ndata: [DONE]\n\n{HI}data: [DONE]\n\n"), &[hi(), last("stop")], true);
}

#[test]
fn str_10_a_cut_stream_never_looks_complete() {
    let cut = json!({"error": "the node's answer ended before it was complete"});
    check("", std::slice::from_ref(&cut), false);
    check(HI, &[hi(), cut.clone()], false);
    check(&format!("{HI}: ping\n"), &[hi(), cut.clone()], false);
    check(&format!("{HI}data: {{\"choices\""), &[hi(), cut], false);
    let unreadable = json!({"error": "the node sent an event that cannot be read"});
    check(&format!("{HI}data: {{\"choices\"\n\n{HI}data: [DONE]\n\n"), &[hi(), unreadable], false);
}

#[test]
fn str_11_errors_end_a_stream_whatever_comes_after() {
    for event in [
        "data: {\"error\":{\"message\":\"runner stopped\",\"code\":500}}\n\n",
        "data: {\"error\":\"runner stopped\"}\n\n",
        "data: {\"object\":\"error\",\"message\":\"runner stopped\"}\n\n",
        "event: error\ndata: {\"message\":\"runner stopped\"}\n\n",
        "event: error\ndata: runner stopped\n\n",
    ] {
        check(&format!("{HI}{event}{VLLM}"), &[hi(), json!({"error": "runner stopped"})], false);
    }
}

#[test]
fn str_06_an_event_that_is_too_long_fails_and_is_not_left_out() {
    let long = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(EVENT_LIMIT));
    let bytes = format!("{HI}{long}{HI}data: [DONE]\n\n").into_bytes();
    let chunks: Vec<&[u8]> = bytes.chunks(1000).collect();
    for chunks in [&[&bytes[..]][..], &chunks] {
        let ending = translated(OllamaChat, 200, SSE, chunks);
        let too_long = json!({"error": "the node sent an event that is too long to be translated"});
        assert_eq!((lines(&ending.bytes), ending.end == End::Whole), (vec![hi(), too_long], false));
    }
}

/// An event with one call and the model's reason to stop.
fn called(arguments: &str, finish: &str) -> String {
    let call = json!([{"index": 0, "function": {"name": "f", "arguments": arguments}}]);
    format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": call}, "finish_reason": finish}]}))
}

#[test]
fn a_call_with_broken_arguments_is_one_error_and_the_models_doing() {
    for bytes in [called("{", "tool_calls"), called("[1]", "stop"), called("x", "tool_calls") + "data: [DONE]\n\n"] {
        let ending = translated(OllamaChat, 200, SSE, &[bytes.as_bytes()]);
        let error = json!({"error": "the model called a tool with arguments that are not a JSON object"});
        assert_eq!((lines(&ending.bytes), ending.end), (vec![error], End::Misspoken));
    }
}

#[test]
fn a_call_cut_off_by_the_length_was_not_made() {
    let mut uncounted = last("length");
    uncounted.as_object_mut().unwrap().retain(|name, _| !name.ends_with("_count"));
    let whole = json!({"choices": [{"delta": {"tool_calls": [{"index": 1, "id": "w", "function": {"name": "g", "arguments": "{}"}}]}}]});
    for cut in ["", "{\"x\":", "{\"x\":\"a"] {
        check(&format!("{HI}{}data: [DONE]\n\n", called(cut, "length")), &[hi(), uncounted.clone()], true);
        let ending =
            translated(OllamaChat, 200, SSE, &[format!("data: {whole}\n\n{}", called(cut, "length")).as_bytes()]);
        let told = lines(&ending.bytes);
        let calls = json!([{"id": "w", "function": {"index": 0, "name": "g", "arguments": {}}}]);
        assert_eq!((&told[0]["message"]["tool_calls"], &told[1]["done_reason"]), (&calls, &json!("length")));
    }
    check(
        &format!("{HI}{}", called("{", "").replace(",\"finish_reason\":\"\"", "")),
        &[hi(), json!({"error": "the node's answer ended before it was complete"})],
        false,
    );
}

#[test]
fn arguments_laid_out_over_lines_stay_one_line() {
    let call = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"{\\n  \\\"x\\\": \\\"a\\\\nb\\\"\\n}\"}}]}}]}\n\ndata: [DONE]\n\n";
    let ending = translated(OllamaChat, 200, SSE, &[call.as_bytes()]);
    let lines = lines(&ending.bytes);
    assert_eq!(
        lines[0]["message"]["tool_calls"],
        json!([{"function": {"index": 0, "name": "f", "arguments": {"x": "a\nb"}}}])
    );
    assert_eq!((lines.len(), ending.end == End::Whole), (2, true));
}
