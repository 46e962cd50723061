//! What the names over several models may and may not be.

use std::path::Path;

use super::super::{Group, GroupTarget, Policy, parse};
use super::*;

const UPSTREAMS: &str = "upstreams: [{name: studio, url: 'http://a'}, {name: gpu1, url: 'http://b'}]\n";

/// The problems of the text of `models:`, exactly; lines count from the first one below the upstreams.
#[track_caller]
fn check(models: &str, expected: &[&str]) {
    let shown = match parse(&format!("{UPSTREAMS}{models}"), Path::new("x.yaml")) {
        Ok(_) => String::new(),
        Err(problems) => problems.to_string(),
    };
    let shown: Vec<&str> = shown.lines().map(|line| line.trim_start_matches("x.yaml:")).collect();
    assert_eq!(shown, expected, "{models}");
}

/// The one problem of a name, beyond its place.
#[track_caller]
fn check_name(name: &str, expected: Option<&str>) {
    let expected = expected.map(|expected| format!("2: models[0].name: {expected}"));
    let text = format!("models: [{{name: {name}, targets: [{{upstream: gpu1, model: m}}]}}]");
    check(&text, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The one problem of a target for the name `n*`, beyond its place.
#[track_caller]
fn check_target(target: &str, expected: Option<&str>) {
    let expected = expected.map(|expected| format!("2: models[0].targets[0].{expected}"));
    let text = format!("models: [{{name: n*, targets: [{{{target}}}]}}]");
    check(&text, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The problems of the fallbacks of `chat`.
#[track_caller]
fn check_fallbacks(fallbacks: &str, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|expected| format!("2: models[0].fallbacks{expected}")).collect();
    let text = format!("models: [{{name: chat, targets: [{{upstream: gpu1, model: m}}], fallbacks: {fallbacks}}}]");
    check(&text, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn values_reach_the_plan() {
    let text = "\
models:
  - name: chat-large
    targets:
      - {upstream: studio, model: 'qwen3:32b', weight: 2, rpm: 60, tpm: 100000, cost: 0.2}
      - {upstream: gpu1, model: Qwen/Qwen3-32B}
    fallbacks: [chat-small, 'qwen3:4b']
    policy: least-busy
  - {name: 'qwen*', targets: [{upstream: studio, model: 'qwen*'}], fallbacks: , policy: }
";
    let plan = parse(&format!("{UPSTREAMS}{text}"), Path::new("x.yaml")).unwrap();
    let on_gpu1 = GroupTarget::new("gpu1".into(), "Qwen/Qwen3-32B".into());
    let on_studio = GroupTarget {
        upstream: "studio".into(),
        model: "qwen3:32b".into(),
        weight: 2.0,
        rpm: Some(60),
        tpm: Some(100_000),
        cost: Some(0.2),
    };
    let large = Group {
        name: "chat-large".into(),
        targets: vec![on_studio, on_gpu1],
        fallbacks: vec!["chat-small".into(), "qwen3:4b".into()],
        policy: Some(Policy::LeastBusy),
    };
    let targets = vec![GroupTarget::new("studio".into(), "qwen*".into())];
    let family = Group { name: "qwen*".into(), targets, fallbacks: vec![], policy: None };
    assert_eq!(plan.models, [large, family]);
}

#[test]
fn every_problem_is_reported_at_once() {
    let text = "\
models:
  - nam: x
    targets:
  - name: a
    targets: []
    policy: flet
  - name: b
    targets:
      - {upstream: studoi, weight: -1}
      - {model: m, rpm: 0, tpm: -1}
      -
  - just text
";
    check(
        text,
        &[
            "3: models[0].nam: unknown key; did you mean name?",
            "3: models[0].name: missing; what clients will ask for, like chat-large",
            "4: models[0].targets: missing; at least one, with the keys upstream and model",
            "6: models[1].targets: has 0 items; write 1 to 256",
            "7: models[1].policy: `flet` is not known; did you mean fleet?",
            "10: models[2].targets[0].upstream: no upstream is named `studoi`; did you mean studio?",
            "10: models[2].targets[0].weight: must not be negative; 0 takes it out of the shuffle",
            "10: models[2].targets[0].model: missing; what the upstream calls it",
            "11: models[2].targets[1].tpm: `-1` is not a whole number from 0 to 4294967295",
            "11: models[2].targets[1].rpm: must be at least 1; leave it out for no limit",
            "11: models[2].targets[1].upstream: missing; the name of an upstream",
            "12: models[2].targets[2].upstream: missing; the name of an upstream",
            "12: models[2].targets[2].model: missing; what the upstream calls it",
            "13: models[3]: expected a section with keys, found text",
        ],
    );
}

#[test]
fn names() {
    let bytes = "must be 1 to 256 bytes without control characters";
    check_name("Qwen/Qwen3-32B", None);
    check_name("''", Some(bytes));
    check_name(&"x".repeat(256), None);
    check_name(&"é".repeat(129), Some(bytes));
    check_name(r#""a\tb""#, Some(bytes));
    check_name(r#""a\x85b""#, Some(bytes));
    check_name("'*'", None);
    check_name("gpt-*", None);
    check_name("gpt-*-mini", Some("may have a * only at its end; write it like qwen3*"));
    check_name("gpt-**", Some("may have a * only at its end; write it like qwen3*"));
    check_name("7", Some("expected text, found a number; put it in quotes"));
}

#[test]
fn names_that_are_the_same() {
    let targets = "targets: [{upstream: gpu1, model: m}]";
    let same = |first: &str, second: &str, expected: &[&str]| {
        check(&format!("models:\n  - {{name: '{first}', {targets}}}\n  - {{name: '{second}', {targets}}}\n"), expected);
    };
    let problem =
        "4: models[1].name: the same as models[0].name; neither case nor :latest at the end tells two names apart";
    same("chat", "chat", &[problem]);
    same("chat", "Chat:latest", &[problem]);
    same("chat*", "CHAT*", &[problem]);
    same("chat", "chat:7b", &[]);
    same("chat", "chat*", &[]);
}

#[test]
fn targets() {
    check_target("upstream: gpu1, model: m, weight: 0, cost: 0, rpm: 1, tpm: 1", None);
    check_target("upstream: Gpu1, model: m", Some("upstream: no upstream is named `Gpu1`; did you mean gpu1?"));
    check_target("upstream: x, model: m", Some("upstream: no upstream is named `x`; known here: gpu1, studio"));
    check_target("upstream: gpu1, model: ''", Some("model: must be 1 to 256 bytes without control characters"));
    check_target("upstream: gpu1, model: 'a-*-b'", None);
    check_target("upstream: gpu1, model: 'a*b*'", Some("model: has more than one *"));
    check_target("upstream: gpu1, model: m, weight: .inf", Some("weight: must be a finite number"));
    check_target("upstream: gpu1, model: m, cost: .nan", Some("cost: must be a finite number"));
    check_target("upstream: gpu1, model: m, cost: -0.1", Some("cost: must not be negative; 0 is free"));
    check_target("upstream: gpu1, model: m, tpm: 0", Some("tpm: must be at least 1; leave it out for no limit"));
    check_target(
        "upstream: gpu1, model: m, price: 1",
        Some("price: unknown key; known here: upstream, model, weight, rpm, tpm, cost"),
    );
}

#[test]
fn targets_beside_the_rest() {
    check(
        "models: [{name: n, targets: [{upstream: gpu1, model: 'm*'}]}]",
        &[
            "2: models[0].targets[0].model: has a * but the name has none; it stands for what the * of the name stood for",
        ],
    );
    check(
        "models: [{name: n, targets: [{upstream: gpu1, model: m}, {upstream: studio, model: m}, {upstream: gpu1, model: m, weight: 2}]}]",
        &["2: models[0].targets[2]: the same as models[0].targets[0]; write it once, with the weight of both"],
    );
    let alone = parse("models: [{name: n, targets: [{upstream: a, model: m}]}]", Path::new("x.yaml"));
    let expected = "x.yaml:1: models[0].targets[0].upstream: no upstream is named `a`; name it under upstreams first";
    assert_eq!(alone.unwrap_err().to_string(), expected);
}

#[test]
fn fallbacks() {
    check_fallbacks("[]", &[]);
    check_fallbacks("[a, b, 'chat:7b', d, e]", &[]);
    check_fallbacks("[a, b, c, d, e, f]", &[": has 6 items; resilience.max_fallbacks allows 5"]);
    check_fallbacks("[a, CHAT:latest]", &["[1]: is the model itself; name another one, or leave it out"]);
    check_fallbacks("['a*']", &["[0]: must not have a *; name one model"]);
    check_fallbacks("['']", &["[0]: must be 1 to 256 bytes without control characters"]);
    check_fallbacks("[{name: a}]", &["[0]: expected text, found a section with keys"]);
    check_fallbacks(
        "[a, b, A:latest]",
        &["[2]: the same as models[0].fallbacks[0]; neither case nor :latest at the end tells two names apart"],
    );
}

#[test]
fn fallbacks_within_what_resilience_allows() {
    let chat = "models: [{name: chat, targets: [{upstream: gpu1, model: m}], fallbacks: [a, b]}]\n";
    check(&format!("{chat}resilience: {{max_fallbacks: 2}}"), &[]);
    check(
        &format!("{chat}resilience: {{max_fallbacks: 1}}"),
        &["2: models[0].fallbacks: has 2 items; resilience.max_fallbacks allows 1"],
    );
}

#[test]
fn counts() {
    let targets = |count: usize| (0..count).map(|n| format!("{{upstream: gpu1, model: m{n}}},")).collect::<String>();
    let groups = |count: usize| {
        let group = |n| format!("{{name: n{n}, targets: [{}]}},", targets(1));
        (0..count).map(group).collect::<String>()
    };
    check(&format!("models: [{{name: n, targets: [{}]}}]", targets(TARGETS_MAX)), &[]);
    check(
        &format!("models: [{{name: n, targets: [{}]}}]", targets(TARGETS_MAX + 1)),
        &["2: models[0].targets: has 257 items; write 1 to 256"],
    );
    check(&format!("models: [{}]", groups(MODELS_MAX)), &[]);
    check(&format!("models: [{}]", groups(MODELS_MAX + 1)), &["2: models: has 1025 items; write 0 to 1024"]);
}
