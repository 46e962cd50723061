//! The roster is complete, and each engine reads its own answers and nobody else's.

mod addition;
mod fixtures;
mod load;
mod recognition;

use super::*;
use crate::routing::report::Abilities;
use fixtures::Server;

const TAGS: &str = r#"{"models":[
  {"name":"moss:7b","model":"moss:7b","modified_at":"2026-01-02T03:04:05.6+01:00","size":4700000000,"digest":"d1",
   "details":{"family":"moss","parameter_size":"7B"},"capabilities":["completion","vision","tools"],"new_field":[1]},
  {"name":"larch-embed:latest","size":270000000,"digest":"d2","capabilities":["embedding"]},
  {"name":"fern:3b","size":2000000000}]}"#;

const PS: &str = r#"{"models":[
  {"name":"moss:7b","size":6500000000,"size_vram":5000000000,"context_length":8192,"expires_at":"2318-01-01T00:00:00Z"},
  {"name":"gone:1b","size":900000000,"size_vram":0,"context_length":4096}]}"#;

fn read(engine: &str, bodies: &[&str]) -> Result<Reading, String> {
    let bodies: Vec<_> = bodies.iter().map(|body| Some(body.as_bytes())).collect();
    (find(engine).unwrap().read)(&bodies)
}

/// What one round at that server gives.
fn round(engine: &str, server: &Server) -> Reading {
    let engine = find(engine).unwrap();
    let bodies: Vec<_> = engine.polls.iter().map(|poll| server.body(poll.path)).collect();
    (engine.read)(&bodies).unwrap()
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
        abilities: Some(Abilities { vision: true, tools: true, embedding: false, thinking: false }),
        ..ModelReport::default()
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
fn check_shown(body: &str, expected: ModelFacts) {
    let inquiry = find("ollama").unwrap().inquiry.as_ref().unwrap();
    assert_eq!((inquiry.read)(body.as_bytes()), Ok(expected), "{body}");
}

#[test]
fn ollama_tells_more_of_a_model_that_it_is_asked_about() {
    let parameters = r#""parameters":"stop   \"<|end|>\"\nnum_ctx                        8192\ntemperature 0.6""#;
    let info = r#""model_info":{"general.architecture":"moss","moss.context_length":131072,"fern.context_length":1}"#;
    let capabilities = r#""capabilities":["completion","tools","thinking"]"#;
    let abilities = Abilities { tools: true, thinking: true, ..Abilities::default() };
    let facts = ModelFacts { abilities: Some(abilities), trained_tokens: Some(131_072), own_window: Some(8192) };
    check_shown(&format!("{{{parameters},{info},{capabilities},\"new\":[1]}}"), facts);
    check_shown("{}", ModelFacts::default());
    check_shown(
        r#"{"model_info":{"general.architecture":"moss"},"parameters":"num_ctx\nnum_ctx x"}"#,
        ModelFacts::default(),
    );
    let inquiry = find("ollama").unwrap().inquiry.as_ref().unwrap();
    for nonsense in ["", "[]", "<html>", r#"{"model_info":7}"#] {
        assert!((inquiry.read)(nonsense.as_bytes()).is_err(), "{nonsense}");
    }
    assert_eq!((inquiry.body)("a\"b"), br#"{"model":"a\"b"}"#);
}

#[test]
fn what_lists_tell_comes_before_what_was_asked() {
    let told = Abilities { vision: true, ..Abilities::default() };
    let mut report = ModelReport { abilities: Some(told), ..ModelReport::default() };
    ModelFacts { abilities: Some(Abilities::default()), trained_tokens: Some(7), own_window: None }
        .complete(&mut report);
    assert_eq!((report.abilities, report.trained_tokens, report.own_window), (Some(told), Some(7), None));
}

#[test]
fn models_that_run_elsewhere_are_not_asked_about() {
    let edition = find("ollama").unwrap().inquiry.as_ref().unwrap().edition;
    let listing = |entry: serde_json::Value| Listing { tags: Some(entry), ..Listing::default() };
    assert_eq!(edition(&listing(serde_json::json!({"digest": "d1"}))), Some("d1"));
    assert_eq!(edition(&listing(serde_json::json!({"digest": "d1", "remote_host": "https://x"}))), None);
    assert_eq!(edition(&listing(serde_json::json!({}))), None);
}

#[test]
fn only_litellm_is_told_not_to_try_again_itself() {
    for engine in ROSTER {
        let expected: &[_] = if engine.name == "litellm" { &[("x-litellm-num-retries", "0")] } else { &[] };
        assert_eq!(engine.headers, expected, "{}", engine.name);
    }
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
    check_refused("ollama", &[empty], "1 of 1 bodies");
    check_refused("openai", &[r#"{"object":"list"}"#], "/v1/models: no `data`");
    check_refused("openai", &[r#"{"data":[{"name":"x"}]}"#], "id");
    check_refused("openai", &[r#"{"data":[{"id":"x","max_model_len":"many"}]}"#], "expected u64");
    check_refused("openai", &[&format!(r#"{{"data":[{}0]}}"#, "0,".repeat(MODELS_MAX))], "more than");
    check_refused("openai", &[], "0 of 0 bodies");
    check_refused("vllm", &["<html>", "vllm:num_requests_running 1", "{}"], "/v1/models: not JSON");
}

#[test]
fn one_odd_entry_does_not_empty_a_node() {
    for odd in [r#"{"name":""}"#, "{}", "7", r#"["x"]"#, r#"{"name":"x","size":"7"}"#] {
        let tags = format!(r#"{{"models":[{odd},{{"name":"moss:7b"}}]}}"#);
        let reading = read("ollama", &[&tags, PS]).unwrap();
        let names: Vec<_> = reading.report.models.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(names, ["gone:1b", "moss:7b"], "{odd}");
    }
    for odd in [r#"{"id":""}"#, "{}", "null", r#"{"id":7}"#] {
        let reading = read("openai", &[&format!(r#"{{"data":[{odd},{{"id":"a"}}]}}"#)]).unwrap();
        assert_eq!((reading.report.models.len(), &*reading.report.models[0].name), (1, "a"), "{odd}");
    }
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

/// The one model of that server.
fn only(reading: &Reading) -> &ModelReport {
    let [only] = &reading.report.models[..] else { panic!("{:?}", reading.report.models) };
    only
}

#[test]
fn llama_cpp_tells_slots_and_the_window_of_one() {
    let reading = round("llama_cpp", &fixtures::llama_cpp());
    let model = only(&reading);
    assert_eq!((model.name.as_str(), model.resident, model.context_tokens), ("moss-7b.gguf", true, Some(4096)));
    assert_eq!(
        model.abilities,
        Some(Abilities { vision: true, tools: true, embedding: true, thinking: true }),
        "only vision is told"
    );
    assert_eq!(reading.report.slots, Some(4));

    let blind = round("llama_cpp", &fixtures::llama_cpp().without("/props"));
    assert_eq!((only(&blind).context_tokens, only(&blind).abilities), (Some(8192), None));
    assert_eq!(blind.report.slots, None);
}

#[test]
fn llama_cpp_may_sleep_or_route() {
    let props = fixtures::LLAMA_CPP_PROPS.replace(r#""is_sleeping":false"#, r#""is_sleeping":true"#);
    let asleep = round("llama_cpp", &fixtures::llama_cpp().and("/props", &props));
    assert!(!only(&asleep).resident);

    let router = round("llama_cpp", &fixtures::llama_cpp_router());
    let residents: Vec<_> = router.report.models.iter().map(|model| (model.name.as_str(), model.resident)).collect();
    assert_eq!(residents, [("fern-3b", true), ("moss-7b", false)]);
    assert_eq!((router.report.slots, router.report.models[0].context_tokens), (None, None));
}

#[test]
fn vllm_tells_windows_and_adapters() {
    let reading = round("vllm", &fixtures::vllm());
    let names: Vec<_> = reading.report.models.iter().map(|model| (model.name.as_str(), model.context_tokens)).collect();
    assert_eq!(names, [("org/moss-7b", Some(32_768)), ("sql", None)]);
    assert_eq!(reading.report.slots, None);
}

#[test]
fn sglang_tells_its_slots_in_several_places() {
    let slots = |server: &Server| round("sglang", server).report.slots;
    let server = fixtures::sglang();
    assert_eq!(slots(&server), Some(128), "two ranks of 64");
    let older = server.without("/v1/loads?include=core");
    assert_eq!(slots(&older), Some(96), "two ranks of 48");
    let oldest = older.and("/server_info", r#"{"max_running_requests":32,"internal_states":[{}]}"#);
    assert_eq!(slots(&oldest), Some(32));
    let unset = older.and("/server_info", r#"{"max_running_requests":null,"version":"0.4.1"}"#);
    assert_eq!(slots(&unset), None);
    assert_eq!(slots(&older.and("/server_info", "{}")), None);
}

#[test]
fn litellm_answers_from_any_deployment_of_a_name() {
    let server = fixtures::litellm();
    let windows = |server: &Server| {
        let models = round("litellm", server).report.models;
        models.into_iter().map(|model| model.context_tokens).collect::<Vec<_>>()
    };
    assert_eq!(windows(&server), [Some(32_768), None], "the smaller of two, and one unknown");
    assert_eq!(windows(&server.without("/model/info")), [None, None]);
    assert_eq!(windows(&server.and("/model/info", r#"{"data":[7]}"#)), [None, None]);
}

#[test]
fn every_engine_keeps_the_entries_it_lists() {
    for (engine, server) in fixtures::all() {
        let reading = round(engine, &server);
        assert!(!reading.listings.is_empty(), "{engine}");
        for (report, listing) in reading.report.models.iter().zip(&reading.listings) {
            assert_eq!(report.name, listing.name, "{engine}");
            let entries = [&listing.openai, &listing.tags, &listing.ps];
            assert!(entries.iter().any(|entry| entry.is_some()), "{engine}");
        }
    }
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
        assert!(engine.polls.iter().any(|poll| poll.required), "{}", engine.name);
        assert!(paths(engine).all(|path| path.starts_with('/')), "{}", engine.name);
        let more = vec![Some(&b"{}"[..]); engine.polls.len() + 1];
        assert!((engine.read)(&more).is_err(), "{} reads any number of bodies", engine.name);
        let none = vec![None; engine.polls.len()];
        assert!((engine.read)(&none).is_err(), "{} reads nothing at all", engine.name);
    }
    assert!(find("Ollama").is_none());
}

fn paths(engine: &Engine) -> impl Iterator<Item = &'static str> {
    let polls = engine.polls.iter().map(|poll| poll.path);
    polls.chain([engine.probe.path, engine.fingerprint_path]).chain(engine.probe.older_path)
}

/// Beyond GETs one question is asked, of one engine: Ollama's `/api/show`, which reads a model's file and
/// loads nothing.
#[test]
fn hlt_15_no_question_wakes_or_costs() {
    for engine in ROSTER {
        let inquiry = engine.inquiry.as_ref().map(|inquiry| inquiry.path);
        assert_eq!(inquiry, (engine.name == "ollama").then_some("/api/show"), "{}", engine.name);
        assert!(!paths(engine).any(|path| path.starts_with("/slots")), "{}: wakes a sleeping llama.cpp", engine.name);
    }
    assert!(!paths(find("litellm").unwrap()).any(|path| path == "/health"), "pays for a request to every model");
    let sglang = &find("sglang").unwrap().probe;
    assert!(sglang.path != "/health" && sglang.patience >= Duration::from_secs(5), "makes a token, in seconds");
}

#[test]
fn an_engine_that_is_added_is_known_everywhere() {
    for engine in ROSTER {
        let yaml = format!("upstreams: [{{name: a, url: 'http://a', engine: {}}}]", engine.name);
        let plan = crate::config::parse(&yaml, std::path::Path::new("x.yaml")).unwrap();
        assert_eq!(plan.upstreams[0].engine, Some(engine.name));
        assert!(fixtures::all().iter().any(|(name, _)| *name == engine.name), "no answers of {} to test", engine.name);
    }
}
