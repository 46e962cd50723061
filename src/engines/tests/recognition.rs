//! Servers are known by their answers, and none is taken for another.

use super::fixtures::{self, Server};
use super::*;

#[track_caller]
fn check(server: &Server, expected: Option<&str>) {
    let by = detection_order().find(|engine| server.body(engine.fingerprint_path).is_some_and(engine.recognises));
    assert_eq!(by.map(|engine| engine.name), expected);
}

#[test]
fn every_engine_is_known_by_its_answers() {
    for (engine, server) in fixtures::all() {
        check(&server, Some(engine));
    }
    check(&fixtures::llama_cpp_router(), Some("llama_cpp"));
}

#[test]
fn only_its_own_answers_count() {
    for (engine, server) in fixtures::all() {
        for other in ROSTER.iter().filter(|other| other.name != engine && !other.generic) {
            let mistaken = server.body(other.fingerprint_path).is_some_and(other.recognises);
            assert!(!mistaken, "{} takes {engine} for itself", other.name);
        }
    }
}

#[test]
fn lookalikes_are_nothing_particular() {
    let models = |body: &str| fixtures::openai().and("/v1/models", body);
    let mixed = r#"{"data":[{"id":"a","owned_by":"vllm"},{"id":"b","owned_by":"openai"}]}"#;
    check(&models(mixed), Some("openai"));
    check(&models(r#"{"object":"list","data":[]}"#), Some("openai"));
    check(&models(r#"{"error":{"message":"no key"}}"#), None);
    let openai = fixtures::openai();
    check(&openai.and("/api/version", r#"{"version":7}"#), Some("openai"));
    check(&openai.and("/api/version", r#"{"version":"unknown"}"#), Some("openai"));
    check(&openai.and("/api/version", "<html>0.33</html>"), Some("openai"));
    check(&openai.and("/props", r#"{"total_slots":4}"#), Some("openai"));
    check(&openai.and("/health/liveliness", r#"{"status":"I'm alive!"}"#), Some("openai"));
    let page = "<!doctype html><title>Welcome</title>";
    let pages = ROSTER.iter().fold(openai, |server, engine| server.and(engine.fingerprint_path, page));
    check(&pages, None);
}

#[test]
fn what_others_imitate_is_tried_last() {
    let order: Vec<_> = detection_order().collect();
    assert_eq!(order.len(), ROSTER.len());
    assert!(order.is_sorted_by_key(|engine| engine.generic));
}

#[test]
fn hlt_04_probes_take_their_own_answer_and_no_page() {
    for (engine, server) in fixtures::all() {
        let probe = &find(engine).unwrap().probe;
        assert!((probe.says_up)(server.body(probe.path).unwrap()), "{engine}");
        assert!(!(probe.says_up)(b"<html>hello</html>"), "{engine}");
    }
}

#[track_caller]
fn check_loading(engine: &str, body: &str, expected: bool) {
    assert_eq!((find(engine).unwrap().probe.says_loading)(body.as_bytes()), expected, "{body}");
}

#[test]
fn hlt_03_loading_is_told_from_broken() {
    let now = r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;
    check_loading("llama_cpp", now, true);
    check_loading("llama_cpp", r#"{"status":"loading model"}"#, true);
    check_loading("llama_cpp", r#"{"error":{"code":503,"message":"no slot available"}}"#, false);
    check_loading("llama_cpp", "upstream is down", false);
    check_loading("sglang", "", true);
    check_loading("vllm", "", false);
    check_loading("ollama", r#"{"error":"server busy"}"#, false);
}
