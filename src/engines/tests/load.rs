//! How busy a server says it is.

use super::fixtures::{self, Server};
use super::*;

#[track_caller]
fn check(engine: &str, server: &Server, expected: Option<(u32, u32)>) {
    let load = round(engine, server).report.load;
    assert_eq!(load.map(|load| (load.running, load.waiting)), expected);
}

#[test]
fn each_engine_counts_in_its_own_words() {
    check("llama_cpp", &fixtures::llama_cpp(), Some((4, 46)));
    check("vllm", &fixtures::vllm(), Some((8, 2)));
    check("sglang", &fixtures::sglang(), Some((9, 1)));
    check("litellm", &fixtures::litellm(), None);
    check("ollama", &fixtures::ollama(), None);
    check("openai", &fixtures::openai(), None);
}

#[test]
fn ranks_add_up_and_what_is_told_twice_counts_once() {
    check("sglang", &fixtures::sglang().without("/v1/loads?include=core"), Some((7, 3)));
}

#[test]
fn names_of_other_versions_and_collectors_are_known() {
    let vllm = |metrics: &str| fixtures::vllm().and("/metrics", metrics);
    check("vllm", &vllm("vllm_num_requests_running 2\nvllm_num_requests_waiting 1\n"), Some((2, 1)));
    let version_0 = "vllm:num_requests_running{model_name=\"a\"} 2\nvllm:num_requests_swapped{model_name=\"a\"} 3\n";
    check("vllm", &vllm(version_0), Some((2, 3)));
    let sglang = fixtures::sglang().without("/v1/loads?include=core");
    let loads_as_text = "sglang_num_running_reqs{dp_rank=\"0\"} 2\nsglang_num_waiting_reqs{dp_rank=\"0\"} 5\n";
    check("sglang", &sglang.and("/metrics", loads_as_text), Some((2, 5)));
}

#[track_caller]
fn check_rank(engine: &str, server: &Server, number: u32, slots: Option<u32>, load: Option<(u32, u32)>) {
    let reading = round(engine, server);
    let report = reading.of_rank(number);
    assert_eq!(report.models, reading.report.models, "every rank has them all");
    assert_eq!(
        (report.slots, report.load.map(|load| (load.running, load.waiting))),
        (slots, load),
        "{engine} {number}"
    );
}

#[test]
fn ranks_are_counted_apart() {
    check_rank("vllm", &fixtures::vllm(), 0, None, Some((5, 2)));
    check_rank("vllm", &fixtures::vllm(), 1, None, Some((3, 0)));
    check_rank("sglang", &fixtures::sglang(), 0, Some(64), Some((7, 1)));
    check_rank("sglang", &fixtures::sglang(), 1, Some(64), Some((2, 0)));
    let metrics_only = fixtures::sglang().without("/v1/loads?include=core");
    check_rank("sglang", &metrics_only, 0, None, Some((6, 3)));
    check_rank("sglang", &metrics_only, 1, None, Some((1, 0)));
}

#[test]
fn a_rank_of_which_nothing_is_told_is_unknown() {
    check_rank("vllm", &fixtures::vllm(), 2, None, None);
    let whole_only = fixtures::vllm().and("/metrics", "vllm:num_requests_running 4\n");
    check_rank("vllm", &whole_only, 0, None, None);
    let unnumbered = r#"{"loads":[{"num_running_reqs":7,"num_waiting_reqs":1,"max_running_requests":64}]}"#;
    check_rank("sglang", &fixtures::sglang().and("/v1/loads?include=core", unnumbered), 0, None, None);
}

#[test]
fn unknown_is_not_idle() {
    let vllm = |metrics: &str| fixtures::vllm().and("/metrics", metrics);
    check("vllm", &fixtures::vllm().without("/metrics"), None);
    check("vllm", &vllm("<html>not found</html>"), None);
    check("vllm", &vllm("vllm:num_requests_waiting 4\n"), None);
    check("vllm", &vllm("vllm:num_requests_running NaN\n"), None);
    check("vllm", &vllm("vllm:num_requests_running -1\n"), None);
    check("vllm", &vllm("vllm:num_requests_running 1e99\n"), Some((u32::MAX, 0)));
    let sglang = fixtures::sglang().without("/metrics");
    check("sglang", &sglang.and("/v1/loads?include=core", r#"{"loads":[]}"#), None);
    check("sglang", &sglang.and("/v1/loads?include=core", r#"{"loads":[{"dp_rank":0}]}"#), None);
}

#[test]
fn parts_are_bounded() {
    let line = |n: usize| format!("vllm:num_requests_running{{engine=\"{n}\"}} 1\n");
    let many: String = (0..2 * PARTS_MAX).map(line).collect();
    check("vllm", &fixtures::vllm().and("/metrics", &many), Some((PARTS_MAX as u32, 0)));
}
