//! The roster is complete, and each engine reads its own answers and nobody else's.

use super::*;
use crate::routing::report::{Abilities, ModelReport};

const TAGS: &str = r#"{"models":[
  {"name":"moss:7b","model":"moss:7b","modified_at":"2026-01-02T03:04:05.6+01:00","size":4700000000,"digest":"d1",
   "details":{"family":"moss","parameter_size":"7B"},"capabilities":["completion","vision","tools"],"new_field":[1]},
  {"name":"larch-embed:latest","size":270000000,"digest":"d2","capabilities":["embedding"]},
  {"name":"fern:3b","size":2000000000}]}"#;

const PS: &str = r#"{"models":[
  {"name":"moss:7b","size":6500000000,"size_vram":5000000000,"context_length":8192,"expires_at":"2318-01-01T00:00:00Z"},
  {"name":"gone:1b","size":900000000,"size_vram":0,"context_length":4096}]}"#;

fn read(engine: &str, bodies: &[&str]) -> Result<Reading, String> {
    let bodies: Vec<&[u8]> = bodies.iter().map(|body| body.as_bytes()).collect();
    (find(engine).unwrap().read)(&bodies)
}

fn model(reading: &Reading, name: &str) -> ModelReport {
    reading.report.models.iter().find(|m| m.name == name).unwrap().clone()
}

#[test]
fn ollama_tells_disk_and_memory() {
    let reading = read("ollama", &[TAGS, PS]).unwrap();
    let names: Vec<_> = reading.listings.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["fern:3b", "gone:1b", "larch-embed:latest", "moss:7b"]);
    let moss = ModelReport {
        name: "moss:7b".to_string(),
        resident: true,
        size_bytes: Some(4_700_000_000),
        resident_bytes: Some(6_500_000_000),
        context_tokens: Some(8192),
        abilities: Some(Abilities { vision: true, tools: true, embedding: false }),
    };
    assert_eq!(model(&reading, "moss:7b"), moss);
    let fern = model(&reading, "fern:3b");
    assert_eq!((fern.resident, fern.resident_bytes, fern.abilities), (false, None, None));
    assert!(model(&reading, "larch-embed:latest").abilities.unwrap().embedding);
    assert!(model(&reading, "gone:1b").resident, "in memory, deleted from disk");
    assert_eq!(reading.report.slots, None);
}

#[test]
fn listings_keep_entries_untouched() {
    let reading = read("ollama", &[TAGS, PS]).unwrap();
    let moss = reading.listings.iter().find(|l| l.name == "moss:7b").unwrap();
    assert_eq!(moss.tags.as_ref().unwrap()["new_field"], serde_json::json!([1]));
    assert_eq!(moss.ps.as_ref().unwrap()["size_vram"], 5_000_000_000_u64);
    assert_eq!(moss.openai, None);
}

#[track_caller]
fn check_context(entry: &str, expected: Option<u32>) {
    let body = format!(r#"{{"object":"list","data":[{entry}]}}"#);
    let reading = read("openai", &[&body]).unwrap();
    let report = &reading.report.models[0];
    assert_eq!((report.context_tokens, report.resident), (expected, true));
    assert!(reading.listings[0].openai.is_some());
}

#[test]
fn openai_servers_tell_their_context_in_different_places() {
    check_context(r#"{"id":"a","object":"model","created":1,"owned_by":"x"}"#, None);
    check_context(r#"{"id":"a","max_model_len":32768,"root":"/models/a"}"#, Some(32_768));
    check_context(r#"{"id":"a","meta":{"n_ctx_train":131072,"n_params":1}}"#, Some(131_072));
    check_context(r#"{"id":"a","meta":{"n_ctx_train":131072,"n_ctx":4096}}"#, Some(4096));
    check_context(r#"{"id":"a","meta":null,"max_model_len":null}"#, None);
    check_context(r#"{"id":"a","max_model_len":99999999999}"#, Some(u32::MAX));
    check_context(r#"{"id":"a","max_model_len":0}"#, None);
}

#[track_caller]
fn check_refused(engine: &str, bodies: &[&str], why: &str) {
    let error = read(engine, bodies).unwrap_err();
    assert!(error.contains(why), "{error:?} does not contain {why:?}");
}

#[test]
fn a_failed_poll_is_not_an_empty_node() {
    let empty = r#"{"models":[]}"#;
    check_refused("ollama", &["<html>gateway timeout</html>", empty], "/api/tags: not JSON");
    check_refused("ollama", &[&TAGS[..200], empty], "/api/tags: not JSON");
    check_refused("ollama", &[empty, ""], "/api/ps: not JSON");
    check_refused("ollama", &[empty, "[]"], "/api/ps: not a JSON object");
    check_refused("ollama", &[r#"{"error":"busy"}"#, empty], "no `models`");
    check_refused("ollama", &[r#"{"models":{}}"#, empty], "not a list");
    check_refused("ollama", &[r#"{"models":[{"model":"x"}]}"#, empty], "name");
    check_refused("ollama", &[r#"{"models":[{"name":""}]}"#, empty], "empty name");
    check_refused("ollama", &[r#"{"models":[{"name":"x","size":"7"}]}"#, empty], "expected u64");
    check_refused("ollama", &[r#"{"models":[{"name":"x","size":-7}]}"#, empty], "expected u64");
    check_refused("ollama", &[r#"{"models":[["x"]]}"#, empty], "not an object");
    check_refused("ollama", &[empty], "1 bodies");
    check_refused("openai", &[r#"{"object":"list"}"#], "/v1/models: no `data`");
    check_refused("openai", &[r#"{"data":[{"name":"x"}]}"#], "id");
    check_refused("openai", &[r#"{"data":[{"id":"x","max_model_len":"many"}]}"#], "expected u64");
    check_refused("openai", &[&format!(r#"{{"data":[{}0]}}"#, "0,".repeat(MODELS_MAX))], "more than");
    check_refused("openai", &[], "0 bodies");
}

#[test]
fn an_empty_list_counts_when_it_was_read() {
    for none in [r#"{"models":[]}"#, r#"{"models":null}"#] {
        assert_eq!(read("ollama", &[none, none]), Ok(Reading::default()));
    }
    assert_eq!(read("openai", &[r#"{"object":"list","data":[]}"#]), Ok(Reading::default()));
}

#[test]
fn a_name_listed_twice_is_one_model() {
    let twice = r#"{"models":[{"name":"x","size":1},{"name":"x","size":2}],"data":[{"id":"x"},{"id":"x"}]}"#;
    assert_eq!(read("ollama", &[twice, twice]).unwrap().report.models.len(), 1);
    assert_eq!(read("openai", &[twice]).unwrap().report.models.len(), 1);
}

#[track_caller]
fn check_recognised(path: &str, body: &str, expected: Option<&str>) {
    let by = detection_order().find(|e| e.fingerprint_path == path && (e.recognises)(body.as_bytes()));
    assert_eq!(by.map(|engine| engine.name), expected);
}

#[test]
fn engines_are_known_by_their_answers() {
    check_recognised("/api/version", r#"{"version":"0.33.0-rc2"}"#, Some("ollama"));
    check_recognised("/api/version", r#"{"version":7}"#, None);
    check_recognised("/api/version", r#"{"version":"unknown"}"#, None);
    check_recognised("/api/version", "<html>0.33</html>", None);
    check_recognised("/v1/models", r#"{"object":"list","data":[]}"#, Some("openai"));
    check_recognised("/v1/models", r#"{"error":{"message":"no key"}}"#, None);
}

#[test]
fn what_others_imitate_is_tried_last() {
    let order: Vec<_> = detection_order().collect();
    assert_eq!(order.len(), ROSTER.len());
    assert!(order.is_sorted_by_key(|engine| engine.generic));
}

#[test]
fn an_engine_is_one_file_and_one_roster_line() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engines");
    let file_names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut files: Vec<String> =
        file_names.filter_map(|name| Some(name.to_str()?.strip_suffix(".rs")?.to_string())).collect();
    files.retain(|name| name != "tests");
    files.sort();
    let roster: Vec<&str> = ROSTER.iter().map(|engine| engine.name).collect();
    assert_eq!(roster, files, "alphabetical, and complete");
}

#[test]
fn every_engine_is_usable_as_data() {
    for engine in ROSTER {
        assert!(std::ptr::eq(find(engine.name).unwrap(), *engine));
        assert!(!engine.dialects.is_empty() && engine.default_slots > 0, "{}", engine.name);
        let paths = [engine.probe_path, engine.fingerprint_path];
        assert!(engine.poll_paths.iter().chain(&paths).all(|path| path.starts_with('/')), "{}", engine.name);
        let short = vec![&b"{}"[..]; engine.poll_paths.len() + 1];
        assert!((engine.read)(&short).is_err(), "{} reads any number of bodies", engine.name);
    }
    assert!(find("Ollama").is_none());
}
